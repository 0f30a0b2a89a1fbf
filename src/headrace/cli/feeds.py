"""Which connectors and processors a file of feeds may name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.ingest.feeds import Feed
    from headrace.kafka import Connection


def load_feeds(path: Path, settings: Settings) -> list[Feed]:
    """Read a file of feeds.

    Raises:
        HeadraceError: The file cannot be read, or something in it is wrong.
    """
    from headrace.cli.jobs import registry
    from headrace.ingest.feeds import load

    known = registry(settings)
    return load(
        path,
        connectors=known.things("connectors"),
        processors=known.things("processors"),
        types=known.types,
        failed=[each for kind in ("connectors", "processors") for each in known.plugins_of(kind) if each.problem],
    )


def make_feed_topics(connection: Connection, feeds: list[Feed], settings: Settings) -> None:
    """Create the topics that feeds write to, where they are missing."""
    from headrace.cli.topics import declared_topics
    from headrace.kafka import Topics, TopicSpec

    declared = {spec.name: spec for spec in declared_topics(settings)}
    wanted = dict.fromkeys(
        name for feed in feeds for name in (*feed.topics, feed.delivery.dead_letters, *declared) if name
    )
    Topics(connection).ensure(
        [declared.get(name, TopicSpec(name=name, partitions=4, retention="6h")) for name in wanted]
    )
