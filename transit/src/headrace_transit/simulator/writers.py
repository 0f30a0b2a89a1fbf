"""What leaves the simulator for Kafka: typed events, keyed by vehicle.

A writer turns reports into **packets**, a frame with one row for each thing to send: when it is due (`arrival`, in
microseconds since the epoch), its `key` and its `value`. The feed (`headrace_transit.simulator.feed`) keeps packets
until they are due and hands them back to be sent.

**Copies** multiply the load: the same trips at the same places and times by other vehicles, whose numbers are higher by
100,000 for each copy, as `headrace replay --copies` does with recordings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from headrace.errors import PlanError
from headrace.events import ENCODING_HEADER, Codec
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.simulator.arrivals import ARRIVAL_TIME
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from headrace.events import Encoding
    from headrace.kafka.producer import Headers
    from headrace_transit.simulator.arrivals import Arrived

#: Columns of packets.
PACKETS = pl.Schema({"arrival": pl.Int64, "key": pl.String, "value": pl.Binary})
#: A copy of a vehicle has its number plus so much for each copy, as in a replay.
COPY_STEP = 100_000
_MOST_COPIES = (2**31 - 1) // COPY_STEP - 1


class Outlet(Protocol):
    """Where packets go; `KafkaOutlet` is the usual one."""

    def send_all(
        self, topic: str, keys: Sequence[str], values: Sequence[bytes], *, headers: Headers | None = None
    ) -> int:
        """Hand over packets and tell how many; may wait for room, and raises when some could not be delivered.

        Args:
            topic: Where they go.
            keys: Of each packet.
            values: Of each packet.
            headers: Of every packet.
        """
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is delivered, or raise."""
        ...

    def __len__(self) -> int:
        """How many packets were handed over and are not delivered yet."""
        ...


class EventWriter:
    """Writes typed events.

    Args:
        outlet: Where they go.
        topics: Where positions and stop events go.
        encoding: Of the values.
        copies: How many times each is sent, by other vehicles.
    """

    def __init__(
        self,
        outlet: Outlet,
        *,
        topics: tuple[str, str] = (VEHICLE_POSITIONS, STOP_EVENTS),
        encoding: Encoding = "binary",
        copies: int = 1,
    ) -> None:
        self.outlet = outlet
        self._topics = topics
        self._encoding: Encoding = encoding
        # Binary is what a reader expects without a header.
        self._headers = None if encoding == "binary" else [(ENCODING_HEADER, encoding.encode())]
        self._copies = checked_copies(copies)
        self._codec = Codec()

    def packets(self, sent: Arrived) -> list[pl.DataFrame]:
        """Write positions and stop events, in no particular order; one frame of `PACKETS` for each topic."""
        return [self._written(sent.positions, VehiclePosition), self._written(sent.stop_events, StopEvent)]

    def _written(self, frame: pl.DataFrame, which: type[Message]) -> pl.DataFrame:
        parts = []
        for copy in range(self._copies):
            copied = copy_of(frame, copy).rename({ARRIVAL_TIME: "ingestion_time"})
            values = self._codec.encode(copied, which, encoding=self._encoding)
            columns = {
                "arrival": copied["ingestion_time"].dt.timestamp("us"),
                "key": copied["vehicle_id"],
                "value": pl.from_arrow(values),
            }
            parts.append(pl.DataFrame(columns, schema=PACKETS))
        return pl.concat(parts)

    def send(self, destination: int, packets: pl.DataFrame) -> int:
        """Send events to the topic of their type, and tell how many.

        Args:
            destination: Which of the frames of `packets` they are from.
            packets: A part of one.
        """
        keys, values = packets["key"].to_list(), packets["value"].to_list()
        return self.outlet.send_all(self._topics[destination], keys, values, headers=self._headers)


def copy_of(frame: pl.DataFrame, copy: int) -> pl.DataFrame:
    """Give reports to other vehicles: the same in everything but the number.

    Args:
        frame: Reports.
        copy: 0 leaves them as they are.

    >>> row = pl.DataFrame({"vehicle_id": ["40/101"], "operator": [40], "vehicle_number": [101]})
    >>> copy_of(row, 2).row(0)
    ('40/200101', 40, 200101)
    """
    if not copy:
        return frame
    number = pl.col("vehicle_number") + COPY_STEP * copy
    return frame.with_columns(
        number.cast(frame.schema["vehicle_number"]),
        pl.concat_str(pl.col("operator").cast(pl.String), pl.lit("/"), number.cast(pl.String)).alias("vehicle_id"),
    )


def checked_copies(copies: int) -> int:
    """Give the number of copies back, or refuse it."""
    if not 1 <= copies <= _MOST_COPIES:
        raise PlanError(f"{copies} copies", hint=f"Give a number from 1 to {_MOST_COPIES}; 1 sends everything once.")
    return copies
