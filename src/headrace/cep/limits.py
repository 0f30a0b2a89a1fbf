"""How much one key may have under way, and what happens beyond it.

Every partial match is kept until it is complete or its time is over. A pattern that is too loose (any row, any number
of times, without a time bound) can have very many. To drop some changes the answer, so by default a key with too many
fails the job with a message that says what to change; a user who would rather go on can choose to give the oldest up,
which are then told as dismissed rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from headrace.errors import JobError, PlanError

#: What to do at a bound: fail the job, or give up what is oldest and go on.
AtLimit: TypeAlias = Literal["fail", "give_up"]

#: Partial matches that one key may have at once.
DEFAULT_MAX_PARTIAL: Final = 100_000


class MatchLimitError(JobError):
    """A pattern whose conditions depend on the match took more steps, or kept more partial matches, than allowed."""


class HeldRowsError(MatchLimitError):
    """The partial matches of many keys hold more rows in all than allowed."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Bound on the partial matches of one key.

    Args:
        partial: How many there may be at once.
        at_limit: What to do with one more.

    >>> Limit(0)
    Traceback (most recent call last):
    headrace.errors.PlanError: a limit of 0 partial matches. Give a number of at least 1.
    """

    partial: int = DEFAULT_MAX_PARTIAL
    at_limit: AtLimit = "fail"

    def __post_init__(self) -> None:
        if self.partial < 1:
            raise PlanError(f"a limit of {self.partial} partial matches", hint="Give a number of at least 1.")
        check_at_limit(self.at_limit)

    def exceeded(self, count: int) -> MatchLimitError:
        """The error for too many partial matches."""
        return MatchLimitError(
            f"one key has {count:,} partial matches at once, more than {self.partial:,}",
            hint="Bound the pattern with within(...), use followed_by instead of followed_by_any, or a skip; or raise "
            'the bound with limit(...), or give the oldest up: limit(..., at_limit="give_up").',
        )


def check_at_limit(at_limit: str) -> None:
    """Refuse what is no policy."""
    if at_limit not in get_args(AtLimit):
        raise PlanError(f"at_limit is {at_limit!r}", hint=f"Choose one of {', '.join(get_args(AtLimit))}.")
