"""How long work says what it is doing.

Resolving jars and starting a broker take seconds. They report to a `Progress`, a plain callable, so that this layer
needs no terminal library: the command line draws a bar, a test collects the messages, a notebook ignores them.
"""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done now, and how much of it is done if that is known."""

    def __call__(self, message: str, /, *, done: int = 0, total: int = 0) -> None:
        """Take note of a step.

        Args:
            message: What is being done, in the present tense and without a full stop.
            done: How much is done (bytes, files), 0 if unknown.
            total: How much there is to do, 0 if unknown.
        """


def silent(_message: str, /, *, done: int = 0, total: int = 0) -> None:
    """A `Progress` that ignores everything; the default everywhere."""
