"""Every format with samples of its records: the contract and the fuzz tests run over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from tests.formats.samples import records

from headrace.formats.csv import csv
from headrace.formats.text import raw, text

if TYPE_CHECKING:
    from headrace.formats.format import Format, Records


@dataclass(frozen=True)
class Case:
    label: str
    format: Format
    samples: Records


CASES: list[Case] = [
    Case("text", text(), records(b"one", "zwölf".encode(), b"", b"\xff\xfe", None)),
    Case("raw", raw("body"), records(b"one", b"\xff", b"", None)),
    Case(
        "csv",
        csv(
            {"a": pl.Int64, "b": pl.String, "c": pl.Float64, "d": pl.Boolean, "at": pl.Datetime("us", "UTC")},
            time="at",
        ),
        records(
            b"1,x,1.5,true,2026-01-01T00:00:00Z",
            b'-2,"a,""b""\nc",,false,2026-01-01 00:00:00.123456+02:00',
            b',"",1e300,,2026-01-01T00:00:00',
            b"1,x,1.5,true,",
            b"x,x,1.5,true,2026-01-01T00:00:00Z",
            b"1,x",
        ),
    ),
    Case("csv-one-column", csv({"a": pl.String}), records(b"", b"x", b'""', b"x,y")),
]
