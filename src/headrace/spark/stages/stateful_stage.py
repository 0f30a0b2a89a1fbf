"""The stateful stage: one call per key group and batch, state in Spark's state store.

Spark hands over all exchange rows of a group; `headrace.spark.stages.stage_turn` does the work; what leaves goes on as
exchange rows. Time mode is "none": the watermark is ours, carried by the rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.spark.session.worker import settle
from headrace.spark.stages.partitioning import group_of
from headrace.spark.stages.shipping import Packed
from headrace.spark.state.segments import MapStore, ShelvedSegments, StoreSegments
from headrace.spark.state.state_cache import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from headrace.spark.source.exchange import Parcel
    from headrace.spark.stages.stage_turn import Received, StageWork


class StatefulStage(StatefulProcessor):
    """Runs the work of one stage in Spark's stateful operator."""

    def __init__(self, work: StageWork) -> None:
        self._packed = Packed.of(work)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; called once per task."""
        settle()
        self._work = self._packed.open()
        self._store = MapStore(handle.getMapState("segments", "name string", "value binary"))
        self._shelf = Shelf.here()

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Take one group's turn."""
        received: dict[str, list[bytes]] = defaultdict(list)
        for frame in rows:
            for kind, body in zip(frame["kind"], frame["body"], strict=True):
                received[kind].append(bytes(body))
        parcel = self._turn(group_of(int(key[0])), received)
        if parcel.groups:  # Spark cannot tell the types of a frame without rows.
            yield pd.DataFrame({"group": parcel.groups, "kind": parcel.kinds, "body": parcel.bodies})

    def _turn(self, group: int, received: Received) -> Parcel:
        if self._shelf is None:
            return self._work.turn(group, received, StoreSegments(self._store))
        segments = ShelvedSegments(self._store, self._shelf)
        parcel = self._work.turn(group, received, segments)
        segments.close()
        return parcel

    def close(self) -> None:
        """Nothing is kept open."""
