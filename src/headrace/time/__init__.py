"""Time: durations, instants, clocks and watermark strategies, all in whole microseconds, UTC."""

from headrace.time.duration import micros
from headrace.time.instants import BEGINNING, END, INSTANT, instant, moment
from headrace.time.strategies import (
    Ahead,
    WatermarkStrategy,
    absurd,
    ascending,
    bounded,
    percentile,
    perfect,
    punctuated,
)
from headrace.time.watermarks import PartitionReport, WatermarkTracker

__all__ = [
    "BEGINNING",
    "END",
    "INSTANT",
    "Ahead",
    "PartitionReport",
    "WatermarkStrategy",
    "WatermarkTracker",
    "absurd",
    "ascending",
    "bounded",
    "instant",
    "micros",
    "moment",
    "percentile",
    "perfect",
    "punctuated",
]
