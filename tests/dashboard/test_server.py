"""The dashboard as others see it: results in a real Kafka, a real server, real HTTP and Socket.IO clients."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import socketio
import websockets.exceptions
import websockets.sync.client
from tests.dashboard.city import (
    CELL_TEXTS,
    CELLS,
    SECOND,
    Hand,
    delays_job,
    edges_job,
    fresh,
    serving,
    speeds_job,
    stops_job,
    until,
    vehicles_job,
    window_end,
)
from tests.dashboard.viewer import watching

from headrace.dashboard.access import Access
from headrace.dashboard.server import DashboardOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dashboard.city import Served

    from headrace.dev import EmbeddedBroker
    from headrace.stream import Job

pytestmark = pytest.mark.broker
A, B, C = CELL_TEXTS


class City:
    """One dashboard with a job of every kind, for the tests that only look."""

    def __init__(self, served: Served, hand: Hand, jobs: dict[str, Job]) -> None:
        self.served, self.hand, self.jobs = served, hand, jobs
        self._newest = window_end()

    def window(self) -> datetime:
        """The end of a window that is newer than all before it and far from expiring, however long a test takes."""
        self._newest = max(self._newest + 2 * 60 * SECOND, window_end())
        return self._newest

    def get(self, path: str) -> Any:
        answer = httpx.get(self.served.url + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def shown(self, kind: str) -> dict[str, dict[str, Any]]:
        job = self.jobs[kind].name
        return {entry["key"]: entry for entry in self.get(f"/api/jobs/{job}/cells")["cells"]}


@pytest.fixture(scope="module")
def city(broker: EmbeddedBroker) -> Iterator[City]:
    jobs = {
        "vehicles": vehicles_job(fresh("vehicles")),
        "delays": delays_job(fresh("delays")),
        "edges": edges_job(fresh("edges")),
        "stops": stops_job(fresh("stops")),
        "speeds": speeds_job(fresh("speeds")),
    }
    hand = Hand(broker.connection, tuple(jobs.values()))
    with serving(broker.connection, list(jobs.values())) as served:
        yield City(served, hand, jobs)
    hand.close()


# -------------------------------------------------------------------- REST


def test_every_kind_of_job_shows_what_is_in_its_topic(city: City) -> None:
    end = city.window()
    end_ms = int(end.timestamp() * 1000)
    stop = {"vehicle_id": "40/456", "line": "4", "latitude": 60.17, "longitude": 24.94}
    rows = {
        "vehicles": [{"cell": CELLS[0], "vehicles": 4}, {"cell": CELLS[1], "vehicles": 1}],
        "delays": [{"cell": CELLS[0], "p50": 12.5, "p90": float("nan")}],
        "edges": [{"cell": CELLS[0], "target": CELLS[1], "vehicles": 3}],
        "stops": [stop],
        "speeds": [{"line": "550", "speed": 9.25}],
    }
    shown = {}
    for kind, results in rows.items():
        times = {"at": datetime.now(UTC)} if kind == "stops" else {"end": end}
        city.hand.write(city.jobs[kind], results, **times)
        shown[kind] = until(
            lambda kind=kind, rows=results: (entries := city.shown(kind)) and len(entries) == len(rows) and entries,
            what=f"results of {kind}",
        )

    vehicles = shown["vehicles"]
    assert {key: entry["values"] for key, entry in vehicles.items()} == {A: {"vehicles": 4}, B: {"vehicles": 1}}
    assert vehicles[A]["window_end"] == end_ms
    assert vehicles[A]["window_start"] == end_ms - 30_000
    assert vehicles[A]["expires_at"] == end_ms + 5_000
    assert (round(vehicles[A]["latitude"], 3), round(vehicles[A]["longitude"], 3)) == (60.171, 24.943)
    assert shown["delays"][A]["values"] == {"p50": 12.5, "p90": None}
    assert shown["edges"][A]["target"] == B
    (point,) = shown["stops"].values()
    assert (point["latitude"], point["longitude"]) == (60.17, 24.94)
    assert point["values"] == {"vehicle_id": "40/456", "line": "4"}
    assert shown["speeds"]["550"]["values"] == {"line": "550", "speed": 9.25}


def test_the_state_of_a_part_of_the_map(city: City) -> None:
    job = city.jobs["vehicles"]
    city.hand.write(job, [{"cell": cell, "vehicles": 7} for cell in CELLS], end=city.window())
    until(lambda: len(city.shown("vehicles")) == 3, what="three cells")
    (place,) = [entry for key, entry in city.shown("vehicles").items() if key == C]
    north, east = place["latitude"], place["longitude"]
    box = f"{east - 0.0001},{north - 0.0001},{east + 0.0001},{north + 0.0001}"
    found = city.get(f"/api/jobs/{job.name}/cells?bbox={box}")
    assert ([entry["key"] for entry in found["cells"]], found["total"]) == ([C], 1)
    assert city.get(f"/api/jobs/{job.name}/cells?bbox=170,-10,-170,10")["total"] == 0
    limited = city.get(f"/api/jobs/{job.name}/cells?limit=2")
    assert (len(limited["cells"]), limited["total"], limited["truncated"]) == (2, 3, True)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/jobs/nobody", 404, "There is no job 'nobody'. Jobs: vehicles"),
        ("/api/jobs/nobody/cells", 404, "There is no job"),
        ("/api/jobs/nobody/history?key=a", 404, "There is no job"),
        ("/api/jobs/%3Cscript%3E", 404, "There is no job"),
        ("/api/jobs/{vehicles}/cells?bbox=1,2,3", 422, "four numbers"),
        ("/api/jobs/{vehicles}/cells?bbox=a,b,c,d", 422, "four numbers"),
        ("/api/jobs/{vehicles}/cells?bbox=nan,0,1,1", 422, "finite"),
        ("/api/jobs/{vehicles}/cells?bbox=0,5,1,-5", 422, "south is below north"),
        ("/api/jobs/{vehicles}/cells?bbox=0,0,999,5", 422, "within -180 to 180"),
        ("/api/jobs/{vehicles}/cells?limit=0", 422, "limit"),
        ("/api/jobs/{vehicles}/cells?limit=1000000", 422, "limit"),
        ("/api/jobs/{vehicles}/cells?limit=many", 422, "limit"),
        ("/api/jobs/{vehicles}/history", 422, "key"),
        ("/api/jobs/{speeds}/cells?bbox=0,0,1,1", 422, "have no place"),
        ("/api/nothing", 404, "Not Found"),
        ("/../../etc/passwd", 404, "Not Found"),
        ("/assets/../../api.py", 404, "Not Found"),
    ],
)
def test_wrong_questions_are_explained(city: City, path: str, status: int, words: str) -> None:
    answer = httpx.get(city.served.url + path.format(**{kind: job.name for kind, job in city.jobs.items()}))
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert answer.headers["content-type"] == "application/json"


def test_history_of_a_cell(city: City) -> None:
    job = city.jobs["delays"]
    end = city.window()
    for step in (1, 2, 3):
        city.hand.write(job, [{"cell": CELLS[2], "p50": float(step), "p90": 10.0}], end=end + 5 * step * SECOND)
    points = until(
        lambda: (found := city.get(f"/api/jobs/{job.name}/history?key={C}")["points"]) and len(found) == 3 and found,
        what="three points",
    )
    assert [point["values"] for point in points] == [{"p50": float(step), "p90": 10.0} for step in (1, 2, 3)]
    assert points[1]["window_end"] - points[0]["window_end"] == 5_000


def test_openapi_describes_every_path(city: City) -> None:
    described = city.get("/api/openapi.json")
    paths = set(described["paths"])
    assert paths == {
        "/api/config",
        "/api/jobs",
        "/api/jobs/{job}",
        "/api/jobs/{job}/cells",
        "/api/jobs/{job}/history",
        "/api/pipeline",
        "/api/status",
        "/api/network",
        "/healthz",
        "/metrics",
    }
    cells = described["paths"]["/api/jobs/{job}/cells"]["get"]
    assert {parameter["name"] for parameter in cells["parameters"]} == {"job", "bbox", "limit"}
    assert "CellsAnswer" in str(cells["responses"]["200"])


def test_the_answers_are_what_openapi_promises(city: City) -> None:
    from headrace.dashboard import answers

    answers.ConfigAnswer.model_validate(city.get("/api/config"))
    answers.JobsAnswer.model_validate(city.get("/api/jobs"))
    answers.StatusAnswer.model_validate(city.get("/api/status"))
    for job in city.jobs.values():
        answers.JobAnswer.model_validate(city.get(f"/api/jobs/{job.name}"))
        answers.CellsAnswer.model_validate(city.get(f"/api/jobs/{job.name}/cells"))
        answers.HistoryAnswer.model_validate(city.get(f"/api/jobs/{job.name}/history?key=x"))


def test_metrics_are_for_prometheus(city: City) -> None:
    text = httpx.get(city.served.url + "/metrics").text
    job = city.jobs["vehicles"].name
    assert f'headrace_dashboard_entries{{job="{job}"}}' in text
    assert "headrace_dashboard_broker_connected 1.0" in text
    assert "headrace_dashboard_viewers 0.0" in text


def test_the_network_is_geojson(city: City) -> None:
    features = city.get("/api/network")["features"]
    kinds = {(feature["properties"]["kind"], feature["geometry"]["type"]) for feature in features}
    assert kinds == {("line", "LineString"), ("stop", "Point"), ("town", "Point")}
    longitudes = [
        feature["geometry"]["coordinates"][0] for feature in features if feature["geometry"]["type"] == "Point"
    ]
    assert all(24 < longitude < 26 for longitude in longitudes)


# -------------------------------------------------------------------- Socket.IO


def test_a_snapshot_then_differences(city: City) -> None:
    job = city.jobs["vehicles"]
    base = city.window()

    async def story() -> None:
        city.hand.write(job, [{"cell": CELLS[0], "vehicles": 4}, {"cell": CELLS[1], "vehicles": 2}], end=base)
        until(lambda: city.shown("vehicles").get(B, {}).get("values") == {"vehicles": 2}, what="the state before")
        async with watching(city.served.url) as viewer:
            await viewer.until(lambda: viewer.heard["declarations"], what="declarations")
            assert viewer.heard["hello"][0]["server"] == "headrace"
            declared = {told["job"]: told for told in viewer.heard["declarations"][0]}
            assert declared[job.name]["kind"] == "cells"
            assert (await viewer.subscribe([job.name]))["ok"]
            shown = viewer.entries[job.name]
            await viewer.until(lambda: A in viewer.entries[job.name], what="the snapshot")
            shown = viewer.entries[job.name]
            assert (shown[A]["vehicles"], shown[B]["vehicles"]) == (4, 2)

            city.hand.write(job, [{"cell": CELLS[0], "vehicles": 5}], end=base + 1 * SECOND)
            await viewer.until(lambda: shown[A]["vehicles"] == 5, what="a newer value")

            city.hand.write(job, [{"cell": CELLS[0], "vehicles": 99}], end=base - 5 * SECOND)
            city.hand.write(job, [{"cell": CELLS[2], "vehicles": 1}], end=base + 1 * SECOND)
            await viewer.until(lambda: C in shown, what="what came after an older value")
            assert shown[A]["vehicles"] == 5

            city.hand.write(job, [{"cell": CELLS[2], "vehicles": 1}], end=base + 1 * SECOND, retraction=True)
            await viewer.until(lambda: C not in shown, what="a retraction")
            assert len(viewer.heard["snapshot"]) == 1

            city.hand.write(job, [{"cell": CELLS[0], "vehicles": 6}], end=base + 20 * SECOND)
            await viewer.until(lambda: B not in shown, what="an expired value to go")
            assert shown[A]["vehicles"] == 6

            await viewer.subscribe([])
            city.hand.write(job, [{"cell": CELLS[1], "vehicles": 7}], end=base + 20 * SECOND)
            until(lambda: B in city.shown("vehicles"), what="a value that nobody subscribed")
            assert B not in shown

    asyncio.run(story())


def test_a_table_and_points_come_the_same_way(city: City) -> None:
    speeds, stops = city.jobs["speeds"], city.jobs["stops"]

    async def story() -> None:
        async with watching(city.served.url, transports=["polling"]) as viewer:
            await viewer.subscribe([speeds.name, stops.name])
            hostile = {
                "vehicle_id": "<script>alert(1)</script>",
                "line": "'\"><b>",
                "latitude": 60.2,
                "longitude": 24.9,
            }
            city.hand.write(stops, [hostile], at=datetime.now(UTC))
            city.hand.write(speeds, [{"line": "<i>7", "speed": 1.0}], end=city.window())
            await viewer.until(lambda: "<i>7" in viewer.entries[speeds.name], what="a row of the table")
            ids = await viewer.until(
                lambda: [
                    entry["vehicle_id"] for entry in viewer.entries[stops.name].values() if "<" in entry["vehicle_id"]
                ],
                what="the point",
            )
            assert ids == ["<script>alert(1)</script>"], (
                "text is data: it comes as it is, and the page shows it as text"
            )

    asyncio.run(story())


def test_a_viewer_that_comes_back_gets_the_difference(city: City) -> None:
    job = city.jobs["delays"]

    async def story() -> None:
        base = city.window()
        async with watching(city.served.url) as viewer:
            await viewer.subscribe([job.name])
            city.hand.write(job, [{"cell": CELLS[0], "p50": 1.0, "p90": 2.0}], end=base)
            await viewer.until(lambda: viewer.entries[job.name].get(A, {}).get("p50") == 1.0, what="a value")
            kept, version = viewer.entries, viewer.versions[job.name]
        city.hand.write(job, [{"cell": CELLS[1], "p50": 3.0, "p90": 4.0}], end=base)
        async with watching(city.served.url) as again:
            again.entries, again.versions = kept, {job.name: version}
            await again.subscribe([job.name], **{job.name: version})
            await again.until(lambda: B in again.entries[job.name], what="what was missed")
            assert not again.heard["snapshot"]
            assert again.heard["changes"][0]["base"] == version
            assert again.entries[job.name][A]["p50"] == 1.0

    asyncio.run(story())


def test_after_a_restart_of_the_backend_there_is_a_snapshot(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("restart"))
    hand = Hand(broker.connection, (job,))

    async def watch(url: str, resume: dict[str, int]) -> dict[str, int]:
        async with watching(url) as viewer:
            await viewer.subscribe([job.name], **resume)
            await viewer.until(lambda: viewer.entries[job.name].get(A, {}).get("vehicles") == 4, what="the value")
            assert len(viewer.heard["snapshot"]) == 1
            return dict(viewer.versions)

    hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(3))
    with serving(broker.connection, [job]) as first:
        until(lambda: first.dashboard.boards[job.name].entries()[1], what="results before the restart")
        versions = asyncio.run(watch(first.url, {}))
        port = int(first.url.rpartition(":")[2])
    with serving(broker.connection, [job], port=port) as second:
        until(lambda: second.dashboard.boards[job.name].entries()[1], what="results after the restart")
        asyncio.run(watch(second.url, versions))
    hand.close()


def test_a_stalled_viewer_gets_the_newest_state_and_nobody_waits_for_it(city: City) -> None:
    job = city.jobs["edges"]

    async def story() -> None:
        base = city.window()
        async with watching(city.served.url, answers=False) as stalled, watching(city.served.url) as lively:
            for viewer in (stalled, lively):
                await viewer.subscribe([job.name])
            for number in range(1, 31):
                result = {"cell": CELLS[0], "target": CELLS[1], "vehicles": number}
                city.hand.write(job, [result], end=base + number * SECOND / 10)
                await lively.until(
                    lambda number=number: lively.entries[job.name].get(A, {}).get("vehicles") == number,
                    what=f"update {number}",
                )
            told = stalled.heard["snapshot"] + stalled.heard["changes"]
            assert len(told) == 2, "two messages are on the way, and no more"
            assert len(lively.heard["changes"]) >= 15
            stalled.answers = True
            await stalled.answer(job.name, stalled.versions[job.name])
            await stalled.until(lambda: stalled.entries[job.name].get(A, {}).get("vehicles") == 30, what="the newest")
            assert len(stalled.heard["changes"]) <= 2, "what it missed comes as one difference"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (None, "send {"),
        ("*", "send {"),
        ({}, "must be a list"),
        ({"jobs": "everything"}, "must be a list"),
        ({"jobs": [1]}, "must be a list"),
        ({"jobs": ["<script>"]}, "there is no job '<script>'"),
        ({"jobs": [], "resume": [1]}, "must be an object"),
    ],
)
def test_wishes_that_make_no_sense_are_explained(city: City, wish: Any, words: str) -> None:
    async def story() -> dict[str, Any]:
        async with watching(city.served.url) as viewer:
            for nonsense in (None, 7, "x", {"job": 5}, {"job": "x", "version": "y"}, {"pipeline": None}):
                await viewer.client.emit("received", nonsense)
            answer: dict[str, Any] = await viewer.client.call("subscribe", wish, timeout=10)
            return answer

    answer = asyncio.run(story())
    assert not answer["ok"]
    assert words in answer["error"]


# -------------------------------------------------------------------- hostile visitors


def handshake(url: str, transport: str, **headers: str) -> int:
    """Begin a Socket.IO connection, and give the status of the answer."""
    address = f"{url}/socket.io/?EIO=4&transport={transport}"
    if transport == "polling":
        return httpx.get(address, headers=headers).status_code
    try:
        with websockets.sync.client.connect(address.replace("http", "ws", 1), additional_headers=headers):
            return 101
    except websockets.exceptions.InvalidStatus as refusal:
        return refusal.response.status_code


@pytest.mark.parametrize(("transport", "welcome"), [("websocket", 101), ("polling", 200)])
def test_other_origins_are_refused_by_either_transport(city: City, transport: str, welcome: int) -> None:
    url = city.served.url
    assert handshake(url, transport) == welcome
    assert handshake(url, transport, Origin=url) == welcome
    assert handshake(url, transport, Origin="https://evil.example") == 403


@pytest.mark.parametrize(("transport", "welcome"), [("websocket", 101), ("polling", 200)])
def test_a_token_is_demanded_by_either_transport(broker: EmbeddedBroker, transport: str, welcome: int) -> None:
    token = "0123456789abcdef"
    job = vehicles_job(fresh("guarded"))
    options = DashboardOptions(access=Access(token=token))
    with serving(broker.connection, [job], options) as served:
        assert httpx.get(served.url + "/api/jobs").status_code == 401
        assert httpx.get(served.url + "/metrics").status_code == 401
        assert httpx.get(served.url + "/healthz").status_code == 200
        assert httpx.get(served.url + "/api/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert handshake(served.url, transport) == 401
        assert handshake(served.url, transport, Authorization="Bearer 0123456789abcdeX") == 401
        assert handshake(served.url, transport, Authorization=f"Bearer {token}") == welcome
        with httpx.Client(base_url=served.url, follow_redirects=True) as browser:
            browser.get(f"/?token={token}")
            assert browser.get("/api/jobs").status_code == 200


def test_a_reverse_proxy_is_recognized_by_its_own_address(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("proxied"))
    options = DashboardOptions(access=Access(proxy_header="X-Forwarded-User", proxies=("127.0.0.1",)))
    with serving(broker.connection, [job], options) as served:
        assert httpx.get(served.url + "/api/jobs").status_code == 401
        through = {"X-Forwarded-User": "alice", "X-Forwarded-For": "203.0.113.9"}
        assert httpx.get(served.url + "/api/jobs", headers=through).status_code == 200
        assert handshake(served.url, "websocket", **through) == 101
    elsewhere = DashboardOptions(access=Access(proxy_header="X-Forwarded-User", proxies=("10.0.0.7",)))
    with serving(broker.connection, [job], elsewhere) as served:
        forged = {"X-Forwarded-User": "eve", "X-Forwarded-For": "10.0.0.7"}
        assert httpx.get(served.url + "/api/jobs", headers=forged).status_code == 401


def test_a_defect_is_told_and_not_silent(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = vehicles_job(fresh("defect"))
    hand = Hand(broker.connection, (job,))
    hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(3))
    hand.close()
    with serving(broker.connection, [job]) as served:
        until(lambda: served.dashboard.boards[job.name].entries()[1], what="results")
        monkeypatch.setattr(served.dashboard.boards[job.name], "apply", None)
        hand = Hand(broker.connection, (job,))
        hand.write(job, [{"cell": CELLS[0], "vehicles": 5}], end=window_end(3))
        answer = until(
            lambda: (found := httpx.get(f"{served.url}/healthz")).status_code == 503 and found, what="a word about it"
        )
        assert "NoneType" not in answer.text
        status = httpx.get(f"{served.url}/api/status").json()
        assert "a defect of the dashboard" in status["broker"]["text"]
        (part,) = [part for part in status["parts"] if part["name"] == "results"]
        assert part["failures"] >= 1
        assert "TypeError" in part["text"]
        monkeypatch.undo()
        until(lambda: httpx.get(f"{served.url}/healthz").status_code == 200, what="reading to go on")
        hand.close()


def test_there_is_room_for_so_many_viewers(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("crowd"))

    async def story(url: str) -> str:
        async with watching(url), watching(url):
            client = socketio.AsyncClient(reconnection=False)
            refusals: list[Any] = []
            client.on("connect_error", refusals.append)
            with pytest.raises(socketio.exceptions.ConnectionError):
                await client.connect(url, transports=["websocket"])
            await client.disconnect()
            return str(refusals)

    with serving(broker.connection, [job], DashboardOptions(viewers=2)) as served:
        assert "2 viewers are here already" in asyncio.run(story(served.url))


def test_a_huge_message_ends_its_own_connection_and_nothing_else(city: City) -> None:
    async def story() -> None:
        async with watching(city.served.url) as viewer, watching(city.served.url) as other:
            await viewer.client.emit("subscribe", {"jobs": ["x" * 1_000_000]})
            await viewer.until(lambda: not viewer.client.connected, what="the connection to end")
            assert (await other.subscribe([]))["ok"]

    asyncio.run(story())


def test_hostile_records_are_left_out_and_the_others_are_shown(broker: EmbeddedBroker) -> None:
    import polars as pl

    job = vehicles_job(fresh("hostile"))
    hand = Hand(broker.connection, (job,))
    told = lambda fate, count: f'fates_total{{fate="{fate}",job="{job.name}"}} {count}.0'  # noqa: E731
    end = window_end(5)
    hand.send(job, [("x", b""), ("x", b"rubbish"), ("x", b"{" * 5000), ("x", b'{"details": 1}'), ("x", b"\x7b\xff")])
    text_cell = [{"cell": "<script>", "vehicles": 1}]
    hand.write(job, text_cell, end=end, schema={"cell": pl.String})
    hand.write(job, [{"cell": CELLS[2], "vehicles": "many"}], end=end, schema={"vehicles": pl.String})
    hand.write(job, [{"cell": 5, "vehicles": 1}], end=end)
    hand.write(job, [{"cell": CELLS[1], "vehicles": 2**63 - 1}], end=end)
    hand.write(job, [{"cell": CELLS[2], "vehicles": 1}], end=end + timedelta(days=3650))
    hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=end)
    with serving(broker.connection, [job]) as served:
        until(lambda: len(served.dashboard.boards[job.name].entries()[1]) == 2, what="the good results")
        shown = httpx.get(f"{served.url}/api/jobs/{job.name}/cells").json()["cells"]
        assert {entry["key"]: entry["values"]["vehicles"] for entry in shown} == {A: 4, B: str(2**63 - 1)}
        figures = until(
            lambda: (found := httpx.get(f"{served.url}/metrics").text) and told("refused", 7) in found and found,
            what="the count of records that are no results",
        )
        assert told("unplaced", 1) in figures
        assert told("absurd", 1) in figures
        problems = until(
            lambda: httpx.get(f"{served.url}/api/pipeline").json()["problems"], what="a word about those records"
        )
        assert any("no results of" in problem["text"] for problem in problems)
    hand.close()
