"""Streaming SQL: statements that define tables, views and functions, and queries on the plan of streams.

`Session` carries statements out on a `Catalog` of tables, views and functions; see docs/sql.md.
"""

from __future__ import annotations

from headrace.streaming_sql.catalog import Catalog
from headrace.streaming_sql.session import Session

__all__ = ["Catalog", "Session"]
