"""Every format holds the contract; those that break it are found."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import polars as pl
import pytest
from tests.formats.cases import CASES

import headrace.formats
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.text import Raw, Text
from headrace.testing import ContractError, check_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.formats.format import Records


def formats(parent: type[Format] = Format) -> Iterator[type[Format]]:
    for child in parent.__subclasses__():
        if child.__module__.startswith("headrace."):
            yield child
        yield from formats(child)


def test_every_format_has_a_case() -> None:
    for module in pkgutil.iter_modules(headrace.formats.__path__, "headrace.formats."):
        importlib.import_module(module.name)
    missing = {kind.__name__ for kind in formats()} - {type(case.format).__name__ for case in CASES}
    assert not missing


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_the_contract(case) -> None:
    check_format(case.format, case.samples)
    decoded = case.format.decode(case.samples)
    assert decoded.frame.height >= 2, decoded.rejections  # the samples are good enough to mean something


@dataclass(frozen=True)
class Careless(Text):
    """Rejects everything if one record is bad."""

    name: ClassVar[str] = "careless"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        decoded = super().decode(records, columns)
        if not decoded.rejections:
            return decoded
        reason = next(iter(decoded.rejections.values()))
        return DecodedRecords(decoded.frame.head(0), None, dict.fromkeys(range(len(records)), reason))


@dataclass(frozen=True)
class Forgetful(Text):
    """Loses what it cannot read."""

    name: ClassVar[str] = "forgetful"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        decoded = super().decode(records, columns)
        return DecodedRecords(decoded.frame, decoded.positions)


class Unequal(Raw):
    """Is never equal to its copy."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


@dataclass(frozen=True)
class Greedy(Text):
    """Gives all columns whatever is asked for."""

    name: ClassVar[str] = "greedy"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        return super().decode(records)


@dataclass(frozen=True)
class Shouting(Text):
    """Writes something else than it read."""

    name: ClassVar[str] = "shouting"

    def encode(self, frame: pl.DataFrame):
        return super().encode(frame.with_columns(pl.col(self.column).str.to_uppercase()))


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Careless(), "beside it|split"),
        (Forgetful(), "neither a row nor a rejection"),
        (Unequal(), "not equal"),
        (Greedy(), "its columns are"),
        (Shouting(), "other rows"),
    ],
)
def test_what_breaks_the_contract_is_found(broken: Format, complaint: str) -> None:
    from tests.formats.samples import records

    with pytest.raises(ContractError, match=complaint):
        check_format(broken, records(b"one", b"two", b"\xff"))
