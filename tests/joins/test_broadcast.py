"""A table on all key groups: the same answers, and rows stay on the key group of their own key."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded

INSTANT = pl.Datetime("us", "UTC")
SCANS = Stream.rows("scans", {"scan": pl.Int64, "depot": pl.String}).watermark(bounded("0s")).key_by("scan")
DEPOTS = Stream.rows("depots", {"depot": pl.String, "city": pl.String, "gone": pl.Boolean}).watermark(bounded("0s"))
TABLE = DEPOTS.as_table("depot", deletes=pl.col("gone"))


def scans(*numbers: int, depot: str | None = "hot", time: int = 0) -> pl.DataFrame:
    frame = pl.DataFrame({"scan": numbers}, schema={"scan": pl.Int64})
    return frame.with_columns(pl.lit(depot, pl.String).alias("depot"), pl.lit(time).cast(INSTANT).alias("event_time"))


def depot(name: str, city: str, time: int = 0, *, gone: bool = False) -> pl.DataFrame:
    row = pl.DataFrame({"depot": [name], "city": [city], "gone": [gone]})
    return row.with_columns(event_time=pl.lit(time).cast(INSTANT))


def through(stream: Stream, batches: list[dict[str, Any]], groups: list[int]) -> list[Any]:
    runner = Runner(stream, key_groups=groups[0])
    found = []
    for number, batch in enumerate(batches):
        wanted = groups[number % len(groups)]
        runner = Runner(stream, key_groups=wanted, snapshot=runner.snapshot())
        step = runner.step(batch)
        assert step.dismissed is None
        found.append(step.results)
    found.append(runner.finish().results)
    return sorted(map(repr, pl.concat(found).drop("pane_index", strict=False).rows()))


def random_batches(seed: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    batches: list[dict[str, Any]] = []
    for number in range(12):
        batch: dict[str, Any] = {}
        if chance.random() < 0.7:
            names = [chance.choice(["hot", "hot", "a", "b", None]) for _ in range(6)]
            batch["scans"] = pl.concat([scans(10 * number + place, depot=name) for place, name in enumerate(names)])
        if chance.random() < 0.6:
            name = chance.choice(["hot", "a", "b"])
            batch["depots"] = depot(name, f"city {number}", number, gone=chance.random() < 0.3)
        batches.append(batch)
    return batches


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("updating", [False, True])
@pytest.mark.parametrize("groups", [[1], [4, 1, 3]])
def test_the_answer_is_that_of_the_join_by_key(
    how: Any, updating: bool, groups: list[int], share_of_cases: int
) -> None:
    left = SCANS.filter(pl.col("scan") % 10 != 3).as_table("scan").changes().key_by("scan") if updating else SCANS
    by_key, everywhere = (left.join(TABLE, on="depot", how=how, broadcast=broadcast) for broadcast in (False, True))
    for seed in range(3)[::share_of_cases]:
        batches = random_batches(seed)

        expected, found = through(by_key, batches, groups), through(everywhere, batches, groups)

        assert found == expected
        assert expected, "nothing was joined"


def test_rows_that_wait_for_the_table_are_spread_with_their_key() -> None:
    joined = SCANS.join(TABLE, on="depot", how="left", broadcast=True, load_until=50)
    batches = [{"scans": scans(1, 2, 3)}, {"depots": depot("hot", "Turku", 10)}, {"depots": depot("x", "y", 60)}, {}]

    found = through(joined, batches, [3, 5, 2, 1])

    assert [row.partition(", False")[0] for row in found] == [f"({number}, 'hot', 'Turku'" for number in (1, 2, 3)]


def test_one_hot_key_is_on_all_key_groups() -> None:
    runner = Runner(SCANS.join(TABLE, on="depot", broadcast=True), key_groups=4)
    runner.step({"depots": depot("hot", "Turku")})

    results = runner.step({"scans": scans(*range(400))}).results

    assert results.height == 400
    # Each key group numbers its results.
    assert results.get_column("pane_index").value_counts().get_column("count").max() == 4


@pytest.mark.parametrize(
    ("left", "options", "message"),
    [
        (SCANS, {"within": ("0s", "1s")}, "broadcast of a join with within"),
        (SCANS, {"as_of": "event_time"}, "broadcast of a join with as_of"),
        (Stream.rows("scans", {"depot": pl.String}), {}, "broadcast of a stream without a key"),
    ],
)
def test_what_it_cannot_do_is_said(left: Stream, options: Any, message: str) -> None:
    right: Any = DEPOTS if "within" in options else TABLE
    with pytest.raises(PlanError, match=message):
        left.join(right, on="depot", broadcast=True, **options)
