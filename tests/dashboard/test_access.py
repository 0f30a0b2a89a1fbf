"""The gate: who is let in, who is not, and what every answer carries."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from headrace.dashboard.access import COOKIE, Access, Gate
from headrace.errors import ConfigError

TOKEN = "a-token-of-some-length"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is only asked whether that would be allowed


async def behind(scope: Any, receive: Any, send: Any) -> None:
    """What lies behind the gate."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(
    access: Access,
    path: str = "/api/jobs",
    *,
    host: str = "127.0.0.1:8080",
    client: str = "127.0.0.1",
    method: str = "GET",
    **headers: str,
) -> httpx.Response:
    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(Gate(behind, access), client=(client, 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            return await http.request(method, path, headers={"Host": host, **given})

    return asyncio.run(request())


# -------------------------------------------------------------------- the address


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.168.1.4", "example.org"])
def test_other_addresses_demand_a_guard(host: str) -> None:
    with pytest.raises(ConfigError, match="open to everybody") as caught:
        Access(host=host)
    assert "HEADRACE_DASHBOARD__TOKEN" in caught.value.hint
    Access(host=host, token=TOKEN)
    Access(host=host, proxy_header="X-Forwarded-User")


def test_a_short_token_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="has 5 characters") as caught:
        Access(token="short")
    assert "short" not in str(caught.value)
    assert TOKEN not in repr(Access(token=TOKEN))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("map.example.org", 200),
        ("", 400),
        ("a b", 400),
    ],
)
def test_a_loopback_dashboard_answers_to_loopback_names(host: str, status: int) -> None:
    assert ask(Access(origins=("https://map.example.org",)), host=host).status_code == status


# -------------------------------------------------------------------- the origin


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", 200),
        ("https://map.example.org", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://localhost:8080", 403),
        ("https://evil.example", 403),
        ("https://map.example.org.evil.example", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_origins_are_refused(origin: str, status: int) -> None:
    answer = ask(Access(origins=("https://map.example.org",)), Origin=origin)
    assert answer.status_code == status
    allowed = origin if origin == "https://map.example.org" else None
    assert answer.headers.get("access-control-allow-origin") == allowed


def test_a_script_tag_on_another_site_is_refused_and_a_link_is_not() -> None:
    loaded = ask(Access(), sec_fetch_site="cross-site", sec_fetch_mode="no-cors")
    assert loaded.status_code == 403
    assert ask(Access(), "/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status_code == 200


def test_a_preflight_is_answered_for_listed_origins_only() -> None:
    access = Access(origins=("https://map.example.org",), token=TOKEN)
    assert ask(access, method="OPTIONS", Origin="https://map.example.org").status_code == 204
    assert ask(access, method="OPTIONS", Origin="https://evil.example").status_code == 403


# -------------------------------------------------------------------- the token


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({"Authorization": f"bearer {TOKEN}"}, 200),
        ({"Authorization": f"Bearer {TOKEN}x"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Cookie": f"{COOKIE}={Access(token=TOKEN).cookie}"}, 200),
        ({"Cookie": f"{COOKIE}={TOKEN}"}, 401),
        ({"Cookie": f"{COOKIE}=\x7f"}, 401),
        ({"X-Forwarded-User": "eve"}, 401),
        ({}, 401),
    ],
)
def test_the_token(headers: dict[str, str], status: int) -> None:
    answer = ask(Access(host=EVERYWHERE, token=TOKEN), host="map.example.org", **headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text


def test_health_needs_no_token() -> None:
    assert ask(Access(token=TOKEN), "/healthz").status_code == 200
    assert ask(Access(token=TOKEN), "/metrics").status_code == 401


def test_the_address_is_turned_into_a_cookie() -> None:
    access = Access(token=TOKEN)
    answer = ask(access, f"/?token={TOKEN}&page=map")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?page=map")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    name_and_value = cookie.partition(";")[0]
    assert ask(access, Cookie=name_and_value).status_code == 200


@pytest.mark.parametrize(("client", "secure"), [("127.0.0.1", True), ("10.0.0.9", False)])
def test_the_cookie_is_for_tls_only_where_a_proxy_says_so(client: str, secure: bool) -> None:
    answer = ask(Access(token=TOKEN), f"/?token={TOKEN}", client=client, X_Forwarded_Proto="https")
    assert ("; Secure" in answer.headers["set-cookie"]) == secure


@pytest.mark.parametrize("path", ["/?token=wrong", "/api/jobs?token=" + TOKEN, "/socket.io/?token=" + TOKEN])
def test_other_addresses_do_not_let_in(path: str) -> None:
    assert ask(Access(token=TOKEN), path).status_code == 401


def test_the_way_on_stays_here() -> None:
    answer = ask(Access(token=TOKEN), f"/%2Fevil.example/?token={TOKEN}")
    assert answer.headers["location"].startswith("/evil.example")


def test_a_page_that_needs_a_token_says_so() -> None:
    answer = ask(Access(token=TOKEN), "/", Accept="text/html")
    assert answer.status_code == 401
    assert "A token is needed" in answer.text


@pytest.mark.parametrize(
    ("client", "user", "status"), [("10.0.0.7", "alice", 200), ("10.0.0.8", "alice", 401), ("10.0.0.7", "", 401)]
)
def test_a_reverse_proxy_is_believed_by_its_address(client: str, user: str, status: int) -> None:
    access = Access(host=EVERYWHERE, proxy_header="X-Forwarded-User", proxies=("10.0.0.7",))
    assert ask(access, client=client, X_Forwarded_User=user).status_code == status


# -------------------------------------------------------------------- headers


def test_every_answer_carries_the_policy() -> None:
    for answer in (ask(Access()), ask(Access(), host="evil.example")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_an_online_style_opens_its_own_host_and_no_other() -> None:
    policy = Access(style="https://tiles.example.org/style.json").content_policy()
    assert "connect-src 'self' https://tiles.example.org;" in policy
    assert "script-src 'self';" in policy


# -------------------------------------------------------------------- odd requests


@pytest.mark.parametrize("path", ["/api/jobs", "/", "/healthz", "/socket.io/"])
def test_too_many_query_fields_are_refused_cleanly(path: str) -> None:
    crowded = f"{path}?" + "&".join(f"a{n}=1" for n in range(60))
    strange = ask(Access(token=TOKEN), crowded)
    assert strange.status_code == (400 if path == "/healthz" else 401)
    known = ask(Access(token=TOKEN), crowded, Authorization=f"Bearer {TOKEN}")
    assert (known.status_code, known.json()) == (400, {"detail": "The address has more than 50 query fields."})
    assert ask(Access(), crowded).status_code == 400
    assert ask(Access(token=TOKEN), f"{crowded}&token={TOKEN}").status_code == strange.status_code


def test_only_a_request_that_may_ask_lets_its_connection_in() -> None:
    told: list[str] = []

    async def request(path: str, **headers: str) -> None:
        gate = Gate(behind, Access(token=TOKEN), let_in=lambda scope: told.append(scope["path"]))
        transport = httpx.ASGITransport(gate, client=("127.0.0.1", 50000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
            await http.get(path, headers=headers)

    asyncio.run(request("/api/jobs"))
    asyncio.run(request("/healthz"))
    assert told == []
    asyncio.run(request("/api/jobs", Authorization=f"Bearer {TOKEN}"))
    assert told == ["/api/jobs"]
