"""One turn of an operator in Spark's stateful operator: what `headrace.testing.spark_turns` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.extras import require

require("spark", by="headrace.testing.turn_stage")

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.spark.state.segments import MapStore, StoreSegments
from headrace.testing.spark_turns import bundle, played, unbundled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from headrace.engine import Operator


class TurnStage(StatefulProcessor):
    """Takes the turns of many operators; the number of a row says whose turn it is."""

    def __init__(self, operators: list[Operator]) -> None:
        self._operators = operators

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._store = MapStore(handle.getMapState("segments", "name string", "value binary"))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Take the turns that came for one operator."""
        number = int(key[0])
        segments = StoreSegments(self._store)
        for frame in rows:
            for turns in frame["turns"]:
                operator = self._operators[number]
                outcomes = bundle([played(operator, segments, turn) for turn in unbundled(bytes(turns))])
                yield pd.DataFrame({"number": pd.Series([number], dtype="int32"), "outcomes": [outcomes]})

    def close(self) -> None:
        """Nothing is kept open."""
