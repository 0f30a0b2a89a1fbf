"""The load generator of an evaluation: the simulated fleet, by the clock on the wall.

    python -m headrace_transit.load --bootstrap HOST:PORT --rate N [--seed N]

It is a process of its own, so that neither the jobs nor the measuring slow it down by sharing an interpreter. Every
report carries the time at which it was due by the schedule; if the machine is too slow, reports leave late but keep
their time, so the delay is measured and not hidden. Each second it prints a line of JSON that says how far behind its
schedule it is (`behind`): a trial in which it fell behind is not valid.

Two things differ from `headrace simulate`. Reports arrive out of order by tenths of a second, but none so late that a
job would refuse it: only then must the results be exactly those of a batch over the same input. And emergency stops
are ten times as frequent as usual, or there would be too few of them to tell a percentile.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from datetime import UTC, datetime

from headrace.kafka import Connection
from headrace.observe.recipes import Load, Sample
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Disorder, Fleet
from headrace_transit.simulator.feed import FeedReport, simulate
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

#: A median of 60 ms on the way; one of 10 million reports takes longer than 0.9 s.
DISORDER = Disorder(delay=0.06, spread=0.5, late_share=0.0, duplicate_share=0.0)
EMERGENCY_RATE = 0.5


def main() -> None:
    """Send the fleet's reports until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=int, required=True, help="Vehicles; each reports once a second.")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    fleet = Fleet(vehicles=chosen.rate, seed=chosen.seed, start=midnight, emergency_rate=EMERGENCY_RATE)
    first = int((now - midnight).total_seconds()) + 1
    connection = Connection(bootstrap=chosen.bootstrap)
    simulate(fleet, connection, first=first, disorder=DISORDER, stop=stop, report=_tell)


def _tell(report: FeedReport) -> None:
    sys.stdout.write(json.dumps(report.to_dict()) + "\n")
    sys.stdout.flush()


def sample(vehicles: int = 700, seconds: int = 20) -> Sample:
    """Give some reports.

    Args:
        vehicles: Of how many vehicles.
        seconds: For how long.
    """
    positions = Fleet(vehicles=vehicles, seed=1).positions(0, seconds=seconds)
    keys = [key.encode() for key in positions.get_column("vehicle_id").to_list()]
    return Sample(type=VehiclePosition, frame=positions, keys=keys)


load = Load(
    name="simulated fleet",
    topics=(VEHICLE_POSITIONS, STOP_EVENTS),
    module="headrace_transit.load",
    sample=sample,
    description="The load is a simulated fleet, one report per vehicle and second, with event times by the clock on "
    "the wall. Events arrive up to 0.9 s out of order and none is late; emergency stops are ten times as frequent as "
    "in the usual fleet.",
)

if __name__ == "__main__":
    main()
