"""Moved to `headrace.transit.simulator.arrivals`."""

from headrace.transit.simulator.arrivals import ARRIVAL_TIME, Arrivals, Arrived, Disorder

__all__ = ["ARRIVAL_TIME", "Arrivals", "Arrived", "Disorder"]
