"""What a visitor finds when things come and go: topics, Kafka, the page that was not built, the port that is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.dashboard.city import (
    CELL_TEXTS,
    CELLS,
    Hand,
    fresh,
    serving,
    until,
    vehicles_job,
    window_end,
)

from headrace.dashboard.pages import Pages
from headrace.dashboard.server import listen
from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import EnvironmentProblem
from headrace.kafka import Topics, TopicSpec

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dashboard.city import Served


pytestmark = pytest.mark.broker


def test_a_topic_that_appears_later_is_read(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("later"))

    def state(served: Served) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{served.url}/api/status").json()["jobs"][job.name]
        return found

    with serving(broker.connection, [job]) as served:
        until(lambda: state(served)["state"] == "missing", what="the topic to be missed")
        assert f"headrace run {job.name}" in state(served)["text"]
        Topics(broker.connection).ensure([TopicSpec(name=job.result_topic, partitions=2)])
        until(lambda: state(served)["state"] == "waiting", what="the topic to be found")
        hand = Hand(broker.connection, (job,))
        hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(5))
        until(lambda: state(served)["state"] == "live", what="results")
        hand.close()


def test_kafka_may_go_and_come_back(tmp_path: Path) -> None:
    job = vehicles_job(fresh("outage"))
    with EmbeddedBroker(ServerSettings(data_dir=tmp_path)) as broker:
        port = broker.port
        hand = Hand(broker.connection, (job,))
        hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(10))
        hand.close()
        connection = broker.connection
        stack = serving(connection, [job])
        served = stack.__enter__()
        try:
            until(lambda: served.dashboard.boards[job.name].entries()[1], what="results")
            broker.stop()
            gone = until(
                lambda: (answer := httpx.get(f"{served.url}/healthz")).status_code == 503 and answer, what="the loss"
            )
            assert gone.json()["status"] == "unavailable"
            assert connection.bootstrap not in gone.text
            assert "127.0.0.1" not in gone.text
            why = httpx.get(f"{served.url}/api/status").json()["broker"]
            assert (why["state"], "Cannot reach Kafka" in why["text"]) == ("gone", True)
            kafka = next(
                stage for stage in httpx.get(f"{served.url}/api/pipeline").json()["stages"] if stage["name"] == "kafka"
            )
            assert kafka["state"] == "error"
            with EmbeddedBroker(ServerSettings(data_dir=tmp_path, port=port)):
                hand = Hand(connection, (job,))
                hand.write(job, [{"cell": CELLS[1], "vehicles": 5}], end=window_end(12))
                until(
                    lambda: CELL_TEXTS[1] in {entry["key"] for entry in served.dashboard.boards[job.name].entries()[1]},
                    what="results after the return",
                )
                until(lambda: httpx.get(f"{served.url}/healthz").status_code == 200, what="health")
                hand.close()
        finally:
            stack.__exit__(None, None, None)


# -------------------------------------------------------------------- the page and the port


def test_a_page_that_has_not_been_built_says_how(broker: EmbeddedBroker, tmp_path: Path) -> None:
    job = vehicles_job(fresh("unbuilt"))
    with serving(broker.connection, [job], pages=Pages(tmp_path)) as served:
        answer = httpx.get(served.url)
        assert answer.status_code == 503
        assert "make frontend" in answer.text
        (tmp_path / "assets").mkdir()
        (tmp_path / "index.html").write_text("<!doctype html><title>built</title>")
        (tmp_path / "assets" / "app.js").write_text("1")
        built = httpx.get(served.url)
        assert (built.status_code, built.headers["cache-control"]) == (200, "no-cache")
        asset = httpx.get(served.url + "/assets/app.js")
        assert "immutable" in asset.headers["cache-control"]
        assert asset.headers["content-type"].startswith("text/javascript")


def test_a_taken_port_means_the_next_one_unless_it_was_asked_for() -> None:
    first = listen("127.0.0.1", 0, insist=True)
    port = first.getsockname()[1]
    with pytest.raises(EnvironmentProblem, match=f"Port {port} for the dashboard is taken"):
        listen("127.0.0.1", port, insist=True)
    second = listen("127.0.0.1", port, insist=False)
    assert second.getsockname()[1] > port
    first.close()
    second.close()
