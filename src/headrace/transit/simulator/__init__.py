"""A simulated fleet: what the vehicles of a city would report, for people who have no feed at hand."""

from headrace.transit.simulator.arrivals import Arrivals, Disorder
from headrace.transit.simulator.fleet import DEFAULT_START, POSITION_SCHEMA, STOP_SCHEMA, Fleet

__all__ = ["Fleet", "Arrivals", "Disorder", "DEFAULT_START", "POSITION_SCHEMA", "STOP_SCHEMA"]
