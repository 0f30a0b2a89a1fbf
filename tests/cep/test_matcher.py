"""The first match in preference order."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.cep.limits import MatchLimitError
from headrace.cep.matcher import Matcher, Path, Rows
from headrace.cep.program import (
    Accept,
    AnchorEnd,
    AnchorStart,
    Check,
    Consume,
    ExcludeClose,
    ExcludeOpen,
    Gap,
    Instruction,
    Jump,
    Program,
    Split,
)
from headrace.errors import PlanError

ABC = {"a": 0, "b": 1, "c": 2}


def matcher(
    text: str, *code: Instruction, within: int | None = None, complete: bool = True, watermark: int | None = None
) -> Matcher:
    symbols = np.array(list(text), dtype="U1")
    masks = {number: symbols == symbol for symbol, number in ABC.items()}
    rows = Rows(len(text), masks, times=np.arange(len(text), dtype=np.int64), complete=complete, watermark=watermark)
    return Matcher(Program(tuple(code), ("mask",) * 3, within=within), rows)


def plus(symbol: str, at: int) -> tuple[Instruction, ...]:
    return (Consume(symbol, ABC[symbol]), Split(at, at + 2))


A_PLUS_PLUS_B = (Consume("a", 0), Split(0, 2), Split(0, 3), Consume("b", 1), Accept())


def test_prefers_the_first_way() -> None:
    greedy = matcher("aab", *plus("a", 0), Accept())
    assert greedy.match_from(0).rows == (0, 1)
    reluctant = matcher("aab", Consume("a", 0), Split(2, 0), Accept())
    assert reluctant.match_from(0).rows == (0,)


def test_alternation_and_jump() -> None:
    code = (Split(1, 3), Consume("a", 0), Jump(4), Consume("b", 1), Accept())
    assert [matcher("ab", *code).match_from(i).pairs for i in (0, 1)] == [(("a", 0),), (("b", 1),)]


def test_gap_passes_over_rows() -> None:
    code = (Consume("a", 0), Split(2, 4), Gap(((1, False),)), Jump(1), Consume("b", 1), Accept())
    assert matcher("accb", *code).match_from(0).rows == (0, 3)


def test_anchors_and_empty_match() -> None:
    m = matcher("ab", AnchorStart(), Consume("a", 0), Accept())
    assert m.match_from(0) is not None
    assert matcher("ba", AnchorStart(), Consume("a", 0), Accept()).match_from(1) is None
    assert matcher("ba", Consume("a", 0), AnchorEnd(), Accept()).match_from(1).rows == (1,)
    assert matcher("ab", Consume("a", 0), AnchorEnd(), Accept()).match_from(0) is None
    assert matcher("", Accept()).match_from(0).pairs == ()


def test_excluded_ranges() -> None:
    code = (Consume("a", 0), ExcludeOpen(), Consume("b", 1), Split(2, 4), ExcludeClose(), Consume("c", 2), Accept())
    assert matcher("abbc", *code).match_from(0).excluded == ((1, 3),)


def test_loops_over_nothing_end() -> None:
    # (A*)* B, with the outer loop going around an inner one that matched nothing.
    code = (Split(1, 4), Split(2, 0), Consume("a", 0), Jump(1), Consume("b", 1), Accept())
    assert matcher("aab", *code).match_from(0).rows == (0, 1, 2)
    assert matcher("b", *code).match_from(0).rows == (0,)
    assert matcher("c", *code).match_from(0) is None


def test_nested_loops_stay_linear() -> None:
    count = 20_000
    m = matcher("a" * count, *A_PLUS_PLUS_B)
    assert all(m.match_from(start) is None for start in range(count))


def test_failures_before_a_match_are_not_taken_for_later_starts() -> None:
    m = matcher("aabab", *A_PLUS_PLUS_B)
    assert [match.rows if (match := m.match_from(i)) else None for i in range(5)] == [
        (0, 1, 2),
        (1, 2),
        None,
        (3, 4),
        None,
    ]
    assert [match.rows if (match := m.match_from(i)) else None for i in range(5)] == [
        (0, 1, 2),
        (1, 2),
        None,
        (3, 4),
        None,
    ]


def test_within_leaves_out_the_row_at_the_bound() -> None:
    code = (*plus("a", 0), Accept())
    assert matcher("aaaaa", *code, within=3).match_from(1).rows == (1, 2, 3)


def test_undecided_until_rows_or_watermark_tell() -> None:
    code = (*plus("a", 0), Accept())
    assert not matcher("aa", *code, complete=False).attempt(0).decided
    assert matcher("aab", *code, complete=False).attempt(0).match.rows == (0, 1)
    assert not matcher("aa", *code, complete=False, within=5, watermark=4).attempt(0).decided
    assert matcher("aa", *code, complete=False, within=5, watermark=5).attempt(0).match.rows == (0, 1)


def test_path_conditions_see_the_path_before_the_row() -> None:
    price = [3, 4, 2, 9]

    def rising(row: int, path: Path) -> bool:
        last = path.last("a")
        return last is None or price[row] > price[last]

    program = Program((Consume("a", 0), Split(0, 2), Accept()), ("path",))
    m = Matcher(program, Rows(4, paths={0: rising}))
    assert [m.match_from(i).rows for i in range(4)] == [(0, 1), (1,), (2, 3), (3,)]


def test_bound_on_steps_with_path_conditions() -> None:
    program = Program(A_PLUS_PLUS_B, ("mask", "path"))
    rows = Rows(40, {0: np.ones(40, dtype=bool)}, {1: lambda row, path: False})
    with pytest.raises(MatchLimitError, match="more than 1000 steps"):
        Matcher(program, rows, max_steps=1000).match_from(0)


def test_bad_programs_are_refused() -> None:
    with pytest.raises(PlanError, match="outside of the program"):
        Program((Jump(7), Accept()))
    with pytest.raises(PlanError, match="uses a condition"):
        Program((Consume("a", 0), Accept()))
    with pytest.raises(PlanError, match="match nothing"):
        Program((Jump(0),))


def test_all_matches_from_a_row() -> None:
    code = (Consume("a", 0), Split(2, 4), Gap(), Jump(1), Consume("b", 1), Accept())
    m = matcher("abab", *code)
    assert [match.rows for match in m.all_from(0)] == [(0, 1), (0, 3)]
    assert [match.rows for match in m.all_from(2)] == [(2, 3)]
    assert m.all_from(1) == []
    assert [match.rows for match in matcher("abab", *code, within=3).all_from(0)] == [(0, 1)]
    with pytest.raises(PlanError, match="no meaning in a search for all matches"):
        matcher("a", AnchorStart(), Consume("a", 0), Accept()).all_from(0)


def test_what_only_all_matches_know_is_refused_in_a_search_for_the_first() -> None:
    with pytest.raises(PlanError, match="cannot stand in a search for the first match"):
        matcher("a", Check(((0, True),)), Consume("a", 0), Accept())
