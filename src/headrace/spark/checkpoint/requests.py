"""Requests to a running query: files beside its checkpoint, which the query looks for between two batches.

Whoever asks writes `requests/<id>.json` and waits for `requests/<id>.done`. So only those who may write the checkpoint
can ask, and nothing listens on the network.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import StateError
from headrace.savepoints.durable_files import make_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DIRECTORY = "requests"


@dataclass(frozen=True)
class Request:
    """What a running query is asked for.

    Args:
        kind: A savepoint while it goes on, or to stop.
        place: Where to write the savepoint; None: to stop without one.
        name: What it is called.
        id: Names the request.
    """

    kind: Literal["savepoint", "stop"]
    place: str | None = None
    name: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def ask(
    checkpoint: Path, request: Request, *, alive: Callable[[], bool], patience: float, pause: float = 0.1
) -> dict[str, Any]:
    """Ask a running query and wait for its answer.

    Args:
        checkpoint: Its checkpoint.
        request: What it is asked for.
        alive: Tells whether it still runs.
        patience: Seconds to wait.
        pause: Seconds between two looks.

    Raises:
        StateError: It refused, ended without an answer, or did not answer in time.
    """
    directory = checkpoint / _DIRECTORY
    make_directory(directory)
    path, answer = directory / f"{request.id}.json", directory / f"{request.id}.done"
    write_durably(path, json.dumps(asdict(request)))
    until = time.monotonic() + patience
    try:
        while True:
            running = alive()
            if answer.exists():
                told: dict[str, Any] = json.loads(answer.read_text("utf-8"))
                if "problem" in told:
                    raise StateError(told["problem"], hint=str(told.get("hint") or ""))
                return told
            if not running:
                raise StateError(
                    f"the query of {checkpoint} ended before it answered", hint="Ask again: it is stopped now."
                )
            if time.monotonic() > until:
                raise StateError(
                    f"the query of {checkpoint} did not answer in {patience:g} s",
                    hint="It looks between two batches: wait for the one under way, or raise --timeout.",
                )
            time.sleep(pause)
    finally:
        path.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)


def pending(checkpoint: Path) -> list[Request]:
    """Read the requests that were not answered yet; one that cannot be read is answered with that."""
    found = []
    directory = checkpoint / _DIRECTORY
    if not directory.is_dir():
        return []
    for path in sorted(directory.glob("*.json")):
        if path.with_suffix(".done").exists():
            continue
        try:
            found.append(Request(**json.loads(path.read_text("utf-8"))))
        except FileNotFoundError:
            continue  # whoever asked has given up
        except (ValueError, TypeError) as problem:
            write_durably(path.with_suffix(".done"), json.dumps({"problem": f"{path} is no request: {problem}"}))
    return found


def answer(checkpoint: Path, request: Request, told: dict[str, Any]) -> None:
    """Answer a request."""
    write_durably(checkpoint / _DIRECTORY / f"{request.id}.done", json.dumps(told))


def forget(checkpoint: Path) -> None:
    """Forget the requests to an earlier run."""
    shutil.rmtree(checkpoint / _DIRECTORY, ignore_errors=True)
