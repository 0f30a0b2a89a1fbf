"""A display is checked when it is written, against the columns it will show."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.stream import Display, Job, Stream
from headrace.stream.display import Shown
from headrace.time import bounded
from headrace.windows import count, latest, tumbling


def counted(**aggregates: Any) -> Stream:
    return (
        Stream.rows("rows", {"cell": pl.UInt64, "place": pl.String, "speed": pl.Float64})
        .watermark(bounded("1s"))
        .key_by("cell")
        .window(tumbling("10s"))
        .aggregate(n=count(), **aggregates)
    )


def test_a_job_is_shown_as_it_says() -> None:
    shown = Display.cells(Shown("n", label="vehicles", unit="pcs"), title="Where they are")
    job = Job("shown", counted(), display=shown)
    assert job.picture is shown
    assert job.picture.values == (Shown("n", "vehicles", "pcs"),)


@pytest.mark.parametrize(
    ("schema", "kind", "values"),
    [
        ({"cell": pl.UInt64(), "n": pl.Int64()}, "cells", ["n"]),
        ({"cell": pl.String(), "p50": pl.Float64(), "p90": pl.Float64()}, "cells", ["p50", "p90"]),
        ({"cell": pl.Float64(), "n": pl.Int64()}, "table", []),
        ({"cell": pl.UInt64(), "name": pl.String()}, "table", []),
        ({"latitude": pl.Float64(), "longitude": pl.Float64(), "cell": pl.UInt64()}, "points", []),
        ({"latitude": pl.String(), "longitude": pl.String()}, "table", []),
    ],
)
def test_without_a_display_the_columns_decide(schema: dict[str, pl.DataType], kind: str, values: list[str]) -> None:
    found = Display.fitting(schema)
    assert found.kind == kind
    assert [value.column for value in found.values] == values


END = {"window_end": pl.Datetime("us", "UTC")}


@pytest.mark.parametrize(
    ("schema", "keys", "kinds", "values"),
    [
        ({"n": pl.Int64(), **END}, [], ["number"], ["n"]),
        ({"n": pl.Int64()}, [], ["number"], ["n"]),
        ({"n": pl.Int64(), "m": pl.Int64()}, [], ["table"], []),
        ({"depot": pl.String(), "n": pl.Int64(), **END}, ["depot"], ["bars", "series"], ["n"]),
        ({"depot": pl.Int64(), "n": pl.Int64(), **END}, ["depot"], ["bars", "series"], ["n"]),
        ({"depot": pl.String(), "n": pl.Int64(), "p": pl.Float64(), **END}, ["depot"], ["bars", "series"], ["n", "p"]),
        ({"depot": pl.String(), "n": pl.Int64()}, ["depot"], ["table"], []),
        ({"depot": pl.String(), "n": pl.Int64(), "last": pl.String(), **END}, ["depot"], ["table"], []),
        ({"depot": pl.String(), **END}, ["depot"], ["table"], []),
    ],
)
def test_results_without_a_place_choose_their_views(
    schema: dict[str, pl.DataType], keys: list[str], kinds: list[str], values: list[str]
) -> None:
    found = Display.fitting(schema, keys=keys)
    assert [view.kind for view in found.all_views] == kinds
    assert all([value.column for value in view.values] == values for view in found.all_views)


def test_window_columns_are_not_taken_for_values() -> None:
    assert [value.column for value in Job("bare", counted()).picture.values] == ["n"]


@pytest.mark.parametrize(
    ("display", "message"),
    [
        (Display.cells("m"), "'m', which its results do not have"),
        (Display.cells("n", labels=["gone"]), "'gone', which its results do not have"),
        (Display.cells("n", cell="n"), "takes the column 'n' for H3 cells, but it is Int64"),
        (Display.arcs("n", target="n"), "takes the column 'n' for H3 cells"),
        (Display.cells("where"), "shows the column 'where' as a number, but it is String"),
        (Display.points(latitude="where", longitude="n"), "shows the column 'where' as a number"),
    ],
)
def test_a_display_that_does_not_fit_is_refused_with_the_job(display: Display, message: str) -> None:
    with pytest.raises(PlanError, match="job 'unfit'") as caught:
        Job("unfit", counted(where=latest("place")), display=display)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Display.cells(), "needs a value column"),
        (lambda: Display.chart(), "needs a value column"),
        (lambda: Display.bars(), "needs a value column"),
        (lambda: Display.bars("n", top=0), "the top 0 keys"),
        (lambda: Display.table().beside(Display.cells("n")), "cells stands beside another"),
        (lambda: Display.table().beside(Display.bars("n", time_to_live="1m")), "how long results stay"),
        (lambda: Display.cells("n", "n"), "twice"),
        (lambda: Display.cells("n", domain=(5, 5)), "is empty"),
        (lambda: Display.points(time_to_live="0s"), "must be positive"),
        (lambda: Display.points(time_to_live="soon"), "is not a duration"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        make()
    assert message in caught.value.message
