"""A fleet that exists only in arithmetic.

`Fleet` is what a city's vehicles would report, for people who have no feed at hand: trams, buses, trains and metro on
plausible lines of the Helsinki region, one position a second each, and an event for every arrival and departure.
Nothing is stepped or stored: the state of a vehicle is a pure function of the seed and the moment, so any second can
be computed alone and always comes out the same, and a whole second of twenty thousand vehicles is a few array
operations.

    place on the ground <- distance on the path <- timetable phase <- timetable second <- moment, bent by delays
    (network)              (timetable)                                                    (motion)

The fleet's own clock starts at `start`; `second` counts from there. Each vehicle reports at its own fraction of the
second.

>>> fleet = Fleet(vehicles=300, seed=1)
>>> fleet.positions(60).select("vehicle_id", "mode", "line", "speed", "heading", "doors_open").head(2).rows()
[('40/101', 'tram', '1', 0.0, 7, True), ('40/102', 'tram', '1', 0.0, 30, True)]
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.events.layout import Layout
from headrace.events.schemas.transit_pb2 import StopEvent, VehiclePosition
from headrace.transit.simulator.chance import between, uniform
from headrace.transit.simulator.helsinki import helsinki
from headrace.transit.simulator.motion import PERIOD, Motion
from headrace.transit.simulator.network import STEP, Network
from headrace.transit.simulator.timetable import ACCELERATE, STAND, Timetable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: A Monday in September, eight o'clock in Helsinki: where a fleet starts that is not told otherwise.
DEFAULT_START = datetime(2025, 9, 1, 5, 0, tzinfo=UTC)

_INSTANT = pl.Datetime("us", "UTC")
#: Columns of `Fleet.positions`: those of the message, and when it happened.
POSITION_SCHEMA = pl.Schema({**Layout(VehiclePosition.DESCRIPTOR).schema, EVENT_TIME: _INSTANT})
#: Columns of `Fleet.stop_events`.
STOP_SCHEMA = pl.Schema({**Layout(StopEvent.DESCRIPTOR).schema, EVENT_TIME: _INSTANT})

_ZONE = ZoneInfo("Europe/Helsinki")
#: A trip that starts before half past four in the morning belongs to the day before.
_DAY_BEGINS = 4.5 * 3600
_DOOR_SECONDS = 2.0
_GPS_PERIOD = 600.0
_METRES_PER_DEGREE = 111_195.0


class _State(NamedTuple):
    """Where vehicles are, one row each."""

    vehicle: Integers | slice
    phase: Integers
    second: Floats
    round_begin: Floats
    distance: Floats
    speed: Floats
    acceleration: Floats
    delay: Floats


class Fleet:
    """Simulated vehicles, computed for any second by itself.

    Args:
        vehicles: How many; they are shared out over the lines by length and headway.
        seed: Another seed is another day: other delays, traffic, accidents. The same seed is the same to the last
            digit.
        start: The instant of second 0, with a time zone.
        network: Lines and places; the Helsinki region unless told otherwise.
        emergency_rate: Emergency stops per tram or bus and hour, 0 to 1.
        gps_loss: Share of the time that a vehicle does not know where it is (its position is null then).
        gps_noise: Metres by which the reported position wanders around the true one.

    >>> Fleet(vehicles=5, seed=7).positions(0).equals(Fleet(vehicles=5, seed=7).positions(0))
    True
    """

    def __init__(
        self,
        *,
        vehicles: int = 300,
        seed: int = 1,
        start: datetime = DEFAULT_START,
        network: Network | None = None,
        emergency_rate: float = 0.05,
        gps_loss: float = 0.002,
        gps_noise: float = 2.0,
    ) -> None:
        _check(vehicles=vehicles, start=start, emergency_rate=emergency_rate, gps_loss=gps_loss, gps_noise=gps_noise)
        self.vehicles = vehicles
        self.seed = seed
        self.start = start.astimezone(UTC)
        self.network = network or helsinki()
        self.timetable = Timetable.of(self.network, seed=seed)
        self._gps_loss = gps_loss
        self._gps_noise = gps_noise
        self._start_micros = (self.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        local = self.start.astimezone(_ZONE)
        # Trips are named by local time. The zone's offset is that of the start, also when the clocks change later on.
        self._local_second = local.hour * 3600 + local.minute * 60 + local.second
        self._local_date = local.date()
        index = np.arange(vehicles)
        line = _shares(self.timetable, self.network, vehicles)
        self._millisecond = np.floor(uniform(seed, "fraction of the second", index) * 1000).astype(np.int64)
        self.motion = Motion(
            self.timetable,
            line=line,
            offset=_offsets(line, self.timetable.duration, seed),
            seed=seed,
            emergency_rate=emergency_rate,
        )
        self._noise_phase = between(0, 2 * np.pi, uniform(seed, "noise phase", index))
        self._noise_turn = 2 * np.pi / between(60, 180, uniform(seed, "noise time", index))
        self._lay_out_paths()
        self._identity = _identities(self.network, line)
        self._gps_lost_in = lru_cache(maxsize=8)(self._gps_outages)
        # The end of a second is the beginning of the next one.
        self._planned_at = lru_cache(maxsize=2)(self._edge)

    @property
    def vehicle_ids(self) -> pl.Series:
        """The name of each vehicle."""
        return self._identity["vehicle_id"]

    def positions(self, second: int, *, seconds: int = 1) -> pl.DataFrame:
        """Give the positions that vehicles report in [second, second + seconds).

        Args:
            second: Seconds since `start`.
            seconds: How many seconds at once; fewer, larger frames are cheaper for a small fleet.

        Returns:
            A frame with the columns of `POSITION_SCHEMA`: second by second, one row per vehicle in the order of
            `vehicle_ids`.
        """
        if seconds == 1:
            vehicle: Integers | slice = slice(None)
            moment = second * 1000 + self._millisecond
        else:
            vehicle = np.tile(np.arange(self.vehicles), seconds)
            moment = np.repeat(np.arange(second, second + seconds) * 1000, self.vehicles) + self._millisecond[vehicle]
        state = self._state(vehicle, moment / 1000)
        columns = self._columns(state, moment)
        return pl.DataFrame({name: columns[name] for name in POSITION_SCHEMA})

    def stop_events(self, second: int, *, seconds: int = 1) -> pl.DataFrame:
        """Give the arrivals (ARS) and departures (DEP) that happen in [second, second + seconds).

        Args:
            second: Seconds since `start`.
            seconds: How many seconds at once.

        Returns:
            A frame with the columns of `STOP_SCHEMA`, in the order of event time.
        """
        planned = self._planned(second, seconds)
        before, after = planned[:-1].ravel(), planned[1:].ravel()
        entered = [self._entered(before, after, kind) for kind in (STAND, ACCELERATE)]
        rows, at = (np.concatenate(column) for column in zip(*entered, strict=True))
        share = (at - before[rows]) / (after[rows] - before[rows])
        who = rows % self.vehicles
        when = (second + rows // self.vehicles) * 1000 + np.minimum(share * 1000, 999).astype(np.int64)
        order = np.lexsort((who, when))
        who, at, when = who[order], at[order], when[order]
        # A microsecond into the phase, so that rounding cannot find the phase before.
        state = self._state_at(who, at + 1e-6, self.motion.bend(who, when / 1000).delay)
        columns = self._columns(state, when)
        arriving = self.timetable.kind[state.phase] == STAND
        columns["event_type"] = pl.Series(np.where(arriving, "ARS", "DEP"), dtype=pl.String)
        # A departing vehicle is at the stop where it stood in the phase before.
        standing = np.where(arriving, state.phase, state.phase - 1)
        columns["stop"] = self._stop_names.gather(self.timetable.stop[standing])
        scheduled = self._start_micros + np.round((at - self.motion.offset[who]) * 1e6).astype(np.int64)
        for name, rows in (("scheduled_arrival", arriving), ("scheduled_departure", ~arriving)):
            times = pl.Series(scheduled).cast(_INSTANT)
            columns[name] = pl.select(pl.when(pl.Series(rows)).then(times)).to_series()
        return pl.DataFrame({name: columns[name] for name in STOP_SCHEMA})

    def emergency_stops(self, first: int, last: int) -> pl.DataFrame:
        """Give the truth about emergency stops that begin in [first, last): who, where and when.

        Returns:
            A frame with `vehicle_id`, `line`, `began` (braking), `stopped`, `resumed`, `latitude` and `longitude` of
            the place where it stands, `speed` before in m/s and `deceleration` in m/s².
        """
        parts = []
        for half in (0, 1):
            for period in range(int(first // PERIOD) - 1, int(last // PERIOD) + 1):
                stops = self.motion.emergencies(period, half)
                stopped = stops.begin + stops.braking
                begun = self._state(stops.vehicle, stops.begin)
                latitude, longitude, _ = self._ground(self._state(stops.vehicle, stopped))
                parts.append(
                    pl.DataFrame(
                        {
                            "vehicle_id": self._identity["vehicle_id"].gather(stops.vehicle),
                            "line": self._identity["line"].gather(stops.vehicle),
                            "began": self._instants(stops.begin),
                            "stopped": self._instants(stopped),
                            "resumed": self._instants(stopped + stops.hold),
                            "latitude": latitude,
                            "longitude": longitude,
                            "speed": begun.speed,
                            "deceleration": begun.speed / stops.braking,
                        }
                    )
                )
        low, high = (self.start + timedelta(seconds=edge) for edge in (first, last))
        return pl.concat(parts).filter(pl.col("began").is_between(low, high, closed="left")).sort("began", "vehicle_id")

    def _state(self, vehicle: Integers | slice, time: Floats) -> _State:
        bend = self.motion.bend(vehicle, time)
        planned = self._state_at(vehicle, bend.second, bend.delay)
        # The planned speed is per timetable second; the bend turns it into metres per true second.
        return planned._replace(
            speed=planned.speed * bend.rate,
            acceleration=planned.acceleration * bend.rate**2 + planned.speed * bend.change,
        )

    def _state_at(self, vehicle: Integers | slice, second: Floats, delay: Floats) -> _State:
        """Look vehicles up at timetable seconds of their own, counted from the beginning of their first round."""
        table, duration = self.timetable, self.motion.duration[vehicle]
        round_begin = np.floor(second / duration) * duration
        at = self.motion.base[vehicle] + (second - round_begin)
        phase = table.phase_at(at)
        since = at - table.start[phase]
        acceleration = table.acceleration[phase]
        begin_speed = table.speed[phase]
        # Rounding may carry a braking vehicle a hair beyond standing still.
        speed = np.maximum(begin_speed + acceleration * since, 0.0)
        distance = table.distance[phase] + (begin_speed + acceleration * since / 2) * since
        return _State(vehicle, phase, second, round_begin, distance, speed, acceleration, delay)

    def _planned(self, second: int, seconds: int) -> Floats:
        """Tell where all vehicles are in their timetables at the edges of some seconds, a row per edge."""
        if seconds == 1:
            return np.stack([self._planned_at(second), self._planned_at(second + 1)])
        time = np.repeat(np.arange(second, second + seconds + 1, dtype=np.float64), self.vehicles)
        vehicle = np.tile(np.arange(self.vehicles), seconds + 1)
        return self.motion.bend(vehicle, time).second.reshape(seconds + 1, self.vehicles)

    def _edge(self, second: int) -> Floats:
        return self.motion.bend(slice(None), np.full(self.vehicles, float(second))).second

    def _entered(self, before: Floats, after: Floats, kind: int) -> tuple[Integers, Floats]:
        """Find the rows that enter a phase of a kind between two moments, and the timetable second of that."""
        seconds = len(before) // self.vehicles
        duration, base = np.tile(self.motion.duration, seconds), np.tile(self.motion.base, seconds)
        begins = self.timetable.start[self._entries[kind]]
        round_begin = np.floor(after / duration) * duration
        position = np.searchsorted(begins, base + (after - round_begin), side="right") - 1
        newest = begins[np.maximum(position, 0)] - base + round_begin
        rows = np.flatnonzero((newest > before) & (newest <= after))
        return rows, newest[rows]

    def _columns(self, state: _State, moment: Integers) -> dict[str, pl.Series]:
        vehicle, phase, table = state.vehicle, state.phase, self.timetable
        latitude, longitude, heading = self._ground(state)
        latitude, longitude = self._blurred(vehicle, moment / 1000, latitude, longitude)
        standing = table.kind[phase] == STAND
        at = self.motion.base[vehicle] + state.second - state.round_begin
        doors = standing & (at - table.start[phase] >= _DOOR_SECONDS) & (table.end[phase] - at >= _DOOR_SECONDS)
        path = table.path[phase]
        stops = self._stop_names.gather(table.stop[phase])
        trip_start, operating_day = self._trip(state)
        rows = len(moment)
        columns = self._identity if isinstance(vehicle, slice) else _gathered(self._identity, vehicle)
        lost = self._gps_lost(vehicle, moment / 1000)
        position = {
            "latitude": pl.Series(latitude),
            "longitude": pl.Series(longitude),
            "speed": pl.Series(np.round(state.speed, 2)),
            "heading": pl.Series(heading),
            "acceleration": pl.Series(np.round(state.acceleration, 2)),
            "location_source": _constant("GPS", rows),
        }
        if lost.any():
            known = pl.Series(~lost)
            position = {name: pl.select(pl.when(known).then(column)).to_series() for name, column in position.items()}
            position["location_source"] = position["location_source"].fill_null("N/A")
        return {
            **columns,
            **position,
            "delay": pl.Series(np.round(state.delay).astype(np.int32)),
            "odometer": pl.Series(np.round(state.distance)),
            "doors_open": pl.Series(doors),
            "route": self._path_routes.gather(path),
            "direction": self._path_directions.gather(path),
            "headsign": self._path_headsigns.gather(path),
            "trip_start": trip_start,
            "operating_day": operating_day,
            "next_stop": stops,
            "stop": pl.select(pl.when(pl.Series(standing)).then(stops)).to_series(),
            "occupancy": self._occupancy(vehicle, state),
            "line_number": _nulls(pl.Int32, rows),
            "journey_number": _nulls(pl.Int32, rows),
            "trip_operator": _nulls(pl.Int32, rows),
            "journey_type": _nulls(pl.String, rows),
            "temporal_type": _nulls(pl.String, rows),
            "sequence": _nulls(pl.Int32, rows),
            "label": _nulls(pl.String, rows),
            EVENT_TIME: self._instants(moment / 1000),
        }

    def _ground(self, state: _State) -> tuple[Floats, Floats, NDArray[np.int32]]:
        path = self.timetable.path[state.phase]
        step = state.distance / STEP
        whole = np.clip(step.astype(np.int64), 0, self._path_steps[path])
        index = self._path_base[path] + whole
        part = step - whole
        latitude = self._latitude[index] + part * self._latitude_step[index]
        longitude = self._longitude[index] + part * self._longitude_step[index]
        return latitude, longitude, self._heading[index]

    def _lay_out_paths(self) -> None:
        paths, table = self.network.paths, self.timetable
        sizes = np.array([len(path.latitude) for path in paths])
        self._path_base = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._path_steps = sizes - 2
        self._latitude = np.concatenate([path.latitude for path in paths])
        self._longitude = np.concatenate([path.longitude for path in paths])
        # The step after a path's last point leads to another path; it is never taken.
        self._latitude_step = np.diff(self._latitude, append=self._latitude[-1])
        self._longitude_step = np.diff(self._longitude, append=self._longitude[-1])
        east = self._longitude_step * np.cos(np.radians(self._latitude))
        self._heading = (np.degrees(np.arctan2(east, self._latitude_step)).round() % 360).astype(np.int32)
        self._path_routes = pl.Series([path.route for path in paths])
        self._path_directions = pl.Series([path.direction for path in paths], dtype=pl.Int32)
        self._path_headsigns = pl.Series([path.headsign for path in paths])
        self._stop_names = pl.Series([str(number) for number in table.stop_ids])
        self._clock_texts = pl.Series([f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(1440)])
        # A trip's layover begins where the trip before has unloaded: standing on, not arriving.
        arrival = (table.kind == STAND) & (table.distance > 0)
        self._entries = {STAND: np.flatnonzero(arrival), ACCELERATE: np.flatnonzero(table.kind == ACCELERATE)}

    def _trip(self, state: _State) -> tuple[pl.Series, pl.Series]:
        departure = self.timetable.departure[state.phase] - self.motion.base[state.vehicle] + state.round_begin
        local = self._local_second + departure - self.motion.offset[state.vehicle]
        days = np.floor((local - _DAY_BEGINS) / 86400).astype(np.int64)
        minute = np.floor(local / 60).astype(np.int64) % 1440
        first = int(days.min()) if len(days) else 0
        count = int(days.max()) - first + 1 if len(days) else 1
        names = pl.Series([(self._local_date + timedelta(days=first + day)).isoformat() for day in range(count)])
        operating_day = _constant(names[0], len(days)) if count == 1 else names.gather(days - first)
        return self._clock_texts.gather(minute), operating_day

    def _occupancy(self, vehicle: Integers | slice, state: _State) -> pl.Series:
        index = np.arange(self.vehicles) if isinstance(vehicle, slice) else vehicle
        draw = uniform(self.seed, "occupancy", index, self.timetable.stop[state.phase])
        return pl.Series(np.floor(draw**2 * 20).astype(np.int32) * 5)

    def _blurred(
        self, vehicle: Integers | slice, time: Floats, latitude: Floats, longitude: Floats
    ) -> tuple[Floats, Floats]:
        if self._gps_noise:
            # Receivers err slowly: the error turns around the true place within a minute or three.
            angle = self._noise_turn[vehicle] * time + self._noise_phase[vehicle]
            degrees = self._gps_noise / _METRES_PER_DEGREE
            latitude = latitude + degrees * np.cos(angle)
            longitude = longitude + 2 * degrees * np.sin(angle)
        return np.round(latitude, 6), np.round(longitude, 6)

    def _gps_lost(self, vehicle: Integers | slice, time: Floats) -> NDArray[np.bool_]:
        lost = np.zeros(len(time), dtype=bool)
        if not self._gps_loss or not len(time):
            return lost
        for period in range(int(time.min() // _GPS_PERIOD), int(time.max() // _GPS_PERIOD) + 1):
            begin, end = self._gps_lost_in(period)
            lost |= (time >= begin[vehicle]) & (time < end[vehicle])
        return lost

    def _gps_outages(self, period: int) -> tuple[Floats, Floats]:
        """Draw when each vehicle is without a position in a period; begin = end where it never is."""
        index = np.arange(self.vehicles)
        # An outage lasts 15 to 105 s, 60 on average.
        length = between(15, 105, uniform(self.seed, "outage length", index, period))
        happens = uniform(self.seed, "outage", index, period) < self._gps_loss * _GPS_PERIOD / 60
        begin = period * _GPS_PERIOD + uniform(self.seed, "outage begin", index, period) * (_GPS_PERIOD - length)
        return begin, np.where(happens, begin + length, begin)

    def _instants(self, time: Floats) -> pl.Series:
        return pl.Series(self._start_micros + np.round(time * 1e6).astype(np.int64)).cast(_INSTANT)


def _shares(timetable: Timetable, network: Network, vehicles: int) -> Integers:
    """Give each line as many vehicles as its round and headway need, in proportion, and return each vehicle's line."""
    need = timetable.duration / np.array([line.headway * 60 for line in network.lines])
    exact = need / need.sum() * vehicles
    count = np.floor(exact).astype(np.int64)
    missing = vehicles - int(count.sum())
    count[np.argsort(count - exact, kind="stable")[:missing]] += 1
    return np.repeat(np.arange(len(count)), count)


def _offsets(line: Integers, duration: Floats, seed: int) -> Floats:
    """Spread the vehicles of a line evenly over its round, a little off."""
    count = np.bincount(line, minlength=len(duration))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.arange(len(line)) - first[line]
    jitter = between(0.0, 0.4, uniform(seed, "offset", np.arange(len(line))))
    offsets: Floats = (rank + jitter) / count[line] * duration[line]
    return offsets


def _identities(network: Network, line: Integers) -> dict[str, pl.Series]:
    """Give each vehicle a number within its operator, and what never changes about it."""
    operator = np.array([entry.operator for entry in network.lines])[line]
    number = np.zeros(len(line), dtype=np.int64)
    for company in np.unique(operator):
        rows = operator == company
        number[rows] = 101 + np.arange(rows.sum())
    names = [f"{company}/{own}" for company, own in zip(operator.tolist(), number.tolist(), strict=True)]
    lines = line.tolist()
    return {
        "vehicle_id": pl.Series(names, dtype=pl.String),
        "line": pl.Series([network.lines[index].name for index in lines], dtype=pl.String),
        "mode": pl.Series([network.lines[index].mode for index in lines], dtype=pl.String),
        "operator": pl.Series(operator, dtype=pl.Int32),
        "vehicle_number": pl.Series(number, dtype=pl.Int32),
    }


def _gathered(columns: dict[str, pl.Series], rows: Integers) -> dict[str, pl.Series]:
    return {name: column.gather(rows) for name, column in columns.items()}


@lru_cache(maxsize=32)
def _constant(text: str, rows: int) -> pl.Series:
    return pl.repeat(text, rows, dtype=pl.String, eager=True)


@lru_cache(maxsize=32)
def _nulls(kind: type[pl.DataType], rows: int) -> pl.Series:
    return pl.repeat(None, rows, dtype=kind(), eager=True)


def _check(*, vehicles: int, start: datetime, emergency_rate: float, gps_loss: float, gps_noise: float) -> None:
    if vehicles < 1:
        raise PlanError(f"a fleet of {vehicles} vehicles", hint="Give at least 1.")
    if start.tzinfo is None:
        raise PlanError(f"start {start.isoformat()} has no time zone", hint="Give one, such as datetime.now(UTC).")
    for name, share in (("emergency_rate", emergency_rate), ("gps_loss", gps_loss)):
        if not 0 <= share <= 1:
            raise PlanError(f"{name} is {share}", hint="Give a number from 0 to 1.")
    if gps_noise < 0:
        raise PlanError(f"gps_noise is {gps_noise}", hint="Give metres, 0 or more.")
