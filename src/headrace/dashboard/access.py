"""Who may ask: the gate in front of everything, and the headers that every answer carries.

- **Address.** On a loopback address anybody on this machine may look. On any other address the dashboard does not start
  without a token or a reverse proxy that has checked the user and says so in a header.
- **Host.** On a loopback address only loopback names are accepted as `Host`, so that a foreign page cannot reach us by
  pointing a name of its own at 127.0.0.1. Further names come with `origins`.
- **Origin.** A request that a browser sends on behalf of another site is refused, websockets included. There are no
  CORS headers except for the origins that are listed.
- **Content.** The policy lets the page load its own files and nothing else; no inline script, no frame, no other host
  (save that of an online map style, if one is set).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "headrace_token"
MIN_TOKEN = 16
#: Query fields of a request, at most.
_MOST_FIELDS = 50
_OPEN_PATHS = frozenset({"/healthz"})
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Headrace</title><body><h1>A token is needed</h1>
<p>Open this page with the token that the dashboard was started with: <code>/?token=...</code></p></body></html>"""


def is_loopback(host: str) -> bool:
    """Whether an address or name means this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask.

    Args:
        host: The address that is listened on.
        token: What has to be shown; None: nothing.
        proxy_header: The header in which a reverse proxy names the user it has let in.
        proxies: The addresses that this header is believed from.
        origins: Further origins that may ask, such as "https://map.example.org".
        style: The URL of an online map style, whose host the page may load from.

    Raises:
        ConfigError: The address can be reached from elsewhere, and nothing guards it.
    """

    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    proxy_header: str = ""
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    origins: tuple[str, ...] = ()
    style: str = ""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise ConfigError(
                f"The dashboard's token has {len(self.token)} characters",
                hint=f"Give at least {MIN_TOKEN}: python3 -c 'import secrets; print(secrets.token_urlsafe())'.",
            )
        if not is_loopback(self.host) and not self.guarded:
            raise ConfigError(
                f"The dashboard would be open to everybody who can reach {self.host}",
                hint="Set a token (HEADRACE_DASHBOARD__TOKEN), or dashboard.proxy_header behind a reverse proxy, or "
                "listen on 127.0.0.1.",
            )

    @property
    def guarded(self) -> bool:
        """Whether a visitor has to show something."""
        return self.token is not None or bool(self.proxy_header)

    @property
    def cookie(self) -> str:
        """What the browser keeps in place of the token."""
        return hmac.new((self.token or "").encode(), b"headrace dashboard", hashlib.sha256).hexdigest()

    def content_policy(self) -> str:
        """The Content-Security-Policy of every answer."""
        style = urlsplit(self.style)
        elsewhere = f" {style.scheme}://{style.netloc}" if style.scheme in ("http", "https") and style.netloc else ""
        return "; ".join(
            [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                f"img-src 'self' data: blob:{elsewhere}",
                f"font-src 'self'{elsewhere}",
                f"connect-src 'self'{elsewhere}",
                "worker-src 'self'",
                "manifest-src 'self'",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
                "object-src 'none'",
            ]
        )


class Refused(Exception):  # noqa: N818 - it is an answer, not an error of the program
    """A request is not let in.

    Args:
        status: The HTTP status.
        text: Why, and what to do.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Gate:
    """The ASGI application in front of the others.

    Args:
        app: What lies behind it.
        access: Who may ask.
        let_in: Is told of each request that has shown that it may ask.
    """

    def __init__(self, app: App, access: Access, *, let_in: Callable[[Scope], None] | None = None) -> None:
        self._app = app
        self._access = access
        self._let_in = let_in
        self._headers = [
            (b"content-security-policy", access.content_policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-frame-options", b"DENY"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or not."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        asked = _Asked(scope)
        guarded_send = self._with_headers(send, asked)
        try:
            self._check_host(asked)
            self._check_origin(asked)
            if asked.method == "OPTIONS" and asked.origin in self._access.origins:
                await _answer(guarded_send, 204, b"", [])
                return
            if await self._let_in_by_address(asked, guarded_send):
                return
            self._check_token(asked)
            if asked.query is None:
                raise Refused(400, f"The address has more than {_MOST_FIELDS} query fields.")
        except Refused as refusal:
            await self._refuse(refusal, scope, receive, guarded_send, asked)
            return
        if self._let_in is not None and (not self._access.guarded or asked.path not in _OPEN_PATHS):
            self._let_in(scope)
        await self._app(scope, receive, guarded_send)

    # ---------------------------------------------------------------- checks

    def _check_host(self, asked: _Asked) -> None:
        match = _HOST.fullmatch(asked.header("host"))
        allowed = {urlsplit(origin).netloc for origin in self._access.origins}
        if match is None:
            raise Refused(400, "The request's Host header is missing or malformed.")
        if is_loopback(self._access.host) and not is_loopback(match["name"]) and asked.header("host") not in allowed:
            raise Refused(
                403, "This dashboard listens on a loopback address only. Add other names to dashboard.origins."
            )

    def _check_origin(self, asked: _Asked) -> None:
        if asked.origin:
            same = {f"{scheme}://{asked.header('host')}" for scheme in ("http", "https")}
            if asked.origin not in same and asked.origin not in self._access.origins:
                raise Refused(403, "Pages of other origins may not ask here. Add theirs to dashboard.origins.")
        elif asked.header("sec-fetch-site") == "cross-site" and asked.header("sec-fetch-mode") != "navigate":
            # No-cors requests (an image, a script tag) carry no Origin.
            raise Refused(403, "Pages of other sites may not load anything from here.")

    async def _let_in_by_address(self, asked: _Asked, send: Send) -> bool:
        """Turn `/?token=...` into a cookie, so that the token stays neither in the address bar nor in the history."""
        given = dict(asked.query or ()).get("token")
        if given is None or asked.method != "GET" or asked.path.startswith(("/api", "/socket.io")):
            return False
        if self._access.token is None or not _same(given, self._access.token):
            return False
        rest = urlencode([pair for pair in asked.query or () if pair[0] != "token"])
        place = asked.path + (f"?{rest}" if rest else "")
        # Two slashes at the front would be another host.
        location = "/" + place.lstrip("/")
        forwarded = asked.header("x-forwarded-proto") if asked.client in self._access.proxies else ""
        secure = "; Secure" if "https" in (asked.scheme, forwarded) else ""
        cookie = f"{COOKIE}={self._access.cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"
        await _answer(send, 303, b"", [(b"location", location.encode()), (b"set-cookie", cookie.encode())])
        return True

    def _check_token(self, asked: _Asked) -> None:
        access = self._access
        if not access.guarded or asked.path in _OPEN_PATHS:
            return
        if access.proxy_header and asked.client in access.proxies and asked.header(access.proxy_header.lower()):
            return
        if access.token is not None:
            kind, _, given = asked.header("authorization").partition(" ")
            if kind.lower() == "bearer" and _same(given.strip(), access.token):
                return
            if _same(asked.cookie(COOKIE), access.cookie):
                return
            raise Refused(401, "A token is needed: the header 'Authorization: Bearer ...', or open /?token=... once.")
        raise Refused(401, "Come through the reverse proxy: it has to say who you are.")

    # ---------------------------------------------------------------- answers

    def _with_headers(self, send: Send, asked: _Asked) -> Send:
        more = list(self._headers)
        if asked.origin in self._access.origins:
            more += [
                (b"access-control-allow-origin", asked.origin.encode()),
                (b"access-control-allow-headers", b"authorization"),
                (b"access-control-allow-methods", b"GET, POST"),
                (b"cross-origin-resource-policy", b"cross-origin"),
                (b"vary", b"Origin"),
            ]
        else:
            more.append((b"cross-origin-resource-policy", b"same-origin"))

        async def with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                ours = {name for name, _ in more} - {b"vary"}
                kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in ours]
                message = {**message, "headers": [*kept, *more]}
            await send(message)

        return with_headers

    async def _refuse(self, refusal: Refused, scope: Scope, receive: Receive, send: Send, asked: _Asked) -> None:
        body, kind = json.dumps({"detail": refusal.text}).encode(), b"application/json"
        if refusal.status == 401 and "text/html" in asked.header("accept"):
            body, kind = _PAGE, b"text/html; charset=utf-8"
        headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if scope["type"] == "http":
            await _answer(send, refusal.status, body, headers)
        else:
            await receive()  # websocket.connect
            await _answer(send, refusal.status, body, headers, kind="websocket.http.response")


class _Asked:
    """The parts of a request that are looked at."""

    def __init__(self, scope: Scope) -> None:
        self._headers: dict[str, str] = {}
        for name, value in scope.get("headers", ()):
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        self.method: str = scope.get("method", "GET")
        self.path: str = scope.get("path", "/")
        self.scheme: str = scope.get("scheme", "http")
        self.query = _query(scope.get("query_string", b""))
        client = scope.get("client")
        self.client: str = client[0] if client else ""
        self.origin = self.header("origin")

    def header(self, name: str) -> str:
        return self._headers.get(name, "")

    def cookie(self, name: str) -> str:
        try:
            held = SimpleCookie(self.header("cookie")).get(name)
        except CookieError:
            return ""
        return "" if held is None else held.value


def _query(text: bytes) -> list[tuple[str, str]] | None:
    """The fields of a query; None if there are too many."""
    try:
        return parse_qsl(text.decode("latin-1"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


async def _answer(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]], *, kind: str = "http.response"
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": f"{kind}.start", "status": status, "headers": [*headers, length]})
    await send({"type": f"{kind}.body", "body": body})
