"""Mappings: how messages of any domain become events, by configuration instead of code.

A mapping names the columns of an event and the fields they come from, the event's time, its key, and which messages are
wanted at all. The events are `Record`s, whose columns are those of the mapping; or, with `type`, events of a message
type that exists already, so that the jobs for it run on another source, too.

What the processors of a format have in common is here; reading a payload (`JsonProcessor`, `CsvProcessor`) is theirs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

import polars as pl
from pydantic import BeforeValidator, ConfigDict, with_config

from headrace.errors import ConfigError, SchemaError
from headrace.events.layout import OPEN_FIELD, Layout
from headrace.events.letters import SHOWABLE
from headrace.events.registry import RESERVED_COLUMNS, RESERVED_PREFIX, TypeRegistry
from headrace.ingest import fields
from headrace.ingest.expressions import Expressions
from headrace.ingest.fields import INSTANT
from headrace.ingest.processor import Cause, Dismissal, EventFrame, Processed, Processor
from headrace.ingest.rules import TYPES, FieldRule, Rule, path_of
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.events import EventType
    from headrace.ingest.message import RawMessage

    Getter = Callable[[Sequence[Any], Sequence[RawMessage]], list[Any]]

#: A copy of a message has its number added to the first text of the key, or so much to the first number.
COPY_STEP = 1_000_000_000
_TIME = "event_time"


def _rule(value: Any) -> Any:
    """The short form of a rule is its type."""
    return {"type": value} if isinstance(value, str) else value


def _time_rule(value: Any) -> Any:
    """The short form of a time is its field."""
    return {"field": value} if isinstance(value, str) else value


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class MappingSettings:
    """What messages become.

    Args:
        topic: The input topic on Kafka.
        fields: Column to where its value stands and what it is; the short form of a rule is its type.
        time: The field with the event's time, and its format; "@arrival": events happen when they arrive.
        key: Columns that say what an event is about; events with the same key stay in order. They are required.
        type: The message type of the events: "Record" with the columns of `fields`, or one that exists already.
        compute: Further columns by SQL expressions over the others.
        where: A SQL condition; messages for which it is not true are left out and counted.
        bad_fields: What becomes of a message in which a field has an impossible value: "dismiss" it, or "clear" the
            field and keep the rest. Fields without which there is no event always dismiss it.
        max_bytes: Longer payloads are dismissed unread.
        max_ahead: How far the event time may be after the arrival; None: any time.
        max_behind: How far it may be before the arrival; None: any time.

    Raises:
        ConfigError: Something makes no sense.
    """

    topic: str
    fields: dict[str, Annotated[FieldRule, BeforeValidator(_rule)]]
    time: Annotated[FieldRule, BeforeValidator(_time_rule)] = field(default_factory=lambda: FieldRule(field="@arrival"))
    key: tuple[str, ...] = ()
    type: str = "Record"
    compute: dict[str, str] | None = None
    where: str = ""
    bad_fields: Literal["dismiss", "clear"] = "dismiss"
    max_bytes: int = 65_536
    max_ahead: str | timedelta | int | None = "5m"
    max_behind: str | timedelta | int | None = None

    def __post_init__(self) -> None:
        if not self.topic:
            raise ConfigError("topic is empty", hint="Name the Kafka topic, such as input.aircraft.")
        if not self.fields:
            raise ConfigError("fields is empty", hint="Name at least one column.")
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes is {self.max_bytes}", hint="Give the number of bytes of the longest payload.")
        if self.bad_fields not in ("dismiss", "clear"):
            raise ConfigError(f"bad_fields is {self.bad_fields!r}", hint="Give dismiss or clear.")
        for name in (*self.fields, *(self.compute or ())):
            if name in RESERVED_COLUMNS or name == OPEN_FIELD or name.startswith((RESERVED_PREFIX, "\0")) or not name:
                raise ConfigError(f"a column cannot be called {name!r}", hint="Give it another name.")
        if twice := sorted(set(self.fields) & set(self.compute or ())):
            raise ConfigError(f"column {twice[0]!r} is both read and computed", hint="Give one another name.")
        if missing := [name for name in self.key if name not in self.fields]:
            raise ConfigError(f"key {missing[0]!r} is none of the fields", hint=f"There are: {', '.join(self.fields)}.")
        if self.time.type not in ("", "time"):
            raise ConfigError(f"the event time is a {self.time.type}", hint="Leave its type out.")
        for limit in (self.max_ahead, self.max_behind):
            if limit is not None:
                micros(limit)


class MappingProcessor(Processor):
    """What processors that follow a mapping have in common.

    Args:
        settings: The mapping.
        text: Whether numbers and times come as texts.
        types: The message types that the mapping may name; Headrace's own if not given.
    """

    names_types = True

    def __init__(self, settings: MappingSettings, *, text: bool, types: TypeRegistry | None = None) -> None:
        self.settings = settings
        self.topics = (settings.topic,)
        self._type = _event_type(settings.type, types or TypeRegistry())
        layout = Layout(self._type.descriptor)
        required = {node.name for node in layout.nodes if not node.nullable} if not layout.is_open else set()
        self._rules = [
            self._ready(
                name, rule, layout, required=rule.required or name in required or name in settings.key, text=text
            )
            for name, rule in settings.fields.items()
        ]
        self._time = Rule(_TIME, _of_arrival(replace(settings.time, type="time")), text=text)
        self._getters = {rule.name: self._getter(rule) for rule in (*self._rules, self._time)}
        columns = {rule.name: rule.dtype for rule in self._rules}
        self._expressions = Expressions(
            {_TIME: INSTANT, "ingestion_time": INSTANT, **columns}, settings.compute or {}, settings.where
        )
        kept = [rule.name for rule in self._rules if rule.rule.keep]
        #: The columns of the events, both times aside.
        self.schema = pl.Schema(
            {
                name: kind
                for name, kind in self._expressions.schema.items()
                if name in (*kept, *(settings.compute or ()))
            }
        )
        _check_columns(layout, self.schema)
        self._ahead = None if settings.max_ahead is None else micros(settings.max_ahead)
        self._behind = None if settings.max_behind is None else micros(settings.max_behind)

    # ---------------------------------------------------------------- what a format brings

    @abstractmethod
    def _read(self, payload: bytes) -> Any:
        """Read a payload of the right length, or give a `Dismissal`."""

    @abstractmethod
    def _values(self, path: tuple[str | int, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        """Give a function that takes the values at a path out of what `_read` gave for each message.

        Raises:
            ConfigError: There can be no such path.
        """

    # ---------------------------------------------------------------- what all formats share

    def process(self, messages: Sequence[RawMessage]) -> Processed:
        """Look at a batch; nothing in it raises.

        Args:
            messages: The messages.
        """
        dismissed: dict[int, Dismissal] = {}
        cleared: Counter[str] = Counter()
        numbers: list[int] = []
        bodies: list[Any] = []
        before: RawMessage | None = None
        body: Any = None
        for number, message in enumerate(messages):
            # Copies of a message follow it, and share its payload: it is read once.
            if before is None or message.payload is not before.payload:
                body = self._body(message.payload)
            before = message
            if isinstance(body, Dismissal):
                dismissed[number] = body
            else:
                numbers.append(number)
                bodies.append(body)
        frames: tuple[EventFrame, ...] = ()
        if numbers:
            taken = [messages[number] for number in numbers]
            bad: dict[int, Dismissal] = {}
            frame = self._frame(bodies, taken, bad, cleared)
            dismissed |= {numbers[row]: dismissal for row, dismissal in bad.items()}
            if frame.height:
                frames = (self._events(frame),)
        return Processed(events=frames, dismissed=dict(sorted(dismissed.items())), cleared=dict(cleared))

    def _body(self, payload: bytes) -> Any:
        if not payload:
            return Dismissal(Cause.EMPTY, "the payload is empty")
        if len(payload) > self.settings.max_bytes:
            return Dismissal(Cause.TOO_LARGE, f"{len(payload):,} bytes, the limit is {self.settings.max_bytes:,}")
        return self._read(payload)

    def _frame(
        self, bodies: Sequence[Any], taken: Sequence[RawMessage], bad: dict[int, Dismissal], cleared: Counter[str]
    ) -> pl.DataFrame:
        """Make columns of the bodies; rows that turn out to be no events are noted as bad, and left out."""
        columns: dict[str, pl.Series] = {}
        for rule in (self._time, *self._rules):
            series, wrong = rule.read(self._getters[rule.name](bodies, taken))
            columns[rule.name] = series
            essential = rule is self._time or rule.rule.required
            for row, text in wrong.items():
                if essential or self.settings.bad_fields == "dismiss":
                    bad.setdefault(row, Dismissal(Cause.BAD_VALUE, f"{rule.name}: {text}"))
                else:
                    cleared[rule.name] += 1
            if essential and series.null_count():
                for row in series.is_null().arg_true().to_list():
                    bad.setdefault(row, Dismissal(Cause.MISSING_FIELD, f"{rule.name}: the message has none"))
        frame = self._moved(pl.DataFrame(columns), taken, bad)
        frame = frame.with_columns(
            pl.Series("ingestion_time", [message.arrival for message in taken], dtype=pl.Int64).cast(INSTANT)
        )
        self._judge(frame, bad)
        return self._expressions.apply(frame, bad)

    def _moved(self, frame: pl.DataFrame, taken: Sequence[RawMessage], bad: dict[int, Dismissal]) -> pl.DataFrame:
        """Move times as a replay asks, and give copies an identity of their own."""
        if any(message.shift for message in taken):
            shift = pl.Series([message.shift for message in taken], dtype=pl.Int64)
            names = [_TIME, *(rule.name for rule in self._rules if rule.dtype == INSTANT)]
            arrival = [rule.name for rule in (self._time, *self._rules) if rule.rule.field == "@arrival"]
            frame = frame.with_columns(_shifted(name, shift) for name in names if name not in arrival)
        if any(message.copy for message in taken) and self.settings.key:
            copies = pl.Series([message.copy for message in taken], dtype=pl.Int64)
            frame = self._renamed(frame, copies, bad)
        return frame

    def _renamed(self, frame: pl.DataFrame, copies: pl.Series, bad: dict[int, Dismissal]) -> pl.DataFrame:
        texts = [name for name in self.settings.key if frame.schema[name] == pl.String]
        name = (texts or self.settings.key)[0]
        if texts:
            other = pl.when(copies > 0).then(pl.concat_str(name, pl.lit("~"), copies.cast(pl.String))).otherwise(name)
            return frame.with_columns(other.alias(name))
        kind = frame.schema[name]
        moved = frame.select((pl.col(name).cast(pl.Int64, strict=False) + copies * COPY_STEP).cast(kind, strict=False))
        for row in (moved.to_series().is_null() & frame[name].is_not_null()).arg_true().to_list():
            bad.setdefault(row, Dismissal(Cause.BAD_VALUE, f"{name}: copy {copies[row]} does not fit into a {kind}"))
        return frame.with_columns(moved.to_series().alias(name))

    def _judge(self, frame: pl.DataFrame, bad: dict[int, Dismissal]) -> None:
        """Dismiss rows whose clocks are further off than the settings allow."""
        late = (frame["ingestion_time"].cast(pl.Int64) - frame[_TIME].cast(pl.Int64)).to_frame("late").with_row_index()
        for limit, wrong, cause, text in (
            (self._ahead, pl.col("late") < -(self._ahead or 0), Cause.CLOCK_AHEAD, "after"),
            (self._behind, pl.col("late") > (self._behind or 0), Cause.CLOCK_BEHIND, "before"),
        ):
            if limit is not None:
                for row, by in late.filter(wrong).iter_rows():
                    found = Dismissal(cause, f"the event time is {abs(by) / 1e6:,.3f} s {text} the arrival")
                    bad.setdefault(row, found)

    def _events(self, frame: pl.DataFrame) -> EventFrame:
        keys = None
        if self.settings.key:
            parts = [pl.col(name).cast(pl.String) for name in self.settings.key]
            keys = frame.select(pl.concat_str(parts, separator="/").alias("key")).to_series()
        return EventFrame(
            topic=self.settings.topic,
            type=self._type.message_class,
            frame=frame.select(_TIME, "ingestion_time", *self.schema),
            keys=keys,
        )

    # ---------------------------------------------------------------- once, when it is made

    def _ready(self, name: str, rule: FieldRule, layout: Layout, *, required: bool, text: bool) -> Rule:
        known = {} if layout.is_open else layout.schema
        if not rule.type:
            fitting = [kind for kind, dtype in TYPES.items() if dtype == known.get(name)]
            if not fitting:
                what = f"column {name!r} has no type"
                raise ConfigError(what, hint=f"Give one of: {', '.join(TYPES)}.")
            rule = replace(rule, type=fitting[0])
        return Rule(name, _of_arrival(replace(rule, required=required)), text=text)

    def _getter(self, rule: Rule) -> Getter:
        """How the values of a column are found."""
        where = rule.rule.field
        if rule.rule.value is not None:
            constant = rule.rule.value
            return lambda bodies, _: [constant] * len(bodies)
        if where == "@arrival":
            if rule.rule.type != "time":
                raise ConfigError(f"column {rule.name!r}: the arrival is no {rule.rule.type}", hint='type = "time"')
            return lambda _, taken: [message.arrival for message in taken]
        if isinstance(where, str) and where.partition(".")[0] == "@topic":
            return _topic_getter(rule.name, where)
        path = (rule.name,) if where is None else path_of(where)
        values = self._values(path)
        return lambda bodies, _: values(bodies)


def _of_arrival(rule: FieldRule) -> FieldRule:
    return replace(rule, format="epoch_us") if rule.field == "@arrival" else rule


def _topic_getter(column: str, where: str) -> Getter:
    level = where.removeprefix("@topic").removeprefix(".")
    if not level:
        return lambda _, taken: fields.safe_texts([message.topic for message in taken]).to_list()
    if not level.isdecimal():
        raise ConfigError(f"column {column!r}: field is {where!r}", hint="Give the number of a level: @topic.0, ...")
    number = int(level)

    def levels(_: Sequence[Any], taken: Sequence[RawMessage]) -> list[Any]:
        parts = (message.topic.split("/") for message in taken)
        return fields.safe_texts([part[number] if number < len(part) else None for part in parts]).to_list()

    return levels


def _shifted(name: str, shift: pl.Series) -> pl.Expr:
    """A time, moved; a hostile one may leave the years that can be written, and is left out then."""
    moved = pl.col(name).cast(pl.Int64) + shift
    return pl.when(moved.is_between(*SHOWABLE)).then(moved).cast(INSTANT).alias(name)


def _event_type(name: str, types: TypeRegistry) -> EventType:
    try:
        return types.get(name)
    except SchemaError as error:
        known = ", ".join(sorted(entry.name.rpartition(".")[2] for entry in types))
        raise ConfigError(
            f"type: {error.message.partition(';')[0]}",
            hint=f"There are: {known}. `headrace plugins` lists those that were added.",
        ) from error


def _check_columns(layout: Layout, columns: pl.Schema) -> None:
    if layout.is_open:
        if taken := sorted(set(columns) & set(layout.field_names)):
            raise ConfigError(f"{layout.name} has a field {taken[0]!r} of its own", hint="Rename the column.")
        return
    for name, kind in columns.items():
        if name not in layout.schema:
            raise ConfigError(
                f"{layout.name} has no field {name!r}", hint=f"It has: {', '.join(sorted(layout.schema))}."
            )
        if layout.schema[name] != kind:
            raise ConfigError(f"{layout.name}.{name} is {layout.schema[name]}, not {kind}", hint="Leave the type out.")
    needed = [node.name for node in layout.nodes if not node.nullable and not node.repeated]
    if missing := [name for name in needed if name not in columns]:
        raise ConfigError(f"{layout.name} needs {missing[0]!r}", hint="Map it, or give it a constant value.")
