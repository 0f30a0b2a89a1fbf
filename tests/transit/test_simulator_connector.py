"""The simulated fleet as a feed of HFP messages."""

from __future__ import annotations

import math
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.errors import ConfigError
from headrace.ingest import Cause
from headrace_transit.hfp import HfpProcessor, HfpSettings
from headrace_transit.hfp_writer import write
from headrace_transit.simulator import Arrivals, Fleet
from headrace_transit.simulator_connector import SimulatorConnector, SimulatorSettings
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.ingest import Processed, RawMessage

START = datetime(2026, 5, 1, 5, tzinfo=UTC)


def processed(messages: list[RawMessage]) -> Processed:
    return HfpProcessor(HfpSettings(max_ahead="1h", max_behind=None)).process(messages)


def test_what_is_written_is_what_is_read() -> None:
    arrived = Arrivals(Fleet(vehicles=200, seed=3, start=START, gps_loss=0.2)).take(60)
    assert arrived.positions["latitude"].null_count(), "the fleet should have lost some positions"
    for frame, topic in ((arrived.positions, VEHICLE_POSITIONS), (arrived.stop_events, STOP_EVENTS)):
        result = processed(list(write(frame)))
        assert not result.dismissed
        (events,) = result.events
        assert events.topic == topic
        columns = [name for name in events.frame.columns if name in frame.columns]
        expected = frame.rename({"arrival_time": "ingestion_time"}).select("ingestion_time", *columns)
        # HFP knows milliseconds, and no stop called by anything but a number.
        times = [name for name in ("scheduled_arrival", "scheduled_departure") if name in columns]
        expected = expected.with_columns(pl.col(name).dt.truncate("1ms") for name in times)
        assert events.frame.select("ingestion_time", *columns).equals(expected)


def test_a_message_without_a_trip_or_a_place() -> None:
    frame = pl.DataFrame(
        {"event_time": [START], "operator": [7], "vehicle_number": [5], "route": ["1"], "event_type": "DEP"}
    )
    (message,) = write(frame)
    assert message.topic == "/hfp/v2/journey/ongoing/dep//0007/00005/1////" + "/0////"
    (events,) = processed([message]).events
    assert events.frame.select("vehicle_id", "event_type", "latitude").row(0) == ("7/5", "DEP", None)
    assert message.arrival == int(START.timestamp() * 1e6)


def messages(**options: Any) -> list[RawMessage]:
    settings = SimulatorSettings(
        **{"vehicles": 20, "start": START.isoformat(), "seconds": 30, "speed": math.inf, **options}
    )
    with SimulatorConnector(settings) as connector:
        return [message for batch in connector.batches(threading.Event()) for message in batch.messages]


def test_a_fleet_sends_all_that_happens_in_its_time_in_the_order_of_arrival() -> None:
    found = messages()
    assert [m.arrival for m in found] == sorted(m.arrival for m in found)
    assert sum("/vp/" in m.topic for m in found) >= 20 * 30
    result = processed(found)
    assert {dismissal.cause for dismissal in result.dismissed.values()} <= {Cause.OTHER_EVENT}
    assert found == messages()
    assert found != messages(seed=2)
    plain = messages(disorder="none", stop_events=False, elsewhere=False)
    assert len(plain) == 600
    assert {m.arrival % 1000 for m in plain} == {0}


@pytest.mark.slow
def test_a_fleet_that_begins_now() -> None:
    now = int(datetime(2026, 5, 1, 13, 30, tzinfo=UTC).timestamp() * 1e6)
    connector = SimulatorConnector(SimulatorSettings(vehicles=5), wall=lambda: now)
    first = next(connector.messages())
    assert 0 <= first.arrival - now < 2_000_000
    assert "5 made-up vehicles" in connector.check()
    stop = threading.Event()
    batches = connector.batches(stop)
    assert next(batches).messages is not None
    stop.set()
    assert len(list(batches)) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"vehicles": 0},
        {"speed": 0},
        {"speed": math.inf, "seconds": None},
        {"seconds": 0},
        {"start": "soon"},
        {"batch_size": 0},
        {"disorder": "sunny"},
        {"service": "sunday"},
        {"copies": 0},
        {"gps_loss": 2},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SimulatorSettings(**{"seconds": 5, **wrong})
