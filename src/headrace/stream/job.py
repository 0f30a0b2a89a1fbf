"""`Job`: source topics, what is done with their events, and the topic that the results go to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from headrace.errors import PlanError
from headrace.stream import plan
from headrace.stream.display import Display
from headrace.stream.pipeline import Pipeline, compile_plan

if TYPE_CHECKING:
    from headrace.stream.stream import Stream

#: Columns that a result record has of its own, beside those of the window.
RESULT_FIELDS = frozenset(
    {"job", "key", "idempotency_key", "ingestion_time", "newest_event_time", "newest_ingestion_time", "columns"}
)

#: What a reader may rely on after a crash: every result once, every result but some twice, or none twice but some lost.
Delivery = Literal["exactly_once", "at_least_once", "at_most_once"]
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)

_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


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
    """

    name: str
    stream: Stream
    description: str = ""
    result_topic: str = field(default="")
    display: Display | None = None
    delivery: Delivery = "exactly_once"

    def __post_init__(self) -> None:
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
        taken = sorted(set(self.stream.schema) & RESULT_FIELDS)
        if taken:
            raise PlanError(
                f"job {self.name!r} has the result column {', '.join(taken)}, which every result record has already",
                hint="Rename it before the last step: with_columns(...), then select(...) or key_by the new name.",
            )
        if self.display is not None:
            self.display.check(self.stream.schema, job=self.name)
        # What cannot be planned should fail here, where it is written, and not when it is run.
        _ = self.pipeline

    @property
    def late_topic(self) -> str:
        """Where events go that came after their windows had expired."""
        return f"{self.result_topic}.late"

    @cached_property
    def pipeline(self) -> Pipeline:
        """The job as stages of steps and operators."""
        return compile_plan(self.stream.node, self.stream.schema)

    @property
    def picture(self) -> Display:
        """What its results look like: as declared, or else by their columns."""
        return self.display or Display.fitting(self.stream.schema, keys=self.pipeline.result_keys)

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that the job reads."""
        sources = (entry.source for entry in self.pipeline.entries)
        return tuple(source.topic for source in sources if isinstance(source, plan.TopicSource))

    @property
    def windows(self) -> str:
        """The windows in words, such as "sliding 30s / 5s"; empty where there are none."""
        texts = (stage.window_text for stage in self.pipeline.stages)
        return ", ".join(dict.fromkeys(text for text in texts if text))

    def explain(self) -> str:
        """Show the job's plan and topics."""
        lines = [f"{self.name}: {self.description}", self.stream.explain()]
        how = self.delivery.replace("_", " ")
        lines.append(f"  to {self.result_topic}, {how} (late events to {self.late_topic})")
        return "\n".join(lines)
