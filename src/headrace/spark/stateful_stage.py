"""The stateful stage: one call per key group and batch, state in Spark's state store.

Spark hands over all exchange rows of a group; `headrace.spark.work` does the work; what leaves goes on as exchange
rows. Time mode is "none": the watermark is ours, carried by the rows.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.spark.packed import Packed
from headrace.spark.spread import group_of
from headrace.spark.stored import from_store, to_store
from headrace.spark.worker import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from headrace.spark.work import StageWork


class StoreSegments:
    """Segments in a map state of Spark's state store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        found = self._store.getValue((name,))
        return None if found is None else from_store(bytes(found[0]))

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        self._store.updateValue((name,), (to_store(value),))

    def delete(self, name: str) -> None:
        """Forget the segment."""
        self._store.removeKey((name,))


class StatefulStage(StatefulProcessor):
    """Runs the work of one stage in Spark's stateful operator."""

    def __init__(self, work: StageWork) -> None:
        self._packed = Packed.of(work)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; called once per task."""
        settle()
        self._work = self._packed.open()
        self._store = handle.getMapState("segments", "name string", "value binary")

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
        parcel = self._work.turn(group_of(int(key[0])), received, StoreSegments(self._store))
        if parcel.groups:  # Spark cannot tell the types of a frame without rows.
            yield pd.DataFrame({"group": parcel.groups, "kind": parcel.kinds, "body": parcel.bodies})

    def close(self) -> None:
        """Nothing is kept open."""
