"""Rules: how one field of a message becomes one column, as a mapping in the configuration says it.

A rule says where a value stands and what it should be. Reading a column goes in this order: what means nothing becomes
null, values are renamed, read as the column's type, converted (unit, scale, offset), held to a range or a list, and
what is null gets the default.
"""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import polars as pl
from polars.exceptions import PolarsError
from pydantic import ConfigDict, with_config

from headrace.errors import ConfigError
from headrace.events.letters import SHOWABLE
from headrace.ingest import fields
from headrace.ingest.fields import INSTANT, Reader, Values
from headrace.ingest.units import unit

if TYPE_CHECKING:
    from collections.abc import Callable

Scalar = str | int | float | bool

_EPOCHS = {"epoch_s": 1_000_000.0, "epoch_ms": 1_000.0, "epoch_us": 1.0, "epoch_ns": 0.001}
_INTEGERS = {
    "i8": pl.Int8(), "i16": pl.Int16(), "i32": pl.Int32(), "i64": pl.Int64(),
    "u8": pl.UInt8(), "u16": pl.UInt16(), "u32": pl.UInt32(), "u64": pl.UInt64(),
}  # fmt: skip
_FLOATS = {"f32": pl.Float32(), "f64": pl.Float64()}
_TRUTHS = {"true": True, "t": True, "yes": True, "y": True, "1": True, "on": True} | {
    "false": False, "f": False, "no": False, "n": False, "0": False, "off": False,
}  # fmt: skip
#: What a rule may call a type, and what the column is then.
TYPES: dict[str, Any] = {
    "str": pl.String(), "bool": pl.Boolean(), **_INTEGERS, **_FLOATS, "time": INSTANT, "json": pl.String(),
}  # fmt: skip


@with_config(ConfigDict(extra="forbid"))
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FieldRule:
    """How a column is made.

    Args:
        field: Where its value stands: a name, or a path with dots ("position.lat", "states.0"). A list takes names that
            hold dots. "" is the whole payload; "@topic" the message's topic, "@topic.2" its third level; "@arrival" the
            moment of its arrival. None: as the column is called.
        type: "str", "bool", "i8" to "i64", "u8" to "u64", "f32", "f64", "time", or "json" for any value as JSON text.
        required: Whether a message without it is dismissed.
        null: Values that mean nothing, such as "N/A" or -9999.
        rename: Texts to be read as other texts.
        strip: Whether white space around a text goes.
        unit: The unit of the source, such as "ft"; the column has metres then.
        scale: Numbers are multiplied by this.
        offset: This is added then.
        min: The least number that can be.
        max: The greatest.
        one_of: All values that can be.
        format: Of a time: "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", or a pattern such as "%d.%m.%Y %H:%M".
        zone: Of a time that does not say its own.
        default: Instead of null.
        value: Always this; the message is not asked.
        keep: Whether the column is part of the event; if not, it can be used by `key`, `compute` and `where` only.

    Raises:
        ConfigError: The rule contradicts itself.
    """

    field: str | int | tuple[str | int, ...] | None = None
    type: str = ""
    required: bool = False
    null: tuple[Scalar, ...] = ()
    rename: dict[str, str] = dataclasses.field(default_factory=dict)
    strip: bool = False
    unit: str = ""
    scale: float = 1.0
    offset: float = 0.0
    min: float | None = None
    max: float | None = None
    one_of: tuple[Scalar, ...] = ()
    format: str = "iso"
    zone: str = "UTC"
    default: Scalar | None = None
    value: Scalar | None = None
    keep: bool = True

    def __post_init__(self) -> None:
        if self.type and self.type not in TYPES:
            raise ConfigError(f"type is {self.type!r}", hint=f"There are: {', '.join(TYPES)}.")
        if self.value is not None and self.field is not None:
            raise ConfigError("field and value contradict each other", hint="A constant comes from no field.")
        if not (math.isfinite(self.scale) and math.isfinite(self.offset)) or self.scale == 0:
            raise ConfigError(f"scale is {self.scale}, offset {self.offset}", hint="Give numbers; scale must not be 0.")
        if self.unit:
            unit(self.unit)
        converted = self.unit or self.scale != 1.0 or self.offset
        if converted and self.type and self.type not in _FLOATS:
            raise ConfigError(f"unit, scale or offset of a {self.type}", hint='They give fractions: type = "f64".')
        limited = self.min is not None or self.max is not None
        if limited and self.type and self.type not in (_INTEGERS | _FLOATS):
            raise ConfigError(f"min or max of a {self.type}", hint="They are for numbers.")
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(f"zone is {self.zone!r}", hint="Give one such as Europe/Paris.") from error
        if self.format != "iso" and self.format not in _EPOCHS:
            _check_pattern(self.format)


def path_of(field: str | int | tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Take a path with dots apart; numbers are places in lists.

    >>> path_of("states.0.lat"), path_of(("a.b",)), path_of("")
    (('states', 0, 'lat'), ('a.b',), ())
    """
    if isinstance(field, int):
        return (field,)
    if isinstance(field, tuple):
        return field
    return tuple(int(part) if part.isdecimal() else part for part in field.split(".")) if field else ()


class Rule:
    """A rule, ready to read columns.

    Args:
        name: The column.
        rule: What was written; its type must be set.
        text: Whether numbers, times and truths come as texts (CSV), or may do so.

    >>> Rule("altitude", FieldRule(type="f64", unit="ft", null=(-1,)), text=False).read([1000, -1, "x"])
    (shape: (3,)
    Series: 'altitude' [f64]
    [
        304.8
        null
        null
    ], {2: "'x' is not a number"})
    """

    def __init__(self, name: str, rule: FieldRule, *, text: bool) -> None:
        self.name, self.rule = name, rule
        self.dtype = TYPES[rule.type]
        self._text = text
        self._native = _native(rule)
        self._nulls = {_same(value) for value in rule.null}
        self._allowed = {_same(value) for value in rule.one_of}
        factor = unit(rule.unit) if rule.unit else None
        self._scale = rule.scale * (factor.factor if factor else 1.0)
        self._offset = rule.offset + (factor.offset * rule.scale if factor else 0.0)
        for what, value in (("default", rule.default), ("value", rule.value)):
            if value is not None and self.constant(value) is None:
                raise ConfigError(f"column {name!r}: {what} {value!r} is no {rule.type}")

    def constant(self, value: Scalar) -> Any:
        """A value of the configuration as one of the column; None if it cannot be one."""
        if self.rule.type == "time":
            series, wrong = self._parse([value])
        else:
            series, wrong = self._native.read([value])
        return None if wrong else series[0]

    def read(self, values: Values) -> tuple[pl.Series, dict[int, str]]:
        """Make the column, with null for every value that does not fit, and say which these are."""
        rule = self.rule
        if self._nulls or rule.rename or (rule.strip and rule.type == "str"):
            values = [self._tidied(value) for value in values]
        series, wrong = self._parse(values)
        if self._scale != 1.0 or self._offset:
            series = (series.cast(pl.Float64) * self._scale + self._offset).cast(self.dtype)
        if rule.min is not None or rule.max is not None:
            series = self._limited(series, wrong)
        if self._allowed:
            series = self._listed(series, wrong)
        if rule.default is not None:
            kept = series.fill_null(self.constant(rule.default))
            # A value that is wrong is not one that is missing.
            series = kept.scatter(list(wrong), None) if wrong else kept
        return series.alias(self.name), wrong

    def _tidied(self, value: Any) -> Any:
        if type(value) is str:
            value = value.strip() if self.rule.strip or self.rule.type != "str" else value
            value = self.rule.rename.get(value, value)
        return None if _same(value) in self._nulls else value

    def _parse(self, values: Values) -> tuple[pl.Series, dict[int, str]]:
        if not self._text or self.rule.type in ("str", "json"):
            return self._native.read(values)
        rows = [row for row, value in enumerate(values) if type(value) is str]
        if not rows:
            return self._native.read(values)
        parsed, wrong = self._parse_texts(values, rows)
        if len(rows) == len(values):
            return parsed, wrong
        others = [None if type(value) is str else value for value in values]
        native, wrong_too = self._native.read(others)
        both = native.to_frame("a").with_columns(parsed.alias("b")).select(pl.coalesce("a", "b")).to_series()
        return both, dict(sorted((wrong | wrong_too).items()))

    def _parse_texts(self, values: Values, rows: list[int]) -> tuple[pl.Series, dict[int, str]]:
        """Read the texts among the values, as a whole."""
        try:
            texts = pl.Series([value if type(value) is str else None for value in values], dtype=pl.String)
        except fields.UNFIT:  # half of a character; no number, time or truth has one
            texts = fields.safe_texts([value if type(value) is str else None for value in values])
        texts = texts.str.strip_chars()
        parsed = _from_texts(texts, self.rule)
        missing = parsed.is_null().to_list()
        what = {"time": "a time", "bool": "true or false"}.get(self.rule.type, f"a number ({self.rule.type})")
        return parsed, {row: f"{fields.show(values[row])} is not {what}" for row in rows if missing[row]}

    def _limited(self, series: pl.Series, wrong: dict[int, str]) -> pl.Series:
        least = -math.inf if self.rule.min is None else self.rule.min
        most = math.inf if self.rule.max is None else self.rule.max
        fits = series.cast(pl.Float64).is_between(least, most).fill_null(value=True)
        return self._without(series, fits, wrong, f"is not between {least:g} and {most:g}")

    def _listed(self, series: pl.Series, wrong: dict[int, str]) -> pl.Series:
        fits = pl.Series([value is None or _same(value) in self._allowed for value in series], dtype=pl.Boolean)
        return self._without(series, fits, wrong, "is none of those allowed")

    @staticmethod
    def _without(series: pl.Series, fits: pl.Series, wrong: dict[int, str], text: str) -> pl.Series:
        if fits.all():
            return series
        for row in (~fits).arg_true().to_list():
            wrong.setdefault(row, f"{fields.show(series[row])} {text}")
        return series.to_frame("a").select(pl.when(fits).then("a").alias("a")).to_series()


def _same(value: Any) -> Any:
    """A key under which a value is found again: 0 and false are not the same, 1 and 1.0 are."""
    if isinstance(value, bool):
        return "bool", value
    return None if isinstance(value, (dict, list)) else value


# ---------------------------------------------------------------- values that have a type already


def _native(rule: FieldRule) -> Reader:
    kind = rule.type
    if kind in _FLOATS:
        return Reader(_FLOATS[kind], lambda values: _cast(fields.numbers(values), _FLOATS[kind]), _small(kind))
    if kind in _INTEGERS:
        return _integer_reader(_INTEGERS[kind])
    if kind == "bool":
        return fields.FLAG
    if kind == "time":
        return _time_reader(rule)
    if kind == "json":
        return Reader(pl.String(), lambda _: None, _as_json)
    return fields.TEXT


def _cast(series: pl.Series | None, dtype: Any) -> pl.Series | None:
    """A column of floats as narrower ones, if none becomes infinite."""
    if series is None or series.dtype == dtype:
        return series
    made = series.cast(dtype)
    return made if made.is_finite().all() else None


def _small(kind: str) -> Callable[[Any], float]:
    most = math.inf if kind == "f64" else 3.4028234663852886e38

    def one(value: Any) -> float:
        found = fields.number(value)
        if abs(found) > most:
            raise ValueError("the number is too large")
        return found

    return one


def _integer_reader(dtype: Any) -> Reader:
    bounds = pl.select(dtype.min().alias("least"), dtype.max().alias("most")).row(0)

    def all_of(values: Values) -> pl.Series | None:
        if not {type(value) for value in values} <= {int, type(None)}:
            return None
        return pl.Series(values, dtype=dtype)  # raises if one does not fit

    return Reader(dtype, all_of, lambda value: fields.integer(value, *bounds))


def _as_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        raise ValueError("the value cannot be written as JSON") from None
    return text


# ---------------------------------------------------------------- times


def _time_reader(rule: FieldRule) -> Reader:
    if rule.format == "iso":
        zone = ZoneInfo(rule.zone)
        return _instant_reader(fields.iso_times, lambda value: fields.iso_time(value, zone))
    if rule.format in _EPOCHS:
        factor = _EPOCHS[rule.format]
        return _instant_reader(lambda values: _epochs(values, factor), lambda value: _epoch(value, factor))

    def one(value: Any) -> int:
        raise ValueError(f"{fields.show(value)} is not a time")

    return _instant_reader(lambda _: None, one)


def _instant_reader(whole: Callable[[Values], pl.Series | None], single: Callable[[Any], int]) -> Reader:
    """Times as microseconds, checked and made instants."""

    def all_of(values: Values) -> pl.Series | None:
        series = whole(values)
        return None if series is None or not series.is_between(*SHOWABLE).all() else series.cast(INSTANT)

    def one(value: Any) -> Any:
        at = single(value)
        if not SHOWABLE[0] <= at <= SHOWABLE[1]:
            raise ValueError("the time is of no year that can be written")
        return pl.Series([at], dtype=pl.Int64).cast(INSTANT)[0]

    return Reader(INSTANT, all_of, one)


def _epochs(values: Values, factor: float) -> pl.Series | None:
    kinds = {type(value) for value in values}
    if kinds <= {int, type(None)}:
        series = pl.Series(values, dtype=pl.Int64)
        if factor < 1:
            return series // round(1 / factor)
        return series * int(factor) if series.abs().le(2**62 // int(factor)).all() else None
    if kinds <= {float, type(None)}:
        series = pl.Series(values, dtype=pl.Float64)
        return (series * factor).round().cast(pl.Int64) if (series * factor).abs().lt(2.0**62).all() else None
    return None


def _epoch(value: Any, factor: float) -> int:
    if type(value) is int:
        return value // round(1 / factor) if factor < 1 else value * int(factor)
    if type(value) is not float or not math.isfinite(value):
        raise ValueError(f"{fields.show(value)} is not a number of seconds or parts of them")
    return round(value * factor)


# ---------------------------------------------------------------- values that come as texts


def _from_texts(texts: pl.Series, rule: FieldRule) -> pl.Series:
    """Read texts as a type, with null for those that are none."""
    kind = rule.type
    if kind in _INTEGERS:
        return texts.cast(_INTEGERS[kind], strict=False)
    if kind in _FLOATS:
        found = texts.cast(pl.Float64, strict=False).cast(_FLOATS[kind], strict=False)
        return found.to_frame("a").select(pl.when(pl.col("a").is_finite()).then("a").alias("a")).to_series()
    if kind == "bool":
        return texts.str.to_lowercase().replace_strict(_TRUTHS, default=None, return_dtype=pl.Boolean)
    times = _time_texts(texts, rule).to_frame("a")
    return times.select(pl.when(pl.col("a").is_between(*SHOWABLE)).then("a").alias("a")).to_series().cast(INSTANT)


def _time_texts(texts: pl.Series, rule: FieldRule) -> pl.Series:
    """Microseconds since the epoch."""
    if rule.format == "iso":
        return _iso_texts(texts, ZoneInfo(rule.zone))
    if rule.format in _EPOCHS:
        factor = _EPOCHS[rule.format]
        whole, real = texts.cast(pl.Int64, strict=False), texts.cast(pl.Float64, strict=False)
        limit = 2**62 // int(max(factor, 1))
        exact = whole // round(1 / factor) if factor < 1 else whole * int(factor)
        both = pl.DataFrame({"whole": whole, "exact": exact, "real": real * factor})
        return both.select(
            pl.when(pl.col("whole").abs() <= limit)
            .then("exact")
            .otherwise(pl.when(pl.col("real").abs() < 2.0**62).then(pl.col("real").round()).cast(pl.Int64))
        ).to_series()
    return _by_pattern(texts, rule.format, rule.zone).cast(pl.Int64)


def _iso_texts(texts: pl.Series, zone: ZoneInfo) -> pl.Series:
    values = texts.to_list()
    found = fields.iso_times(values)
    if found is not None:
        return found
    times: list[int | None] = []
    for value in values:
        try:
            times.append(None if value is None else fields.iso_time(value, zone))
        except ValueError:
            times.append(None)
    return pl.Series(times, dtype=pl.Int64)


def _by_pattern(texts: pl.Series, pattern: str, zone: str) -> pl.Series:
    # Polars refuses a zone in a pattern without one and the other way round, so the pattern decides.
    if "%z" in pattern or "%:z" in pattern or "%#z" in pattern:
        return texts.str.to_datetime(pattern, time_unit="us", time_zone="UTC", strict=False)
    local = texts.str.to_datetime(pattern, time_unit="us", strict=False)
    return local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.convert_time_zone("UTC")


def _check_pattern(pattern: str) -> None:
    hint = 'Give iso, epoch_s, epoch_ms, epoch_us, epoch_ns, or a pattern such as "%Y-%m-%d %H:%M:%S".'
    if "%" not in pattern:
        raise ConfigError(f"format is {pattern!r}", hint=hint)
    try:
        # A pattern that can write a time can read it again.
        moment = datetime(2020, 9, 21, 3, 4, 5, tzinfo=UTC)
        (found,) = _by_pattern(pl.Series([moment], dtype=INSTANT).dt.to_string(pattern), pattern, "UTC")
        known = found is not None and found.date() == moment.date()
    except PolarsError:
        known = False
    if not known:
        raise ConfigError(f"format {pattern!r} is no pattern of a date and a time", hint=hint)
