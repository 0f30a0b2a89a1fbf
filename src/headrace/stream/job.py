"""`Job`: source topics, what is done with their events, and the topic that the results go to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.delivery import DELIVERIES, Delivery
from headrace.engine.operator import INGESTION_TIME
from headrace.errors import PlanError, SchemaError
from headrace.formats.envelope import EnvelopeFormat
from headrace.sinks.contract import check_sinks
from headrace.stream import plan
from headrace.stream.declared import check_format
from headrace.stream.display import Display
from headrace.stream.pipeline import Pipeline, compile_outputs
from headrace.stream.steps import Drop, Select, replaces
from headrace.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from headrace.formats import Format
    from headrace.sinks.contract import Sink
    from headrace.stream.steps import Step

#: Columns that a result record has of its own, beside those of the window.
RESULT_FIELDS = frozenset(
    {"job", "key", "idempotency_key", "ingestion_time", "newest_event_time", "newest_ingestion_time", "columns"}
)

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Output:
    """A further output of a job, with a topic of its own.

    What it has in common with the job's stream, and with other outputs, is computed once. It is written in the same
    transactions as the job's results.

    Args:
        stream: What is computed.
        description: One sentence for people.
        display: What its results look like on the dashboard; chosen by their columns if not given.
        format: How its results are written; None: in Headrace's envelope.
        upsert: The columns that name a row, where its topic is to hold the newest row of each; see `Job`.
    """

    stream: Stream
    description: str = ""
    display: Display | None = None
    format: Format | None = None
    upsert: Sequence[str] = ()


@dataclass(frozen=True)
class Job:
    """A named stream with a place for its results.

    Args:
        name: Lower-case letters, digits and dashes; part of topic names, the checkpoint and the consumer group.
        stream: What is computed.
        description: One sentence for people.
        result_topic: Where results go; `analytics.<name>` unless told otherwise. Late events go to `<result
            topic>.late`.
        delivery: What a reader may rely on when something crashes; see docs/delivery.md.
        display: What its results look like on the dashboard; chosen by their columns if not given.
        outputs: Further outputs by name; their results go to `<result topic>.<name>`.
        format: How results are written, such as `json()`, for readers that do not know Headrace; None: in Headrace's
            envelope. Late events are in the envelope always.
        sinks: Where results, late rows and dead letters go besides the topics, such as `headrace.sinks.parquet("out")`;
            see docs/sinks.md.
        upsert: The columns that name a row of the result, where the topic is to hold the newest row of each: records
            are keyed by them, a row replaces the one before, and one that is taken back leaves a record without a
            value. The topic is compacted. Empty: every change is a record, with `is_retraction`. See docs/tables.md.
    """

    name: str
    stream: Stream
    description: str = ""
    result_topic: str = field(default="")
    display: Display | None = None
    delivery: Delivery = "exactly_once"
    outputs: Mapping[str, Output] = field(default_factory=dict)
    format: Format | None = None
    sinks: Sequence[Sink] = ()
    upsert: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise PlanError(
                f"a job whose name is a {type(self.name).__name__}",
                hint='The name comes first, the stream second: Job("late-parcels", stream).',
            )
        if not _NAME.fullmatch(self.name):
            raise PlanError(
                f"job name {self.name!r}",
                hint="Begin with a letter and use lower-case letters, digits and dashes, 63 at most.",
            )
        if not self.result_topic:
            object.__setattr__(self, "result_topic", f"analytics.{self.name}")
        if self.delivery not in DELIVERIES:
            raise PlanError(
                f"job {self.name!r} has the delivery {self.delivery!r}", hint=f"Choose one of {', '.join(DELIVERIES)}."
            )
        object.__setattr__(self, "sinks", check_sinks(self.name, self.sinks))
        object.__setattr__(self, "stream", _without_ingestion_time(self.stream))
        kept = {name: replace(each, stream=_without_ingestion_time(each.stream)) for name, each in self.outputs.items()}
        object.__setattr__(self, "outputs", kept)
        self._check_results(self.name, self.stream, self.display, self.format)
        self._check_upsert(self.name, self.stream, self.upsert)
        for name, output in self.outputs.items():
            if not _NAME.fullmatch(name) or name == "late":
                raise PlanError(
                    f"job {self.name!r} has an output {name!r}",
                    hint="Use lower-case letters, digits and dashes, and not the name of the late events.",
                )
            self._check_results(self.output_name(name), output.stream, output.display, output.format)
            self._check_upsert(self.output_name(name), output.stream, output.upsert)
        # What cannot be planned should fail here, where it is written, and not when it is run.
        pipeline = self.pipeline
        for way in pipeline.outputs:
            name = self.output_name(way.name) if way.name else self.name
            _check_keys(name, way.keys, way.after_key, way.schema)

    def _check_results(
        self,
        name: str,
        stream: Stream,
        display: Display | None,
        format: Format | None,  # noqa: A002
    ) -> None:
        if not isinstance(stream, Stream):
            raise PlanError(
                f"job {name!r} of a {type(stream).__name__}, not of a stream", hint='Write Job("late", stream).'
            )
        if isinstance(stream.node, plan.Window):
            raise PlanError(
                f"job {name!r} ends with window(...), which gives nothing by itself",
                hint="Say what to compute in each window: .aggregate(scans=count()).",
            )
        check_format(format, f"job {name!r}")
        if not stream.node.stateful:
            raise PlanError(
                f"job {name!r} has no stateful step",
                hint="Add key_by and window(...).aggregate(...), or another step that remembers rows. A filter alone "
                "is a job in SQL: INSERT INTO ... SELECT ... WHERE ... in a file that `jobs` of headrace.toml names.",
            )
        taken = sorted(set(stream.schema) & RESULT_FIELDS)
        if taken:
            raise PlanError(
                f"job {name!r} has the result column {', '.join(taken)}, which every result record has already",
                hint=f'Leave it out with drop("{taken[0]}"), or rename it before the last step: with_columns(...), '
                "then select(...) or key_by the new name.",
            )
        if display is not None:
            display.check(stream.schema, job=name)
        if isinstance(format, EnvelopeFormat):
            raise PlanError(
                f"job {name!r} has the envelope as its format", hint="Leave format= out: it is the default for results."
            )
        if format is not None:
            try:
                format.encode(stream.schema.to_frame().clear(1))
            except SchemaError as problem:
                raise PlanError(
                    f"job {name!r} cannot write its results as {format.name}: {problem.message}", hint=problem.hint
                ) from problem

    def _check_upsert(self, name: str, stream: Stream, key: Sequence[str]) -> None:
        if isinstance(key, str):
            raise PlanError(f"job {name!r} has upsert={key!r}", hint=f'Name columns: upsert=["{key}"].')
        missing = [column for column in key if column not in stream.schema]
        if missing:
            raise PlanError(
                f"job {name!r} has upsert by {', '.join(missing)}, which its results lack",
                hint=f"The columns of its results are: {', '.join(stream.schema)}.",
            )
        if key and not stream.node.updating:
            raise PlanError(
                f"job {name!r} has upsert, but its results are never taken back",
                hint="Leave it out, or make a table of the stream first: as_table(...).changes().",
            )

    def upsert_key(self, output: str = "") -> tuple[str, ...]:
        """The columns that name a row of an output that is written as upserts; empty: it is written as changes."""
        return tuple(self.outputs[output].upsert if output else self.upsert)

    def output_name(self, output: str) -> str:
        """What results of a further output say of themselves in place of the job's name."""
        return f"{self.name}.{output}"

    def output_format(self, output: str) -> Format | None:
        """How the results of a further output are written; None: in the envelope."""
        return self.outputs[output].format

    def output_topic(self, output: str) -> str:
        """Where the results of a further output go."""
        return f"{self.result_topic}.{output}"

    @property
    def result_topics(self) -> tuple[str, ...]:
        """Where results go: those of the job, then those of its further outputs."""
        return (self.result_topic, *(self.output_topic(name) for name in self.outputs))

    @property
    def late_topic(self) -> str:
        """Where events go that came after their windows had expired."""
        return f"{self.result_topic}.late"

    @cached_property
    def pipeline(self) -> Pipeline:
        """The job as stages of steps and operators."""
        return compile_outputs(
            {"": self.stream.node, **{name: output.stream.node for name, output in self.outputs.items()}}
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps that keep state, by which a checkpoint finds it."""
        return tuple(stage.step for stage in self.pipeline.stages)

    @property
    def picture(self) -> Display:
        """What its results look like: as declared, or else by their columns."""
        return self.display or Display.fitting(self.stream.schema, keys=self.pipeline.result_keys)

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that the job reads, each once."""
        sources = (entry.source for entry in self.pipeline.entries)
        return tuple(dict.fromkeys(source.topic for source in sources if isinstance(source, plan.TopicSource)))

    @property
    def windows(self) -> str:
        """The windows in words, such as "sliding 30s / 5s"; empty where there are none."""
        texts = (stage.window_text for stage in self.pipeline.stages)
        return ", ".join(dict.fromkeys(text for text in texts if text))

    def explain(self) -> str:
        """Show the job's plan and topics."""
        lines = [_titled(self.name, self.description), self.stream.explain()]
        how = self.delivery.replace("_", " ")
        lines.append(f"  to {self.result_topic}{_as(self.format)}, {how} (late events to {self.late_topic})")
        for name, output in self.outputs.items():
            lines += [_titled(self.output_name(name), output.description), output.stream.explain()]
            lines.append(f"  to {self.output_topic(name)}{_as(output.format)}, {how}")
        lines += [f"  and to {sink.text}, {sink.delivery.replace('_', ' ')}" for sink in self.sinks]
        lines.append(f"  state of {', '.join(self.steps)}")
        return "\n".join(lines)


def _without_ingestion_time(stream: Stream) -> Stream:
    """Drop when events were taken in, which joined rows still have: a result record has such a time of its own."""
    if isinstance(stream, Stream) and stream.node.stateful and INGESTION_TIME in set(stream.schema) - set(stream.keys):
        return stream.drop(INGESTION_TIME)
    return stream


def _titled(name: str, description: str) -> str:
    return f"{name}: {description}" if description else name


def _as(format: Format | None) -> str:  # noqa: A002
    return "" if format is None else f" as {format.name}"


def _check_keys(name: str, keys: tuple[str, ...], steps: tuple[Step, ...], schema: pl.Schema) -> None:
    """Refuse results without the key they were computed by: they could not be told apart.

    The idempotency key of a result is made of its key columns (docs/delivery.md).
    """
    gone = [key for key in keys if key not in schema]
    if gone:
        guilty = next((f"{step.text!r} drops" for step in steps if _drops(step, gone[0])), "its results lack")
        raise PlanError(
            f"job {name!r}: {guilty} the key {', '.join(gone)}, so results of different keys could not be told apart",
            hint="Keep the key columns of the last stateful step in the results, under their names.",
        )
    for key in keys:
        step = next((step for step in steps if replaces(step, key)), None)
        if step is not None:
            raise PlanError(
                f"job {name!r}: {step.text!r} replaces the key {key}, so results of different keys might be alike",
                hint="Give the new column another name, or compute it before key_by(...).",
            )


def _drops(step: Step, key: str) -> bool:
    if isinstance(step, Drop):
        return key in step.names
    return isinstance(step, Select) and key not in dict(step.columns)
