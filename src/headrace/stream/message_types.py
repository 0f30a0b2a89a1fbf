"""The message types of the events that jobs read: their plans carry them, and whoever decodes for jobs asks here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.events.registry import TypeRegistry
from headrace.formats.envelope import EnvelopeFormat
from headrace.stream.plan import TopicSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.stream.job import Job


def types_of(jobs: Iterable[Job]) -> TypeRegistry:
    """Give Headrace's own types and those of the topics that jobs read.

    Args:
        jobs: The jobs.
    """
    types = TypeRegistry()
    for job in jobs:
        for entry in job.pipeline.entries:
            if isinstance(entry.source, TopicSource) and isinstance(entry.source.format, EnvelopeFormat):
                types.include(entry.source.format.types)
    return types
