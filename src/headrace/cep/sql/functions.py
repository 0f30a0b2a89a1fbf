"""The scalar functions and operators of MEASURES and DEFINE: what each does with Python values, and its result type.

A function is strict unless it says otherwise: with a null among its arguments the result is null. AND, OR, CASE,
COALESCE and IF are not here: they choose which operand to evaluate, so the evaluators know them by name. Dividing by
zero gives null for integers and infinity for doubles, as in Polars, since one bad row must not stop a stream.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.bound import DataType
from headrace.cep.sql.datatypes import BOOLEAN, DOUBLE, INTEGER, NULL, STRING, common, element, fields
from headrace.cep.sql.dates import DATE_FUNCTIONS, add, date_trunc, subtract

ResultRule: TypeAlias = Callable[[Sequence[DataType]], DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function.

    Args:
        evaluate: Takes Python values.
        result: Result type from argument types.
        least: Fewest arguments.
        most: Most arguments; None for any number.
        strict: Null in, null out; otherwise `evaluate` sees the nulls.
    """

    evaluate: Callable[..., Any]
    result: ResultRule
    least: int = 1
    most: int | None = 1
    strict: bool = True


def _always(data_type: DataType) -> ResultRule:
    return lambda _: data_type


def _same(types: Sequence[DataType]) -> DataType:
    return types[0] if types else NULL


def _common(types: Sequence[DataType]) -> DataType:
    return common(types) or types[0]


def _number(types: Sequence[DataType]) -> DataType:
    """Integers stay integers (of 64 bits, so that sums of small ones do not overflow), decimals decimals."""
    merged = common(types)
    if merged is None or isinstance(merged, pl.Null):
        return INTEGER
    return INTEGER if merged.is_integer() else merged


def _whole(types: Sequence[DataType]) -> DataType:
    return INTEGER if types[0].is_integer() else types[0]


def _element(types: Sequence[DataType]) -> DataType:
    pair = fields(types[0])
    return pair["value"] if list(pair) == ["key", "value"] and len(types) > 1 else element(types[0])


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return None
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right == 0:
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return None
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
    return left / right


def _modulo(left: Any, right: Any) -> Any:
    if right == 0:
        return None if isinstance(left, int | Decimal) else math.nan
    if isinstance(left, int) and isinstance(right, int):
        return left - right * _divide(left, right)
    return left % right if isinstance(left, Decimal) else math.fmod(left, right)


@functools.lru_cache(maxsize=256)
def like_pattern(pattern: str, escape: str | None, ignore_case: bool) -> re.Pattern[str]:
    """The regular expression for a LIKE pattern.

    >>> bool(like_pattern("50!%_", "!", False).fullmatch("50%!"))
    True
    """
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(re.escape(next(letters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return re.compile("".join(parts), re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _like(text: str, pattern: str, escape: str | None = None) -> bool:
    return like_pattern(pattern, escape, False).fullmatch(text) is not None


def _ilike(text: str, pattern: str, escape: str | None = None) -> bool:
    return like_pattern(pattern, escape, True).fullmatch(text) is not None


def _in(value: Any, *items: Any) -> bool | None:
    if value is None:
        return None
    unknown = False
    for item in items:
        if item is None:
            unknown = True
        elif item == value:
            return True
    return None if unknown else False


def _round(value: Any, digits: int = 0) -> Any:
    if isinstance(value, int):
        if digits >= 0:
            return value
        step: int = 10 ** (-digits)
        half = (abs(value) + step // 2) // step * step
        return half if value >= 0 else -half
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent <= digits:
        return value  # no number, or nothing to round
    rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    return rounded if isinstance(value, Decimal) else float(rounded)


def _substring(text: str, start: int, length: int | None = None) -> str:
    if start == 0:
        return ""
    begin = start - 1 if start > 0 else len(text) + start
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + max(length, 0)]


def _pad(text: str, size: int, fill: str, left: bool) -> str:
    missing = size - len(text)
    if missing <= 0 or not fill:
        return text[:size]
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


def _split_part(text: str, separator: str, index: int) -> str | None:
    parts = text.split(separator) if separator else list(text)
    return parts[index - 1] if 1 <= index <= len(parts) else None


def _concat(*values: Any) -> Any:
    if any(isinstance(value, list) for value in values):
        joined: list[Any] = []
        for value in values:
            joined.extend(value if isinstance(value, list) else [value])
        return joined
    return "".join(values)


def _concat_ws(separator: str | None, *values: Any) -> str | None:
    if separator is None:
        return None
    texts: list[str] = []
    for value in values:
        texts.extend(item for item in (value if isinstance(value, list) else [value]) if item is not None)
    return separator.join(texts)


def as_text(value: Any) -> str:
    """A value as CAST to varchar writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)


def _array_join(items: Sequence[Any], separator: str, null_text: str | None = None) -> str:
    texts = [null_text if item is None else as_text(item) for item in items]
    return separator.join(text for text in texts if text is not None)


def _element_at(container: Any, key: Any) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    if not isinstance(key, int) or key == 0 or abs(key) > len(container):
        return None
    return container[key - 1] if key > 0 else container[key]


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    def extreme(items: Sequence[Any]) -> Any:
        return None if not items or any(item is None for item in items) else choose(list(items))

    return extreme


def _log(base: float, value: float | None = None) -> float | None:
    if value is None:
        return _ln(base)
    lower, upper = _ln(base), _ln(value)
    return None if not lower or upper is None else upper / lower


def _ln(value: Any) -> float | None:
    return math.log(value) if value > 0 else None


def _sqrt(value: Any) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _truncate(value: Any, digits: int = 0) -> Any:
    if digits == 0:
        return value if isinstance(value, int) else type(value)(math.trunc(value))
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN)
    scale = 10**digits
    return type(value)(math.trunc(value * scale) / scale)


def _trunc(value: Any, digits: int = 0) -> Any:
    """Oracle's TRUNC: of a number, or of a time to its day."""
    return date_trunc("day", value) if isinstance(value, dt.date) else _truncate(value, digits)


def _truth(value: Any) -> bool:
    return value is True


def _distinct(left: Any, right: Any) -> bool:
    return bool(left != right)


def _not(value: bool) -> bool:
    return not value


def _map(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _map_type(types: Sequence[DataType]) -> DataType:
    return map_type(element(types[0]), element(types[1]))


def map_type(key: DataType, value: DataType) -> DataType:
    """A map is a list of key and value, as in Arrow."""
    return pl.List(pl.Struct({"key": key, "value": value}))


def _array_type(types: Sequence[DataType]) -> DataType:
    return pl.List(_common(types) if types else NULL)


def _power_type(types: Sequence[DataType]) -> DataType:  # noqa: ARG001
    return DOUBLE


def _concat_type(types: Sequence[DataType]) -> DataType:
    lists = [data_type for data_type in types if isinstance(data_type, pl.List)]
    return lists[0] if lists else STRING


def _greatest(*values: Any) -> Any:
    return max(values)


def _least(*values: Any) -> Any:
    return min(values)


def _regexp_like(text: str, pattern: str) -> bool:
    return re.search(pattern, text) is not None


def _regexp_extract(text: str, pattern: str, group: int = 0) -> str | None:
    found = re.search(pattern, text)
    return found.group(group) if found else None


def _regexp_replace(text: str, pattern: str, replacement: str = "") -> str:
    return re.sub(pattern, replacement, text)


def _distinct_items(items: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _sorted_items(items: Sequence[Any]) -> list[Any]:
    known = sorted(item for item in items if item is not None)
    return known + [None] * (len(items) - len(known))


def _position(items: Sequence[Any], wanted: Any) -> int:
    return list(items).index(wanted) + 1 if wanted in items else 0


_BOOLEAN, _INTEGER, _DOUBLE, _STRING = (_always(kind) for kind in (BOOLEAN, INTEGER, DOUBLE, STRING))

FUNCTIONS: Final[Mapping[str, Function]] = {
    "+": Function(add, _number, 2, 2),
    "-": Function(subtract, _number, 2, 2),
    "*": Function(operator.mul, _number, 2, 2),
    "/": Function(_divide, _number, 2, 2),
    "%": Function(_modulo, _number, 2, 2),
    "mod": Function(_modulo, _number, 2, 2),
    "negate": Function(operator.neg, _whole),
    "=": Function(operator.eq, _BOOLEAN, 2, 2),
    "<>": Function(operator.ne, _BOOLEAN, 2, 2),
    "<": Function(operator.lt, _BOOLEAN, 2, 2),
    "<=": Function(operator.le, _BOOLEAN, 2, 2),
    ">": Function(operator.gt, _BOOLEAN, 2, 2),
    ">=": Function(operator.ge, _BOOLEAN, 2, 2),
    "not": Function(_not, _BOOLEAN),
    "is_null": Function(lambda value: value is None, _BOOLEAN, strict=False),
    "is_true": Function(_truth, _BOOLEAN, strict=False),
    "is_distinct": Function(_distinct, _BOOLEAN, 2, 2, strict=False),
    "in": Function(_in, _BOOLEAN, 2, None, strict=False),
    "like": Function(_like, _BOOLEAN, 2, 3),
    "ilike": Function(_ilike, _BOOLEAN, 2, 3),
    "nullif": Function(lambda left, right: None if left == right else left, _same, 2, 2, strict=False),
    "greatest": Function(_greatest, _common, 1, None),
    "least": Function(_least, _common, 1, None),
    "abs": Function(abs, _whole),
    "sign": Function(lambda value: type(value)((value > 0) - (value < 0)), _whole),
    "round": Function(_round, _whole, 1, 2),
    "floor": Function(lambda value: value if isinstance(value, int) else type(value)(math.floor(value)), _whole),
    "ceil": Function(lambda value: value if isinstance(value, int) else type(value)(math.ceil(value)), _whole),
    "ceiling": Function(lambda value: value if isinstance(value, int) else type(value)(math.ceil(value)), _whole),
    "truncate": Function(_truncate, _whole, 1, 2),
    "trunc": Function(_trunc, _whole, 1, 2),
    "sqrt": Function(_sqrt, _DOUBLE),
    "cbrt": Function(lambda value: math.copysign(abs(float(value)) ** (1 / 3), value), _DOUBLE),
    "power": Function(lambda base, exponent: float(base) ** float(exponent), _power_type, 2, 2),
    "pow": Function(lambda base, exponent: float(base) ** float(exponent), _power_type, 2, 2),
    "exp": Function(lambda value: math.exp(value), _DOUBLE),
    "ln": Function(_ln, _DOUBLE),
    "log": Function(_log, _DOUBLE, 1, 2),
    "log2": Function(lambda value: math.log2(value) if value > 0 else None, _DOUBLE),
    "log10": Function(lambda value: math.log10(value) if value > 0 else None, _DOUBLE),
    "pi": Function(lambda: math.pi, _DOUBLE, 0, 0),
    "sin": Function(lambda value: math.sin(value), _DOUBLE),
    "cos": Function(lambda value: math.cos(value), _DOUBLE),
    "tan": Function(lambda value: math.tan(value), _DOUBLE),
    "atan2": Function(lambda y, x: math.atan2(y, x), _DOUBLE, 2, 2),
    "radians": Function(lambda value: math.radians(value), _DOUBLE),
    "degrees": Function(lambda value: math.degrees(value), _DOUBLE),
    "is_nan": Function(lambda value: isinstance(value, float) and math.isnan(value), _BOOLEAN),
    "||": Function(_concat, _concat_type, 2, None),
    "concat": Function(_concat, _concat_type, 1, None),
    "concat_ws": Function(_concat_ws, _STRING, 1, None, strict=False),
    "lower": Function(lambda text: text.lower(), _STRING),
    "upper": Function(lambda text: text.upper(), _STRING),
    "length": Function(len, _INTEGER),
    "char_length": Function(len, _INTEGER),
    "character_length": Function(len, _INTEGER),
    "trim": Function(lambda text, letters=None: text.strip(letters), _STRING, 1, 2),
    "ltrim": Function(lambda text, letters=None: text.lstrip(letters), _STRING, 1, 2),
    "rtrim": Function(lambda text, letters=None: text.rstrip(letters), _STRING, 1, 2),
    "substring": Function(_substring, _STRING, 2, 3),
    "substr": Function(_substring, _STRING, 2, 3),
    "replace": Function(lambda text, old, new="": text.replace(old, new), _STRING, 2, 3),
    "reverse": Function(lambda value: value[::-1], _same),
    "strpos": Function(lambda text, part: text.find(part) + 1, _INTEGER, 2, 2),
    "lpad": Function(lambda text, size, fill=" ": _pad(text, size, fill, True), _STRING, 2, 3),
    "rpad": Function(lambda text, size, fill=" ": _pad(text, size, fill, False), _STRING, 2, 3),
    "split": Function(lambda text, separator: text.split(separator), _always(pl.List(STRING)), 2, 2),
    "split_part": Function(_split_part, _STRING, 3, 3),
    "starts_with": Function(lambda text, start: text.startswith(start), _BOOLEAN, 2, 2),
    "ends_with": Function(lambda text, end: text.endswith(end), _BOOLEAN, 2, 2),
    "chr": Function(chr, _STRING),
    "codepoint": Function(ord, _INTEGER),
    "regexp_like": Function(_regexp_like, _BOOLEAN, 2, 2),
    "regexp_extract": Function(_regexp_extract, _STRING, 2, 3),
    "regexp_replace": Function(_regexp_replace, _STRING, 2, 3),
    "array": Function(lambda *items: list(items), _array_type, 0, None, strict=False),
    "cardinality": Function(len, _INTEGER),
    "element_at": Function(_element_at, _element, 2, 2),
    "subscript": Function(_element_at, _element, 2, 2),
    "contains": Function(lambda items, item: item in items, _BOOLEAN, 2, 2),
    "array_join": Function(_array_join, _STRING, 2, 3),
    "array_max": Function(_extreme(max), _element),
    "array_min": Function(_extreme(min), _element),
    "array_sum": Function(lambda items: sum(item for item in items if item is not None), _element),
    "array_distinct": Function(_distinct_items, _same),
    "array_sort": Function(_sorted_items, _same),
    "array_position": Function(_position, _INTEGER, 2, 2),
    "slice": Function(lambda items, start, size: items[start - 1 : start - 1 + size], _same, 3, 3),
    "map": Function(_map, _map_type, 2, 2),
    "map_keys": Function(lambda pairs: list(pairs), lambda types: pl.List(_pair(types, "key"))),
    "map_values": Function(lambda pairs: list(pairs.values()), lambda types: pl.List(_pair(types, "value"))),
    "field": Function(lambda row, name: row.get(name), lambda types: types[0], 2, 2),
    **{name: Function(*entry) for name, entry in DATE_FUNCTIONS.items()},
}
"""All scalar functions by name; operators by their sign."""


def _pair(types: Sequence[DataType], which: str) -> DataType:
    return fields(types[0]).get(which, NULL)
