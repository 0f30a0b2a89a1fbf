"""Asking a routing service that is slow, failing, rate-limited, wrong, away: the stream goes on, and heals."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from aiohttp import web
from h3.api.basic_int import latlng_to_cell
from pydantic import SecretStr

from headrace.enrich import Ask, State, http
from headrace.enrich.cache import Cache
from headrace.enrich.http import _Client
from headrace.enrich.service import Service, close_services
from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.time.instants import INSTANT
from headrace.windows import count, tumbling
from headrace_transit.gtfs import TRIP
from headrace_transit.routing import read_final_stops, routing_service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.enrich.routing import RoutingServer

    from headrace.enrich import Found, Http

#: Long enough for any answer that comes at all, in tests that wait for one.
PATIENT: dict[str, Any] = {"patience": "20s", "timeout": "10s"}


def trips(*numbers: int, route: str = "1") -> pl.DataFrame:
    starts = [f"{6 + number // 60:02d}:{number % 60:02d}" for number in numbers]
    return pl.DataFrame(
        {"route": route, "direction": 1, "operating_day": "2026-01-01", "trip_start": starts},
        schema_overrides={"direction": pl.Int32},
    )


def states(found: Found) -> list[State]:
    return [State(number) for number in found.states.to_list()]


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that will happen; a test that waits in vain fails."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def asked_until_found(source: Http, keys: pl.DataFrame) -> Found:
    end = time.monotonic() + 20
    while True:
        found = source.look_up(keys)
        if states(found) == [State.FOUND] * keys.height:
            return found
        assert time.monotonic() < end, states(found)
        time.sleep(0.02)


def test_answers_are_read_and_kept(server: RoutingServer) -> None:
    source = routing_service(server.url, **PATIENT)
    keys = pl.concat([trips(3, 150), trips(3, route="9")])
    found = source.look_up(keys)
    assert states(found) == [State.FOUND, State.FOUND, State.UNKNOWN]
    assert found.values.rows() == [
        ("S3", latlng_to_cell(60.103, 24.9, 9)),
        ("S150", latlng_to_cell(60.25, 24.9, 9)),
        (None, None),
    ]
    assert len(server.calls) == 1
    again = source.look_up(keys)
    assert again.values.equals(found.values)
    assert again.states.equals(found.states)
    assert len(server.calls) == 1


def test_trips_after_midnight_are_asked_for_in_the_time_of_their_operating_day(server: RoutingServer) -> None:
    server.trips["HSL:1", 1, "2026-01-01", 24 * 3600 + 15 * 60] = ("HSL:late", 60.2, 24.9)
    key = trips(0).with_columns(trip_start=pl.lit("00:15"), direction=pl.lit(2, pl.Int32))
    assert routing_service(server.url, **PATIENT).look_up(key).values.get_column("final_stop").to_list() == ["late"]


def test_a_call_asks_for_several_and_no_more_calls_run_at_once_than_allowed(server: RoutingServer) -> None:
    async def a_little_slow(_: int) -> None:
        await asyncio.sleep(0.05)

    server.mood = a_little_slow
    source = routing_service(server.url, per_call=10, parallel=3, **PATIENT)
    assert states(source.look_up(trips(*range(200)))) == [State.FOUND] * 200
    assert len(server.calls) == 20
    assert max(len(call) for call in server.calls) == 10
    assert 1 < server.most_at_once <= 3


def test_a_slow_service_does_not_hold_the_batch_up_and_its_answer_is_there_for_the_next(server: RoutingServer) -> None:
    wait = True

    async def slow(_: int) -> None:
        while wait:
            await asyncio.sleep(0.01)

    server.mood = slow
    source = routing_service(server.url, patience="50ms", timeout="20s")
    assert states(source.look_up(trips(1, 2))) == [State.UNANSWERED] * 2
    # Asked for once, however many batches want it.
    assert states(source.look_up(trips(2, 1))) == [State.UNANSWERED] * 2
    until(lambda: server.asked == 2)
    wait = False
    found = asked_until_found(source, trips(1, 2))
    assert found.values.get_column("final_stop").to_list() == ["S1", "S2"]
    assert server.asked == 2


def test_a_call_that_takes_too_long_is_given_up(server: RoutingServer, caplog: pytest.LogCaptureFixture) -> None:
    async def never(_: int) -> None:
        await asyncio.sleep(30)

    server.mood = never
    source = routing_service(server.url, patience="20s", timeout="100ms", retries=1)
    assert states(source.look_up(trips(1))) == [State.FAILED]
    assert len(server.calls) == 2
    assert "no answer within 0.1 s" in caplog.text


def test_a_service_that_fails_now_and_then_is_asked_again(server: RoutingServer) -> None:
    async def fails_twice(call: int) -> web.Response | None:
        return web.Response(status=503) if call <= 2 else None

    server.mood = fails_twice
    found = routing_service(server.url, retries=2, **PATIENT).look_up(trips(7))
    assert found.values.get_column("final_stop").to_list() == ["S7"]
    assert len(server.calls) == 3


def test_a_service_that_keeps_failing_is_left_alone_and_taken_up_again_when_it_has_healed(
    server: RoutingServer,
) -> None:
    failing = True

    async def fails(_: int) -> web.Response | None:
        return web.Response(status=500) if failing else None

    server.mood = fails
    source = routing_service(
        server.url, retries=0, per_call=1, parallel=1, failures=3, cool_down="300ms", keep_failed="10ms", **PATIENT
    )
    found = source.look_up(trips(*range(50)))
    assert set(states(found)) <= {State.FAILED, State.REFUSED}
    assert len(server.calls) == 3  # then the breaker is open, for those that waited in the queue, too
    assert states(source.look_up(trips(60))) == [State.REFUSED]
    assert len(server.calls) == 3
    failing = False
    assert asked_until_found(source, trips(60)).values.get_column("final_stop").to_list() == ["S60"]
    # The first call after the pause was a probe, and went well: now everything passes again.
    asked_until_found(source, trips(*range(50)))


def test_a_service_that_asks_to_be_left_alone_is_left_alone(server: RoutingServer) -> None:
    limited = True

    async def too_many(_: int) -> web.Response | None:
        return web.Response(status=429, headers={"Retry-After": "0.4"}) if limited else None

    server.mood = too_many
    source = routing_service(server.url, retries=5, **PATIENT)
    assert states(source.look_up(trips(1))) == [State.FAILED]
    assert len(server.calls) == 1  # no retry in between, and no other key either
    assert states(source.look_up(trips(2))) == [State.REFUSED]
    assert len(server.calls) == 1
    limited = False
    asked_until_found(source, trips(1, 2))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("<html>Good morning</html>", "its answer is no JSON"),
        ('{"data": ' + "[" * 100_000 + "]" * 100_000 + "}", "its answer is nested too deeply"),
        ('{"errors": [{"message": "secret detail"}]}', "its answer cannot be used (KeyError)"),
        ('{"data": null}', "its answer cannot be used (TypeError)"),
        ('{"data": {"trip0": {"arrivalStoptime": {"stop": {"gtfsId": "x"}}}}}', "its answer cannot be used (KeyError)"),
        ('{"data": {"trip0": [1, 2, 3]}}', "its answer cannot be used (AttributeError)"),
        (json.dumps({"data": {"trip0": None}, "more": "x" * 250_000}), "an answer has more than 240000 bytes"),
    ],
)
def test_answers_that_cannot_be_used(
    server: RoutingServer, caplog: pytest.LogCaptureFixture, body: str, told: str
) -> None:
    async def wrong(_: int) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    server.mood = wrong
    source = routing_service(server.url, max_bytes=240_000, **PATIENT)
    assert states(source.look_up(trips(1))) == [State.FAILED]
    assert len(server.calls) == 1  # asking again would not help
    assert told in caplog.text
    assert "secret detail" not in caplog.text


def test_answers_that_are_nested_too_deeply_open_the_circuit_breaker(server: RoutingServer) -> None:
    async def deep(_: int) -> web.Response:
        return web.Response(text="[" * 100_000 + "]" * 100_000, content_type="application/json")

    server.mood = deep
    source = routing_service(
        server.url, retries=0, per_call=1, parallel=1, failures=3, cool_down="5min", keep_failed="10ms", **PATIENT
    )
    assert set(states(source.look_up(trips(*range(20))))) <= {State.FAILED, State.REFUSED}
    assert len(server.calls) == 3
    assert states(source.look_up(trips(60))) == [State.REFUSED]
    assert len(server.calls) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404])
def test_refusals_are_not_asked_again_and_redirections_not_followed(server: RoutingServer, status: int) -> None:
    async def refuses(_: int) -> web.Response:
        return web.Response(status=status, headers={"Location": server.url})

    server.mood = refuses
    source = routing_service(server.url, key=SecretStr("hush"), **PATIENT)
    assert states(source.look_up(trips(1))) == [State.FAILED]
    assert len(server.calls) == 1


def test_a_service_that_is_away_for_a_while(server: RoutingServer) -> None:
    source = routing_service(
        server.url, retries=1, failures=2, cool_down="100ms", keep_failed="10ms", patience="20s", timeout="2s"
    )
    asked_until_found(source, trips(1))
    server.stop()
    for number in range(20):  # batches go on: what is known is given, what is not goes without
        found = source.look_up(trips(1, 100 + number))
        assert found.values.get_column("final_stop").to_list() == ["S1", None]
        assert states(found)[1] in {State.FAILED, State.REFUSED}
    server.start()
    assert asked_until_found(source, trips(1, 119)).values.get_column("final_stop").to_list() == ["S1", "S119"]


def test_a_service_that_is_down_for_a_minute_is_hardly_asked_and_then_taken_up_again(server: RoutingServer) -> None:
    """With the default limits, and a clock of its own: a batch a second, each with a trip that nobody has asked for."""
    now = 1000.0
    calls: list[int] = []

    class Counting(_Client):
        async def call(self, keys: Any) -> Any:
            calls.append(len(keys))
            return await super().call(keys)

    source = routing_service(server.url, patience="20s")
    client = partial(Counting, source, trips(0).columns)
    asked = Service("final_stop", client, source.limits, Cache(None, kind="stops"), clock=lambda: now)
    try:
        (known,), went = asked.ask(trips(1).rows())
        assert (went, calls) == ([State.FOUND], [1])
        server.stop()
        calls.clear()
        seen: list[State] = []
        for second in range(60):
            now += 1
            answers, went = asked.ask(trips(1, 2 + second).rows())
            assert answers == [known, None]
            seen.append(went[1])
        # Two batches ask, three times and twice; then it is left alone but for one call after half a minute.
        assert [number for number, state in enumerate(seen) if state is State.FAILED] == [0, 1, 31]
        assert set(seen) == {State.FAILED, State.REFUSED}
        assert len(calls) == 3 + 2 + 1
        server.start()
        now += 30
        answers, went = asked.ask(trips(*range(2, 62)).rows()[:20])
        assert went == [State.FOUND] * 20
        answers, went = asked.ask(trips(*range(2, 62)).rows())
        assert went == [State.FOUND] * 60
        assert [answer[0] for answer in answers if answer] == [f"S{number}" for number in range(2, 62)]
    finally:
        asked.close()


def test_answers_survive_a_restart(server: RoutingServer, tmp_path: Path) -> None:
    cache = tmp_path / "deep" / "routing.sqlite"
    keys = pl.concat([trips(1, 2), trips(1, route="9")])
    routing_service(server.url, cache=cache, **PATIENT).look_up(keys)
    close_services()
    server.stop()
    again = routing_service(server.url, cache=cache, **PATIENT).look_up(keys)
    assert states(again) == [State.FOUND, State.FOUND, State.UNKNOWN]
    assert again.values.get_column("final_stop").to_list() == ["S1", "S2", None]


def test_answers_of_another_feed_are_not_taken_for_those_of_this_one(server: RoutingServer, tmp_path: Path) -> None:
    cache = tmp_path / "routing.sqlite"
    routing_service(server.url, cache=cache, **PATIENT).look_up(trips(1))
    other = routing_service(server.url, feed="tampere", cache=cache, **PATIENT).look_up(trips(1))
    assert states(other) == [State.UNKNOWN]
    assert len(server.calls) == 2


def test_an_answer_that_no_longer_holds_is_asked_for_again(server: RoutingServer) -> None:
    source = routing_service(server.url, keep="50ms", **PATIENT)
    source.look_up(trips(1))
    server.trips["HSL:1", 0, "2026-01-01", 6 * 3600 + 60] = ("HSL:moved", 60.3, 24.9)
    until(lambda: source.look_up(trips(1)).values.get_column("final_stop").to_list() == ["moved"])


def test_what_is_too_much_to_wait_for_is_refused(server: RoutingServer) -> None:
    wait = True

    async def slow(_: int) -> None:
        while wait:
            await asyncio.sleep(0.01)

    server.mood = slow
    source = routing_service(server.url, queue=30, patience="50ms", timeout="20s")
    assert states(source.look_up(trips(*range(50)))) == [State.UNANSWERED] * 30 + [State.REFUSED] * 20
    wait = False
    asked_until_found(source, trips(*range(30)))


def test_what_is_secret_is_sent_and_never_told(server: RoutingServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def fails(_: int) -> web.Response:
        return web.Response(status=500)

    server.mood = fails
    source = routing_service(server.url, key=SecretStr("hush"), retries=0, **PATIENT)
    stream = Stream.rows("trips", trips(0).schema).enrich(source, on=TRIP)
    source.look_up(trips(1))
    assert server.headers[0]["digitransit-subscription-key"] == "hush"
    for text in (caplog.text, repr(source), stream.explain(), str(stream)):
        assert "hush" not in text
    assert "127.0.0.1" in stream.explain()
    assert server.url not in caplog.text


def enriched(source: Http) -> Stream:
    return (
        Stream.rows("trips", {**trips(0).schema, "vehicle": pl.String})
        .watermark(bounded("0s"))
        .enrich(source, on=TRIP)
        .key_by("vehicle")
        .window(tumbling("1s"))
        .aggregate(reports=count(), known=count("final_stop"))
    )


def reports(second: int, *numbers: int) -> pl.DataFrame:
    at = pl.lit(second * 1_000_000, pl.Int64).cast(INSTANT)
    return trips(*numbers).with_columns(vehicle=pl.lit("v"), event_time=at)


def test_a_stream_goes_on_and_counts_whatever_the_service_does(server: RoutingServer) -> None:
    source = routing_service(
        server.url, retries=0, failures=2, cool_down="100ms", keep_failed="10ms", patience="20s", timeout="2s"
    )
    runner = Runner(enriched(source))
    batch = runner.step(reports(1, 1, 1, 2))
    assert batch.counts == {"final_stop.found": 3}
    server.stop()
    batch = runner.step(pl.concat([reports(2, 1, 3, 4), reports(2, 5).with_columns(route=pl.lit(None, pl.String))]))
    assert batch.counts == {"final_stop.found": 1, "final_stop.failed": 2, "final_stop.keyless": 1}
    server.start()
    asked_until_found(source, trips(3, 4))
    last = runner.step(reports(3, 3, 4))
    assert last.counts == {"final_stop.found": 2}
    results = pl.concat([batch.results, last.results, runner.finish().results]).sort("window_end")
    assert results.select("reports", "known").rows() == [(3, 3), (4, 1), (2, 2)]


def test_any_service_can_be_asked(server: RoutingServer) -> None:
    """A request with a path and a query instead of GraphQL."""
    seen: list[str] = []

    async def weather(_: int) -> web.Response:
        return web.json_response([{"degrees": -3.5}])

    server.mood = weather
    source = http(
        server.url,
        ask=lambda keys: Ask(
            path=f"/places/{len(keys)}", params={"place": ",".join(key["place"] for key in keys)}, json={"query": ""}
        ),
        read=lambda document, keys: seen.extend(key["place"] for key in keys) or document,
        gives={"degrees": pl.Float64},
        **PATIENT,
    )
    assert source.look_up(pl.DataFrame({"place": ["Kamppi"]})).values.rows() == [(-3.5,)]
    assert seen == ["Kamppi"]


def test_a_reader_that_gives_too_few_values_is_found_out(
    server: RoutingServer, caplog: pytest.LogCaptureFixture
) -> None:
    source = http(
        server.url,
        ask=lambda _: Ask(json={"query": "", "variables": {}}),
        read=lambda *_: [],
        gives={"x": pl.String},
        **PATIENT,
    )
    assert states(source.look_up(pl.DataFrame({"k": ["a"]}))) == [State.FAILED]
    assert "0 values were read for 1 keys" in caplog.text


def options(**changes: Any) -> dict[str, Any]:
    return {"url": "https://example.org", "ask": Ask, "read": read_final_stops, "gives": {"x": pl.String}, **changes}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://example.org"}, "no web address"),
        ({"url": "https://me:word@example.org"}, "holds a password"),
        ({"gives": {}}, "gives no column"),
        ({"gives": {"at": pl.Datetime()}}, "cannot be kept in a cache"),
        ({"parallel": 0}, "parallel is 0"),
        ({"timeout": "soon"}, "timeout"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        http(**options(**given))


def test_keys_that_cannot_be_written_down_are_refused() -> None:
    with pytest.raises(PlanError, match="key 'at' is Datetime"):
        Stream.rows("x", {"at": pl.Datetime()}).enrich(http(**options()), on="at")
