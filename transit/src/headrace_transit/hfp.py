"""HFP: from the messages of Helsinki's vehicles to positions and stop events.

HFP (high-frequency positioning) is what the vehicles of HSL publish over MQTT: about once a second a position (VP), and
an event when something happens: at stops, at traffic lights, when a driver signs on. Topic and payload both matter:

    /hfp/v2/journey/ongoing/vp/bus/0018/01029/5520/1/Martinlaakso/17:35/4150208/5/60;24/28/65/93
    {"VP": {"desi": "520", "dir": "1", "oper": 6, "veh": 1029, "tst": "2024-02-13T16:32:59.931Z", ...}}

The topic says who owns the vehicle (operator 18, vehicle 1029: that pair is its identity), where the trip goes and what
its next stop is; the payload's `oper` is who runs the trip, which may be somebody else. The older v1 form has no event
in its topic, and no route in its payload: the route is the topic's. Version 2 has eighteen kinds of events; nine of
them happen at a stop and become a `StopEvent`, VP becomes a `VehiclePosition`, and the others (traffic lights, sign-on
and sign-off) are dismissed as `other_event`.

HFP counts a delay as negative (`dl`: seconds ahead of the timetable); here a delay is positive.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from itertools import chain, compress
from operator import is_not
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from headrace.errors import ConfigError
from headrace.events.layout import Layout
from headrace.events.letters import SHOWABLE
from headrace.ingest.fields import INSTANT
from headrace.ingest.messages import Messages
from headrace.ingest.processor import Cause, Dismissal, EventFrame, Processed, Processor
from headrace.ingest.processors.json import read_json
from headrace.time.duration import micros
from headrace_transit import hfp_columns
from headrace_transit import hfp_fields as fields
from headrace_transit.hfp_topics import TOPIC_ROUTE, Place, Places, parse_topic
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.ingest.message import RawMessage
    from headrace.ingest.messages import Numbers

#: Where a vehicle is.
POSITION = "VP"
#: What happens at a stop.
AT_STOPS = ("DUE", "ARR", "ARS", "PDE", "DEP", "PAS", "WAIT", "DOO", "DOC")
#: Traffic lights (request, answer), driver and block sign-on and sign-off, vehicle assigned to a trip or taken off it.
ELSEWHERE = ("TLR", "TLA", "DA", "DOUT", "BA", "BOUT", "VJA", "VJOUT")

#: A copy of a recorded vehicle has its number plus so much for each copy; HFP numbers have at most five digits.
COPY_STEP = 100_000
_MAX_COPY = (2**31 - 1) // COPY_STEP - 1

#: What a payload begins with that can be read with many others.
_BEGINNINGS = {event: b'{"%b":{' % event.encode() for event in (POSITION, *AT_STOPS)}
_POSITION_BODY = len(_BEGINNINGS[POSITION]) - 1
#: Down to so many payloads are halved to find those that cannot; fewer are sooner read one by one.
_FEW = 256
_NUMBER_COLUMN = "\0number"
_LATE, _ARRIVAL, _SHIFT, _COPY = "\0late", "\0arrival", "\0shift", "\0copy"


def _moved(name: str) -> pl.Expr:
    """A time, moved; a hostile one may leave the years that can be written, and is left out then."""
    moved = pl.col(name).cast(pl.Int64) + pl.col(_SHIFT)
    return pl.when(moved.is_between(*SHOWABLE)).then(moved).cast(INSTANT)


def _route() -> pl.Expr:
    """The route in the payload, or else (version 1) in the topic; timetables know it without blanks around it."""
    payload = pl.col("route").str.strip_chars()
    return pl.when(payload.str.len_bytes() > 0).then(payload).otherwise(pl.col(TOPIC_ROUTE))


def _events(schema: pl.Schema) -> list[pl.Expr]:
    """The columns of an event, from those of payloads, topics and arrivals; with the row's number and lateness."""
    number = (pl.col("vehicle") + pl.col(_COPY) * COPY_STEP).cast(pl.Int32)
    whole = pl.col("latitude").is_not_null() & pl.col("longitude").is_not_null()
    made = {
        "vehicle_number": number,
        "vehicle_id": pl.concat_str(pl.col("operator"), pl.lit("/"), number),
        # Half of a position is none.
        "latitude": pl.when(whole).then("latitude"),
        "longitude": pl.when(whole).then("longitude"),
        "route": _route(),
        "scheduled_arrival": _moved("scheduled_arrival"),
        "scheduled_departure": _moved("scheduled_departure"),
    }
    return [
        (pl.col("event_time") + pl.col(_SHIFT)).cast(INSTANT),
        pl.col(_ARRIVAL).cast(INSTANT).alias("ingestion_time"),
        *(made.get(name, pl.col(name)).alias(name) for name in schema.names()),
        pl.col(_NUMBER_COLUMN),
        (pl.col(_ARRIVAL) - pl.col("event_time") - pl.col(_SHIFT)).alias(_LATE),
    ]


_EVENTS = {
    False: _events(Layout(VehiclePosition.DESCRIPTOR).schema),
    True: _events(Layout(StopEvent.DESCRIPTOR).schema),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HfpSettings:
    """How strict to be.

    Args:
        max_bytes: Longer payloads are dismissed unread; real ones have about 400 bytes.
        max_ahead: How far the event time may be after the arrival. One vehicle whose clock is a year ahead would
            otherwise make everybody else's events late.
        max_behind: How far it may be before the arrival; None: any time.
        bad_fields: What becomes of a message in which a field has an impossible value: "dismiss" it, or "clear" the
            field and keep the rest. Fields without which there is no event always dismiss it.
        null_positions: Whether messages without a position are kept (their other fields are good), or dismissed.

    Raises:
        ConfigError: A limit makes no sense.
    """

    max_bytes: int = 65_536
    max_ahead: str | timedelta | int = "5m"
    max_behind: str | timedelta | int | None = "1d"
    bad_fields: Literal["dismiss", "clear"] = "dismiss"
    null_positions: Literal["keep", "dismiss"] = "keep"

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes is {self.max_bytes}", hint="Give the number of bytes of the longest payload.")
        if self.bad_fields not in ("dismiss", "clear"):
            raise ConfigError(f"bad_fields is {self.bad_fields!r}", hint="Give dismiss or clear.")
        if self.null_positions not in ("keep", "dismiss"):
            raise ConfigError(f"null_positions is {self.null_positions!r}", hint="Give keep or dismiss.")
        micros(self.max_ahead)
        if self.max_behind is not None:
            micros(self.max_behind)


class HfpProcessor(Processor):
    """Makes positions and stop events of HFP messages.

    Args:
        settings: How strict to be.

    >>> from headrace.ingest.message import RawMessage
    >>> body = b'{"VP": {"tst": "2020-09-21T03:00:00.963Z", "lat": 60.178, "long": 24.95, "spd": 0.57, "dl": -8}}'
    >>> topic = "/hfp/v2/journey/ongoing/vp/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80"
    >>> result = HfpProcessor().process([RawMessage(topic, body, 1_600_657_201_148_000), RawMessage(topic, b"x", 0)])
    >>> result.events[0].frame.select("vehicle_id", "speed", "delay").row(0)
    ('40/456', 0.57, 8)
    >>> result.dismissed[1].cause
    <Cause.MALFORMED: 'malformed_json'>
    """

    name = "hfp"
    Settings = HfpSettings
    topics = (VEHICLE_POSITIONS, STOP_EVENTS)

    def __init__(self, settings: HfpSettings | None = None) -> None:
        self.settings = settings or HfpSettings()
        self._ahead = micros(self.settings.max_ahead)
        self._behind = None if self.settings.max_behind is None else micros(self.settings.max_behind)

    def process(self, messages: Sequence[RawMessage]) -> Processed:
        """Look at a batch; nothing in it raises.

        Args:
            messages: The messages.
        """
        columns = Messages.of(messages)
        batch = _Batch(columns, Places(columns.topics))
        quick, slow = self._sorted(batch)
        frames = []
        for stops, kind, topic in ((False, VehiclePosition, VEHICLE_POSITIONS), (True, StopEvent, STOP_EVENTS)):
            parts = [
                *self._quickly(batch, quick[stops], stops=stops),
                *self._slowly(batch, slow[stops], stops=stops),
            ]
            if parts:
                frame = parts[0] if len(parts) == 1 else pl.concat(parts).sort(_NUMBER_COLUMN)
                frame.drop_in_place(_NUMBER_COLUMN)
                frames.append(EventFrame(topic=topic, type=kind, frame=frame, keys=frame["vehicle_id"]))
        dismissed = dict(sorted(batch.dismissed.items()))
        return Processed(events=tuple(frames), dismissed=dismissed, cleared=dict(batch.cleared))

    def _sorted(self, batch: _Batch) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
        """The numbers of messages that can be read with many others, and of those that are read one by one.

        Both are pairs: positions, and events at stops. What is no event is dismissed.
        """
        messages, places = batch.messages, batch.places
        # What looks as it should is read with all the others; everything else by itself. Nothing begins with ().
        beginnings = [_BEGINNINGS.get(event, ()) for event in places.events]
        longest, which = self.settings.max_bytes, places.which
        fit = [
            payload.startswith(beginnings[place]) and payload.endswith(b"}}") and len(payload) <= longest
            for payload, place in zip(messages.payloads, which.tolist(), strict=True)
        ]
        quick = np.array(fit, np.bool_) & (messages.copies >= 0) & (messages.copies <= _MAX_COPY)
        at_stops = np.array([event != POSITION for event in places.events], np.bool_)[which]
        slow: tuple[list[int], list[int]] = [], []
        found: tuple[Place, str, dict[str, Any]] | Dismissal | None = None
        before: RawMessage | None = None
        for number in np.flatnonzero(~quick).tolist():
            message = messages[number]
            # Copies of a message follow it, and share its payload: it is read once.
            if before is None or message.payload is not before.payload or message.topic != before.topic:
                found = self._read(message)
            before = message
            if isinstance(found, Dismissal):
                batch.dismissed[number] = found
            elif found is not None and not 0 <= message.copy <= _MAX_COPY:
                batch.dismissed[number] = Dismissal(Cause.BAD_VALUE, f"copy {message.copy} has no vehicle number")
            elif found is not None:
                slow[found[1] != POSITION].append(number)
        return (
            (np.flatnonzero(quick & ~at_stops), np.flatnonzero(quick & at_stops)),
            (np.array(slow[0], np.int64), np.array(slow[1], np.int64)),
        )

    def _read(self, message: RawMessage) -> tuple[Place, str, dict[str, Any]] | Dismissal:
        payload = message.payload
        if not payload:
            return Dismissal(Cause.EMPTY, "the payload is empty")
        if len(payload) > self.settings.max_bytes:
            return Dismissal(Cause.TOO_LARGE, f"{len(payload):,} bytes, the limit is {self.settings.max_bytes:,}")
        place = parse_topic(message.topic)
        if isinstance(place, Dismissal):
            return place
        content = read_json(payload)
        if isinstance(content, Dismissal):
            return content
        if not isinstance(content, dict) or len(content) != 1:
            return Dismissal(Cause.MALFORMED, "the payload is not a JSON object with one member, the event")
        ((event, body),) = content.items()
        if not isinstance(body, dict):
            return Dismissal(Cause.MALFORMED, "the event is not a JSON object")
        if place.event and event != place.event:
            return Dismissal(Cause.BAD_VALUE, f"the topic says {place.event[:20]!r}, the payload {event[:20]!r}")
        if event == POSITION or event in AT_STOPS:
            return place, event, body
        if event in ELSEWHERE:
            return Dismissal(Cause.OTHER_EVENT, f"{event} is neither a position nor an event at a stop")
        return Dismissal(Cause.UNKNOWN_EVENT, f"HFP has no event {event[:20]!r}")

    def _quickly(self, batch: _Batch, numbers: Numbers, *, stops: bool) -> Iterator[pl.DataFrame]:
        """Read payloads together; halve them until those that do not fit stand nearly alone."""
        if not numbers.size:
            return
        bodies, which = batch.bodies(numbers, stops=stops)
        columns = hfp_columns.read(bodies, stops=stops)
        if columns is None:
            if len(numbers) <= _FEW:
                yield from self._slowly(batch, numbers, stops=stops)
            else:
                for half in np.array_split(numbers, 2):
                    yield from self._quickly(batch, half, stops=stops)
            return
        if len(bodies) < len(numbers):
            columns = columns[which]
        if stops:
            events = [batch.places.events[place] for place in batch.places.which[numbers].tolist()]
            columns = columns.hstack([pl.Series("event_type", events)])
        yield from self._finished(batch, columns, numbers, {}, stops=stops)

    def _slowly(self, batch: _Batch, numbers: Numbers, *, stops: bool) -> Iterator[pl.DataFrame]:
        """Read payloads one by one, and say what is wrong with which."""
        kept, events, bodies = [], [], []
        for number in numbers.tolist():
            found = self._read(batch.messages[number])
            if isinstance(found, Dismissal):
                batch.dismissed[number] = found
            else:
                kept.append(number)
                events.append(found[1])
                bodies.append(found[2])
        if not bodies:
            return
        bad: dict[int, Dismissal] = {}
        columns: dict[str, pl.Series] = {"event_time": fields.event_times(bodies, bad)}
        for column in fields.COLUMNS + (fields.STOP_COLUMNS if stops else ()):
            key = column.key
            series, wrong = column.reader.read([body.get(key) for body in bodies])
            columns[column.name] = series
            for row, text in wrong.items():
                if self.settings.bad_fields == "dismiss":
                    bad.setdefault(row, Dismissal(Cause.BAD_VALUE, f"{column.key}: {text}"))
                else:
                    batch.cleared[column.key] += 1
        if stops:
            columns["event_type"] = pl.Series(events, dtype=pl.String)
        yield from self._finished(batch, pl.DataFrame(columns), np.array(kept), bad, stops=stops)

    def _finished(
        self, batch: _Batch, columns: pl.DataFrame, numbers: Numbers, bad: dict[int, Dismissal], *, stops: bool
    ) -> Iterator[pl.DataFrame]:
        """Add what topics and arrivals say; rows that turn out to be no events are dismissed."""
        messages = batch.messages
        times = {_ARRIVAL: messages.arrivals, _SHIFT: messages.shifts, _COPY: messages.copies}
        frame = columns.hstack(
            [
                *batch.places.columns(numbers),
                *(pl.Series(name, values[numbers]) for name, values in times.items()),
                pl.Series(_NUMBER_COLUMN, numbers),
            ]
        ).select(_EVENTS[stops])
        self._judge(frame, bad)
        if bad:
            for row, dismissal in bad.items():
                batch.dismissed[int(numbers[row])] = dismissal
            frame = frame.filter(pl.Series([row not in bad for row in range(len(numbers))], dtype=pl.Boolean))
        frame.drop_in_place(_LATE)
        if frame.height:
            yield frame

    def _judge(self, frame: pl.DataFrame, bad: dict[int, Dismissal]) -> None:
        """Dismiss rows that the settings do not allow: clocks that are far off, lost positions."""
        late = frame[_LATE]
        wrong = late < -self._ahead
        if self._behind is not None:
            wrong |= late > self._behind
        if self.settings.null_positions == "dismiss":
            wrong |= frame["latitude"].is_null()
        if not wrong.any():
            return
        rows = wrong.arg_true()
        for row, behind in zip(rows, late.gather(rows), strict=True):
            if behind < -self._ahead:
                found = Dismissal(Cause.CLOCK_AHEAD, f"the event time is {-behind / 1e6:,.3f} s after the arrival")
            elif self._behind is not None and behind > self._behind:
                found = Dismissal(Cause.CLOCK_BEHIND, f"the event time is {behind / 1e6:,.3f} s before the arrival")
            else:
                found = Dismissal(Cause.NO_POSITION, "latitude and longitude are null")
            bad.setdefault(row, found)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages that are looked at together, and what was found out about them.

    Args:
        messages: The messages.
        places: What their topics say.
        dismissed: Number of the message to the reason why it is no event.
        cleared: Field name to how many of its values were left out.
    """

    messages: Messages
    places: Places
    dismissed: dict[int, Dismissal] = field(default_factory=dict)
    cleared: Counter[str] = field(default_factory=Counter)

    def bodies(self, numbers: Numbers, *, stops: bool) -> tuple[list[bytes], Numbers]:
        """The bodies of payloads that begin as they should, those of copies once; and which of them each has."""
        payloads = [self.messages.payloads[number] for number in numbers.tolist()]
        new = np.fromiter(map(is_not, payloads, chain((None,), payloads)), np.bool_, len(payloads))
        different = compress(payloads, new)
        if stops:
            bodies = [payload[payload.index(b"{", 1) : -1] for payload in different]
        else:
            bodies = [payload[_POSITION_BODY:-1] for payload in different]
        return bodies, np.cumsum(new) - 1
