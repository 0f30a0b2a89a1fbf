"""Recordings of different days begin together, in event time, and each keeps the gaps between its arrivals."""

from __future__ import annotations

import json
import math
import os
import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tests.ingest.test_runner import Basket

from headrace.errors import ConfigError
from headrace.events import Codec
from headrace.ingest import RawMessage
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.recording import Recording, format_line
from headrace.ingest.replay import ROUND_GAP, ReplayPlan
from headrace.ingest.runner import Ingestion
from headrace_transit.hfp import HfpProcessor
from headrace_transit.schemas import VehiclePosition

SHARED = Path(os.environ.get("HEADRACE_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DUMPS = sorted((SHARED / "data" / "hsl").glob("*/*.dump"))

SECOND = 1_000_000
MONDAY = datetime(2024, 2, 12, 16, tzinfo=UTC)
FRIDAY = datetime(2024, 2, 16, 5, tzinfo=UTC)


def report(vehicle: int, happened: datetime, late: float, *, arrived: datetime | None = None) -> RawMessage:
    body = {"VP": {"tst": happened.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "lat": 60.2, "long": 25}}
    at = arrived or happened + timedelta(seconds=late)
    topic = f"/hfp/v2/journey/ongoing/vp/bus/0018/{vehicle:05}"
    return RawMessage(topic, json.dumps(body).encode(), round(at.timestamp() * SECOND))


def recorded(vehicle: int, begin: datetime, late: float) -> list[RawMessage]:
    """A vehicle's reports, with gaps that are not all the same."""
    return [report(vehicle, begin + timedelta(seconds=n + 0.2 * (n % 3)), late) for n in range(30)]


def rough(begin: datetime, late: float) -> list[RawMessage]:
    """The same with a beginning that says nothing about the rest: half an hour late, rubbish, a clock that is wrong."""
    whole = recorded(2, begin, late)
    first = begin + timedelta(seconds=late)
    whole[0] = report(2, begin - timedelta(minutes=30), 0, arrived=first)
    whole[1] = RawMessage(whole[1].topic, b"{", whole[1].arrival)
    whole[2] = report(2, begin + timedelta(minutes=4), 0, arrived=first + timedelta(seconds=2))
    return whole


def event_times(messages: list[RawMessage], vehicle: int) -> list[datetime]:
    """As a processor understands the messages of a vehicle."""
    frame = pl.concat([part.frame for part in HfpProcessor().process(messages).events])
    return frame.filter(vehicle_id=f"18/{vehicle}").get_column("event_time").to_list()


def of(messages: list[RawMessage], vehicle: int) -> list[RawMessage]:
    return [message for message in messages if message.topic.endswith(f"{vehicle:05}")]


def gaps(messages: list[RawMessage]) -> list[int]:
    return [later.arrival - earlier.arrival for earlier, later in pairwise(messages)]


def test_event_times_coincide_and_lateness_and_gaps_stay() -> None:
    one, two = recorded(1, MONDAY, late=1), rough(FRIDAY, late=30)
    found = list(ReplayPlan(align=True).messages([one, two], now=0, processor=HfpProcessor()))
    assert len(found) == 60
    assert [message.arrival for message in found] == sorted(message.arrival for message in found)
    # The first stays; of the second, all is moved alike.
    assert of(found, 1) == one
    assert {message.shift for message in of(found, 2)} == {(MONDAY - FRIDAY) // timedelta(microseconds=1)}
    assert event_times(found, 2)[2:] == event_times(found, 1)[3:]
    assert event_times(found, 2)[0] == MONDAY - timedelta(minutes=30)
    assert gaps(of(found, 2)) == gaps(two)
    # So the slow recording comes in 29 s after the quick one, as it would have.
    assert of(found, 2)[0].arrival - of(found, 1)[0].arrival == 29 * SECOND


def test_the_earlier_arrival_may_be_in_another_than_the_first() -> None:
    one, two = recorded(1, MONDAY, late=30), recorded(2, FRIDAY, late=1)
    plan = ReplayPlan(align=True, times="now", offset="1s", loops=2)
    found = list(plan.messages([one, two], now=7 * SECOND, processor=HfpProcessor()))
    # What is left out counts from the first arrival of all, and what is left begins now.
    assert found[0].topic.endswith("2")
    assert found[0].arrival == 7 * SECOND
    assert len(of(found, 1)) == 60
    assert len(of(found, 2)) == 58
    assert event_times(found, 2) == event_times(found, 1)[1:30] + event_times(found, 1)[31:]
    second = found[len(found) // 2]
    assert second.arrival == found[len(found) // 2 - 1].arrival + ROUND_GAP


def test_arrivals_can_coincide_instead() -> None:
    one, two = recorded(1, MONDAY, late=1), recorded(2, FRIDAY, late=30)
    found = list(ReplayPlan(align=True, align_on="arrival").messages([one, two], now=0))
    assert [message.arrival for message in of(found, 1)] == [message.arrival for message in of(found, 2)]
    assert event_times(found, 2)[0] == event_times(found, 1)[0] - timedelta(seconds=29)


def test_what_is_not_aligned_stays_as_it_was() -> None:
    one, two = recorded(1, MONDAY, late=1), recorded(2, MONDAY + timedelta(seconds=10), late=30)
    found = list(ReplayPlan().messages([one, two], now=0))
    assert {message.shift for message in found} == {0}
    assert sorted(found) == sorted(one + two)


def test_one_recording_needs_no_processor() -> None:
    one = recorded(1, MONDAY, late=1)
    assert list(ReplayPlan(align=True).messages([one], now=0)) == one
    assert list(ReplayPlan(align=True).messages([[], one], now=0, processor=HfpProcessor())) == one


def test_recordings_whose_event_times_nobody_knows_are_refused(tmp_path: Path) -> None:
    one = recorded(1, MONDAY, late=1)
    with pytest.raises(ConfigError, match="no processor"):
        next(ReplayPlan(align=True).messages([one, one], now=0))
    path = tmp_path / "strange.dump"
    path.write_bytes(b"".join(format_line(RawMessage("/a", b'{"n":1}', n)) for n in range(5)))
    with pytest.raises(ConfigError, match=r"strange\.dump cannot be aligned: none of its first 5 messages"):
        next(ReplayPlan(align=True).messages([one, Recording(path)], now=0, processor=HfpProcessor()))
    with pytest.raises(ConfigError, match="align_on"):
        ReplayPlan(align_on="x")  # type: ignore[arg-type]


def test_an_ingestion_aligns_files_as_its_processor_reads_them(tmp_path: Path) -> None:
    paths = []
    for name, messages in (("a", recorded(1, MONDAY, late=1)), ("b", rough(FRIDAY, late=30))):
        paths.append(str(tmp_path / f"{name}.dump"))
        Path(paths[-1]).write_bytes(b"".join(map(format_line, messages)))
    settings = ReplaySettings(paths=tuple(paths), speed=math.inf, plan=ReplayPlan(align=True))
    basket = Basket([])
    Ingestion(ReplayConnector(settings), HfpProcessor(), basket).run(threading.Event())
    values = [value for topic, value, *_ in basket.sent if topic == "input.vehicle-position"]
    frame = Codec().decode(values, types=[VehiclePosition]).frame
    one, two = (frame.filter(vehicle_id=f"18/{vehicle}") for vehicle in (1, 2))
    assert one.height == 30
    assert two["event_time"].to_list()[2:] == one["event_time"].to_list()[3:]


@pytest.mark.skipif(len(DUMPS) < 2, reason="the HSL recordings are not here")
def test_the_real_recordings_begin_together() -> None:
    recordings = [list(Recording(path)) for path in DUMPS]
    days = {datetime.fromtimestamp(messages[0].arrival / SECOND, UTC).date() for messages in recordings}
    assert len(days) > 1, "they are of different days"
    named = [
        [message._replace(topic=f"{number}{message.topic}") for message in messages]
        for number, messages in enumerate(recordings)
    ]

    class Named(HfpProcessor):
        """Reads messages whose topics say which recording they are of."""

        def process(self, messages):  # type: ignore[no-untyped-def]
            return super().process([message._replace(topic=message.topic[1:]) for message in messages])

    found = list(ReplayPlan(align=True).messages(named, now=0, processor=Named()))
    assert len(found) == sum(map(len, recordings))
    usual = []
    for number, messages in enumerate(recordings):
        mine = [message for message in found if message.topic.startswith(str(number))]
        assert len({message.shift for message in mine}) == 1
        assert gaps(mine) == gaps(messages)
        frames = [part.frame for part in Named().process(mine[:1000]).events]
        late = pl.concat([f.select(late=pl.col("ingestion_time") - pl.col("event_time")) for f in frames])["late"]
        usual.append(mine[0].arrival - late.dt.total_microseconds().sort()[(late.len() - 1) // 2])
    # A median of an even number lies between two: they may differ by the distance of those.
    assert max(usual) - min(usual) < SECOND
