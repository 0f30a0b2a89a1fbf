"""From the order of happening to the order of arrival.

`Arrivals` goes through a fleet's seconds of event time and says when each report arrives
(`headrace_transit.simulator.disorder` says how late): `sent` gives the reports of some seconds as they happen, `take`
those that arrive in some seconds, in order of arrival; the others wait.

>>> from headrace_transit.simulator.fleet import Fleet
>>> arrivals = Arrivals(Fleet(vehicles=100, seed=1), Disorder(late_share=0.2, late_mean=5.0))
>>> first = arrivals.take(10).positions
>>> bool((first["arrival_time"] >= first["event_time"]).all()), first["arrival_time"].is_sorted()
(True, True)
>>> first.height < 1000, arrivals.held > 0
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace_transit.simulator.disorder import Disorder, Transport
from headrace_transit.simulator.fleet import HAPPENING_SCHEMA, HOLD, POSITION_SCHEMA, STOP_SCHEMA
from headrace_transit.simulator.milestones import STOP_EVENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.fleet import Fleet

ARRIVAL_TIME = "arrival_time"
_INSTANT = pl.Datetime("us", "UTC")
_POSITIONS = pl.Schema({**POSITION_SCHEMA, ARRIVAL_TIME: _INSTANT})
_STOP_EVENTS = pl.Schema({**STOP_SCHEMA, ARRIVAL_TIME: _INSTANT})
_ELSEWHERE = pl.Schema({**HAPPENING_SCHEMA, ARRIVAL_TIME: _INSTANT})


@dataclass(frozen=True, slots=True)
class Arrived:
    """Reports with their arrivals: all frames have `arrival_time` besides their own columns.

    Args:
        positions: Positions (VP).
        stop_events: What happened at stops.
        elsewhere: What happened at traffic lights and with drivers, with the columns of `fleet.HAPPENING_SCHEMA`; empty
            unless asked for.
    """

    positions: pl.DataFrame
    stop_events: pl.DataFrame
    elsewhere: pl.DataFrame

    @property
    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """All three."""
        return self.positions, self.stop_events, self.elsewhere


class Arrivals:
    """The reports of a fleet in order of arrival.

    Args:
        fleet: Who reports.
        disorder: How reports travel.
        first: The second of the fleet's time to begin with.
        stop_events: Whether arrivals and departures at stops are reported, too.
        elsewhere: Whether traffic lights and drivers are reported, too.
    """

    def __init__(
        self,
        fleet: Fleet,
        disorder: Disorder | None = None,
        *,
        first: int = 0,
        stop_events: bool = True,
        elsewhere: bool = False,
    ) -> None:
        self.fleet = fleet
        self.disorder = Disorder() if disorder is None else disorder
        self.second = first
        self._stop_events, self._elsewhere = stop_events, elsewhere
        self._transport = Transport(self.disorder, seed=fleet.seed, vehicles=fleet.vehicles)
        self._clock_errors = self.disorder.clock_errors(fleet.vehicles, seed=fleet.seed)
        self._held: list[pl.DataFrame] = [pl.DataFrame(schema=kind) for kind in (_POSITIONS, _STOP_EVENTS, _ELSEWHERE)]

    @property
    def held(self) -> int:
        """How many reports `take` has seen happen but not arrive."""
        return sum(frame.height for frame in self._held)

    def sent(self, seconds: int = 1) -> Arrived:
        """Go on by some seconds, and give what happens in them with its arrival, in no particular order."""
        positions, who = self.fleet.numbered_positions(self.second, seconds=seconds)
        frames = [
            self._with_arrivals(positions, who),
            pl.DataFrame(schema=_STOP_EVENTS),
            pl.DataFrame(schema=_ELSEWHERE),
        ]
        if self._stop_events or self._elsewhere:
            happened, who = self.fleet.happenings(self.second, seconds=seconds, elsewhere=self._elsewhere)
            happened = self._with_arrivals(happened, who)
            at_stop = pl.col("event_type").is_in(STOP_EVENTS)
            if self._elsewhere:
                frames[2] = happened.filter(~at_stop)
                happened = happened.filter(at_stop)
            if self._stop_events:
                frames[1] = happened.select(_STOP_EVENTS.names())
        self.second += seconds
        return Arrived(*frames)

    def take(self, seconds: int = 1) -> Arrived:
        """Go on by some seconds, and give what arrives in them, in order of arrival."""
        until = self.fleet.start + timedelta(seconds=self.second + seconds)
        here = pl.col(ARRIVAL_TIME) < pl.lit(until).cast(_INSTANT)
        arrived, held = [], []
        for before, new in zip(self._held, self.sent(seconds).frames, strict=True):
            # Few are held up, so few rows are copied more than once.
            arrived.append(pl.concat([before.filter(here), new.filter(here)]))
            held.append(pl.concat([before.filter(~here), new.filter(~here)]))
        self._held = held
        return _in_order(arrived)

    def rest(self) -> Arrived:
        """Give what has happened but not arrived; nothing is held any more."""
        held, self._held = self._held, [frame.clear() for frame in self._held]
        return _in_order(held)

    def _with_arrivals(self, frame: pl.DataFrame, vehicle: NDArray[np.int64]) -> pl.DataFrame:
        """Say when reports arrive, and add those that arrive twice."""
        happened = frame[EVENT_TIME].dt.timestamp("us").to_numpy()
        moment = happened // 1000
        sent = happened
        if HOLD in frame.columns and self.disorder.holds:
            sent = happened + frame[HOLD].to_numpy()
        # Two events of one vehicle in the same millisecond share their fate.
        delay = self._transport.delays(vehicle, sent // 1000)
        arrival = sent + (delay * 1e6).astype(np.int64)
        whole = frame.with_columns(pl.Series(ARRIVAL_TIME, arrival).cast(_INSTANT))
        if self.disorder.wrong_clocks:
            shown = happened + self._clock_errors[vehicle]
            whole = whole.with_columns(pl.Series(EVENT_TIME, shown).cast(frame.schema[EVENT_TIME]))
        rows, later = self._transport.repeats(vehicle, moment, delay)
        if not len(rows):
            return whole
        again = pl.Series(ARRIVAL_TIME, arrival[rows] + (later * 1e6).astype(np.int64)).cast(_INSTANT)
        return pl.concat([whole, whole[rows].with_columns(again)])


def _in_order(frames: list[pl.DataFrame]) -> Arrived:
    return Arrived(*(frame.sort(ARRIVAL_TIME, maintain_order=True) for frame in frames))
