"""A bound on the state of a job, and what happens beyond it.

State grows with the keys that a job has to remember. A key that never comes again (a number that was typed wrong, an
identifier with a random part) stays for as long as the job says, which may be for ever, and in the end the machine has
no room. With a bound the job stops before that, alone, and says which step keeps how much.

The keys of a job are spread evenly over its key groups, so each group may keep its share of the bound. Nobody has to
count all groups together, and the answer is the same wherever the job runs with so many groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.errors import JobError, PlanError

#: What a turn counts of the state that a step keeps.
STATE_BYTES: Final = "state.bytes"
STATE_KEYS: Final = "state.keys"

#: From this part of the bound on, a warning is given.
WARN_FROM: Final = 0.8


class StateLimitError(JobError):
    """A job keeps more state than it may."""


@dataclass(frozen=True)
class StateLimit:
    """How much state each stateful step of a job may keep.

    Args:
        keys: Keys with state; None for no bound.
        size: Bytes of state before compression; None for no bound.

    >>> StateLimit(keys=1_000_000, size=2**30).share(4)
    StateLimit(keys=250000, size=268435456)
    >>> StateLimit(keys=0)
    Traceback (most recent call last):
    headrace.errors.PlanError: a bound of 0 on the keys of the state. Give a number of at least 1, or None.
    """

    keys: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for what, bound in (("keys", self.keys), ("bytes", self.size)):
            if bound is not None and bound < 1:
                raise PlanError(
                    f"a bound of {bound} on the {what} of the state", hint="Give a number of at least 1, or None."
                )

    def share(self, groups: int) -> StateLimit:
        """Give the bound of one of so many key groups."""
        return StateLimit(*(None if bound is None else max(1, -(-bound // groups)) for bound in (self.keys, self.size)))

    def nearly(self, keys: int | None, size: int) -> str | None:
        """Say what is close to the bound; None if nothing is.

        >>> StateLimit(keys=100).nearly(80, 5_000), StateLimit(keys=100).nearly(79, 5_000)
        ('80 of 100 keys', None)
        """
        for what, have, bound in (("keys", keys, self.keys), ("bytes of state", size, self.size)):
            if bound is not None and have is not None and have >= WARN_FROM * bound:
                return f"{have:,} of {bound:,} {what}"
        return None

    def check(self, step: str, keys: int | None, size: int) -> None:
        """Refuse more than the bound.

        Args:
            step: Names the step that keeps the state.
            keys: How many keys it keeps; None if it does not count them.
            size: How many bytes.

        Raises:
            StateLimitError: It is more than it may be.
        """
        for what, setting, have, bound in (
            ("keys", "max_state_keys", keys, self.keys),
            ("bytes of state", "max_state_bytes", size, self.size),
        ):
            if bound is not None and have is not None and have > bound:
                other = f"{size:,} bytes" if what == "keys" else ("" if keys is None else f"{keys:,} keys")
                raise StateLimitError(
                    f"{step} keeps {have:,} {what}{f' ({other})' if other else ''} in one key group, which may have "
                    f"{bound:,}: its share of spark.{setting}",
                    hint=f"Raise spark.{setting}, or let the job keep less: shorter windows, allowed lateness or "
                    "within(...), or fewer keys. On Spark its state stays as it was before this batch; it goes on "
                    "from there when it is started again.",
                )
