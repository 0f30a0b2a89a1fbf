"""From two streams to what a join compares and gives: names, types of keys, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.keygroups import check_key
from headrace.engine.operator import (
    EVENT_TIME,
    INGESTION_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
)
from headrace.errors import PlanError
from headrace.joins.sides import HOWS, LEFT_TIME, RIGHT_INGESTION, RIGHT_TIME, How, JoinColumns, Side
from headrace.stream import plan
from headrace.stream.steps import WithColumns, first_line
from headrace.tables.upserts import IS_DELETE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.engine import Operator
    from headrace.stream.stream import Stream

#: The key columns: of one name on both sides, or the left name and the right one.
On: TypeAlias = "str | Sequence[str | tuple[str, str]] | Mapping[str, str]"

#: What the engine says of a row; a joined row has its own.
OWN: Final = frozenset({EVENT_TIME, PANE_INDEX, PANE_TIMING, PANE_IS_LAST, PANE_MODE, IS_RETRACTION, IS_DELETE})


@dataclass(frozen=True)
class Prepared:
    """Two streams that are ready to be joined.

    Args:
        columns: What is compared, and what a joined row has.
        left: The left input, keyed.
        right: The right input, keyed.
        on: The key in the user's words.
        result_keys: The columns of a joined row that name its key group.
    """

    columns: JoinColumns
    left: plan.Node
    right: plan.Node
    on: str
    result_keys: tuple[str, ...]

    def stream(
        self,
        like: Stream,
        operator: Operator,
        *,
        does: str,
        description: str,
        gives_updates: bool = False,
        takes_updates: bool = False,
        make: Callable[..., Operator] | None = None,
    ) -> Stream:
        """Make the stream of the joined rows.

        Args:
            like: Any stream.
            operator: What joins.
            does: The kind of join, for the name of the step.
            description: What it does, in words.
            gives_updates: Whether results may be taken back.
            takes_updates: Whether rows of the inputs may be.
            make: Makes the operator; not needed where it is always the same.
        """
        on = f" on {self.on}" if self.on else ""
        where = f" where {self.columns.where}" if self.columns.where is not None else ""
        node = plan.Combined(
            parts=(self.left, self.right),
            does=does,
            description=f"{self.columns.how} join{on} {description}{where}".rstrip(),
            make=make or (lambda *_: operator),
            schema=operator.schema(self.left.schema),
            gives_updates=gives_updates,
            takes_updates=takes_updates,
            result_keys=self.result_keys,
        )
        return replace(like, node=node)


@dataclass(frozen=True)
class _Key:
    """One pair of columns that are compared.

    Args:
        number: Its place among the pairs.
        left: The left column.
        right: The right column.
        kind: The type that both are compared in. Floating-point numbers and decimals are compared by the text of their
            value, of which there is one only.
    """

    number: int
    left: str
    right: str
    kind: pl.DataType

    @property
    def hidden(self) -> str:
        """The column of a side in which its values have that type, where its own has another one."""
        return f"#key{self.number}"

    def of(self, side: str) -> str:
        """The column of a side."""
        return self.left if side == "left" else self.right

    def made(self, name: str, own: pl.DataType) -> pl.Expr | None:
        """How the values of a column are brought to that type; None where they have it."""
        column = pl.col(name)
        if self.kind.is_float():
            # -0.0 and 0.0 are one number with two texts.
            number = column.cast(pl.Float64)
            return pl.when(number == 0).then(0.0).otherwise(number).cast(pl.String)
        if isinstance(own, pl.Decimal) and own.scale:
            return column.cast(pl.String).str.strip_chars_end("0").str.strip_chars_end(".")
        return None if own == self.kind else column.cast(self.kind)

    def name_of(self, side: str, stream: Stream) -> str:
        """The column of a side that is compared: its own, or the hidden one."""
        name = self.of(side)
        return name if self.made(name, stream.schema[name]) is None else self.hidden


def prepare(
    left: Stream,
    right: Stream,
    on: On,
    *,
    how: How,
    where: pl.Expr | None = None,
    null_safe: bool = False,
    suffix: str = "",
    later_time: bool = True,
    made: Sequence[str] = (),
    route: Sequence[str] | None = None,
    broadcast: bool = False,
) -> Prepared:
    """Check what is to be joined, and name the columns.

    Args:
        left: The left stream.
        right: The right stream.
        on: The key columns.
        how: What happens to rows without a partner.
        where: A further condition on pairs.
        null_safe: Whether null is equal to null.
        suffix: What the names of right columns get that the left side has too.
        later_time: Whether a joined row has the later of both times.
        made: Columns that the join makes itself.
        route: The right key columns that decide where rows meet, if not all do.
        broadcast: Whether left rows stay on the key group of their own key, and all key groups get all right rows.
    """
    if broadcast and not left.keys:
        raise PlanError(
            "a join with broadcast of a stream without a key",
            hint="Say key_by(...) before it: rows stay on the key group of that key. Or leave broadcast= out.",
        )
    if how not in HOWS:
        raise PlanError(f"how={how!r}", hint=f"Say one of {', '.join(HOWS)}.")
    for stream in (left, right):
        if not stream.node.complete:
            raise PlanError(
                "join between window and aggregate",
                hint="Call aggregate(...) after window(...), or give the window to join(..., window=...).",
            )
    keys = [_key(left, right, number, *pair) for number, pair in enumerate(pairs_of(on))]
    named = _Named(left, right, keys, how, suffix, {*OWN, *made})
    spec = JoinColumns(
        how,
        Side("left", named.columns("left"), tuple(named.keys["left"])),
        Side("right", named.columns("right"), tuple(named.keys["right"])),
        named.result(),
        tuple(named.merged),
        null_safe,
        where,
        later_time,
    )
    if where is not None:
        _check_where(where, spec, left.schema, right.schema)
    if how in ("semi", "anti"):
        spec = _without_unread(spec)
    routed = [key for key in keys if route is None or key.right in route]
    return Prepared(
        spec,
        _keyed(left, keys, "left", left.keys if broadcast else [key.name_of("left", left) for key in routed]),
        _keyed(right, keys, "right", [key.name_of("right", right) for key in routed], everywhere=broadcast),
        ", ".join(key.left if key.left == key.right else f"{key.left} = {key.right}" for key in keys),
        tuple(left.keys) if broadcast else named.result_keys(routed),
    )


class _Named:
    """The names of the columns of both sides inside a join."""

    def __init__(self, left: Stream, right: Stream, keys: Sequence[_Key], how: str, suffix: str, own: set[str]) -> None:
        self._left, self._right, self._how = left.schema, right.schema, how
        self._names = {name: name for name in left.schema if name not in own}
        self._right_names = self._named_right(keys, suffix, own)
        self._compared: dict[str, list[tuple[str, str]]] = {"left": [], "right": []}
        self.keys: dict[str, list[str]] = {"left": [], "right": []}
        self.merged: list[tuple[str, str]] = []
        for key in keys:
            self._add_key(key)

    def columns(self, side: str) -> tuple[tuple[str, str], ...]:
        """The columns of a side: what they are called when they come in, and inside the join."""
        names = self._names if side == "left" else self._right_names
        return (*names.items(), *self._compared[side])

    def result(self) -> pl.Schema:
        """The columns of a joined row."""
        found = {inside: self._left[name] for name, inside in self._names.items()}
        if self._how not in ("semi", "anti"):
            found |= {inside: self._right[name] for name, inside in self._right_names.items()}
        return pl.Schema({name: kind for name, kind in found.items() if not name.startswith("#")})

    def result_keys(self, keys: Sequence[_Key]) -> tuple[str, ...]:
        """The columns of a joined row that name its key: of both sides where either may be null."""
        found = [key.left for key in keys]
        if self._how in ("right", "full"):
            found += [self._right_names[key.right] for key in keys if key.right in self._right_names]
        return tuple(dict.fromkeys(found))

    def _named_right(self, keys: Sequence[_Key], suffix: str, own: set[str]) -> dict[str, str]:
        """Give the columns of the right side names that the left side does not have."""
        shared = {key.right for key in keys if key.left == key.right}
        named: dict[str, str] = {}
        clashes = []
        for name in self._right:
            if name in own or name in shared:
                continue
            if name not in self._names:
                named[name] = name
            elif suffix and name + suffix not in {*self._names, *self._right}:
                named[name] = name + suffix
            elif name == INGESTION_TIME:
                named[name] = RIGHT_INGESTION
            elif self._how not in ("semi", "anti"):
                clashes.append(name)
        if clashes:
            raise PlanError(
                f"both sides of a join have the column {', '.join(clashes)}",
                hint='Give suffix="_right" to rename those of the right side, or rename or drop them with select(...) '
                "before the join.",
            )
        return named

    def _add_key(self, key: _Key) -> None:
        for side, schema, names in (("left", self._left, self._names), ("right", self._right, self._right_names)):
            name = key.of(side)
            if key.made(name, schema[name]) is not None:
                inside = f"#{side}_key{key.number}"
                self._compared[side].append((key.hidden, inside))
            elif names.get(name, "#") not in ("#", *self.keys[side]):
                inside = names[name]
            else:
                inside = f"#{side}_key{key.number}"
                self._compared[side].append((name, inside))
            self.keys[side].append(inside)
        if key.left == key.right:
            self._merge(key)

    def _merge(self, key: _Key) -> None:
        """Let a key of one name be one column of the result."""
        one, two = self._left[key.left], self._right[key.right]
        if one != two and self._how in ("right", "full"):
            raise PlanError(
                f"the key {key.left!r} is {one} on the left and {two} on the right of a {self._how} join",
                hint="One column of the result cannot have both types: cast one side with with_columns(...).",
            )
        inside = self.keys["right"][-1]
        if key.made(key.right, two) is not None:
            inside = f"#right_value{key.number}"
            self._compared["right"].append((key.right, inside))
        self.merged.append((key.left, inside))


def pairs_of(on: On) -> list[tuple[str, str]]:
    """Give the key columns as pairs: the left name and the right one."""
    if isinstance(on, str):
        return [(on, on)]
    if isinstance(on, Mapping):
        return list(on.items())
    return [(name, name) if isinstance(name, str) else (name[0], name[1]) for name in on]


def _key(left: Stream, right: Stream, number: int, left_name: str, right_name: str) -> _Key:
    for stream, name, side in ((left, left_name, "left"), (right, right_name, "right")):
        if name not in stream.schema:
            raise PlanError(
                f"join on {name!r}: the {side} side has no such column",
                hint=f"It has: {', '.join(stream.schema)}.",
            )
    one, two = left.schema[left_name], right.schema[right_name]
    kind = _common(one, two)
    if kind is None:
        raise PlanError(
            f"join of keys of different types: {left_name} is {one}, {right_name} is {two}",
            hint="Cast one of them with with_columns(...) before the join.",
        )
    if not kind.is_float():
        check_key(left_name, kind)
    return _Key(number, left_name, right_name, kind)


def _common(one: pl.DataType, two: pl.DataType) -> pl.DataType | None:
    """Tell the type in which keys of two types are compared; None where they cannot be."""
    if one.is_integer() and two.is_integer():
        return one if one == two else _wider(one, two)
    if _is_exact(one) and _is_exact(two):
        return pl.String()
    if one.is_numeric() and two.is_numeric():
        return pl.Float64()
    if _is_text(one) and _is_text(two):
        return pl.String()
    return one if one == two else None


def _wider(one: pl.DataType, two: pl.DataType) -> pl.DataType:
    frames = [pl.Schema({"key": kind}).to_frame() for kind in (one, two)]
    found = pl.concat(frames, how="vertical_relaxed").schema["key"]
    # No key has 128 bits: what only these can hold is compared by its text.
    return found if found.is_integer() and found not in (pl.Int128, pl.UInt128) else pl.String()


def _is_exact(kind: pl.DataType) -> bool:
    return kind.is_integer() or kind.is_decimal()


def _is_text(kind: pl.DataType) -> bool:
    return kind in (pl.String, pl.Categorical) or isinstance(kind, pl.Enum)


def _keyed(
    stream: Stream, keys: Sequence[_Key], side: str, route: Sequence[str], *, everywhere: bool = False
) -> plan.Node:
    """Key a side by what is compared, with null as a key like others."""
    made = {}
    for key in keys:
        name = key.of(side)
        expression = key.made(name, stream.schema[name])
        if expression is not None:
            made[key.hidden] = expression
    node, schema = stream.node, stream.schema
    if made:
        step = _KeyColumns(tuple(made.items()))
        schema = step.apply(schema.to_frame()).schema
        node = plan.Stateless(input=node, step=step, schema=schema)
    return plan.KeyBy(input=node, schema=schema, keys=tuple(route), null_keys=True, everywhere=everywhere)


@dataclass(frozen=True)
class _KeyColumns(WithColumns):
    """Columns that are only compared."""

    @property
    def text(self) -> str:
        """Say that keys are brought to one type."""
        return f"compare {', '.join(str(expression) for _, expression in self.columns)}"


def _check_where(where: Any, spec: JoinColumns, left: pl.Schema, right: pl.Schema) -> None:
    if not isinstance(where, pl.Expr):
        raise PlanError(f"where={where!r}: that is no expression", hint='Write one: pl.col("n") < pl.col("n_right").')
    frame = pl.Schema(
        {
            inside: schema[name]
            for side, schema in ((spec.left, left), (spec.right, right))
            for name, inside in side.columns
            if name in schema
        }
        | {LEFT_TIME: pl.Int64(), RIGHT_TIME: pl.Int64()}
    )
    shown = ", ".join(name for name in frame if not name.startswith("#"))
    try:
        kind = frame.to_frame().select(where.alias("where")).schema["where"]
    except PolarsError as problem:
        raise PlanError(
            f"where of a join cannot work: {first_line(problem)}",
            hint=f"The columns of a pair are: {shown}. Those of the right side that the left has too need suffix=...",
        ) from problem
    if kind != pl.Boolean:
        raise PlanError(f"where of a join is {kind}, not true or false", hint='Compare: pl.col("n") < pl.col("m").')


def _without_unread(spec: JoinColumns) -> JoinColumns:
    """Keep of the right side what is compared: a semi or anti join gives nothing else of it."""
    read = set(spec.right.keys)
    if spec.where is not None:
        roots = spec.where.meta.root_names()
        if not spec.where.meta.has_multiple_outputs():
            read |= set(roots)
        else:
            return spec
    columns = tuple((name, inside) for name, inside in spec.right.columns if inside in read)
    return replace(spec, right=replace(spec.right, columns=columns))
