"""Updating streams in a plan: what stateless steps keep of them, and what refuses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import IS_RETRACTION
from headrace.errors import PlanError
from headrace.stream import plan
from headrace.stream.steps import WithColumns

if TYPE_CHECKING:
    from collections.abc import Collection


def refuse_updating(node: plan.Node, where: str, hint: str) -> None:
    """Refuse an updating stream before a step that could not take anything back.

    Args:
        node: What comes before the step.
        where: The step, in the user's words.
        hint: What to write instead.
    """
    if node.retracts:
        raise PlanError(f"{where} of an updating stream, whose rows may be taken back", hint=hint)


def kept_mark(node: plan.Node, chosen: Collection[str]) -> tuple[str, ...]:
    """Name the column that a projection keeps beside the chosen ones: that which says what is taken back."""
    return (IS_RETRACTION,) if node.retracts and IS_RETRACTION not in chosen else ()


def union_parts(nodes: tuple[plan.Node, ...]) -> tuple[plan.Node, ...]:
    """Let the parts of a union all be updating if one of them is."""
    if not any(node.retracts for node in nodes):
        return nodes
    return tuple(node if IS_RETRACTION in node.schema else as_additions(node) for node in nodes)


def as_additions(node: plan.Node) -> plan.Node:
    """Say of rows that stay that none of them takes one back."""
    step = WithColumns(((IS_RETRACTION, pl.lit(value=False)),))
    schema = pl.Schema({**node.schema, IS_RETRACTION: pl.Boolean()})
    return plan.Stateless(input=node, step=step, schema=schema, keys=node.keys)
