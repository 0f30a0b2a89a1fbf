"""`Display`: what a job's results look like on the dashboard, said by the job itself.

A job that declares a display (or whose columns make it clear) appears on the map, as a table or as a chart, without any
code in the front end:

| kind | picture | places |
|---|---|---|
| `cells` | hexagons, coloured and raised by the value | `cell`: an H3 cell |
| `arcs` | arcs from cell to cell | `cell`, `target` |
| `edges` | arrows from a cell to its neighbour | `cell`, `target` |
| `points` | pulsing points, and a list of them | `latitude`, `longitude` |
| `table` | a row per key | none |
| `bars` | the keys with the greatest values, as bars | none |
| `series`, `chart` | lines over time, one per key | none |
| `number` | single numbers, one per key | none |

A job may have further views beside the first: `Display.bars("scans", top=10).beside(Display.series("scans"))`.

It is a frozen description: nothing in here draws or knows about browsers.

>>> Display.cells("p50", "p90", "p99", unit="s", title="Delay", scale="diverging").values[1]
Shown(column='p90', label='p90', unit='s')
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.operator import (
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.errors import PlanError
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

Kind = Literal["cells", "arcs", "edges", "points", "table", "chart", "bars", "series", "number"]
Scale = Literal["sequential", "diverging"]

#: Columns that every result may have: its time, its window and its pane.
FRAME = frozenset(
    {"event_time", WINDOW_START, WINDOW_END, PANE_INDEX, PANE_TIMING, PANE_IS_LAST, PANE_MODE, IS_RETRACTION}
)
#: The kinds that show one value column of each key.
_VALUED: tuple[Kind, ...] = ("cells", "arcs", "edges", "chart", "bars", "series", "number")
#: Keys that a view of a kind shows, unless the job says otherwise; a table shows 200.
_TOP: dict[Kind, int] = {"bars": 10, "series": 4, "chart": 4, "number": 12, "table": 200}
#: More than this is neither read nor drawn.
MOST_TOP = 200

#: Columns that say where a result is, by the names that jobs use.
CELL, LATITUDE, LONGITUDE = "cell", "latitude", "longitude"


@dataclass(frozen=True, slots=True)
class Shown:
    """A column that is shown as the value of a picture.

    Args:
        column: The result column; a number.
        label: What a person calls it; the column's name if not given.
        unit: Of the number, such as "s" or "vehicles".
    """

    column: str
    label: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """How a job's results are shown. Use the constructors named after the kinds: `Display.cells(...)` and so on.

    Args:
        kind: The kind of picture.
        values: The columns that can be shown as the value; the first is shown until a person chooses another.
        title: What the layer is called; the job's name in words if empty.
        legend: One sentence about what the colour means.
        labels: Further columns for tooltips and lists, in this order; all others if empty.
        cell: The column with the H3 cell (a number or hexadecimal text) that a result is about or starts from.
        target: The column with the H3 cell that an arc or edge goes to.
        latitude: The column with the degrees north of a point.
        longitude: The column with the degrees east of a point.
        scale: "sequential" from little to much; "diverging" where 0 is the middle (early, late).
        domain: Least and greatest value of the colour scale; by what is shown if not given.
        time_to_live: For how long a value stays, in microseconds: after the end of its window, or after its event time
            where there is no window. None: 5 s after the window, or one step of the windows if that is longer.
        each: Whether every result is a thing of its own (an emergency stop) instead of the newest value of its key.
        top: How many keys a view without a place shows: those with the greatest values, or the newest rows of a table.
        views: Further views of the same results, without a place; see `beside`.
    """

    kind: Kind
    values: tuple[Shown, ...] = ()
    title: str = ""
    legend: str = ""
    labels: tuple[str, ...] = ()
    cell: str | None = None
    target: str | None = None
    latitude: str | None = None
    longitude: str | None = None
    scale: Scale = "sequential"
    domain: tuple[float, float] | None = None
    time_to_live: int | None = None
    each: bool = False
    top: int | None = None
    views: tuple[Display, ...] = ()

    def __post_init__(self) -> None:
        if self.domain is not None and not self.domain[0] < self.domain[1]:
            raise PlanError(f"display domain {self.domain} is empty", hint="Give (least, greatest).")
        if self.time_to_live is not None and self.time_to_live <= 0:
            raise PlanError("a display's time to live must be positive", hint='Give a duration such as "2m".')
        if self.top is not None and not 1 <= self.top <= MOST_TOP:
            raise PlanError(f"a display shows the top {self.top} keys", hint=f"Give a number from 1 to {MOST_TOP}.")
        if self.kind in _VALUED and not self.values:
            raise PlanError(
                f"a display of {self.kind} needs a value column", hint=f'Name it: Display.{self.kind}("count", ...).'
            )
        names = [shown.column for shown in self.values]
        if len(set(names)) < len(names):
            raise PlanError(f"a display names a value column twice: {', '.join(names)}", hint="Name each once.")

    # ---------------------------------------------------------------- one constructor per kind

    @classmethod
    def cells(
        cls,
        *values: str | Shown,
        cell: str = CELL,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        scale: Scale = "sequential",
        domain: tuple[float, float] | None = None,
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """Hexagons with a value each."""
        return cls(
            kind="cells",
            values=_shown(values, unit),
            cell=cell,
            title=title,
            legend=legend,
            labels=tuple(labels),
            scale=scale,
            domain=domain,
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def arcs(
        cls,
        *values: str | Shown,
        cell: str = CELL,
        target: str,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        domain: tuple[float, float] | None = None,
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """Arcs from a cell to another one far away."""
        return cls(
            kind="arcs",
            values=_shown(values, unit),
            cell=cell,
            target=target,
            title=title,
            legend=legend,
            labels=tuple(labels),
            domain=domain,
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def edges(
        cls,
        *values: str | Shown,
        cell: str = CELL,
        target: str,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        domain: tuple[float, float] | None = None,
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """Arrows from a cell to a neighbour."""
        return cls(
            kind="edges",
            values=_shown(values, unit),
            cell=cell,
            target=target,
            title=title,
            legend=legend,
            labels=tuple(labels),
            domain=domain,
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def points(
        cls,
        *values: str | Shown,
        latitude: str = LATITUDE,
        longitude: str = LONGITUDE,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        time_to_live: str | timedelta = "2m",
        each: bool = True,
    ) -> Display:
        """Single things that happened somewhere, each shown for its time to live."""
        return cls(
            kind="points",
            values=_shown(values, unit),
            latitude=latitude,
            longitude=longitude,
            title=title,
            legend=legend,
            labels=tuple(labels),
            time_to_live=_micros(time_to_live),
            each=each,
        )

    @classmethod
    def table(
        cls,
        *labels: str,
        title: str = "",
        legend: str = "",
        time_to_live: str | timedelta | None = None,
        each: bool = False,
    ) -> Display:
        """A row per key, for results without a place."""
        return cls(
            kind="table", labels=labels, title=title, legend=legend, time_to_live=_micros(time_to_live), each=each
        )

    @classmethod
    def chart(
        cls,
        *values: str | Shown,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """Lines over time, one per key and value."""
        return cls(
            kind="chart",
            values=_shown(values, unit),
            title=title,
            legend=legend,
            labels=tuple(labels),
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def series(
        cls,
        *values: str | Shown,
        top: int | None = None,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """Lines over time, one for each of the `top` keys (4 if not given)."""
        return cls(
            kind="series",
            values=_shown(values, unit),
            top=top,
            title=title,
            legend=legend,
            labels=tuple(labels),
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def bars(
        cls,
        *values: str | Shown,
        top: int | None = None,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """A bar for each of the `top` keys with the greatest values (10 if not given)."""
        return cls(
            kind="bars",
            values=_shown(values, unit),
            top=top,
            title=title,
            legend=legend,
            labels=tuple(labels),
            time_to_live=_micros(time_to_live),
        )

    @classmethod
    def number(
        cls,
        *values: str | Shown,
        top: int | None = None,
        unit: str = "",
        title: str = "",
        legend: str = "",
        labels: Iterable[str] = (),
        time_to_live: str | timedelta | None = None,
    ) -> Display:
        """A single number; one for each of the `top` keys (12 if not given) where the results have keys."""
        return cls(
            kind="number",
            values=_shown(values, unit),
            top=top,
            title=title,
            legend=legend,
            labels=tuple(labels),
            time_to_live=_micros(time_to_live),
        )

    # ---------------------------------------------------------------- several views of the same results

    def beside(self, *views: Display) -> Display:
        """Show the same results in further ways.

        The first display decides how long values stay and where they are; the others have no place.

        >>> shown = Display.bars("scans", top=5).beside(Display.series("scans"), Display.table())
        >>> [view.kind for view in shown.all_views]
        ['bars', 'series', 'table']

        Raises:
            PlanError: A further view has a place, a time to live or views of its own.
        """
        for view in views:
            if view.cell or view.latitude:
                raise PlanError(f"a view of {view.kind} stands beside another one", hint="Put the map first.")
            if view.time_to_live is not None or view.each or view.views:
                raise PlanError(
                    f"a further view of {view.kind} says how long results stay, or has views of its own",
                    hint="Say time_to_live and each in the first display, and name all views in one beside(...).",
                )
        return replace(self, views=(*self.views, *views))

    @property
    def all_views(self) -> tuple[Display, ...]:
        """The display itself and the views beside it."""
        return (self, *self.views)

    @property
    def shown_keys(self) -> int | None:
        """How many keys the view shows; None on a map, which shows all."""
        return self.top if self.top is not None else _TOP.get(self.kind)

    # ---------------------------------------------------------------- with a job's columns

    @classmethod
    def fitting(cls, schema: Mapping[str, pl.DataType], *, keys: Iterable[str] = ()) -> Display:
        """Choose a display by the columns of the results, for a job that declares none.

        A column `cell` makes cells, `latitude` and `longitude` make points. Without a place, a single number makes a
        number, keys with numbers per window make bars and curves, anything else is a table.

        >>> Display.fitting({"cell": pl.UInt64(), "vehicles": pl.Int64()}).kind
        'cells'
        >>> Display.fitting({"depot": pl.String(), "n": pl.Int64()}).kind
        'table'
        >>> windowed = {"depot": pl.String(), "n": pl.Int64(), "window_end": pl.Datetime("us", "UTC")}
        >>> [view.kind for view in Display.fitting(windowed, keys=["depot"]).all_views]
        ['bars', 'series']
        """
        keys = tuple(keys)
        places = {CELL, LATITUDE, LONGITUDE, PANE_INDEX, *keys}
        numbers = [name for name, kind in schema.items() if kind.is_numeric() and name not in places]
        if LATITUDE in schema and LONGITUDE in schema and _is_number(schema, LATITUDE, LONGITUDE):
            return cls.points()
        if schema.get(CELL) in (pl.UInt64, pl.String) and numbers:
            return cls.cells(*numbers)
        own = [name for name in schema if name not in FRAME and name not in keys]
        if own and own == numbers:
            if not keys and len(own) == 1:
                return cls.number(*own)
            if keys and WINDOW_END in schema:
                return cls.bars(*own).beside(cls.series(*own))
        return cls.table()

    def check(self, schema: Mapping[str, pl.DataType], *, job: str) -> None:
        """See that the columns it names are there and can be drawn.

        Raises:
            PlanError: A column is missing or has a type that cannot be shown so.
        """
        for view in self.views:
            view.check(schema, job=job)
        shown = tuple(value.column for value in self.values)
        places = [name for name in (self.cell, self.target, self.latitude, self.longitude) if name is not None]
        for name in (*shown, *places, *self.labels):
            if name not in schema:
                raise PlanError(
                    f"job {job!r} is shown by the column {name!r}, which its results do not have",
                    hint=f"They have: {', '.join(schema)}.",
                )
        for name in (*shown, *(name for name in (self.latitude, self.longitude) if name is not None)):
            if not schema[name].is_numeric():
                raise PlanError(
                    f"job {job!r} shows the column {name!r} as a number, but it is {schema[name]}",
                    hint="Show a number, or put the column among the labels.",
                )
        for name in (name for name in (self.cell, self.target) if name is not None):
            if schema[name] not in (pl.UInt64, pl.String):
                raise PlanError(
                    f"job {job!r} takes the column {name!r} for H3 cells, but it is {schema[name]}",
                    hint="A cell is a UInt64 number (h3_cell) or its hexadecimal text (cell_text).",
                )


def _shown(values: Iterable[str | Shown], unit: str) -> tuple[Shown, ...]:
    return tuple(value if isinstance(value, Shown) else Shown(value, unit=unit) for value in values)


def _micros(duration: str | timedelta | None) -> int | None:
    return None if duration is None else micros(duration)


def _is_number(schema: Mapping[str, pl.DataType], *names: str) -> bool:
    return all(schema[name].is_numeric() for name in names)
