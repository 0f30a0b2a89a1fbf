"""A circuit breaker: who has failed several times in a row is left alone for a while.

Closed, calls pass. After `failures` failures in a row it opens: calls are refused for `cool_down`. Then it is half
open: one call passes as a probe, and its outcome closes the breaker or opens it again.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable


class Breaker:
    """Refuses calls to somebody who fails.

    Args:
        failures: So many in a row open it.
        cool_down: Seconds for which it is open.
        clock: Seconds, for tests.

    >>> now = 0.0
    >>> breaker = Breaker(failures=2, cool_down=30, clock=lambda: now)
    >>> breaker.failed(), breaker.failed(), breaker.allows()
    (False, True, False)
    >>> now = 31.0
    >>> breaker.allows(), breaker.allows()  # one probe, and no second one before its outcome is known
    (True, False)
    >>> breaker.succeeded(); breaker.state
    'closed'
    """

    def __init__(
        self, *, failures: int = 5, cool_down: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures = failures
        self._cool_down = cool_down
        self._clock = clock
        self._lock = threading.Lock()
        self._row = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        """What it does with the next call."""
        with self._lock:
            if self._open_until is None:
                return "closed"
            return "open" if self._clock() < self._open_until else "half_open"

    def allows(self) -> bool:
        """Tell whether a call may be made now; whoever is told so must say how it went."""
        with self._lock:
            if self._open_until is None:
                return True
            if self._clock() < self._open_until or self._probing:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        """Say that a call went well."""
        with self._lock:
            self._row, self._open_until, self._probing = 0, None, False

    def failed(self, *, rest: float = 0.0) -> bool:
        """Say that a call failed; tells whether that opened the breaker.

        Args:
            rest: Stay away for at least so many seconds: the other side asked for it.
        """
        with self._lock:
            self._row += 1
            was_open = self._open_until is not None
            if not (self._probing or self._row >= self._failures or rest > 0):
                return False
            pause = rest if rest > 0 else self._cool_down
            self._open_until = max(self._open_until or 0.0, self._clock() + pause)
            self._probing = False
            return not was_open

    def forgot(self) -> None:
        """Say that an allowed call was never made."""
        with self._lock:
            self._probing = False
