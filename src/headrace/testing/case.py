"""What came of running one conformance case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CaseResult:
    """What came of running one conformance case.

    Args:
        id: The case.
        status: Whether it gave what was expected; "unsupported" if it was not run.
        expected: What the case states.
        got: What came out.
        reason: Why it failed or was not run.
    """

    id: str
    status: Literal["pass", "fail", "unsupported"]
    expected: object
    got: object
    reason: str
