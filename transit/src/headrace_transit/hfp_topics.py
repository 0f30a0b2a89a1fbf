"""HFP topics: who sends, where the trip goes, what the next stop is.

A topic changes when the vehicle has gone a hundred metres, or to another trip, so that of many messages only some have
topics of their own. Each is read once; `Places` has what the topics of a batch say, as columns. In version 1 the route
stands in the topic only, in version 2 in the payload as well.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from headrace.ingest.fields import safe_texts
from headrace.ingest.processor import Cause, Dismissal
from headrace.ingest.topic_cache import TopicCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ingest.messages import Numbers

#: The column of the route in the topic; that of the payload is `route`.
TOPIC_ROUTE = "\0topic_route"
_CLOCK = re.compile(r"\d\d:\d\d")
#: HFP has four digits for operators and five for vehicles; copies of simulated vehicles have more.
_NUMBER = re.compile(r"[0-9]{1,9}")


class Place(NamedTuple):
    """What a topic says.

    Args:
        event: VP, ARS, ...; empty in version 1.
        journey_type: deadrun, signoff; None for a journey.
        temporal_type: upcoming; None for ongoing.
        mode: bus, tram, train, ...
        operator: Who owns the vehicle.
        vehicle: Its number there.
        headsign: Where the trip goes.
        next_stop: The next stop's number, or EOL at the end of the line.
        route: The trip's route.
    """

    event: str
    journey_type: str | None
    temporal_type: str | None
    mode: str | None
    operator: int
    vehicle: int
    headsign: str | None
    next_stop: str | None
    route: str | None


def parse_topic(topic: str) -> Place | Dismissal:
    """Read an HFP topic of version 1 or 2, or say why it is none.

    >>> parse_topic("/hfp/v2/journey/ongoing/ars/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80")[4:]
    (40, 456, 'Arabia', '1111428', '1006')
    >>> parse_topic("/hfp/v1/deadrun/ongoing/bus/0018/01029").vehicle
    1029
    >>> parse_topic("/gtfsrt/vp").cause
    <Cause.UNKNOWN_TOPIC: 'unknown_topic'>
    """
    return _topics.get(topic)


def _parsed(topic: str) -> Place | Dismissal:
    parts = topic.split("/")
    if len(parts) < 3 or parts[:2] != ["", "hfp"] or parts[2] not in ("v1", "v2"):
        return Dismissal(Cause.UNKNOWN_TOPIC, "the topic does not begin with /hfp/v2/ or /hfp/v1/")
    event = ""
    if parts[2] == "v2":
        if len(parts) < 9:
            return Dismissal(Cause.UNKNOWN_TOPIC, f"the topic has {len(parts) - 1} levels, version 2 has at least 8")
        event = parts.pop(5).upper()
    elif len(parts) < 8:
        return Dismissal(Cause.UNKNOWN_TOPIC, f"the topic has {len(parts) - 1} levels, version 1 has at least 7")
    _, _, _, journey, temporal, mode, operator, vehicle, *trip = parts
    if not (_NUMBER.fullmatch(operator) and _NUMBER.fullmatch(vehicle)):
        return Dismissal(Cause.UNKNOWN_TOPIC, f"operator {operator!r} and vehicle {vehicle!r} are not both numbers")
    route = headsign = next_stop = None
    if len(trip) >= 5:
        route = trip[0].strip() or None
        # A headsign may hold a slash; the start time behind it shows where it ends.
        end = next((n for n in range(3, len(trip) - 1) if _CLOCK.fullmatch(trip[n])), 3)
        headsign, next_stop = "/".join(trip[2:end]) or None, trip[end + 1] or None
    return Place(
        event,
        None if journey == "journey" else journey,
        None if temporal == "ongoing" else temporal,
        mode or None,
        int(operator),
        int(vehicle),
        headsign,
        next_stop,
        route,
    )


def _size(found: Place | Dismissal) -> int:
    """How many bytes the memory of a topic takes."""
    parts = found if isinstance(found, Place) else (found.text,)
    return sys.getsizeof(found) + sum(map(sys.getsizeof, parts))


_topics = TopicCache(_parsed, _size)
_NOWHERE = Place("", None, None, None, 0, 0, None, None, None)


class Places:
    """What the topics of a batch say.

    Args:
        topics: One for each message.

    >>> places = Places(["/hfp/v1/deadrun/ongoing/bus/0018/01029", "/x", "/hfp/v1/deadrun/ongoing/bus/0018/01029"])
    >>> places.which.tolist(), places.columns([0, 2])["vehicle"].to_list()
    ([0, 1, 0], [1029, 1029])
    """

    def __init__(self, topics: Sequence[str]) -> None:
        index = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
        found = map(parse_topic, index)
        self._different = [place if isinstance(place, Place) else _NOWHERE for place in found]
        self._table: pl.DataFrame | None = None
        #: The event that each of the different topics names; empty if it names none.
        self.events = [place.event for place in self._different]
        #: Which of the different topics each message has.
        self.which: Numbers = np.fromiter(map(index.__getitem__, topics), np.int64, len(topics))

    def columns(self, numbers: Numbers) -> pl.DataFrame:
        """What the topics of messages, by their numbers, say beside the event."""
        if self._table is None:
            parts = dict(zip(Place._fields, zip(*self._different, strict=True), strict=True))
            texts = ("journey_type", "temporal_type", "mode", "headsign", "next_stop")
            self._table = pl.DataFrame(
                {
                    "operator": pl.Series(parts["operator"], dtype=pl.Int32),
                    "vehicle": pl.Series(parts["vehicle"], dtype=pl.Int64),
                    **{name: safe_texts(list(parts[name])) for name in texts},
                    TOPIC_ROUTE: safe_texts(list(parts["route"])),
                }
            )
        return self._table[self.which[numbers]]
