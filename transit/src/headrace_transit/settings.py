"""The sections of headrace.toml that belong to the application: `[simulator]` and `[transit]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import SecretStr

from headrace.config import Number, Section, setting
from headrace.time import Ahead

if TYPE_CHECKING:
    from headrace.config import Settings

Quantiles = Literal["kll", "exact"]


class SimulatorSettings(Section):
    """`[simulator]`: the made-up fleet of `headrace simulate` and `headrace demo`."""

    section = "simulator"

    vehicles: Annotated[int, Number] = setting(
        300, "How many vehicles drive.", "a whole number from 1 to 1000000", ge=1, le=1_000_000
    )
    rate: Annotated[float, Number] | None = setting(
        None,
        "Positions per second of the clock, of all vehicles together; decides how many vehicles there are.",
        "a number above 0, up to 1000000",
        gt=0,
        le=1_000_000,
    )
    speed_up: Annotated[float, Number] = setting(
        1.0,
        "Seconds of event time per second of the clock.",
        "a number above 0, up to 1000",
        gt=0,
        le=1000,
    )
    seed: Annotated[int, Number] = setting(
        1, "The same seed gives the same fleet.", "a whole number from 0", ge=0, le=2**63 - 1
    )


class TransitSettings(Section):
    """`[transit]`: what the jobs of the application know about the world."""

    section = "transit"

    delay_quantiles: Quantiles = setting(
        "kll",
        "How delay-distribution takes quantiles: by a sketch of bounded size, or exactly, of all delays.",
        ", ".join(get_args(Quantiles)),
    )
    delay_ms: Annotated[int, Number] = setting(
        1_000,
        "How far the watermark stays behind the newest report: reports that are further behind are late.",
        "a whole number of milliseconds from 0 to 86400000",
        ge=0,
        le=86_400_000,
    )
    lateness_ms: Annotated[int, Number] = setting(
        0,
        "How long after its end a window still takes reports; windows with late reports give their result again.",
        "a whole number of milliseconds from 0 to 86400000",
        ge=0,
        le=86_400_000,
    )
    max_ahead_ms: Annotated[int, Number] = setting(
        86_400_000,
        "How far ahead of its arrival a report's time may be; a report beyond is a dead letter.",
        "a whole number of milliseconds from 0 to 86400000",
        ge=0,
        le=86_400_000,
    )
    key_tolerance_ms: Annotated[int, Number] = setting(
        0,
        "How far behind its vehicle's newest report one may come where a job goes by the time of each vehicle.",
        "a whole number of milliseconds from 0 to 86400000",
        ge=0,
        le=86_400_000,
    )
    patience_ms: Annotated[int, Number] = setting(
        60_000,
        "How far behind all others a vehicle's reports may come where a job goes by the time of each vehicle.",
        "a whole number of milliseconds from 0 to 86400000",
        ge=0,
        le=86_400_000,
    )
    clock_tolerance_ms: Annotated[int, Number] = setting(
        0,
        "How far past its arrival a vehicle's time may move the watermark; beyond that its clock is taken to be wrong.",
        "a whole number of milliseconds from 0 to 86400000; 86400000 (one day) is as good as no bound",
        ge=0,
        le=86_400_000,
    )
    clock_ahead: Ahead = setting(
        "take",
        "What becomes of a report that is further past its arrival: it is taken as it is, its time is set to the "
        "arrival plus the tolerance, or it is a dead letter.",
        ", ".join(get_args(Ahead)),
    )
    gtfs: Path | None = setting(
        None,
        "The timetable that final-stop-distribution looks trips up in; "
        "that of the simulated fleet, for its vehicles only, if not set.",
        "a GTFS feed: a directory, or a zip file",
    )
    routing_url: str = setting(
        "",
        "A routing service to ask for final stops, in place of a GTFS feed; GraphQL in the form of Digitransit's.",
        'an address such as "https://api.digitransit.fi/routing/v2/hsl/gtfs/v1"; empty: none',
        pattern=r"^$|^https?://[^\s/@]+(/\S*)?$",
    )
    routing_key: SecretStr | None = setting(
        None, "The subscription key that the routing service asks for.", "text; better in the environment"
    )
    routing_feed: str = setting(
        "HSL", "What the routing service calls the feed: the part before the colon of its identifiers.", "text"
    )
    routing_cache: Path | None = setting(
        None,
        "Where answers of the routing service are kept; `cache/routing.sqlite` in paths.home if not set.",
        "a file",
    )


def routing_cache(settings: Settings) -> Path:
    """Where answers of a routing service are kept."""
    return settings.section(TransitSettings).routing_cache or settings.paths.home / "cache" / "routing.sqlite"
