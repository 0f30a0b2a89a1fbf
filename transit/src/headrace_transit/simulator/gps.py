"""What the receiver makes of a place: it errs by some metres, and now and then it knows nothing.

Errors are slow: the reported place turns around the true one within a minute or three. An **outage** takes 15 to 105 s;
position, speed, heading and acceleration are null then, as in the recording of a bus whose receiver failed
(`docs/calibration.md`). Outages leave emergency stops alone, so that every one of those can be seen.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from headrace_transit.simulator.chance import between, uniform
from headrace_transit.simulator.motion import PERIOD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.motion import Motion

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_GPS_PERIOD = 600.0
_METRES_PER_DEGREE = 111_195.0
#: Seconds around an emergency stop in which no receiver fails.
_CLEAR = 15.0


class Receivers:
    """The receivers of a fleet.

    Args:
        motion: How the vehicles move; its emergency stops are spared.
        vehicles: How many.
        seed: Decides errors and outages.
        loss: Share of the time without a position.
        noise: Metres by which positions err.
    """

    def __init__(self, motion: Motion, *, vehicles: int, seed: int, loss: float, noise: float) -> None:
        self._motion, self._vehicles, self._seed = motion, vehicles, seed
        self._loss, self._noise = loss, noise
        index = np.arange(vehicles)
        self._phase = between(0, 2 * np.pi, uniform(seed, "noise phase", index))
        self._turn = 2 * np.pi / between(60, 180, uniform(seed, "noise time", index))
        self._outages = lru_cache(maxsize=8)(self._draw_outages)

    def blurred(
        self, vehicle: Integers | slice, time: Floats, latitude: Floats, longitude: Floats
    ) -> tuple[Floats, Floats]:
        """Give the places that are reported instead of the true ones, to a millionth of a degree."""
        if self._noise:
            angle = self._turn[vehicle] * time + self._phase[vehicle]
            degrees = self._noise / _METRES_PER_DEGREE
            latitude = latitude + degrees * np.cos(angle)
            longitude = longitude + 2 * degrees * np.sin(angle)
        return np.round(latitude, 6), np.round(longitude, 6)

    def lost(self, vehicle: Integers | slice, time: Floats) -> NDArray[np.bool_]:
        """Tell who knows nothing, at seconds since the start."""
        lost = np.zeros(len(time), dtype=bool)
        if not self._loss or not len(time):
            return lost
        for period in range(int(time.min() // _GPS_PERIOD), int(time.max() // _GPS_PERIOD) + 1):
            begin, end = self._outages(period)
            lost |= (time >= begin[vehicle]) & (time < end[vehicle])
        return lost

    def _draw_outages(self, period: int) -> tuple[Floats, Floats]:
        """Draw when each vehicle is without a position in a period; begin = end where it never is."""
        index = np.arange(self._vehicles)
        # An outage lasts 15 to 105 s, 60 on average.
        length = between(15, 105, uniform(self._seed, "outage length", index, period))
        happens = uniform(self._seed, "outage", index, period) < self._loss * _GPS_PERIOD / 60
        begin = period * _GPS_PERIOD + uniform(self._seed, "outage begin", index, period) * (_GPS_PERIOD - length)
        end = np.where(happens, begin + length, begin)
        for half in (0, 1):
            first, last = (
                int((moment - half * PERIOD / 2) // PERIOD)
                for moment in (period * _GPS_PERIOD - 60, (period + 1) * _GPS_PERIOD)
            )
            for hour in range(first, last + 1):
                stops = self._motion.emergencies(hour, half)
                who = stops.vehicle
                meets = (begin[who] < stops.begin + stops.braking + _CLEAR) & (end[who] > stops.begin - _CLEAR)
                end[who[meets]] = begin[who[meets]]
        return begin, end
