"""Tables of upserts and deletes, and the changes that they make."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cep import Pattern
from headrace.engine.changelog import changes, final, net, unweighted, weighted
from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.tables.upserts import LatestRowsOperator
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANT = pl.Datetime("us", "UTC")


def rows_of(*rows: tuple[str, int | None, int, bool]) -> pl.DataFrame:
    """Rows of a table of prices: product, price, second, gone."""
    frame = pl.DataFrame(
        rows,
        schema={"product": pl.String, "price": pl.Int64, "event_time": pl.Int64, "gone": pl.Boolean},
        orient="row",
    )
    return frame.with_columns((pl.col("event_time") * 1_000_000).cast(INSTANT))


def prices() -> Stream:
    schema = {"product": pl.String, "price": pl.Int64, "gone": pl.Boolean}
    return Stream.rows("prices", schema).watermark(bounded("1s"))


def told(frame: pl.DataFrame) -> list[tuple[str, int | None, str]]:
    """Product, price and sign of changes."""
    signs = pl.when("is_retraction").then(pl.lit("-")).otherwise(pl.lit("+"))
    return sorted(frame.select("product", "price", signs).rows())


def test_an_upsert_takes_back_what_it_replaces() -> None:
    runner = Runner(prices().as_table("product", deletes=pl.col("gone")).changes())
    first = runner.step(rows_of(("a", 1, 0, False), ("b", 5, 0, False), ("a", 2, 1, False)))
    assert told(first.results) == [("a", 2, "+"), ("b", 5, "+")]
    second = runner.step(rows_of(("a", 3, 2, False), ("b", None, 2, True), ("c", None, 2, True)))
    assert told(second.results) == [("a", 2, "-"), ("a", 3, "+"), ("b", 5, "-")]
    again = Runner(runner.pipeline, snapshot=runner.snapshot())
    third = again.step(rows_of(("b", 7, 3, False), ("a", 9, 3, False), ("a", None, 3, True)))
    assert told(third.results) == [("a", 3, "-"), ("b", 7, "+")]


def test_an_older_row_does_not_replace_a_newer_version() -> None:
    runner = Runner(prices().as_table("product", deletes=pl.col("gone"), versioned=True).changes())
    assert told(runner.step(rows_of(("a", 1, 10, False))).results) == [("a", 1, "+")]
    assert told(runner.step(rows_of(("a", 2, 5, False))).results) == []
    assert told(runner.step(rows_of(("a", 3, 10, False))).results) == [("a", 1, "-"), ("a", 3, "+")]
    assert told(runner.step(rows_of(("a", None, 20, True))).results) == [("a", 3, "-")]
    assert told(runner.step(rows_of(("a", 4, 15, False))).results) == []
    assert told(runner.step(rows_of(("a", 5, 20, False))).results) == [("a", 5, "+")]


def test_a_delete_is_remembered_for_the_retention() -> None:
    table = prices().as_table("product", deletes=pl.col("gone"), versioned=True, retention="10s")
    runner = Runner(table.changes(), key_groups=1)
    runner.step(rows_of(("a", 1, 10, False), ("a", None, 20, True)))
    assert told(runner.step(rows_of(("a", 2, 15, False), ("b", 1, 25, False))).results) == [("b", 1, "+")]
    runner.step(rows_of(("b", 2, 40, False)))
    assert told(runner.step(rows_of(("a", 3, 15, False))).results) == [("a", 3, "+")]


def test_a_table_of_changes_gives_them_as_upserts() -> None:
    schema = {"product": pl.String, "price": pl.Int64, "undo": pl.Boolean}
    changed = Stream.rows("moves", schema).watermark(bounded("1s")).as_changelog(pl.col("undo")).drop("undo")
    assert changed.node.updating
    runner = Runner(changed.as_table("product").upserts())
    frame = rows_of(("a", 1, 0, True), ("a", 2, 0, False), ("b", 3, 0, True)).rename({"gone": "undo"})
    found = runner.step(frame).results
    assert sorted(found.select("product", "price", "is_delete").rows()) == [("a", 2, False), ("b", 3, True)]


def test_stateless_steps_keep_what_is_taken_back() -> None:
    changed = prices().as_table("product", deletes=pl.col("gone")).changes()
    doubled = changed.select("product", price=pl.col("price") * 2).filter(pl.col("price") > 2)
    assert doubled.schema.names() == ["event_time", "product", "is_retraction", "price"]
    both = doubled.union(prices().select("product", "price"))
    assert both.node.updating
    with pytest.raises(PlanError, match="drop loses is_retraction"):
        changed.drop("is_retraction")


def test_a_window_subtracts_what_a_table_takes_back() -> None:
    changed = prices().as_table("product", deletes=pl.col("gone")).changes()
    windowed = changed.key_by("product").window(tumbling("10s")).aggregate(n=count())
    runner = Runner(windowed)
    runner.step(rows_of(("a", 1, 1, False), ("b", 1, 2, False)))
    runner.step(rows_of(("a", 1, 3, False)))
    fired = runner.step(rows_of(("a", 1, 14, False))).results
    assert sorted(fired.filter(pl.col("n") > 0).select("product", "n").rows()) == [("b", 1)]
    assert runner.finish().results.select("product", "n").rows() == [("a", 1)]


REFUSED: dict[str, Callable[[Stream], object]] = {
    "match": lambda keyed: keyed.match(Pattern.begin("x", pl.col("price") > 1).within("1s")),
    "deduplicate": lambda keyed: keyed.deduplicate("price", within="1s"),
    "previous": lambda keyed: keyed.previous(before="price", within="1s"),
    "process": lambda keyed: keyed.process(lambda keys, schema: LatestRowsOperator(keys, tuple(schema))),
}


@pytest.mark.parametrize("step", REFUSED)
def test_steps_that_cannot_take_anything_back_refuse(step: str) -> None:
    keyed = prices().as_table("product").changes().key_by("product")
    with pytest.raises(PlanError, match=f"{step} +of an updating stream") as refused:
        REFUSED[step](keyed)
    assert refused.value.hint


def test_a_changelog_nets_to_its_table() -> None:
    rows = pl.DataFrame(
        {"v": ["a", "a", None, None, "b"], "t": [1, 2, 3, 4, 5], "is_retraction": [False, True, False, False, True]}
    )
    assert net(rows, ignoring=["t"]).rows() == [(None, 4, False), (None, 4, False), ("b", 5, True)]
    assert net(rows).height == 5
    assert weighted(rows.drop("t")).rows() == [(None, 2), ("b", -1)]
    assert unweighted(weighted(rows)).height == 5
    old, new = rows.select("v"), rows.select("v").head(3)
    assert changes(old, new).rows() == [(None, True), ("b", True)]
    assert final(pl.concat([rows, rows.with_columns(is_retraction=~pl.col("is_retraction"))])).rows() == []


@pytest.mark.parametrize("module", ["headrace.tables", "headrace.tables.upserts", "headrace.joins.kinds"])
def test_it_can_be_imported_first(module: str) -> None:
    """A worker that reads a saved plan imports whatever the plan names first."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
