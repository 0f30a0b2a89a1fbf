"""How many vehicles are out: the shape of a working day.

With `service="flat"` the whole fleet is out at any time, which is what benchmarks want. With `service="weekday"` it
grows and shrinks over the day as HSL's feed does: nearly nothing at three in the morning, a peak at eight and a higher
one at four in the afternoon. Vehicles serve whole trips: each has a rank in its line, and serves a trip if the share of
vehicles that are needed in the middle of that trip is above its rank. So a vehicle begins and ends its day at the end
of a line, and a line thins out evenly.

The shape is the number of events per half hour of one day, 2 and 3 June 2020, of HSL's feed as measured by the thesis
project github.com/DominikStiller/dhbw-bt (58.4 million events; the records are open data, (c) HSL, CC BY 4.0).

>>> import numpy as np
>>> needed(np.array([3 * 60.0, 8 * 60.0, 16.25 * 60])).round(2).tolist()
[0.02, 0.97, 1.0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Service = Literal["flat", "weekday"]

#: Events per second in each half hour of the day, local time, the first from midnight on.
EVENTS_PER_SECOND = (
    *(236, 191, 154, 107, 54, 24, 19, 22, 35, 107, 307, 543),
    *(763, 929, 1009, 1059, 1060, 1039, 977, 902, 864, 852, 853, 855),
    *(857, 865, 878, 881, 940, 986, 1039, 1081, 1097, 1082, 1051, 990),
    *(908, 828, 803, 767, 731, 691, 634, 580, 533, 497, 439, 330),
)
_SHAPE = np.array(EVENTS_PER_SECOND) / max(EVENTS_PER_SECOND)
_MIDDLES = np.arange(48) * 30.0 + 15.0


def needed(minute: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the share of the fleet that is out at minutes of the day, local time; between half hours it is a line."""
    return np.interp(minute % 1440.0, _MIDDLES, _SHAPE, period=1440.0)


#: The same for every whole minute, for looking up many at once.
BY_MINUTE = needed(np.arange(1440.0))
