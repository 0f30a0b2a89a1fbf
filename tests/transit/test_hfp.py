from __future__ import annotations

import json
import os
import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.events import Codec
from headrace.ingest import Cause, RawMessage
from headrace_transit.hfp import AT_STOPS, ELSEWHERE, HfpProcessor, HfpSettings, Place, parse_topic
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

SHARED = Path(os.environ.get("HEADRACE_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DUMPS = sorted((SHARED / "data" / "hsl").glob("*/*.dump"))

TOPIC = "/hfp/v2/journey/ongoing/{}/bus/0018/01029/5520/1/Martinlaakso/17:35/4150208/5/60;24/28/65/93"
ARRIVAL = 1_707_841_980_005_271
BODY: dict[str, Any] = {
    "desi": "520", "dir": "1", "oper": 6, "veh": 1029, "tst": "2024-02-13T16:32:59.931Z", "tsi": 1707841979,
    "spd": 8.03, "hdg": 278, "lat": 60.269247, "long": 24.853777, "acc": -0.05, "dl": -232, "odo": 25030, "drst": 0,
    "oday": "2024-02-13", "jrn": 632, "line": 1110, "start": "17:35", "loc": "GPS", "stop": 4150208, "route": "5520",
    "occu": 0,
}  # fmt: skip


def message(event: str = "VP", topic: str = "", *, arrival: int = ARRIVAL, **changes: Any) -> RawMessage:
    body = {key: value for key, value in {**BODY, **changes}.items() if value != "gone"}
    return RawMessage(topic or TOPIC.format(event.lower()), json.dumps({event: body}).encode(), arrival)


def raw(payload: bytes, topic: str = TOPIC.format("vp")) -> RawMessage:
    return RawMessage(topic, payload, ARRIVAL)


def one(sent: RawMessage, **options: Any) -> dict[str, Any]:
    """The event that one message becomes, after a way through Kafka's format and back."""
    result = HfpProcessor(HfpSettings(**options)).process([sent])
    assert not result.dismissed
    (events,) = result.events
    decoded = Codec().decode(Codec().encode(events.frame, events.type), types=[events.type])
    return {"topic": events.topic, **decoded.frame.row(0, named=True)}


def cause(sent: RawMessage, **options: Any) -> Cause:
    result = HfpProcessor(HfpSettings(**options)).process([sent])
    assert not result.events
    assert result.dismissed[0].text
    return result.dismissed[0].cause


def test_a_position_keeps_every_field() -> None:
    found = one(message())
    assert found == {
        "topic": VEHICLE_POSITIONS, "event_time": datetime(2024, 2, 13, 16, 32, 59, 931_000, UTC),
        "ingestion_time": datetime(2024, 2, 13, 16, 33, 0, 5271, UTC), "vehicle_id": "18/1029",
        "latitude": 60.269247, "longitude": 24.853777, "speed": 8.03, "heading": 278, "acceleration": -0.05,
        "delay": 232, "odometer": 25030.0, "doors_open": False, "line": "520", "route": "5520", "direction": 1,
        "mode": "bus", "operator": 18, "vehicle_number": 1029, "operating_day": "2024-02-13", "trip_start": "17:35",
        "next_stop": "4150208", "stop": "4150208", "occupancy": 0, "location_source": "GPS",
        "headsign": "Martinlaakso", "line_number": 1110, "journey_number": 632, "trip_operator": 6,
        "journey_type": None, "temporal_type": None, "sequence": None, "label": None,
    }  # fmt: skip


@pytest.mark.parametrize("event", AT_STOPS)
def test_what_happens_at_stops_is_a_stop_event(event: str) -> None:
    found = one(message(event, ttarr="2024-02-13T16:29:00.000Z", ttdep=None))
    assert found["topic"] == STOP_EVENTS
    assert (found["event_type"], found["stop"], found["delay"]) == (event, "4150208", 232)
    assert found["scheduled_arrival"] == datetime(2024, 2, 13, 16, 29, tzinfo=UTC)
    assert found["scheduled_departure"] is None


@pytest.mark.parametrize("event", ELSEWHERE)
def test_other_events_are_dismissed_as_such(event: str) -> None:
    assert cause(message(event)) is Cause.OTHER_EVENT


def test_version_1_takes_the_event_from_the_payload() -> None:
    topic = "/hfp/v1/journey/ongoing/tram/0040/00456/1006/1/Arabia/05:47/1111428/5/60;24/19/75/80"
    assert one(message(topic=topic))["vehicle_id"] == "40/456"
    assert one(message("ARS", topic))["event_type"] == "ARS"


V1_TOPIC = "/hfp/v1/journey/ongoing/tram/0040/00456/1006 /1/Arabia/05:47/1111428/5/60;24/19/75/80"


@pytest.mark.parametrize("spaced", [False, True], ids=["read with others", "read by itself"])
def test_the_route_of_version_1_is_that_of_its_topic(spaced: bool) -> None:
    for event in ("VP", "ARS"):
        sent = message(event, V1_TOPIC, route="gone")
        if not spaced:
            sent = sent._replace(payload=sent.payload.replace(b" ", b""))
        assert one(sent)["route"] == "1006"


@pytest.mark.parametrize(
    ("payload", "route"), [("5520 ", "5520"), ("\t5520", "5520"), ("  ", "5520"), ("", "5520"), ("1006H 2 ", "1006H 2")]
)
def test_a_route_has_no_blanks_around_it(payload: str, route: str) -> None:
    assert one(message(route=payload))["route"] == route
    assert one(message("DEP", route=payload))["route"] == route


def test_a_vehicle_without_a_trip_has_no_route() -> None:
    assert one(message(topic="/hfp/v2/deadrun/ongoing/vp/bus/0018/01029", route=None))["route"] is None


def test_long_topics_are_not_kept() -> None:
    """Whoever may publish chooses topics of up to 64 kB, as many as they like."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500):
            topic = TOPIC.format("vp").replace("Martinlaakso", f"{number}" + "x" * 60_000)
            place = parse_topic(topic)
            assert isinstance(place, Place)
            assert place.headsign == f"{number}" + "x" * 60_000
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 5_000_000


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        ("/hfp/v2/deadrun/ongoing/vp/bus/0018/01029", Place("VP", "deadrun", None, "bus", 18, 1029, None, None, None)),
        (
            "/hfp/v2/journey/upcoming/vp/train/0090/01063/3001U/2/Helsinki / Airport/23:59/EOL/0////",
            Place("VP", None, "upcoming", "train", 90, 1063, "Helsinki / Airport", "EOL", "3001U"),
        ),
        (
            "/hfp/v2/journey/ongoing/tlr/bus/0018/01029/5520/2/Matinkylä (M)/18:48/4170215/0/60;24/28/75/72/3230",
            Place("TLR", None, None, "bus", 18, 1029, "Matinkylä (M)", "4170215", "5520"),
        ),
    ],
)
def test_topics(topic: str, place: Place) -> None:
    assert parse_topic(topic) == place


@pytest.mark.parametrize(
    "topic",
    ["", "/", "hfp/v2/x", "/hfp/v3/journey/ongoing/vp/bus/0018/01029", "/hfp/v2/journey/ongoing/vp/bus/0018",
     "/hfp/v2/journey/ongoing/vp/bus/x/1", "/hfp/v2/journey/ongoing/vp/bus/1/-1", "/hfp/v1/journey/ongoing/bus/1",
     "/hfp/v2/journey/ongoing/vp/bus/1/1234567890", "/hfp/v2/journey/ongoing/vp/bus/1/\u0663"],
)  # fmt: skip
def test_topics_that_are_none(topic: str) -> None:
    assert cause(message(topic=topic or "\0")) is Cause.UNKNOWN_TOPIC


def test_a_lost_position_leaves_the_rest() -> None:
    found = one(message(lat=None, long=None, spd=None))
    assert (found["latitude"], found["longitude"], found["speed"], found["odometer"]) == (None, None, None, 25030)
    assert one(message(lat=None))["longitude"] is None
    assert cause(message(lat=None, long=None), null_positions="dismiss") is Cause.NO_POSITION


def test_fields_may_be_missing() -> None:
    found = one(raw(b'{"VP":{"tsi":1707841979}}'))
    assert found["event_time"] == datetime(2024, 2, 13, 16, 32, 59, tzinfo=UTC)
    assert {found[name] for name in ("latitude", "delay", "line", "direction", "stop", "doors_open")} == {None}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (raw(b""), Cause.EMPTY),
        (raw(b"x" * 70_000), Cause.TOO_LARGE),
        (raw(b'{"VP":"\xff"}'), Cause.NOT_UTF8),
        (raw(b"[" * 60_000), Cause.MALFORMED),
        (raw(b'{"VP":{"spd":' + b"9" * 10_000 + b"}}"), Cause.MALFORMED),
        (raw(b'{"VP":{"spd":NaN}}'), Cause.MALFORMED),
        (raw(b'{"VP":{"spd":-Infinity}}'), Cause.MALFORMED),
        (raw(b"null"), Cause.MALFORMED),
        (raw(b"{}"), Cause.MALFORMED),
        (raw(b'{"VP":{},"ARS":{}}'), Cause.MALFORMED),
        (raw(b'{"VP":[]}'), Cause.MALFORMED),
        (raw(b'{"ARS":{}}'), Cause.BAD_VALUE),
        (message("XYZ"), Cause.UNKNOWN_EVENT),
        (message(tst="gone", tsi="gone"), Cause.MISSING_FIELD),
        (message(tst=None, tsi=None), Cause.MISSING_FIELD),
        (message(tst="yesterday"), Cause.BAD_VALUE),
        (message(tst=7), Cause.BAD_VALUE),
        (message(tst="2024-02-3T16:32:59.931Z"), Cause.BAD_VALUE),
        (message(tst=" 2024-02-13T16:32:59.931Z"), Cause.BAD_VALUE),
        (message(tst="0000-01-01T00:00:00.000Z"), Cause.BAD_VALUE),
        (message(tst=None, tsi=10**30), Cause.BAD_VALUE),
        (message(tst=None, tsi=True), Cause.BAD_VALUE),
        (message(spd="fast"), Cause.BAD_VALUE),
        (message(spd=True), Cause.BAD_VALUE),
        (message(spd=[1]), Cause.BAD_VALUE),
        (message(spd=10**400), Cause.BAD_VALUE),
        (raw(b'{"VP":{"tsi":1707841979,"acc":1e999}}'), Cause.BAD_VALUE),
        (message(lat=90.5), Cause.BAD_VALUE),
        (message(long=-181), Cause.BAD_VALUE),
        (message(dl=2**31), Cause.BAD_VALUE),
        (message(dl=1.5), Cause.BAD_VALUE),
        (message(dir="3"), Cause.BAD_VALUE),
        (message(drst=2), Cause.BAD_VALUE),
        (message(desi="\ud800"), Cause.MALFORMED),
        (message(stop={"a": 1}), Cause.BAD_VALUE),
        (message("DEP", ttarr="soon"), Cause.BAD_VALUE),
        (message("DEP", ttarr="9999-12-31T23:59:59-01:00"), Cause.BAD_VALUE),
        (message("DEP", ttdep="0000-12-31T23:30:00-01:00"), Cause.BAD_VALUE),
        (message(arrival=ARRIVAL - 3600 * 10**6), Cause.CLOCK_AHEAD),
        (message(tst="9999-12-31T23:59:59.999Z"), Cause.CLOCK_AHEAD),
        (message(arrival=ARRIVAL + 2 * 86400 * 10**6), Cause.CLOCK_BEHIND),
        (message(tst="0001-01-01T00:00:00.000Z"), Cause.CLOCK_BEHIND),
    ],
)  # fmt: skip
def test_what_is_no_event_has_a_reason(sent: RawMessage, expected: Cause) -> None:
    assert cause(sent) is expected


def test_a_bad_message_costs_only_itself() -> None:
    batch = [message(), message(spd="fast"), message("DEP"), message(lat=99), message(odo=1), raw(b"")]
    result = HfpProcessor().process(batch)
    assert list(result.dismissed) == [1, 3, 5]
    assert [(part.type, part.frame.height) for part in result.events] == [(VehiclePosition, 2), (StopEvent, 1)]
    assert result.events[0].frame["odometer"].to_list() == [25030, 1]


def test_bad_messages_are_found_among_thousands() -> None:
    bad = {0, 700, 701, 2998}
    batch = [message("DEP" if n % 7 == 0 else "VP", odo=n, spd="fast" if n in bad else 1.5) for n in range(3000)]
    # Vehicles send no spaces, and such payloads are read together.
    batch = [sent._replace(payload=sent.payload.replace(b": ", b":")) for sent in batch]
    batch[1500] = batch[1500]._replace(payload=batch[1500].payload.replace(b"1.5", b"1.5\n"))  # good JSON, two lines
    result = HfpProcessor().process(batch)
    assert set(result.dismissed) == bad
    positions, stops = (part.frame["odometer"].to_list() for part in result.events)
    assert positions == [n for n in range(3000) if n % 7 and n not in bad]
    assert stops == [n for n in range(0, 3000, 7) if n not in bad]


def test_bad_fields_can_be_cleared_instead() -> None:
    batch = [message(spd="fast", dir="x"), message(spd=5), message(spd=[])]
    result = HfpProcessor(HfpSettings(bad_fields="clear")).process(batch)
    assert not result.dismissed
    assert result.events[0].frame["speed"].to_list() == [None, 5.0, None]
    assert result.cleared == {"spd": 2, "dir": 1}
    assert cause(message(tst="never"), bad_fields="clear") is Cause.BAD_VALUE


def test_unusual_but_good_values() -> None:
    found = one(message(tst="2024-02-13T18:32:59.931+02:00", dir=2, drst=True, hdg=278.0, desi=520, spd=3, seq=1))
    assert found["event_time"] == datetime(2024, 2, 13, 16, 32, 59, 931_000, UTC)
    assert (found["direction"], found["doors_open"], found["heading"], found["line"]) == (2, True, 278, "520")
    assert (found["speed"], found["sequence"]) == (3.0, 1)


def test_copies_are_other_vehicles_and_shifted_times_move_together() -> None:
    day = 86_400_000_000
    sent = message("DEP", ttdep="2024-02-13T16:29:00.000Z")._replace(arrival=ARRIVAL + day, shift=day, copy=3)
    found = one(sent)
    assert (found["vehicle_id"], found["vehicle_number"]) == ("18/301029", 301029)
    assert found["event_time"] == datetime(2024, 2, 14, 16, 32, 59, 931_000, UTC)
    assert found["scheduled_departure"] == datetime(2024, 2, 14, 16, 29, tzinfo=UTC)
    assert cause(message()._replace(copy=10**9)) is Cause.BAD_VALUE


def test_settings_are_checked() -> None:
    for wrong in ({"max_bytes": 0}, {"bad_fields": "x"}, {"null_positions": "x"}, {"max_ahead": "soon"}):
        with pytest.raises(ConfigError if "max_ahead" not in wrong else ValueError):
            HfpSettings(**wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------- recordings


@pytest.mark.skipif(not DUMPS, reason="the HSL recordings are not here")
@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_every_recorded_message_is_an_event_or_has_a_reason(dump: Path) -> None:
    batch = []
    for line in dump.read_text().splitlines():
        at, _, rest = line.partition(" ")
        topic, _, payload = rest.partition(" {")
        arrival = (datetime.fromisoformat(at) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        batch.append(RawMessage(topic, b"{" + payload.encode(), arrival))
    result = HfpProcessor().process(batch)
    assert result.count + len(result.dismissed) == len(batch)
    expected = Counter(sent.topic.split("/")[5].upper() for sent in batch)
    frames = {part.type: part.frame for part in result.events}
    found = Counter(frames[StopEvent]["event_type"])
    found["VP"] = frames[VehiclePosition].height
    found.update(dismissal.text.split()[0] for dismissal in result.dismissed.values())
    assert found == expected
    assert {dismissal.cause for dismissal in result.dismissed.values()} <= {Cause.OTHER_EVENT}
    nulls = sum(json.loads(sent.payload)["VP"]["lat"] is None for sent in batch if "/vp/" in sent.topic)
    assert frames[VehiclePosition]["latitude"].null_count() == nulls
    for part in result.events:
        values = Codec().encode(part.frame, part.type)
        assert Codec().decode(values, types=[part.type]).frame.height == part.frame.height


@pytest.mark.skipif(not DUMPS, reason="the HSL recordings are not here")
@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
def test_a_recording_in_the_form_of_version_1_has_the_routes_of_version_2(dump: Path) -> None:
    newer, older = [], []
    for line in dump.read_text().splitlines():
        _, _, rest = line.partition(" ")
        topic, _, payload = rest.partition(" {")
        content = json.loads("{" + payload)
        if "/journey/ongoing/vp/" not in topic:
            continue  # the topic of a run without passengers names no route
        newer.append(RawMessage(topic, json.dumps(content).encode(), ARRIVAL))
        del content["VP"]["route"]
        levels = topic.replace("/hfp/v2/", "/hfp/v1/").split("/")
        older.append(RawMessage("/".join(levels[:5] + levels[6:]), json.dumps(content).encode(), ARRIVAL))
    routes = [
        HfpProcessor(HfpSettings(max_behind=None, max_ahead="10000d")).process(sent).events[0].frame["route"]
        for sent in (newer, older)
    ]
    assert not routes[1].null_count()
    assert routes[1].to_list() == routes[0].to_list()


# ---------------------------------------------------------------- hostile messages

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(-(10**40), 10**40) | st.floats()
    | st.text(st.characters()) | st.sampled_from(["1", "2024-02-13T16:32:59.931Z", "\ud800", "9999-12-31T23:59:60Z"])
)  # fmt: skip
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3))
TOPICS = st.sampled_from([
    TOPIC.format("vp"), TOPIC.format("dep"), "/hfp/v1/journey/ongoing/bus/0018/01029", "/hfp/v2/x/\ud800/vp//1/2/3"
]) | st.text(st.characters())  # fmt: skip
BODIES = st.dictionaries(st.sampled_from([*BODY, "ttarr", "ttdep", "seq", "label"]), VALUES).map(
    lambda changes: {**BODY, **changes}
)
PAYLOADS = (
    st.binary(max_size=200)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.builds(lambda event, body: json.dumps({event: body}).encode(), st.sampled_from(["VP", "DEP"]), BODIES)
)
MESSAGES = st.builds(RawMessage, TOPICS, PAYLOADS, st.just(ARRIVAL), st.sampled_from([0, 10**15]), st.integers(0, 3))


@settings(deadline=None, max_examples=200)
@given(batch=st.lists(MESSAGES, max_size=8), clear=st.booleans())
@example(batch=[message("DEP", ttarr="9999-12-31T23:59:59Z")._replace(shift=10**15)], clear=True)
def test_anything_becomes_an_event_that_can_be_written_or_has_a_reason(batch: list[RawMessage], clear: bool) -> None:
    processor = HfpProcessor(HfpSettings(bad_fields="clear" if clear else "dismiss", max_behind=None))
    result = processor.process(batch)
    assert result.count + len(result.dismissed) == len(batch)
    for part in result.events:
        values = Codec().encode(part.frame, part.type)
        decoded = Codec().decode(values, types=[part.type])
        assert decoded.dead.is_empty()
        assert decoded.frame.select(part.frame.columns).equals(part.frame)
    for number, sent in enumerate(batch):
        alone = processor.process([sent])
        assert (number in result.dismissed) == bool(alone.dismissed)
