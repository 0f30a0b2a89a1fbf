"""A story: what became of the events of a key, fact by fact."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.time.instants import BEGINNING, END, moment

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What a fact is about.
Kind = Literal[
    "read",
    "not_read",
    "dead_letter",
    "skipped",
    "absurd_time",
    "null_key",
    "filtered",
    "late",
    "dismissed",
    "duplicate",
    "kept",
    "counted",
    "matched",
    "passed_over",
    "broken",
    "timed_out",
    "given",
    "waits",
    "nothing",
    "absent",
    "unknown",
]


#: A fact that is about no moment in particular.
ALWAYS = (BEGINNING, END)


@dataclass(frozen=True)
class Event:
    """An event, by its place.

    Args:
        source: The topic, or the source's name.
        partition: The name of its partition.
        offset: Its offset, or its number in the partition where rows were given.
        time: Its event time, microseconds since the epoch; None where it has none that can be read.
    """

    source: str
    partition: str
    offset: int
    time: int | None = None

    @property
    def text(self) -> str:
        """Name it in a sentence."""
        number = self.partition.removeprefix(f"{self.source}/")
        when = "" if self.time is None else f" of {time_text(self.time)}"
        return f"the event{when} ({self.source}, partition {number}, offset {self.offset:,})"


@dataclass(frozen=True)
class Fact:
    """One thing that happened, or that is awaited.

    Args:
        kind: What it is about.
        text: The sentence.
        step: The step that did it; empty before the first.
        batch: The number of the batch.
        event: The event, where it is about one.
        span: The stretch of event time that it is about: its begin, and its end, included.
        data: The figures of the sentence, as JSON values.
    """

    kind: Kind
    text: str
    step: str = ""
    batch: int = 0
    event: Event | None = None
    span: tuple[int, int] = ALWAYS
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        told = {name: value for name, value in asdict(self).items() if name != "span"}
        return {**told, "event": None if self.event is None else asdict(self.event)}


@dataclass(frozen=True)
class Story:
    """What became of the events of a key.

    Args:
        job: The name of the job; empty for a stream.
        key: The values of the key columns.
        facts: What happened, in the order of the batches, then what is awaited.
        at: The event time that was asked for, if any.
    """

    job: str
    key: tuple[Any, ...]
    facts: tuple[Fact, ...]
    at: int | None = None

    def of(self, *kinds: Kind) -> tuple[Fact, ...]:
        """Give the facts of some kinds."""
        return tuple(fact for fact in self.facts if fact.kind in kinds)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the facts."""
        return frozenset(fact.kind for fact in self.facts)

    @property
    def text(self) -> str:
        """The story in sentences, a line each."""
        about = f"key {', '.join('null' if value is None else str(value) for value in self.key)}"
        head = f"{self.job}: {about}" if self.job else about
        lines = [head if self.at is None else f"{head} at {time_text(self.at)}"]
        batch: int | None = None
        for fact in self.facts:
            if fact.kind in ("waits", "nothing", "not_read", "absent", "unknown"):
                if batch != -1:
                    lines.append("Now:")
                    batch = -1
            elif fact.batch != batch:
                batch = fact.batch
                lines.append(f"Batch {batch:,}:")
            lines.append(f"  {fact.text}" + (f" [{fact.step}]" if fact.step else ""))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        told = {"job": self.job, "key": list(self.key), "at": None if self.at is None else time_text(self.at)}
        return {**told, "facts": [fact.to_dict() for fact in self.facts]}


def around(facts: Iterable[Fact], at: int) -> list[Fact]:
    """Choose the facts about a moment of event time: those whose stretch of time holds it, and the events in these.

    A moment that nothing is about is answered by the nearest events before and after it.
    """
    every = list(facts)
    spans = [fact.span for fact in every if fact.span[0] <= at <= fact.span[1] and fact.span[0] > BEGINNING]
    if not spans:
        times = [(fact.event.time, fact) for fact in every if fact.event is not None and fact.event.time is not None]
        before = max((each for each in times if each[0] <= at), key=lambda each: each[0], default=None)
        after = min((each for each in times if each[0] > at), key=lambda each: each[0], default=None)
        told = [
            f"the nearest {word} is {fact.event.text}"
            for word, found in (("before", before), ("after", after))
            if found is not None and (fact := found[1]).event is not None
        ]
        rest = "; ".join(told) or "no event of this key was found at all"
        nothing = Fact("nothing", f"No event of this key is near {time_text(at)}: {rest}.")
        near = {each[1].event for each in (before, after) if each is not None}
        return [*(fact for fact in every if fact.event is not None and fact.event in near), nothing]
    low, high = min(begin for begin, _ in spans), max(end for _, end in spans)
    return [fact for fact in every if fact.span[0] <= high and fact.span[1] >= low]


def time_text(time: int) -> str:
    """Show an instant."""
    if time <= BEGINNING:
        return "the beginning"
    shown = moment(time) if time < END else None
    if shown is None:
        return "the end of time"
    text = shown.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text} UTC"
