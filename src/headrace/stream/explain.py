"""How a plan prints itself."""

from __future__ import annotations

from headrace.stream import plan
from headrace.time.duration import text


def explain(node: plan.Node) -> str:
    """Show a plan from its sources to its result, one step a line."""
    return "\n".join(_lines(node))


def _lines(node: plan.Node) -> list[str]:
    if isinstance(node, plan.Read):
        return [node.source.text]
    if isinstance(node, plan.Union):
        lines = ["union of"]
        for part in node.inputs:
            lines += [f"  {line}" for line in _lines(part)]
        return lines
    return [*_lines(node.input), f"  {_describe(node)}"]


def _describe(
    node: plan.Watermark | plan.Stateless | plan.KeyBy | plan.Window | plan.Aggregated | plan.Matched | plan.Processed,
) -> str:
    if isinstance(node, plan.Watermark):
        idle = f", idle after {text(node.idle_after)}" if node.idle_after is not None else ""
        return f"watermark {node.strategy.describe()}{idle}"
    if isinstance(node, plan.Stateless):
        return node.step.text
    if isinstance(node, plan.KeyBy):
        return f"key_by {', '.join(node.keys)}"
    if isinstance(node, plan.Window):
        parts = [f"window {node.assigner.describe()}"]
        if node.trigger is not None:
            parts.append(f"trigger {node.trigger.describe()}")
        if node.mode != "value":
            parts.append(f"mode {node.mode}")
        if node.allowed_lateness:
            parts.append(f"allowed lateness {text(node.allowed_lateness)}")
        return ", ".join(parts)
    return node.text
