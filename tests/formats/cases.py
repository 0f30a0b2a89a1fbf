"""Every format with samples of its records: the contract and the fuzz tests run over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.formats.samples import records

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
]
