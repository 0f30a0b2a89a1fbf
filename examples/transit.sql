-- The six jobs of the transit application in SQL. Each gives what its job in Python gives (docs/jobs.md).
--
--   headrace sql -f examples/transit.sql --check
--   headrace sql -f examples/transit.sql
--
-- Results go to topics of their own: sql.vehicle-distribution and so on.

CREATE TABLE positions (
  vehicle_id STRING, line STRING, route STRING, direction INT, trip_start STRING, next_stop STRING,
  latitude DOUBLE, longitude DOUBLE, speed DOUBLE, acceleration DOUBLE,
  ts TIMESTAMP(3) METADATA FROM 'event-time' VIRTUAL,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'input.vehicle-position', 'format' = 'headrace', 'headrace.type' = 'VehiclePosition');

CREATE TABLE stop_events (
  event_type STRING, delay BIGINT, latitude DOUBLE, longitude DOUBLE,
  ts TIMESTAMP(3) METADATA FROM 'event-time' VIRTUAL,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'input.stop-event', 'format' = 'headrace', 'headrace.type' = 'StopEvent');

CREATE VIEW located AS
SELECT *, H3_CELL(latitude, longitude, 9) AS cell FROM positions;

-- How many vehicles are where: the newest cell of each vehicle in the last 30 s, counted per cell, every 5 s.
CREATE VIEW vehicle_distribution AS
SELECT cell, window_start, window_end, COUNT(*) AS vehicles FROM (
  SELECT vehicle_id, window_start, window_end, MAX_BY(cell, ts) AS cell
  FROM TABLE(HOP(TABLE located, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '30' SECOND))
  WHERE cell IS NOT NULL
  GROUP BY vehicle_id, window_start, window_end)
GROUP BY cell, window_start, window_end;

-- How late vehicles arrive, and where.
CREATE VIEW arrivals AS
SELECT delay, ts, H3_CELL(latitude, longitude, 9) AS cell FROM stop_events
WHERE event_type = 'ARS' AND delay IS NOT NULL;

CREATE VIEW delay_distribution AS
SELECT cell, window_start, window_end, COUNT(*) AS arrivals, APPROX_PERCENTILE(delay, 0.5) AS p50,
  APPROX_PERCENTILE(delay, 0.9) AS p90, APPROX_PERCENTILE(delay, 0.99) AS p99
FROM TABLE(HOP(TABLE arrivals, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '5' MINUTE))
WHERE cell IS NOT NULL
GROUP BY cell, window_start, window_end;

-- Where traffic flows: the neighbour that most vehicles went on to from each cell in the last 5 min.
CREATE VIEW moves AS
SELECT H3_LINE(came_from, cell, 10) AS way, ts FROM (
  SELECT cell, ts, LAG(cell) OVER (PARTITION BY vehicle_id ORDER BY ts) AS came_from,
    LAG(ts) OVER (PARTITION BY vehicle_id ORDER BY ts) AS came_at
  FROM located WHERE cell IS NOT NULL)
WHERE came_from <> cell AND came_at >= ts - INTERVAL '5' MINUTE;

CREATE VIEW steps AS
SELECT u.cell, way[u.place + 1] AS neighbour, ts
FROM moves CROSS JOIN UNNEST(way) WITH ORDINALITY AS u (cell, place)
WHERE u.place < CARDINALITY(way);

CREATE VIEW flows AS
SELECT cell, neighbour, window_start, window_end, COUNT(*) AS vehicles
FROM TABLE(HOP(TABLE steps, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '5' MINUTE))
GROUP BY cell, neighbour, window_start, window_end;

CREATE VIEW flow_direction AS
SELECT most.cell, most.neighbour, most.window_start, most.window_end, most.vehicles, together.departures,
  CAST(most.vehicles AS DOUBLE) / together.departures AS share
FROM (
  SELECT * FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, cell ORDER BY vehicles DESC, neighbour) AS n
    FROM flows)
  WHERE n = 1) AS most
JOIN (
  SELECT cell, window_start, window_end, SUM(vehicles) AS departures FROM flows GROUP BY cell, window_start, window_end
) AS together
ON most.cell = together.cell AND most.window_start = together.window_start AND most.window_end = together.window_end;

-- Emergency stops: from 10 m/s to below 1 m/s within 10 s, braking all the way.
CREATE VIEW emergency_stops AS
SELECT vehicle_id, line, stopped, latitude, longitude, speed, duration, deceleration,
  H3_CELL(latitude, longitude, 9) AS cell
FROM positions MATCH_RECOGNIZE (
  PARTITION BY vehicle_id
  ORDER BY ts
  MEASURES
    stopped.ts AS stopped, stopped.line AS line, stopped.latitude AS latitude, stopped.longitude AS longitude,
    cruising.speed AS speed, date_diff('millisecond', cruising.ts, stopped.ts) / 1000e0 AS duration,
    -MIN(braking.acceleration) AS deceleration
  ONE ROW PER MATCH
  AFTER MATCH SKIP PAST LAST ROW
  PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
  DEFINE cruising AS speed >= 10, braking AS acceleration < 0, stopped AS speed < 1);

-- Where the trips under way end: of each vehicle the newest report in the last 5 min counts.
CREATE FUNCTION final_cell AS 'headrace_transit.sql_functions:final_cell' LANGUAGE PYTHON;
CREATE FUNCTION is_simulated_stop AS 'headrace_transit.sql_functions:is_simulated_stop' LANGUAGE PYTHON;

CREATE VIEW trips AS
SELECT cell, final_cell, window_start, window_end FROM (
  SELECT vehicle_id, window_start, window_end, MAX_BY(final_cell, ts) AS final_cell, MAX_BY(cell, ts) AS cell
  FROM TABLE(HOP((
      SELECT vehicle_id, ts, cell, COALESCE(final_cell(route, direction, trip_start), 0) AS final_cell
      FROM located WHERE cell IS NOT NULL AND is_simulated_stop(next_stop)),
    DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '5' MINUTE))
  GROUP BY vehicle_id, window_start, window_end)
WHERE final_cell <> 0;

CREATE VIEW final_stop_distribution AS
SELECT final_cell, window_start, window_end, COUNT(*) AS vehicles FROM trips
GROUP BY final_cell, window_start, window_end;

CREATE VIEW final_stop_pairs AS
SELECT cell, final_cell, window_start, window_end, COUNT(*) AS vehicles FROM trips
GROUP BY cell, final_cell, window_start, window_end;

-- What is run.
CREATE TABLE vehicle_distribution_results (
  cell BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), vehicles BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'sql.vehicle-distribution', 'format' = 'json');

CREATE TABLE delay_distribution_results (
  cell BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), arrivals BIGINT, p50 DOUBLE, p90 DOUBLE, p99 DOUBLE
) WITH ('connector' = 'kafka', 'topic' = 'sql.delay-distribution', 'format' = 'json');

CREATE TABLE flow_direction_results (
  cell BIGINT, neighbour BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), vehicles BIGINT, departures BIGINT,
  share DOUBLE
) WITH ('connector' = 'kafka', 'topic' = 'sql.flow-direction', 'format' = 'json');

CREATE TABLE emergency_stops_results (
  vehicle_id STRING, line STRING, stopped TIMESTAMP(3), latitude DOUBLE, longitude DOUBLE, speed DOUBLE, duration DOUBLE,
  deceleration DOUBLE, cell BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'sql.emergency-stops', 'format' = 'json');

CREATE TABLE final_stop_distribution_results (
  final_cell BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), vehicles BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'sql.final-stop-distribution', 'format' = 'json');

CREATE TABLE final_stop_pairs_results (
  cell BIGINT, final_cell BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), vehicles BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'sql.final-stop-pairs', 'format' = 'json');

INSERT INTO vehicle_distribution_results SELECT * FROM vehicle_distribution;
INSERT INTO delay_distribution_results SELECT * FROM delay_distribution;
INSERT INTO flow_direction_results SELECT * FROM flow_direction;
INSERT INTO emergency_stops_results SELECT * FROM emergency_stops;
INSERT INTO final_stop_distribution_results SELECT * FROM final_stop_distribution;
INSERT INTO final_stop_pairs_results SELECT * FROM final_stop_pairs;
