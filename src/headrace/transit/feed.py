"""Moved to `headrace.transit.simulator.feed`."""

from headrace.transit.simulator.feed import Feed, FeedReport, simulate

__all__ = ["Feed", "FeedReport", "simulate"]
