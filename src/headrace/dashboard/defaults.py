"""What the live page shows beside results, if an installed application says so: places on the map.

Packages offer it by the entry point group `headrace.pages`. Without any the page shows results alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True)
class PageDefaults:
    """What an application wants to see on the page.

    Args:
        name: What to call it.
        features: Gives lines and points as a GeoJSON FeatureCollection.
        center: Longitude and latitude where the map begins.
        zoom: How near.
        topics: The source topics of its jobs: a page of jobs that read none of them does not show it; empty: all do.
    """

    name: str
    features: Callable[[], dict[str, Any]]
    center: tuple[float, float]
    zoom: float
    topics: tuple[str, ...] = ()


def defaults_for(defaults: Iterable[PageDefaults], sources: Iterable[str]) -> tuple[PageDefaults, ...]:
    """Choose what a page shows by the jobs that are on it.

    Args:
        defaults: What applications say.
        sources: The topics that the jobs read.
    """
    read = set(sources)
    return tuple(each for each in defaults if not each.topics or read & set(each.topics))


def features_of(chosen: Iterable[PageDefaults]) -> dict[str, Any]:
    """Put together the features that a page shows.

    Args:
        chosen: What applications say, as far as it concerns the page.
    """
    return {"type": "FeatureCollection", "features": [part for each in chosen for part in each.features()["features"]]}
