"""Complex event processing: find patterns in the rows of each key, in event-time order.

One matcher (`program`, `matcher`, `threads`) with two front ends: the `Pattern` builder, and SQL's MATCH_RECOGNIZE in
`headrace.cep.sql`. Read `pattern` first, then follow a pattern through `compiler` and `threads` to `operator`.
"""

from headrace.cep.compiled import Compiled
from headrace.cep.compiler import compile_pattern
from headrace.cep.conditions import current, matched
from headrace.cep.pattern import Pattern
from headrace.cep.skip import Skip

__all__ = ["Pattern", "Skip", "matched", "current", "Compiled", "compile_pattern"]
