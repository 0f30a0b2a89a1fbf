"""The statements of SQL beside queries, as `headrace.streaming_sql.ddl` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from headrace.streaming_sql.script import Fragment

#: What can be listed, dropped and described.
Kind: TypeAlias = Literal["table", "view", "function"]


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """A column that the records of a table hold.

    Args:
        name: Its name.
        dtype: Its type.
        written: The type as it was written.
    """

    name: str
    dtype: pl.DataType
    written: str


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that is computed from others when the table is read: `name AS expression`."""

    name: str
    expression: Fragment


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """A column of what a record has beside its value: `name type METADATA FROM 'key' VIRTUAL`.

    Args:
        name: Its name.
        dtype: Its type.
        written: The type as it was written.
        key: What it holds, such as "offset" or "headers.trace".
        is_virtual: Whether it is left out when the table is written.
        at: Where it is declared.
    """

    name: str
    dtype: pl.DataType
    written: str
    key: str
    is_virtual: bool
    at: Fragment


Column: TypeAlias = PhysicalColumn | ComputedColumn | MetadataColumn


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK FOR column AS column - INTERVAL ...`.

    Args:
        column: The column with the time of an event.
        delay: How far the watermark is behind the newest time, in microseconds.
        at: Where it is declared.
    """

    column: str
    delay: int
    at: Fragment


@dataclass(frozen=True, slots=True)
class Option:
    """An entry of WITH: its value, and where it stands."""

    value: str
    at: Fragment


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE TABLE name (columns) WITH (options)`."""

    name: str
    columns: tuple[Column, ...]
    watermark: Watermark | None
    primary_key: tuple[str, ...]
    options: Mapping[str, Option]
    temporary: bool
    if_not_exists: bool
    comment: str
    text: Fragment


@dataclass(frozen=True, slots=True)
class CreateView:
    """`CREATE VIEW name (columns) AS query`."""

    name: str
    columns: tuple[str, ...]
    query: Fragment
    temporary: bool
    if_not_exists: bool
    or_replace: bool
    text: Fragment


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`CREATE FUNCTION name AS 'module:attribute' LANGUAGE PYTHON`."""

    name: str
    place: str
    temporary: bool
    if_not_exists: bool
    or_replace: bool
    text: Fragment


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT INTO table (columns) query`."""

    table: str
    columns: tuple[str, ...]
    query: Fragment
    text: Fragment


@dataclass(frozen=True, slots=True)
class StatementSet:
    """`BEGIN STATEMENT SET; INSERT ...; END`."""

    inserts: tuple[Insert, ...]
    text: Fragment


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT."""

    query: Fragment


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN statement`."""

    statement: Query | Insert | StatementSet
    text: Fragment


@dataclass(frozen=True, slots=True)
class Show:
    """`SHOW TABLES`, `SHOW VIEWS`, `SHOW FUNCTIONS`, `SHOW JOBS`, with `LIKE 'pattern'`."""

    what: Literal["tables", "views", "functions", "jobs"]
    like: str | None
    text: Fragment


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """`SHOW CREATE TABLE name`, `SHOW CREATE VIEW name`."""

    kind: Kind
    name: str
    text: Fragment


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name`."""

    name: str
    text: Fragment


@dataclass(frozen=True, slots=True)
class SetOption:
    """`SET 'key' = 'value'`; without a key it lists what is set."""

    key: str | None
    value: str
    text: Fragment


@dataclass(frozen=True, slots=True)
class ResetOption:
    """`RESET 'key'`; without a key all of them."""

    key: str | None
    text: Fragment


@dataclass(frozen=True, slots=True)
class Drop:
    """`DROP TABLE IF EXISTS name`."""

    kind: Kind
    name: str
    if_exists: bool
    text: Fragment


Statement: TypeAlias = (
    CreateTable
    | CreateView
    | CreateFunction
    | Insert
    | StatementSet
    | Query
    | Explain
    | Show
    | ShowCreate
    | Describe
    | SetOption
    | ResetOption
    | Drop
)
