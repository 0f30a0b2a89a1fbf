"""What the simulator is held to: figures measured on HSL's feed, and the same figures of the simulator.

`REFERENCE` keeps the figures of the measurement of August 2020 (see `disorder`), so that a test can compare without the
measurement itself; `read_lags` reads it where it is at hand. `scripts/calibrate.py` makes the whole report,
`docs/calibration.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import polars as pl

from headrace_transit.simulator.disorder import Disorder, Transport

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Seconds by which the clock of the computer that measured was behind: with them, its fastest report took as long as
#: the fastest of the recording of September 2020, whose arrivals the operator's own servers wrote down.
CLOCK_OFFSET = 0.562
#: A report that takes longer than this is late: the jobs wait so long for reports that are out of order.
LATE = 1.0


class Lateness(NamedTuple):
    """Seconds between a report and its arrival, in a few figures.

    Args:
        late_share: Share of the reports that take longer than `LATE`.
        median: Half of them take longer.
        p99: One of a hundred takes longer.
        p999: One of a thousand takes longer.
    """

    late_share: float
    median: float
    p99: float
    p999: float

    @classmethod
    def of(cls, seconds: Floats) -> Self:
        """Take the figures of a sample.

        >>> Lateness.of(np.arange(1001) / 100)
        Lateness(late_share=0.899..., median=5.0, p99=9.9, p999=9.99)
        """
        median, p99, p999 = (float(value) for value in np.quantile(seconds, [0.5, 0.99, 0.999]))
        return cls(float((seconds > LATE).mean()), median, p99, p999)

    def ratio(self, other: Lateness) -> Lateness:
        """Divide figure by figure."""
        return Lateness(*(mine / theirs for mine, theirs in zip(self, other, strict=True)))


#: Of 64,251 reports of 22 August 2020, measured by the thesis project github.com/DominikStiller/dhbw-bt, with the clock
#: set right by `CLOCK_OFFSET`; the records are open data, (c) HSL, CC BY 4.0.
REFERENCE = Lateness(late_share=0.045758, median=0.09631, p99=10.9735, p999=93.981)


def read_lags(path: str | Path) -> Floats:
    """Read that measurement (`ingestion_lag.csv.gz`): seconds on the way, with the clock set right.

    Args:
        path: The file, with the arrival and the event timestamp in milliseconds.
    """
    table = pl.read_csv(path, schema_overrides={"ingestion_timestamp": pl.Float64, "event_timestamp": pl.Float64})
    lag = (table["ingestion_timestamp"] - table["event_timestamp"]) / 1000 + CLOCK_OFFSET
    return lag.to_numpy()


def simulated_lags(
    disorder: Disorder, *, vehicles: int = 20_000, seconds: int = 3600, every: int = 60, seed: int = 1
) -> Floats:
    """Draw the seconds on the way of a large fleet's reports.

    The latest are so late because of a few long stalls: it takes many vehicles, not many reports of each, to know how
    frequent those are.

    Args:
        disorder: How reports travel.
        vehicles: How many vehicles report.
        seconds: For how long.
        every: Seconds between two reports that are looked at.
        seed: Decides which are late.
    """
    transport = Transport(disorder, seed=seed, vehicles=vehicles)
    vehicle = np.arange(vehicles)
    # Any day will do; each vehicle reports at its own fraction of the second.
    begin = 1_598_130_000_000 + vehicle * 7919 % 1000
    return np.concatenate([transport.delays(vehicle, begin + second * 1000) for second in range(0, seconds, every)])
