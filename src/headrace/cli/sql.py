"""`headrace sql`: a query over files, with MATCH_RECOGNIZE, in this process."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import UsageError

if TYPE_CHECKING:
    import polars as pl


class Format(StrEnum):
    """How a result is printed."""

    table = "table"
    csv = "csv"
    json = "json"


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it from standard input.", show_default=False)
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="NAME=FILE",
            help="A file (.csv, .parquet, .json, .jsonl) and the name that the query has for it; as often as you like.",
            show_default=False,
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="json: a line per row.")] = Format.table,
) -> None:
    """Run a SQL query with MATCH_RECOGNIZE over files."""
    from headrace.cep.sql import query as run

    text = sys.stdin.read() if query == "-" else query
    frames = dict(_table(given) for given in tables or [])
    if not frames:
        raise UsageError("there is no table", hint="Name one: --table positions=positions.csv")
    _show(run(text, frames), form)


def _table(given: str) -> tuple[str, pl.DataFrame]:
    name, equals, file = given.partition("=")
    if not equals or not name or not file:
        raise UsageError(f"--table {given}", hint="Write --table NAME=FILE, such as --table positions=positions.csv.")
    return name, _read(Path(file))


def _read(path: Path) -> pl.DataFrame:
    import polars as pl
    from polars.exceptions import PolarsError

    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="Give the path of a .csv, .parquet, .json or .jsonl file.")
    kind = path.suffix.lower()
    try:
        if kind == ".csv":
            return pl.read_csv(path, try_parse_dates=True, infer_schema_length=10_000)
        if kind == ".parquet":
            return pl.read_parquet(path)
        if kind in (".json", ".jsonl", ".ndjson"):
            lines = kind != ".json" or not _is_array(path)
            return pl.read_ndjson(path, infer_schema_length=None) if lines else pl.read_json(path)
    except PolarsError as error:
        first = str(error).strip().split("\n")[0]
        raise UsageError(f"{path} cannot be read: {first}", hint=f"Is it really a {kind} file?") from error
    raise UsageError(f"{path} has the ending {kind or '(none)'}", hint="Give a .csv, .parquet, .json or .jsonl file.")


def _is_array(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(100).lstrip().startswith("[")


def _show(found: pl.DataFrame, form: Format) -> None:
    if form is Format.json:
        sys.stdout.write(found.write_ndjson())
    elif form is Format.csv:
        nested = [name for name, kind in found.schema.items() if kind.is_nested()]
        if nested:
            raise UsageError(f"CSV has no lists or structs, as in {', '.join(nested)}", hint="Use --format json.")
        sys.stdout.write(found.write_csv())
    else:
        terminal.rows(found.columns, [[_cell(value) for value in row] for row in found.iter_rows()])


def _cell(value: object) -> str:
    return "" if value is None else str(value)
