"""The final stop of a trip from a routing service: GraphQL in the form of Digitransit's public interface.

Digitransit finds a trip by what a vehicle knows of it (`fuzzyTrip`: route, direction, date and start) and tells the
stop at which it arrives last. One request asks for several trips, each under a name of its own; what vehicles say goes
into variables, never into the text of the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h3.api.basic_int import latlng_to_cell

from headrace.enrich import Ask, http
from headrace_transit.gtfs import FINAL_STOP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import SecretStr

    from headrace.enrich import Http

#: A trip that starts before this belongs to the operating day before, whose clock goes on to 28:30.
_DAY_BEGINS = 4 * 3600 + 30 * 60
_KEY_HEADER = "digitransit-subscription-key"


def routing_service(
    url: str, *, key: SecretStr | None = None, feed: str = "HSL", cache: Path | None = None, **limits: Any
) -> Http:
    """Enrich trips with their final stops by asking a routing service.

    Args:
        url: Of its GraphQL interface.
        key: The subscription key that it asks for.
        feed: What it calls the feed: the part before the colon of its identifiers.
        cache: Where answers are kept over a restart.
        **limits: Further options of `headrace.enrich.http`.
    """
    return http(
        url,
        ask=_Question(feed),
        read=read_final_stops,
        gives=FINAL_STOP,
        name="final_stop",
        headers={} if key is None else {_KEY_HEADER: key},
        cache=cache,
        version=feed,
        **limits,
    )


class _Question:
    """Asks for the final stops of some trips."""

    def __init__(self, feed: str) -> None:
        self._feed = feed

    def __call__(self, trips: list[dict[str, Any]]) -> Ask:
        """Write one query for all of them."""
        declared, asked = [], []
        variables: dict[str, Any] = {}
        for number, trip in enumerate(trips):
            declared.append(
                f"$route{number}: String!, $direction{number}: Int, $date{number}: String!, $time{number}: Int!"
            )
            asked.append(
                f"trip{number}: fuzzyTrip(route: $route{number}, direction: $direction{number}, date: $date{number}, "
                f"time: $time{number}) {{ arrivalStoptime {{ stop {{ gtfsId lat lon }} }} }}"
            )
            variables |= {
                f"route{number}": f"{self._feed}:{trip['route']}",
                f"direction{number}": trip["direction"] - 1,
                f"date{number}": trip["operating_day"],
                f"time{number}": _seconds(trip["trip_start"]),
            }
        return Ask(json={"query": f"query ({', '.join(declared)}) {{ {' '.join(asked)} }}", "variables": variables})


def read_final_stops(document: Any, trips: list[dict[str, Any]]) -> list[Mapping[str, Any] | None]:
    """Read the final stops out of the answer to a question for these trips."""
    data = document["data"]
    return [_final_stop(data[f"trip{number}"]) for number in range(len(trips))]


def _final_stop(trip: Any) -> dict[str, Any] | None:
    if trip is None or trip.get("arrivalStoptime") is None:
        return None
    stop = trip["arrivalStoptime"]["stop"]
    cell = latlng_to_cell(float(stop["lat"]), float(stop["lon"]), 9)
    # "HSL:1111128": the feed's name is the service's, the rest is the stop's.
    return {"final_stop": str(stop["gtfsId"]).partition(":")[2], "final_cell": cell}


def _seconds(start: str) -> int:
    """Seconds since midnight of the operating day.

    >>> _seconds("05:47"), _seconds("00:15")
    (20820, 87300)
    """
    hours, minutes = start.split(":")[:2]
    seconds = int(hours) * 3600 + int(minutes) * 60
    return seconds if seconds >= _DAY_BEGINS else seconds + 24 * 3600
