"""Event times of records that others write: where they are, and how their texts and numbers are read.

A time is in a field of the value, in a header, or it is Kafka's timestamp of the record. It is written as ISO 8601, as
a count of seconds, milliseconds, microseconds or nanoseconds since 1970 (a number, or digits in a text), or by a
pattern. All of it is read in columns, and every path of a format reads times by these functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from headrace.errors import SchemaError
from headrace.events.letters import SHOWABLE, Reason, Rejection

if TYPE_CHECKING:
    from collections.abc import Mapping

TimePlace: TypeAlias = Literal["field", "header", "timestamp"]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
ISO = "iso8601"

_INSTANT = pl.Datetime("us", "UTC")
_FACTORS: dict[str, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBER = r"^[+-]?\d{1,30}(\.\d{1,30})?$"
_ISO_TEXT = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]\d\d(:?\d\d)?)?$"
_DATE_TEXT = r"^\d{4}-\d\d-\d\d$"
_SHOWN = 100
#: From 2000 to 2100, in seconds.
_LIKELY = (946_684_800, 4_102_444_800)
_SECONDS: dict[str, float] = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where the time of an event is, and how it is written.

    Args:
        place: In a field of the value, in a header, or Kafka's timestamp of the record.
        path: The field and the fields in it, or the header.
        pattern: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a pattern such as "%d.%m.%Y %H:%M:%S".
        zone: The time zone of times that do not name one.
    """

    place: TimePlace = "timestamp"
    path: tuple[str, ...] = ()
    pattern: str = ISO
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.pattern != ISO and self.pattern not in UNITS and "%" not in self.pattern:
            raise SchemaError(
                f"the time format {self.pattern!r} is not known",
                hint=f'Formats are {ISO!r}, {", ".join(map(repr, UNITS))}, or a pattern such as "%d.%m.%Y %H:%M:%S".',
            )
        if self.place != "timestamp" and not all(self.path or ("",)):
            raise SchemaError(f"the time in a {self.place} has no name", hint='Name it, such as time="scanned_at".')
        try:
            ZoneInfo(self.zone)
            # A pattern that cannot work should fail here and not at the first record.
            _parsed(pl.Series(["2026-01-01"]), self.pattern, self.zone)
        except (PolarsError, ValueError, LookupError, OSError) as problem:
            raise SchemaError(
                f"times cannot be read by {self.pattern!r} in the zone {self.zone!r}: {problem}",
                hint='Give a pattern such as "%d.%m.%Y %H:%M:%S" and a zone such as "Europe/Paris".',
            ) from problem

    @property
    def is_epoch(self) -> bool:
        """Whether times are counts since 1970."""
        return self.pattern in UNITS

    @property
    def name(self) -> str:
        """What the time is called in messages."""
        return {
            "field": ".".join(self.path),
            "header": f"the header {'.'.join(self.path)}",
            "timestamp": "Kafka's timestamp",
        }[self.place]

    @property
    def text(self) -> str:
        """Describe it in a line of `explain()`."""
        how = "" if self.place == "timestamp" or self.pattern == ISO else f" ({self.pattern})"
        zone = "" if self.zone == "UTC" else f" in {self.zone}"
        return f"{self.name}{how}{zone}"

    def micros(self, times: pl.Series) -> pl.Series:
        """Read times.

        Args:
            times: Texts, whole or fractional numbers, or instants.

        Returns:
            Microseconds since 1970, Int64; null where there is no time or it cannot be read.
        """
        kind = times.dtype
        if isinstance(kind, pl.Datetime):
            found = times.dt.cast_time_unit("us").cast(pl.Int64)
        elif kind == pl.Date:
            found = times.cast(pl.Datetime("us")).cast(pl.Int64)
        elif kind == pl.Null:
            return pl.Series(times.name, [None] * len(times), dtype=pl.Int64)
        elif kind.is_numeric():
            # A number without a unit is no time.
            found = _counted(times, self.pattern) if self.is_epoch else times.clear(len(times)).cast(pl.Int64)
        elif self.is_epoch:
            found = _counted_texts(times, self.pattern)
        else:
            found = _parsed(times, self.pattern, self.zone).cast(pl.Int64)
        return _within(found)

    def rejection(self, raw: Any) -> Rejection:
        """Say why a time could not be read.

        Args:
            raw: What is in its place; None for nothing.
        """
        if raw is None:
            return Rejection(Reason.MISSING_TIMESTAMP, f"there is no time in {self.name}")
        if isinstance(raw, int | float) and not self.is_epoch:
            text = f'{self.name} is the number {raw!r}; its unit is not declared (time_format="ms", for example)'
            return Rejection(Reason.BAD_TIMESTAMP, text[: _SHOWN * 3])
        what = "ISO 8601" if self.pattern == ISO else f"a time as {self.pattern!r}"
        text = f"{self.name} is {_shown(raw)!r}, which is not {what}"
        unit = self._other_unit(raw)
        return Rejection(Reason.BAD_TIMESTAMP, f"{text}; as {unit!r} it would be" if unit else text)

    def _other_unit(self, raw: Any) -> str:
        """The unit in which a count that cannot be a time is one between 2000 and 2100; empty for none."""
        if not self.is_epoch or not re.fullmatch(_NUMBER, _shown(raw)):
            return ""
        count = float(_shown(raw))
        return next((unit for unit in UNITS if _LIKELY[0] <= count * _SECONDS[unit] < _LIKELY[1]), "")


def _shown(raw: Any) -> str:
    whole = int(raw) if isinstance(raw, float) and raw.is_integer() else raw
    return str(whole)[:_SHOWN]


def field_time(path: str | tuple[str, ...], time_format: str = ISO, *, zone: str = "UTC") -> EventTime:
    """Take the time of an event from a field of its value.

    Args:
        path: The field; "meta.at" is the field `at` in the object `meta`. A tuple names fields with dots in them.
        time_format: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a pattern such as "%d.%m.%Y %H:%M:%S".
        zone: The time zone of times that do not name one.
    """
    return EventTime("field", tuple(path.split(".")) if isinstance(path, str) else tuple(path), time_format, zone)


def header_time(header: str, time_format: str = ISO, *, zone: str = "UTC") -> EventTime:
    """Take the time of an event from a header of its record; see `field_time`."""
    return EventTime("header", (header,), time_format, zone)


def kafka_time() -> EventTime:
    """Take Kafka's timestamp of the record as the time of the event."""
    return EventTime()


def dates(texts: pl.Series) -> pl.Series:
    """Read texts such as 2026-03-01 as dates; null where that cannot be."""
    plain = texts.to_frame("t").select(pl.when(pl.col("t").str.contains(_DATE_TEXT)).then("t")).to_series()
    return plain.str.to_date("%Y-%m-%d", strict=False)


def iso_instants(texts: pl.Series, zone: str = "UTC") -> pl.Series:
    """Read ISO 8601 as instants in UTC; null where that cannot be."""
    return _within(_parsed(texts, ISO, zone).cast(pl.Int64)).cast(_INSTANT)


def _within(micros: pl.Series) -> pl.Series:
    inside = micros.is_between(*SHOWABLE)
    return micros if inside.all() else micros.to_frame("t").select(pl.when(inside).then("t")).to_series()


def _counted(numbers: pl.Series, unit: str) -> pl.Series:
    """Read counts since 1970.

    Seconds and milliseconds may have fractions: they are exact to the microsecond in a Float64 up to the year 9999.
    """
    if numbers.dtype.is_integer():
        if unit == "ns":
            return numbers.cast(pl.Int64, strict=False) // 1_000
        whole = numbers.cast(pl.Int64, strict=False)
        bound = 2**62 // _FACTORS[unit]
        frame = whole.to_frame("t").select(
            pl.when(pl.col("t").is_between(-bound, bound)).then(pl.col("t") * _FACTORS[unit])
        )
        return frame.to_series()
    values = numbers.cast(pl.Float64)
    scaled = values / 1_000 if unit == "ns" else values * _FACTORS[unit]
    rounded = scaled.floor() if unit == "ns" else scaled.round()
    usable = rounded.to_frame("t").select(pl.when(pl.col("t").abs() < 2.0**62).then("t")).to_series()
    return usable.cast(pl.Int64)


def _counted_texts(texts: pl.Series, unit: str) -> pl.Series:
    frame = texts.to_frame("t").with_columns(ok=pl.col("t").str.contains(_NUMBER))
    whole = ~pl.col("t").str.contains(".", literal=True)
    found = frame.select(
        whole=pl.when(pl.col("ok") & whole).then(pl.col("t").str.strip_prefix("+")).cast(pl.Int64, strict=False),
        real=pl.when(pl.col("ok") & ~whole).then(pl.col("t").str.strip_prefix("+")).cast(pl.Float64, strict=False),
    )
    return _counted(found["whole"], unit).fill_null(_counted(found["real"], unit))


def _parsed(texts: pl.Series, pattern: str, zone: str) -> pl.Series:
    """Read texts as instants in UTC."""
    if pattern == ISO:
        return _iso(texts, zone)
    if not _names_zone(pattern):
        naive = texts.str.to_datetime(pattern, time_unit="us", strict=False)
        return _in_zone(naive, zone)
    return texts.str.to_datetime(pattern, time_unit="us", time_zone="UTC", strict=False)


def _names_zone(pattern: str) -> bool:
    return re.search(r"%[:#]*z|%\+|%s", pattern) is not None


def _in_zone(naive: pl.Series, zone: str) -> pl.Series:
    if zone == "UTC":
        return naive.dt.replace_time_zone("UTC")
    local = naive.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return local.dt.convert_time_zone("UTC")


_BASE = 19


def _iso(texts: pl.Series, zone: str) -> pl.Series:
    """Read ISO 8601: the date and time in one go, fractions and zone apart from it."""
    quick = _iso_alike(texts)
    if quick is not None:
        return quick
    text = pl.col("t")
    rest = text.str.slice(pl.col("n"))
    frame = (
        texts.to_frame("t")
        .with_columns(pl.when(text.str.contains(_ISO_TEXT)).then(text))
        .with_columns(n=pl.when(text.str.slice(16, 1) == ":").then(_BASE).otherwise(16))
        .with_columns(
            seconds=pl.concat_str(
                text.str.slice(0, 10),
                pl.lit("T"),
                text.str.slice(11, 5),
                pl.when(pl.col("n") == _BASE).then(text.str.slice(16, 3)).otherwise(pl.lit(":00")),
            ).str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False),
            # Chrono would read second 60 as a leap second; no clock that Kafka knows has one.
            leap=(pl.col("n") == _BASE) & (text.str.slice(17, 2) == "60"),
            fraction=rest.str.extract(r"^[.,](\d+)").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64),
            zone=rest.str.extract(r"([Zz]|[+-]\d\d:?\d\d|[+-]\d\d)$"),
        )
        .with_columns(
            sign=pl.when(pl.col("zone").str.starts_with("-")).then(-1).otherwise(1),
            hours=pl.col("zone").str.extract(r"^[+-](\d\d)").cast(pl.Int64).fill_null(0),
            minutes=pl.col("zone").str.extract(r"(\d\d)$").cast(pl.Int64).fill_null(0),
            long=pl.col("zone").str.len_bytes().fill_null(0) > 3,
        )
    )
    shift = (pl.col("hours") * 60 + pl.when("long").then("minutes").otherwise(0)) * pl.col("sign") * 60_000_000
    fine = (pl.col("hours") < 24) & (~pl.col("long") | (pl.col("minutes") < 60)) & ~pl.col("leap")
    parts = frame.select(
        local=pl.when(fine).then(pl.col("seconds").cast(pl.Int64) + pl.col("fraction")),
        shift=shift,
        named=pl.col("zone").is_not_null(),
    )
    utc = parts.select((pl.col("local") - pl.col("shift")).cast(_INSTANT)).to_series()
    if zone == "UTC" or parts["named"].all():
        return utc
    there = _in_zone(parts["local"].cast(pl.Datetime("us")), zone)
    return pl.select(pl.when(parts["named"]).then(utc).otherwise(there)).to_series()


_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)


def _iso_alike(texts: pl.Series) -> pl.Series | None:
    """Read texts that are all of one length and end in Z, which is what one program writes; None if they are not.

    Only their digits differ, so they are read as a matrix of bytes.
    """
    rows = len(texts)
    if not rows or texts.null_count():
        return None
    lengths = texts.str.len_bytes()
    length = int(lengths[0])
    if not 20 <= length <= 30 or length == 21 or lengths.min() != lengths.max():
        return None
    data = np.frombuffer(texts.str.join("").to_list()[0].encode(), np.uint8).reshape(rows, length)
    data = np.ascontiguousarray(data.T)  # one place of all texts after the other
    fixed = np.array(list(b"--T::"), np.uint8)
    # What is below the digit 0 becomes a large number without a sign.
    numbers = data[[*_DIGITS, *range(20, length - 1)]] - np.uint8(ord("0"))
    if (
        not (data[[4, 7, 10, 13, 16]] == fixed[:, None]).all()
        or not (data[-1] == ord("Z")).all()
        or (length > 20 and not (data[19] == ord(".")).all())
        or (numbers > 9).any()
    ):
        return None

    def number(first: int, count: int) -> Any:
        value = numbers[first].astype(np.int64)
        for place in range(first + 1, first + count):
            value = value * 10 + numbers[place]
        return value

    year, month, day = number(0, 4), number(4, 2), number(6, 2)
    hour, minute, second = number(8, 2), number(10, 2), number(12, 2)
    if (hour > 23).any() or (minute > 59).any() or (second > 59).any() or not ((month >= 1) & (month <= 12)).all():
        return None
    months = (year - 1970) * 12 + month - 1
    first_day, following = (
        each.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for each in (months, months + 1)
    )
    if not ((day >= 1) & (day <= following - first_day)).all():
        return None
    micros = ((((first_day + day - 1) * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000
    kept = min(length - 21, 6)
    if kept > 0:
        micros = micros + number(14, kept) * 10 ** (6 - kept)
    return pl.Series("t", micros).cast(_INSTANT)


def nested(row: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Give what lies at a path in an object; None where there is nothing.

    >>> nested({"meta": {"at": 5}}, ("meta", "at")), nested({"meta": 1}, ("meta", "at"))
    (5, None)
    """
    found: Any = row
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
