"""HFP: from the messages of Helsinki's vehicles to positions and stop events.

HFP (high-frequency positioning) is what the vehicles of HSL publish over MQTT: about once a second a position (VP), and
an event when something happens: at stops, at traffic lights, when a driver signs on. Topic and payload both matter:

    /hfp/v2/journey/ongoing/vp/bus/0018/01029/5520/1/Martinlaakso/17:35/4150208/5/60;24/28/65/93
    {"VP": {"desi": "520", "dir": "1", "oper": 6, "veh": 1029, "tst": "2024-02-13T16:32:59.931Z", ...}}

The topic says who owns the vehicle (operator 18, vehicle 1029: that pair is its identity), where the trip goes and what
its next stop is; the payload's `oper` is who runs the trip, which may be somebody else. The older v1 form has no event
in its topic. Version 2 has eighteen kinds of events; nine of them happen at a stop and become a `StopEvent`, VP becomes
a `VehiclePosition`, and the others (traffic lights, sign-on and sign-off) are dismissed as `other_event`.

HFP counts a delay as negative (`dl`: seconds ahead of the timetable); here a delay is positive.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl

from headrace.errors import ConfigError
from headrace.events import StopEvent, VehiclePosition
from headrace.events.layout import Layout
from headrace.events.letters import SHOWABLE
from headrace.ingest.fields import INSTANT, safe_texts
from headrace.ingest.processor import Cause, Dismissal, EventFrame, Processed, Processor
from headrace.ingest.processors.json import read_json
from headrace.time.duration import micros
from headrace.transit import hfp_columns
from headrace.transit import hfp_fields as fields
from headrace.transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.ingest.message import RawMessage

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
#: Down to so many payloads are halved to find those that cannot.
_FEW = 16
_NUMBER_COLUMN = "\0number"
_CLOCK = re.compile(r"\d\d:\d\d")
#: HFP has four digits for operators and five for vehicles; copies of simulated vehicles have more.
_NUMBER = re.compile(r"[0-9]{1,9}")
_STOP_SCHEMA = Layout(StopEvent.DESCRIPTOR).schema
_POSITION_SCHEMA = Layout(VehiclePosition.DESCRIPTOR).schema


class Place(NamedTuple):
    """What a topic says.

    Args:
        event: VP, ARS, ...; empty in version 1.
        journey_type: deadrun, signoff; None for a journey.
        temporal_type: upcoming; None for ongoing.
        mode: bus, tram, train, ...
        operator: Who owns the vehicle.
        vehicle: Its number there.
        headsign: Where the trip goes.
        next_stop: The next stop's number, or EOL at the end of the line.
    """

    event: str
    journey_type: str | None
    temporal_type: str | None
    mode: str | None
    operator: int
    vehicle: int
    headsign: str | None
    next_stop: str | None


@lru_cache(maxsize=65_536)
def parse_topic(topic: str) -> Place | Dismissal:
    """Read an HFP topic of version 1 or 2, or say why it is none.

    >>> parse_topic("/hfp/v2/journey/ongoing/ars/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80")[4:]
    (40, 456, 'Arabia', '1111428')
    >>> parse_topic("/hfp/v1/deadrun/ongoing/bus/0018/01029").vehicle
    1029
    >>> parse_topic("/gtfsrt/vp").cause
    <Cause.UNKNOWN_TOPIC: 'unknown_topic'>
    """
    parts = topic.split("/")
    if len(parts) < 3 or parts[:2] != ["", "hfp"] or parts[2] not in ("v1", "v2"):
        return Dismissal(Cause.UNKNOWN_TOPIC, "the topic does not begin with /hfp/v2/ or /hfp/v1/")
    event = ""
    if parts[2] == "v2":
        if len(parts) < 9:
            return Dismissal(Cause.UNKNOWN_TOPIC, f"the topic has {len(parts) - 1} levels, version 2 has at least 8")
        event = parts.pop(5).upper()
    elif len(parts) < 8:
        return Dismissal(Cause.UNKNOWN_TOPIC, f"the topic has {len(parts) - 1} levels, version 1 has at least 7")
    _, _, _, journey, temporal, mode, operator, vehicle, *trip = parts
    if not (_NUMBER.fullmatch(operator) and _NUMBER.fullmatch(vehicle)):
        return Dismissal(Cause.UNKNOWN_TOPIC, f"operator {operator!r} and vehicle {vehicle!r} are not both numbers")
    headsign = next_stop = None
    if len(trip) >= 5:
        # A headsign may hold a slash; the start time behind it shows where it ends.
        end = next((n for n in range(3, len(trip) - 1) if _CLOCK.fullmatch(trip[n])), 3)
        headsign, next_stop = "/".join(trip[2:end]) or None, trip[end + 1] or None
    return Place(
        event,
        None if journey == "journey" else journey,
        None if temporal == "ongoing" else temporal,
        mode or None,
        int(operator),
        int(vehicle),
        headsign,
        next_stop,
    )


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
        dismissed: dict[int, Dismissal] = {}
        cleared: Counter[str] = Counter()
        quick, slow = _Rows.pair(), _Rows.pair()
        longest = self.settings.max_bytes
        found: tuple[Place, str, dict[str, Any]] | Dismissal | None = None
        before: RawMessage | None = None
        for number, message in enumerate(messages):
            payload, place = message.payload, parse_topic(message.topic)
            # What looks as it should is read with all the others; everything else by itself.
            beginning = _BEGINNINGS.get(place.event) if type(place) is Place else None
            if (
                beginning is not None
                and payload.startswith(beginning)
                and payload.endswith(b"}}")
                and len(payload) <= longest
                and 0 <= message.copy <= _MAX_COPY
            ):
                quick[place.event != POSITION].add(number, place, payload)  # type: ignore[union-attr,arg-type]
                continue
            # Copies of a message follow it, and share its payload: it is read once.
            if before is None or payload is not before.payload or message.topic != before.topic:
                found = self._read(message)
            before = message
            if isinstance(found, Dismissal):
                dismissed[number] = found
            elif found is not None and not 0 <= message.copy <= _MAX_COPY:
                dismissed[number] = Dismissal(Cause.BAD_VALUE, f"copy {message.copy} has no vehicle number")
            elif found is not None:
                slow[found[1] != POSITION].add(number, found[0], payload)
        frames = []
        for stops, kind, topic in ((False, VehiclePosition, VEHICLE_POSITIONS), (True, StopEvent, STOP_EVENTS)):
            parts = [
                *self._quickly(quick[stops], messages, dismissed, cleared, stops=stops),
                *self._slowly(slow[stops], messages, dismissed, cleared, stops=stops),
            ]
            if parts:
                whole = parts[0] if len(parts) == 1 else pl.concat(parts).sort(_NUMBER_COLUMN)
                frame = whole.drop(_NUMBER_COLUMN)
                frames.append(EventFrame(topic=topic, type=kind, frame=frame, keys=frame["vehicle_id"]))
        return Processed(events=tuple(frames), dismissed=dict(sorted(dismissed.items())), cleared=dict(cleared))

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

    def _quickly(
        self,
        rows: _Rows,
        messages: Sequence[RawMessage],
        dismissed: dict[int, Dismissal],
        cleared: Counter[str],
        *,
        stops: bool,
    ) -> Iterator[pl.DataFrame]:
        """Read payloads together; halve them until those that do not fit stand nearly alone."""
        if not rows.numbers:
            return
        bodies, places = rows.distinct()
        columns = hfp_columns.read(bodies, stops=stops)
        if columns is None:
            if len(rows.numbers) <= _FEW:
                yield from self._slowly(rows, messages, dismissed, cleared, stops=stops)
            else:
                for half in rows.halves():
                    yield from self._quickly(half, messages, dismissed, cleared, stops=stops)
            return
        if len(bodies) < len(places):
            columns = columns[places]
        if stops:
            columns = columns.with_columns(pl.Series("event_type", [place.event for place in rows.places]))
        yield from self._finished(columns, rows, messages, {}, dismissed, stops=stops)

    def _slowly(
        self,
        rows: _Rows,
        messages: Sequence[RawMessage],
        dismissed: dict[int, Dismissal],
        cleared: Counter[str],
        *,
        stops: bool,
    ) -> Iterator[pl.DataFrame]:
        """Read payloads one by one, and say what is wrong with which."""
        kept, events, bodies = _Rows(), [], []
        for number, payload in zip(rows.numbers, rows.payloads, strict=True):
            found = self._read(messages[number])
            if isinstance(found, Dismissal):
                dismissed[number] = found
            else:
                kept.add(number, found[0], payload)
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
                    cleared[column.key] += 1
        if stops:
            columns["event_type"] = pl.Series(events, dtype=pl.String)
        yield from self._finished(pl.DataFrame(columns), kept, messages, bad, dismissed, stops=stops)

    def _finished(
        self,
        columns: pl.DataFrame,
        rows: _Rows,
        messages: Sequence[RawMessage],
        bad: dict[int, Dismissal],
        dismissed: dict[int, Dismissal],
        *,
        stops: bool,
    ) -> Iterator[pl.DataFrame]:
        """Add what topics and arrivals say; rows that turn out to be no events are dismissed."""
        numbers = rows.numbers
        taken = [messages[number] for number in numbers]
        arrival, shift, copy = _times(taken)
        place = dict(zip(Place._fields, zip(*rows.places, strict=True), strict=True))
        names = ("journey_type", "temporal_type", "mode", "headsign", "next_stop")
        frame = columns.with_columns(
            pl.Series("operator", place["operator"], dtype=pl.Int32),
            (pl.Series(place["vehicle"], dtype=pl.Int64) + copy * COPY_STEP).cast(pl.Int32).alias("vehicle_number"),
            pl.Series(_NUMBER_COLUMN, numbers, dtype=pl.Int64),
            *(safe_texts(list(place[name])).alias(name) for name in names),
        ).with_columns(
            arrival.cast(INSTANT).alias("ingestion_time"),
            (pl.col("event_time") + shift).cast(INSTANT),
            (pl.col("operator").cast(pl.String) + "/" + pl.col("vehicle_number").cast(pl.String)).alias("vehicle_id"),
            *(_moved(name, shift) for name in ("scheduled_arrival", "scheduled_departure") if stops),
            # Half of a position is none.
            *(
                pl.when(pl.col("latitude").is_not_null() & pl.col("longitude").is_not_null()).then(name).alias(name)
                for name in ("latitude", "longitude")
            ),
        )
        self._judge(frame, bad)
        if bad:
            for row, dismissal in bad.items():
                dismissed[numbers[row]] = dismissal
            frame = frame.filter(pl.Series([row not in bad for row in range(len(numbers))], dtype=pl.Boolean))
        if frame.height:
            schema = _STOP_SCHEMA if stops else _POSITION_SCHEMA
            yield frame.select("event_time", "ingestion_time", *schema.names(), _NUMBER_COLUMN)

    def _judge(self, frame: pl.DataFrame, bad: dict[int, Dismissal]) -> None:
        """Dismiss rows that the settings do not allow: clocks that are far off, lost positions."""
        late_by = (pl.col("ingestion_time") - pl.col("event_time")).dt.total_microseconds()
        wrong_clock = late_by < -self._ahead
        if self._behind is not None:
            wrong_clock |= late_by > self._behind
        if self.settings.null_positions == "dismiss":
            wrong_clock |= pl.col("latitude").is_null()
        odd = frame.with_row_index("row").filter(wrong_clock).select("row", late_by.alias("late_by"))
        for row, behind in odd.iter_rows():
            if behind < -self._ahead:
                found = Dismissal(Cause.CLOCK_AHEAD, f"the event time is {-behind / 1e6:,.3f} s after the arrival")
            elif self._behind is not None and behind > self._behind:
                found = Dismissal(Cause.CLOCK_BEHIND, f"the event time is {behind / 1e6:,.3f} s before the arrival")
            else:
                found = Dismissal(Cause.NO_POSITION, "latitude and longitude are null")
            bad.setdefault(row, found)


class _Rows:
    """Messages that become one frame: their numbers in the batch, what their topics say, and their payloads."""

    __slots__ = ("numbers", "payloads", "places")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[Place] = []
        self.payloads: list[bytes] = []

    @classmethod
    def pair(cls) -> tuple[_Rows, _Rows]:
        """For positions, and for events at stops."""
        return cls(), cls()

    def add(self, number: int, place: Place, payload: bytes) -> None:
        self.numbers.append(number)
        self.places.append(place)
        self.payloads.append(payload)

    def distinct(self) -> tuple[list[bytes], list[int]]:
        """The bodies of the payloads, those of copies once; and which of them each message has."""
        bodies: list[bytes] = []
        which: list[int] = []
        before = None
        for payload, place in zip(self.payloads, self.places, strict=True):
            if payload is not before:
                bodies.append(payload[len(place.event) + 4 : -1])
                before = payload
            which.append(len(bodies) - 1)
        return bodies, which

    def halves(self) -> Iterator[_Rows]:
        middle = len(self.numbers) // 2
        for part in (slice(None, middle), slice(middle, None)):
            half = _Rows()
            half.numbers, half.places = self.numbers[part], self.places[part]
            half.payloads = self.payloads[part]
            yield half


def _times(messages: list[RawMessage]) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Arrivals, shifts and copy numbers."""
    _, _, *numbers = zip(*messages, strict=True)
    arrival, shift, copy = (pl.Series(part, dtype=pl.Int64) for part in numbers)
    return arrival, shift, copy


def _moved(name: str, shift: pl.Series) -> pl.Expr:
    """A time, moved; a hostile one may leave the years that can be written, and is left out then."""
    moved = pl.col(name).cast(pl.Int64) + shift
    return pl.when(moved.is_between(*SHOWABLE)).then(moved).cast(INSTANT).alias(name)
