"""TCP ports of this machine: finding a free one, and who has a taken one."""

from __future__ import annotations

import contextlib
import errno
import socket

import psutil

from headrace.errors import EnvironmentProblem

HOST = "127.0.0.1"


def free_port() -> int:
    """A port on 127.0.0.1 that is free now.

    >>> 0 < free_port() < 65536
    True
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int, *, timeout: float = 1.0) -> bool:
    """Whether something on 127.0.0.1 accepts connections at a port."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout):
            return True
    except OSError:
        return False


def check_port(port: int, *, purpose: str) -> None:
    """See that a port can be listened on.

    Args:
        port: The port on 127.0.0.1.
        purpose: What it is for, for the message: "the broker".

    Raises:
        EnvironmentProblem: It is taken (by whom, if that can be seen) or forbidden.
    """
    with socket.socket() as probe:
        # A port whose last connections are still in TIME_WAIT is free for a server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                owner = port_owner(port)
                raise EnvironmentProblem(
                    f"Port {port} for {purpose} is taken" + (f" by {owner}" if owner else ""),
                    hint="Stop that process, or choose another port.",
                ) from error
            raise EnvironmentProblem(
                f"Port {port} for {purpose} cannot be used: {error.strerror}",
                hint="Choose another port; those below 1024 need rights.",
            ) from error


def port_owner(port: int) -> str:
    """Who listens on a port, such as "java (process 4711)"; empty if that cannot be seen."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,) and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return ""
