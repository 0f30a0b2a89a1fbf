"""Whether a stream's results are right: compared with a batch of the same jobs over the same input.

    python -m headrace.evaluate.parity --bootstrap HOST:PORT --watermarks '{"job": microseconds}' --scratch DIR

Runs as a process of its own (Spark takes the process it runs in for itself) and prints one line of JSON per job. What
the stream wrote up to its last watermark is compared with what the batch gives up to there: row by row, by key and
window or event time. A difference in a whole number, a text or an instant is an error. Fractions may differ where they
come from a sketch, which depends on the order of merging; those are counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.config import Settings
from headrace.engine.operator import EVENT_TIME, WINDOW_END
from headrace.errors import PlanError
from headrace.events import Codec, Result
from headrace.kafka import Connection, Consumer
from headrace.registry import Registry
from headrace.time.duration import SECOND

if TYPE_CHECKING:
    from headrace.stream import Job

#: A match that is under way at the end may be decided otherwise by what comes after it.
_PATTERN_MARGIN = 15 * SECOND
_NOT_COMPARED = ("pane_index", "pane_timing", "pane_is_last", "pane_mode", "is_retraction", "window_start")
_CLOSE = 1e-9


@dataclass(frozen=True)
class Parity:
    """How a stream's results compare with a batch's.

    Args:
        job: Whose.
        rows: Rows compared.
        missing: Rows that only the batch has.
        extra: Rows that only the stream has, or has twice.
        different: Rows with another number, text or instant.
        approximate: Rows that differ only in fractions.
        example: One of the rows that are not right, in words.
    """

    job: str
    rows: int
    missing: int
    extra: int
    different: int
    approximate: int
    example: str = ""

    @property
    def right(self) -> bool:
        """Whether there was something to compare, and all of it is right."""
        return self.rows > 0 and not (self.missing or self.extra or self.different)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return {**asdict(self), "right": self.right}


def compare(job: str, stream: pl.DataFrame, batch: pl.DataFrame, *, keys: tuple[str, ...]) -> Parity:
    """Compare results row by row.

    Args:
        job: Whose results they are.
        stream: What the stream wrote.
        batch: What it should have written.
        keys: What a result is about, beside its window or event time.

    >>> one = pl.DataFrame({"cell": [1, 2], "event_time": [10, 10], "parcels": [3, 4]})
    >>> compare("cells", one, one, keys=("cell",)).right
    True
    >>> other = pl.DataFrame({"cell": [1, 3], "event_time": [10, 10], "parcels": [5, 4]})
    >>> found = compare("cells", other, one, keys=("cell",))
    >>> found.missing, found.extra, found.different
    (1, 1, 1)
    """
    when = WINDOW_END if WINDOW_END in batch.columns else EVENT_TIME
    identity = [*dict.fromkeys((*keys, when))]
    values = [name for name in batch.columns if name not in identity and name not in _NOT_COMPARED]
    stream = stream.select(*identity, *values)
    # A row that is there twice is one too many, on either side.
    number = pl.int_range(pl.len()).over(identity).alias("_number")
    left, right = (frame.select(*identity, *values).with_columns(number) for frame in (batch, stream))
    on = [*identity, "_number"]
    missing = left.join(right, on=on, how="anti", nulls_equal=True)
    extra = right.join(left, on=on, how="anti", nulls_equal=True)
    both = left.join(right, on=on, how="inner", suffix="_stream", nulls_equal=True)
    floats = [name for name in values if batch.schema[name].is_float()]
    exact = [name for name in values if name not in floats]
    wrong = both.filter(
        pl.any_horizontal([pl.col(n).ne_missing(pl.col(f"{n}_stream")) for n in exact] or [pl.lit(False)])
    )
    about = both.filter(pl.any_horizontal([_differs(name) for name in floats] or [pl.lit(False)]))
    bad = next((frame for frame in (wrong, missing, extra) if frame.height), None)
    return Parity(
        job,
        rows=batch.height,
        missing=missing.height,
        extra=extra.height,
        different=wrong.height,
        approximate=about.height,
        example="" if bad is None else json.dumps(bad.row(0, named=True), default=str),
    )


def _differs(name: str) -> pl.Expr:
    one, two = pl.col(name), pl.col(f"{name}_stream")
    close = (one - two).abs() <= _CLOSE * pl.max_horizontal(one.abs(), two.abs(), 1.0)
    return ~(close | one.eq_missing(two))


def stream_results(job: Job, connection: Connection) -> pl.DataFrame:
    """Read all results that a job has written and committed.

    Raises:
        PlanError: They are not in the envelope.
    """
    if job.format is not None:
        raise PlanError(
            f"the results of {job.name} are {job.format.name}; only those in the envelope can be compared",
            hint="Leave format= out of the job while it is evaluated.",
        )
    with Consumer(connection, [job.result_topic]) as consumer:
        values = [record.value for record in consumer]
    schema = pl.Schema({name: kind for name, kind in job.pipeline.schema.items() if name != EVENT_TIME})
    return Codec().decode(values, types=[Result], columns=schema).frame


def until(frame: pl.DataFrame, watermark: int) -> pl.DataFrame:
    """Keep the results that are final when event time has come to a watermark."""
    if WINDOW_END in frame.columns:
        return frame.filter(pl.col(WINDOW_END).dt.epoch("us") <= watermark)
    return frame.filter(pl.col(EVENT_TIME).dt.epoch("us") < watermark - _PATTERN_MARGIN)


def check(connection: Connection, watermarks: dict[str, int], *, scratch: Path, master: str) -> list[Parity]:
    """Compare what jobs have written with a batch over the same topics.

    Args:
        connection: The Kafka with input and results.
        watermarks: How far the stream of each job came, in microseconds.
        scratch: Where Spark may put files.
        master: Where Spark runs.
    """
    from headrace.spark.run.batch import run_batch
    from headrace.spark.session.session import spark_settings, start_session

    jobs = Registry(Settings.load()).find(watermarks)
    settings = spark_settings(state_partitions=2, driver_memory="3g", local_directory=scratch)
    spark = start_session("parity", master=master, settings=settings)
    try:
        answers = run_batch(spark, jobs, connection)
    finally:
        spark.stop()
    found = []
    for job in jobs:
        answer = answers[job.name]
        limit = min(watermarks[job.name], answer.watermark)
        stream = until(stream_results(job, connection), limit)
        found.append(compare(job.name, stream, until(answer.results, limit), keys=job.pipeline.result_keys))
    return found


def main() -> None:
    """Compare, and print a line per job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--watermarks", required=True, type=json.loads)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    connection = Connection(bootstrap=chosen.bootstrap)
    for parity in check(connection, chosen.watermarks, scratch=chosen.scratch, master=chosen.master):
        sys.stdout.write(json.dumps({"event": "parity", **parity.to_dict()}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
