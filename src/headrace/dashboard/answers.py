"""The shapes of the REST answers, for OpenAPI. Times are milliseconds since the epoch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from headrace.stream.display import Kind


class Value(BaseModel):
    """A column that can be shown as the value of a picture."""

    column: str
    label: str
    unit: str


class View(BaseModel):
    """One way in which a job's results are shown."""

    kind: Kind
    values: list[Value]
    labels: list[str]
    top: int | None = Field(description="How many keys it shows; null on a map, which shows all.")
    title: str


class Column(BaseModel):
    """A column of a job's results."""

    name: str
    type: Literal["number", "text", "time", "duration", "boolean", "cell", "list"]


class JobStatus(BaseModel):
    """How a job's results are doing."""

    state: Literal["waiting", "live", "silent", "stopped", "failed", "missing"]
    text: str = Field(description="What is wrong and what to do; empty when all is well.")
    entries: int
    newest: int | None = Field(description="The job's own time: the newest window end, event time or watermark.")
    heard: int | None = Field(description="When its last result was read.")


class JobAnswer(BaseModel):
    """What a job looks like, and how it is doing."""

    job: str
    run: str = Field(description="The job that computes it; the same, or the one whose further output this is.")
    title: str
    description: str
    topic: str
    windows: str
    step: int | None
    kind: Kind
    keys: list[str]
    cell: str | None
    target: str | None
    latitude: str | None
    longitude: str | None
    values: list[Value]
    labels: list[str]
    columns: list[Column]
    scale: Literal["sequential", "diverging"]
    domain: tuple[float, float] | None
    legend: str
    time_to_live: int
    each: bool
    views: list[View]
    status: JobStatus


class JobsAnswer(BaseModel):
    """All jobs."""

    jobs: list[JobAnswer]


class Entry(BaseModel):
    """What is shown for one key."""

    key: str
    cell: str | None = Field(description="H3 cell as hexadecimal text.")
    target: str | None
    latitude: float | None = Field(description="Of the point, or of the middle of the cell.")
    longitude: float | None
    window_start: int | None
    window_end: int | None
    event_time: int
    expires_at: int
    published: int
    values: dict[str, Any]


class CellsAnswer(BaseModel):
    """The current state of a job."""

    job: str
    version: int
    total: int = Field(description="Entries that match, also those beyond the limit.")
    truncated: bool
    cells: list[Entry]


class HistoryPoint(BaseModel):
    """What a key was worth at one time."""

    event_time: int
    window_end: int | None
    values: dict[str, float | None]


class HistoryAnswer(BaseModel):
    """The last hour of a key."""

    job: str
    key: str
    points: list[HistoryPoint]


class Figure(BaseModel):
    """A figure of a step."""

    name: str
    value: float | None = Field(description="Null while it is not known.")
    unit: Literal["per_second", "records", "ms", "bytes", "rows", "time"]
    of: Literal["step", "job", "query"] = Field(
        description="What it is a figure of; a query may run several jobs, and tells its state as a whole."
    )


class StepAnswer(BaseModel):
    """A step of a job."""

    id: str
    kind: Literal["source", "stateless", "stateful", "results", "late"]
    title: str
    detail: list[str] = Field(description="Keys, windows, watermark.")
    topic: str | None
    figures: list[Figure]


class EdgeAnswer(BaseModel):
    """The rows that go from one step to another."""

    id: str
    source: str
    target: str
    rate: float | None = Field(description="Rows per second; null where they are not counted.")
    sampled: bool = Field(description="Whether rows of it can be shown.")


class GraphAnswer(BaseModel):
    """A job as a graph of steps."""

    job: str
    query: str | None = Field(description="What runs it, as far as it was heard of.")
    steps: list[StepAnswer]
    edges: list[EdgeAnswer]


class SampleAnswer(BaseModel):
    """The newest rows on an edge."""

    edge: str
    text: str = Field(description="What the rows are, or why there are none.")
    columns: list[Column]
    rows: list[list[Any]] = Field(description="Newest first, each in the order of the columns.")
    at: int | None = Field(description="When the newest of them was written.")


class MapConfig(BaseModel):
    """Where the map begins, and an online style if one is set."""

    style: str | None
    center: tuple[float, float] | None = Field(
        description="Longitude, latitude; null: the map begins where the first results are."
    )
    zoom: float


class ConfigAnswer(BaseModel):
    """What the page needs to know before it starts."""

    title: str
    version: str
    map: MapConfig


class BrokerAnswer(BaseModel):
    """Whether results can be read."""

    state: Literal["connecting", "connected", "gone"]
    since: int
    text: str


class PartAnswer(BaseModel):
    """How a part of the dashboard itself is doing."""

    name: Literal["results", "progress", "offsets", "viewers", "figures"]
    state: Literal["starting", "running", "waiting", "restarting", "stopped"]
    stale: bool = Field(description="What it finds is out of date.")
    refreshed: int | None = Field(description="When it last did its work.")
    failures: int = Field(description="Unexpected failures since the start.")
    text: str = Field(description="Why it waits or is started again.")


class StatusAnswer(BaseModel):
    """How everything is doing."""

    broker: BrokerAnswer
    jobs: dict[str, JobStatus]
    parts: list[PartAnswer]
    malformed: int = Field(description="Records of headrace.progress that were skipped.")


class HealthAnswer(BaseModel):
    """Whether the dashboard can do its work."""

    status: Literal["ok", "degraded", "unavailable"]
    detail: str = ""
    parts: list[str] = Field(default=[], description="The parts that fail or are out of date.")


class ProblemAnswer(BaseModel):
    """Why there is no answer."""

    detail: str
