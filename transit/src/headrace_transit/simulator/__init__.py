"""A simulated fleet: what the vehicles of a city would report, for people who have no feed at hand."""

from headrace_transit.simulator.arrivals import Arrivals
from headrace_transit.simulator.disorder import Disorder
from headrace_transit.simulator.fleet import DEFAULT_START, POSITION_SCHEMA, STOP_SCHEMA, Fleet
from headrace_transit.simulator.truth import TruthFile, read_truth

__all__ = [
    "Fleet",
    "Arrivals",
    "Disorder",
    "TruthFile",
    "read_truth",
    "DEFAULT_START",
    "POSITION_SCHEMA",
    "STOP_SCHEMA",
]
