"""How a plan prints itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.stream.plan import Node


def explain(node: Node) -> str:
    """Show a plan from its sources to its result, one step a line."""
    return "\n".join(_lines(node))


def _lines(node: Node) -> list[str]:
    if len(node.inputs) == 1:
        return [*_lines(node.inputs[0]), f"  {node.text}"]
    lines = [node.text]
    for part in node.inputs:
        lines += [f"  {line}" for line in _lines(part)]
    return lines
