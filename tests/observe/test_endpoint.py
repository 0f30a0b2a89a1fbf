"""The endpoint for metrics and health: what it answers, to whom, and what a bad client cannot do."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from headrace.errors import EnvironmentProblem
from headrace.ingest.metrics import IngestMetrics
from headrace.observe.metrics import Condition, MetricsEndpoint


class Sick:
    def alive(self) -> Condition:
        return Condition(True, "restarting")

    def ready(self) -> Condition:
        return Condition(False, "restarting")


def get(endpoint: MetricsEndpoint, path: str, **headers: str) -> httpx.Response:
    return httpx.get(endpoint.url.replace("/metrics", path), headers=headers, timeout=10)


def test_health_and_readiness_are_codes() -> None:
    with MetricsEndpoint(0, monitored=Sick()) as endpoint:
        answers = {path: get(endpoint, path) for path in ("/healthz", "/readyz", "/readyz?x=1", "/other")}
    assert {path: answer.status_code for path, answer in answers.items()} == {
        "/healthz": 200, "/readyz": 503, "/readyz?x=1": 503, "/other": 404,
    }  # fmt: skip
    assert answers["/readyz"].json() == {"ok": False, "status": "restarting"}


def test_both_formats_are_spoken() -> None:
    with MetricsEndpoint(0, IngestMetrics(["a"])) as endpoint:
        plain = get(endpoint, "/metrics")
        openmetrics = get(endpoint, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        head = httpx.head(endpoint.url, timeout=10)
    assert 'headrace_ingest_restarts_total{feed="a"} 0.0' in plain.text
    assert openmetrics.text.endswith("# EOF\n")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert (head.status_code, head.text) == (200, "")


def test_it_listens_on_loopback_unless_told() -> None:
    with MetricsEndpoint(0) as endpoint:
        assert urlsplit(endpoint.url).hostname == "127.0.0.1"
    with pytest.raises(EnvironmentProblem, match=r"on port 0 of 203\.0\.113\.1"):
        MetricsEndpoint(0, host="203.0.113.1")


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:9400", 200),
        ("localhost", 200),
        ("localhost:1", 200),
        ("[::1]:9400", 200),
        ("evil.example:9400", 403),
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(host: str, code: int) -> None:
    with MetricsEndpoint(0) as endpoint:
        assert get(endpoint, "/metrics", Host=host).status_code == code
    with MetricsEndpoint(0, host="0.0.0.0") as endpoint:  # noqa: S104 - others may ask by any name
        url = endpoint.url.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert httpx.get(url, headers={"Host": host}, timeout=10).status_code == 200


def test_silent_clients_do_not_keep_others_out_for_ever() -> None:
    """More are turned away at once than are served; those who are turned away see a closed connection."""
    with MetricsEndpoint(0) as endpoint:
        where = urlsplit(endpoint.url)
        address = (str(where.hostname), int(where.port or 0))
        silent = [socket.create_connection(address, timeout=10) for _ in range(8)]
        try:
            with socket.create_connection(address, timeout=10) as late:
                assert late.recv(1) == b""
        finally:
            for each in silent:
                each.close()
        # Those have gone; the place is free as soon as their threads have seen it.
        for _ in range(200):
            try:
                assert get(endpoint, "/healthz").status_code == 200
                break
            except httpx.TransportError:
                continue
        else:
            pytest.fail("nobody is served any more")


def test_ingestion_is_ready_when_its_feeds_are_connected() -> None:
    metrics = IngestMetrics(["a"])
    with MetricsEndpoint(0, metrics, monitored=metrics) as endpoint:
        assert get(endpoint, "/healthz").status_code == 200
        assert get(endpoint, "/readyz").json() == {"ok": False, "status": "not connected"}
