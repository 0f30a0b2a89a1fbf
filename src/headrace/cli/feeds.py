"""Which connectors and processors a file of feeds may name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ingest.feeds import Feed
    from headrace.kafka import Connection


def load_feeds(path: Path) -> list[Feed]:
    """Read a file of feeds.

    Raises:
        HeadraceError: The file cannot be read, or something in it is wrong.
    """
    from headrace.ingest.connectors.mqtt import MqttConnector
    from headrace.ingest.connectors.replay import ReplayConnector
    from headrace.ingest.feeds import load
    from headrace.ingest.processors.csv import CsvProcessor
    from headrace.ingest.processors.json import JsonProcessor
    from headrace.transit.hfp import HfpProcessor
    from headrace.transit.simulator_connector import SimulatorConnector

    return load(
        path,
        connectors={kind.name: kind for kind in (MqttConnector, ReplayConnector, SimulatorConnector)},
        processors={kind.name: kind for kind in (HfpProcessor, JsonProcessor, CsvProcessor)},
    )


def make_feed_topics(connection: Connection, feeds: list[Feed]) -> None:
    """Create the topics that feeds write to, where they are missing."""
    from headrace.cli.topics import declared_topics
    from headrace.kafka import Topics, TopicSpec

    declared = {spec.name: spec for spec in declared_topics()}
    wanted = dict.fromkeys(
        name for feed in feeds for name in (*feed.topics, feed.delivery.dead_letters, *declared) if name
    )
    Topics(connection).ensure(
        [declared.get(name, TopicSpec(name=name, partitions=4, retention="6h")) for name in wanted]
    )
