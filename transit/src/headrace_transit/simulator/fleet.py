"""A fleet that exists only in arithmetic.

`Fleet` is what a city's vehicles would report, for people who have no feed at hand: trams, buses, trains and metro on
plausible lines of the Helsinki region, one position a second each, and an event for everything that HFP reports: at
stops, at traffic lights, when a driver signs on. Nothing is stepped or stored: the state of a vehicle is a pure
function of the seed and the moment, so any second can be computed alone and always comes out the same, and a whole
second of twenty thousand vehicles is a few array operations.

    place on the ground <- distance on the path <- phase of its round <- timetable second <- moment, bent by delays
    (network)              (timetable)                                                      (motion)

The fleet's own clock starts at `start`; `second` counts from there. Each vehicle reports at its own fraction of the
second.

>>> fleet = Fleet(vehicles=300, seed=1)
>>> fleet.positions(60).select("vehicle_id", "mode", "line", "speed", "heading", "doors_open").head(2).rows()
[('40/101', 'tram', '1', 0.0, 7, False), ('40/102', 'tram', '1', 1.16, 26, False)]
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, get_args
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.events.layout import Layout
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.simulator.chance import between, uniform
from headrace_transit.simulator.gps import Receivers
from headrace_transit.simulator.helsinki import helsinki
from headrace_transit.simulator.milestones import AT_STOPS, EVENTS, KIND
from headrace_transit.simulator.motion import PERIOD, Motion
from headrace_transit.simulator.network import STEP, Network
from headrace_transit.simulator.service import Service
from headrace_transit.simulator.states import State, States
from headrace_transit.simulator.timetable import Timetable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

#: A Monday in September, eight o'clock in Helsinki: where a fleet starts that is not told otherwise.
DEFAULT_START = datetime(2025, 9, 1, 5, 0, tzinfo=UTC)

_INSTANT = pl.Datetime("us", "UTC")
#: Columns of `Fleet.positions`: those of the message, and when it happened.
POSITION_SCHEMA = pl.Schema({**Layout(VehiclePosition.DESCRIPTOR).schema, EVENT_TIME: _INSTANT})
#: Columns of `Fleet.stop_events`.
STOP_SCHEMA = pl.Schema({**Layout(StopEvent.DESCRIPTOR).schema, EVENT_TIME: _INSTANT})
#: When an event is sent, if that is after it happened: in microseconds, in `Fleet.happenings`.
HOLD = "hold"
#: Columns of `Fleet.happenings` beside those of `STOP_SCHEMA`: of traffic lights and drivers.
EXTRA_SCHEMA = pl.Schema({HOLD: pl.Int64, "light": pl.Int32, "attempt": pl.Int32, "block": pl.Int32})
HAPPENING_SCHEMA = pl.Schema({**STOP_SCHEMA, **EXTRA_SCHEMA})

_ZONE = ZoneInfo("Europe/Helsinki")
#: A trip that starts before half past four in the morning belongs to the day before.
_DAY_BEGINS = 4.5 * 3600
#: Share of the ends of trips at which the driver changes.
_RELIEVED = 0.08
_SIGN_ON = np.array([KIND["DA"], KIND["BA"]])
_SIGN_OFF = np.array([KIND["DOUT"], KIND["BOUT"]])


class Fleet:
    """Simulated vehicles, computed for any second by itself.

    Args:
        vehicles: How many; they are shared out over the lines by length and headway. With the service of a weekday, how
            many at the peak.
        seed: Another seed is another day: other delays, traffic, accidents. The same seed is the same to the last
            digit.
        start: The instant of second 0, with a time zone.
        network: Lines and places; the Helsinki region unless told otherwise.
        service: "flat": all vehicles are always out; "weekday": as many as HSL has at that time of a working day.
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
        service: Service = "flat",
        emergency_rate: float = 0.05,
        gps_loss: float = 0.002,
        gps_noise: float = 2.0,
    ) -> None:
        self.check(
            vehicles=vehicles,
            start=start,
            service=service,
            emergency_rate=emergency_rate,
            gps_loss=gps_loss,
            gps_noise=gps_noise,
        )
        self.vehicles = vehicles
        self.seed = seed
        self.start = start.astimezone(UTC)
        self.network = network or helsinki()
        self.service: Service = service
        self.timetable = Timetable.of(self.network, seed=seed)
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
        self._receivers = Receivers(self.motion, vehicles=vehicles, seed=seed, loss=gps_loss, noise=gps_noise)
        self._states = States(self.timetable, self.motion, service=service, local_second=self._local_second, seed=seed)
        self._lay_out_paths()
        self._identity = _identities(self.network, line)

    @staticmethod
    def check(
        *, vehicles: int, start: datetime, service: str, emergency_rate: float, gps_loss: float, gps_noise: float
    ) -> None:
        """See whether there can be such a fleet; the arguments are those of the class.

        Raises:
            PlanError: There cannot.
        """
        if vehicles < 1:
            raise PlanError(f"a fleet of {vehicles} vehicles", hint="Give at least 1.")
        if start.tzinfo is None:
            raise PlanError(f"start {start.isoformat()} has no time zone", hint="Give one, such as datetime.now(UTC).")
        if service not in get_args(Service):
            raise PlanError(f"service is {service!r}", hint=f"Give one of {', '.join(get_args(Service))}.")
        for name, share in (("emergency_rate", emergency_rate), ("gps_loss", gps_loss)):
            if not 0 <= share <= 1:
                raise PlanError(f"{name} is {share}", hint="Give a number from 0 to 1.")
        if not 0 <= gps_noise < float("inf"):
            raise PlanError(f"gps_noise is {gps_noise}", hint="Give metres, 0 or more.")

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
            A frame with the columns of `POSITION_SCHEMA`: second by second, one row per vehicle that is out, in the
            order of `vehicle_ids`.
        """
        return self.numbered_positions(second, seconds=seconds)[0]

    def numbered_positions(self, second: int, *, seconds: int = 1) -> tuple[pl.DataFrame, Integers]:
        """Give the same as `positions`, and the index of the vehicle of each row."""
        who = self._everybody if seconds == 1 else np.tile(self._everybody, seconds)
        vehicle: Integers | slice = slice(None) if seconds == 1 else who
        moment = self._millisecond + second * 1000
        if seconds != 1:
            moment = (np.arange(second, second + seconds) * 1000)[:, None] + self._millisecond[None, :]
            moment = moment.ravel()
        state = self._states.at(vehicle, moment / 1000)
        if self.service != "flat":
            rows = np.flatnonzero(self._states.serves(state))
            state, moment, who = state.of(rows, who), moment[rows], who[rows]
        columns = self._columns(state, moment)
        return pl.DataFrame({name: columns[name] for name in POSITION_SCHEMA}), who

    def stop_events(self, second: int, *, seconds: int = 1) -> pl.DataFrame:
        """Give what happens at stops in [second, second + seconds): DUE, ARR, ARS, DOO, DOC, WAIT, PDE, DEP, PAS.

        Args:
            second: Seconds since `start`.
            seconds: How many seconds at once.

        Returns:
            A frame with the columns of `STOP_SCHEMA`, in the order of event time.
        """
        return self.happenings(second, seconds=seconds, elsewhere=False)[0].select(STOP_SCHEMA.names())

    def happenings(self, second: int, *, seconds: int = 1, elsewhere: bool = True) -> tuple[pl.DataFrame, Integers]:
        """Give everything but positions that happens in [second, second + seconds), and the index of the vehicles.

        Args:
            second: Seconds since `start`.
            seconds: How many seconds at once.
            elsewhere: Whether traffic lights (TLR, TLA) and drivers (VJA, VJOUT, DA, DOUT, BA, BOUT) are wanted, too.

        Returns:
            A frame with the columns of `HAPPENING_SCHEMA`, in the order of event time.
        """
        who, milestone, when = self._states.passed(second, seconds)
        stones = self.timetable.milestones
        if not elsewhere:
            at_stop = stones.kind[milestone] < AT_STOPS
            who, when, milestone = who[at_stop], when[at_stop], milestone[at_stop]
        # Of the same millisecond and vehicle, in the order of the timetable.
        order = np.lexsort((milestone, who, when))
        who, when, milestone = who[order], when[order], milestone[order]
        # A microsecond into the milestone's own mark, so that rounding cannot find the one before.
        mark = self.timetable.marks.at(stones.at[milestone] + 1e-6)
        state = self._states.at(who, when / 1000)._replace(mark=mark)
        wanted = self._states.serves(state) & self._happens(who, state, milestone)
        if not wanted.all():
            chosen = np.flatnonzero(wanted)
            state, who, when, milestone = state.of(chosen, who), who[chosen], when[chosen], milestone[chosen]
        columns = self._columns(state, when)
        return self._as_happenings(columns, state, milestone), who

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
                begun, stood = self._states.at(stops.vehicle, stops.begin), self._states.at(stops.vehicle, stopped)
                latitude, longitude, _ = self._ground(stood)
                frame = pl.DataFrame(
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
                parts.append(frame.filter(pl.Series(self._states.serves(begun), dtype=pl.Boolean)))
        low, high = (self.start + timedelta(seconds=edge) for edge in (first, last))
        return pl.concat(parts).filter(pl.col("began").is_between(low, high, closed="left")).sort("began", "vehicle_id")

    def _happens(self, who: Integers, state: State, milestone: Integers) -> Booleans:
        """Leave out sign-ons and sign-offs where the driver stays."""
        kind = self.timetable.milestones.kind[milestone]
        happens = np.ones(len(who), dtype=bool)
        for kinds, here, other in ((_SIGN_ON, 0, -1), (_SIGN_OFF, 1, 1)):
            rows = np.flatnonzero(np.isin(kind, kinds))
            some = state.of(rows, who)
            departure = self._states.trip_second(some, self.timetable.departure, here)
            relieved = uniform(self.seed, "relieved", who[rows], departure.astype(np.int64)) < _RELIEVED
            happens[rows] = relieved | ~self._states.serves(some, step=other)
        return happens

    # ---------------------------------------------------------------- columns

    def _columns(self, state: State, moment: Integers) -> dict[str, pl.Series]:
        vehicle, marks, table = state.vehicle, self.timetable.marks, self.timetable
        mark = state.mark
        trip = marks.trip[mark]
        path = table.trip_path[trip]
        latitude, longitude, heading = self._ground(state)
        latitude, longitude = self._receivers.blurred(vehicle, state.time, latitude, longitude)
        next_stop, stop = marks.next_stop[mark], marks.stop[mark]
        waiting = marks.waiting[mark]
        delay = state.delay + marks.behind[mark]
        if waiting.any():
            delay = np.where(waiting, state.delay + state.at - table.trip_departure[trip], delay)
        trip_start, operating_day, journey = self._trip(state)
        rows = len(moment)
        columns = self._identity if isinstance(vehicle, slice) else _gathered(self._identity, vehicle)
        lost = np.flatnonzero(self._receivers.lost(vehicle, state.time))
        # As long as its trip is not assigned, a vehicle knows neither how late it is nor how far it has come.
        upcoming = np.flatnonzero(marks.upcoming[mark])
        return {
            **columns,
            "latitude": _without(lost, pl.Series(latitude)),
            "longitude": _without(lost, pl.Series(longitude)),
            "speed": _without(lost, pl.Series(np.round(state.speed, 2))),
            "heading": _without(lost, pl.Series(heading)),
            # Adding nothing turns a negative zero into a zero.
            "acceleration": _without(lost, pl.Series(np.round(state.acceleration, 2) + 0.0)),
            "location_source": _but("ODO", lost, _constant("GPS", rows)),
            "delay": _without(upcoming, pl.Series(np.round(delay).astype(np.int32))),
            "odometer": _without(upcoming, pl.Series(np.round(state.distance))),
            "temporal_type": _but("upcoming", upcoming, _nulls(pl.String, rows)),
            "doors_open": pl.Series(marks.doors[mark]),
            "route": self._path_routes.gather(path),
            "direction": self._path_directions.gather(path),
            "headsign": self._path_headsigns.gather(path),
            "trip_start": trip_start,
            "operating_day": operating_day,
            "journey_number": journey,
            "next_stop": self._stop_names.gather(next_stop),
            "stop": self._stop_names.gather(stop),
            "occupancy": self._occupancy(vehicle, next_stop),
            "journey_type": _nulls(pl.String, rows),
            "sequence": _nulls(pl.Int32, rows),
            "label": _nulls(pl.String, rows),
            EVENT_TIME: self._instants(moment / 1000),
        }

    def _as_happenings(self, columns: dict[str, pl.Series], state: State, milestone: Integers) -> pl.DataFrame:
        """Add what only events have."""
        stones = self.timetable.milestones
        assert not isinstance(state.vehicle, slice)  # noqa: S101  events belong to some vehicles
        kind, stop, light = stones.kind[milestone], stones.stop[milestone], stones.light[milestone]
        columns["event_type"] = self._event_names.gather(kind)
        columns["stop"] = self._stop_names.gather(stop)
        elsewhere, no_light = np.flatnonzero(stop < 0), np.flatnonzero(light < 0)
        base = self.timetable.trip_base[stones.trip[milestone]] - state.round_begin
        for name, planned in (("scheduled_arrival", stones.arrival), ("scheduled_departure", stones.departure)):
            second = planned[milestone] - base - self.motion.offset[state.vehicle]
            columns[name] = _without(elsewhere, self._instants(np.where(stop >= 0, second, 0.0)))
        columns[HOLD] = pl.Series((stones.hold[milestone] * 1e6).astype(np.int64))
        columns["light"] = _without(no_light, pl.Series(light.astype(np.int32)))
        columns["attempt"] = _without(no_light, pl.Series(stones.attempt[milestone].astype(np.int32)))
        columns["block"] = pl.Series((100 + state.vehicle % 900).astype(np.int32))
        return pl.DataFrame({name: columns[name] for name in HAPPENING_SCHEMA}, schema=HAPPENING_SCHEMA)

    def _ground(self, state: State) -> tuple[Floats, Floats, NDArray[np.int32]]:
        path = self.timetable.phases.path[state.phase]
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
        # Index -1, no stop, finds the null at the end.
        self._stop_names = pl.Series([*(str(number) for number in table.stop_ids), None], dtype=pl.String)
        self._event_names = pl.Series(EVENTS)
        self._clock_texts = pl.Series([f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(1440)])
        self._everybody = np.arange(self.vehicles)
        draw = uniform(self.seed, "occupancy", np.arange(4096))
        self._occupancies = np.floor(draw**2 * 20).astype(np.int32) * 5

    def _trip(self, state: State) -> tuple[pl.Series, pl.Series, pl.Series]:
        """Give the start, the operating day and the number of trips."""
        local = self._local_second + self._states.trip_second(state, self.timetable.departure)
        days = np.floor((local - _DAY_BEGINS) / 86400).astype(np.int64)
        minute = np.floor(local / 60).astype(np.int64) % 1440
        first = int(days.min()) if len(days) else 0
        count = int(days.max()) - first + 1 if len(days) else 1
        names = pl.Series([(self._local_date + timedelta(days=first + day)).isoformat() for day in range(count)])
        operating_day = _constant(names[0], len(days)) if count == 1 else names.gather(days - first)
        return self._clock_texts.gather(minute), operating_day, pl.Series((minute + 1).astype(np.int32))

    def _occupancy(self, vehicle: Integers | slice, stop: Integers) -> pl.Series:
        return pl.Series(self._occupancies[(self._everybody[vehicle] * 97 + stop * 31) & 4095])

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
    """Spread the vehicles of a line evenly over its round, a little off, in whole seconds."""
    count = np.bincount(line, minlength=len(duration))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.arange(len(line)) - first[line]
    jitter = between(0.0, 0.4, uniform(seed, "offset", np.arange(len(line))))
    offsets: Floats = np.floor((rank + jitter) / count[line] * duration[line])
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
        "line_number": pl.Series(line + 1, dtype=pl.Int32),
        "trip_operator": pl.Series(operator, dtype=pl.Int32),
    }


def _gathered(columns: dict[str, pl.Series], rows: Integers) -> dict[str, pl.Series]:
    return {name: column.gather(rows) for name, column in columns.items()}


def _without(rows: Integers, column: pl.Series) -> pl.Series:
    """Make some rows null."""
    return column.scatter(rows, None) if len(rows) else column


def _but(text: str, rows: Integers, column: pl.Series) -> pl.Series:
    """Give a column another value in some rows."""
    # The column is shared: a copy is changed.
    return column.clone().scatter(rows, text) if len(rows) else column


@lru_cache(maxsize=32)
def _constant(text: str, rows: int) -> pl.Series:
    return pl.repeat(text, rows, dtype=pl.String, eager=True)


@lru_cache(maxsize=32)
def _nulls(kind: type[pl.DataType], rows: int) -> pl.Series:
    return pl.repeat(None, rows, dtype=kind(), eager=True)
