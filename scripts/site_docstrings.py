"""An extension of griffe: the doctests of docstrings become blocks of code in the reference of the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    r"""Put a fence around each doctest.

    >>> fenced("Add.\n\n>>> 1 + 1\n2\n\nMore.")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.'
    """
    return _DOCTEST.sub(lambda doctest: f"```pycon\n{doctest[0]}\n```", docstring)


class FencedDoctests(griffe.Extension):
    """Fences the doctests of every object before its docstring is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that has one."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
