"""The error of contract tests."""

from __future__ import annotations


class ContractError(AssertionError):
    """A part does not keep its contract."""


def must(kept: bool, what: str) -> None:
    """Raise a `ContractError` unless something is so.

    Args:
        kept: Whether it is.
        what: What is wrong if it is not.
    """
    if not kept:
        raise ContractError(what)
