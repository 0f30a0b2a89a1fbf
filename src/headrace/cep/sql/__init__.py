"""SQL:2016 row pattern recognition: MATCH_RECOGNIZE over frames.

`query` runs a whole SELECT; `plan` and `execute` run one MATCH_RECOGNIZE clause, for those who bring their own rows.
The way of a query: `lexer` and `parser` (with `pattern` and `expression_parser`) read it, `binder` resolves names and
types, `compiler` makes a program for the matcher of `headrace.cep`, `matching` finds the matches, `measures` computes
the output.
"""

from __future__ import annotations

from headrace.cep.sql.output import Plan, execute, plan
from headrace.cep.sql.query import query

__all__ = ["Plan", "execute", "plan", "query"]
