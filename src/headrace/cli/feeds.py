"""Which connectors and processors a file of feeds may name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.ingest.feeds import Feed


def load_feeds(path: Path) -> list[Feed]:
    """Read a file of feeds.

    Raises:
        HeadraceError: The file cannot be read, or something in it is wrong.
    """
    from headrace.ingest.connectors.mqtt import MqttConnector
    from headrace.ingest.connectors.replay import ReplayConnector
    from headrace.ingest.feeds import load
    from headrace.transit.hfp import HfpProcessor

    return load(
        path,
        connectors={kind.name: kind for kind in (MqttConnector, ReplayConnector)},
        processors={HfpProcessor.name: HfpProcessor},
    )
