"""One connection of a subscriber to an MQTT broker: a socket, and what `mqtt_wire` makes of its bytes.

There is no thread. Whoever owns the link asks it to read, and it reads what is there; while nobody asks, the broker's
messages wait in the network and then at the broker.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING

from headrace.ingest import mqtt_wire as wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.ingest.message import RawMessage

_CHUNK = 1 << 18


class LinkLostError(ConnectionError):
    """The connection is gone; the message says why."""


class Link:
    """A connection to a broker.

    Args:
        address: Host and port.
        version: Of the protocol.
        tls: How to encrypt; None: not at all.
        timeout: Seconds within which the broker must take what we send, and answer.
        limit: Payloads are cut to so many bytes.
        make: Makes a message of topic and payload.

    Raises:
        OSError: The broker cannot be reached.
    """

    def __init__(
        self,
        address: tuple[str, int],
        version: wire.Version,
        *,
        tls: ssl.SSLContext | None,
        timeout: float,
        limit: int,
        make: Callable[[str, bytes], RawMessage],
    ) -> None:
        self.parser = wire.Parser(version, limit, make)
        self.keepalive = 0
        self._timeout = timeout
        plain = socket.create_connection(address, timeout=timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0])
        except BaseException:
            plain.close()
            raise
        self._socket.setblocking(False)
        self._heard = self._sent = time.monotonic()

    def send(self, content: bytes) -> None:
        """Send all of it.

        Raises:
            LinkLostError: The broker is gone, or takes nothing for longer than the time-out.
        """
        view = memoryview(content)
        deadline = time.monotonic() + self._timeout
        while view:
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                if not self._ready(write=True, until=deadline):
                    raise LinkLostError(f"the broker takes nothing for {self._timeout:g} s") from None
            except ssl.SSLWantReadError:
                self._ready(write=False, until=deadline)
            except OSError as error:
                raise LinkLostError(error.strerror or str(error)) from error
        self._sent = time.monotonic()

    def read(self, wait: float) -> bool:
        """Read a chunk of what is there.

        Args:
            wait: Seconds to wait for it.

        Returns:
            Whether something came.

        Raises:
            LinkLostError: The broker is gone, or has not been heard of for too long.
        """
        now = time.monotonic()
        self._stay_alive(now)
        chunk = self._receive()
        if chunk is None:
            if wait <= 0 or not self._ready(write=False, until=now + wait):
                return False
            chunk = self._receive()
            if chunk is None:
                return False
        if not chunk:
            raise LinkLostError("the broker has closed the connection")
        self._heard = time.monotonic()
        try:
            self.parser.feed(chunk)
        except wire.ProtocolError as error:
            raise LinkLostError(f"the broker speaks no MQTT: {error}") from error
        return True

    def _receive(self) -> bytes | None:
        """What is there, b"" at the end, or None if nothing is there now."""
        try:
            return self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise LinkLostError(error.strerror or str(error)) from error

    def _ready(self, *, write: bool, until: float) -> bool:
        # `select` knows no sockets beyond 1,023.
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT if write else select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    def _stay_alive(self, now: float) -> None:
        if not self.keepalive:
            return
        if now - self._heard > self.keepalive * 1.5 + self._timeout:
            raise LinkLostError(f"the broker is silent for {now - self._heard:.0f} s")
        # A broker that sends all the time still wants to hear from us.
        if now - self._sent >= self.keepalive or now - self._heard >= self.keepalive:
            self.send(wire.PING)

    def close(self, farewell: bytes = b"") -> None:
        """Leave."""
        with contextlib.suppress(OSError):
            if farewell:
                self.send(farewell)
        self._socket.close()
