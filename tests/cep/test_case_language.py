"""The little language of conformance cases."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.testing.conditions import UnsupportedCaseError, parse
from headrace.testing.patterns import find, run_case
from headrace.testing.turns import take_turns


def element(name: str, condition: str, contiguity: str = "followedBy", **more: Any) -> dict[str, Any]:
    return {"name": name, "contiguity": contiguity, "condition": condition, "quantifier": "one", **more}


def case(*elements: dict[str, Any], **more: Any) -> dict[str, Any]:
    events = [[1, "abc", 1.0, 1], [2, "b", 2.0, 2, 7.5], [3, "c", 3.0, 3], [4, "b", 4.0, 4]]
    return {"id": "x", "pattern": list(elements), "events": events, "skip_strategy": {"type": "noSkip"}, **more}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("true", [0, 1, 2, 3]),
        ("name == 'b'", [1, 3]),
        ('name != "b" and price >= 2', [2]),
        ("'b' in name", [0, 1, 3]),
        ("name in ('c', 'd')", [2]),
        ("name in ['c', 'abc']", [0, 2]),
        ("name.startswith('a') or name.endswith('c')", [0, 2]),
        ("not (price < 3.0)", [2, 3]),
        ("!name.contains('b') && id > 0", [2]),
        ("is_subevent and volume > 5.0", [1]),
        ("price * 2 - 1 == 3 or -price == -4.0 || price / 3 == 1.0", [1, 2, 3]),
        ("id % 2 == 0", [1, 3]),
        ("abs(price - 3.0) < 0.5", [2]),
        ("timestamp <= 2", [0, 1]),
    ],
)
def test_conditions_on_the_event(condition: str, expected: list[int]) -> None:
    assert find(case(element("x", condition, "begin"))) == [[row] for row in expected]


@pytest.mark.parametrize(
    "condition",
    [
        "sum(ctx('x').price) + price == 4.0",
        "avg(ctx('x').price) == 1.5 and price == 3",
        "min(ctx('x').price) < max(ctx('x').price) and name == 'c'",
        "count(ctx('x')) == 2 and len(ctx('x').price) == 2 and id == 3",
        "ctx('x')[0].price == 1.0 and ctx('x')[-1].price == 2 and name == 'c'",
        "first(ctx('x')).price == 1.0 and last(ctx('x')).price == 2 and name == 'c'",
        "ctx('x').first().price == 1.0 and ctx('x').size() == 2 and name == 'c'",
        "all(e.price < price for e in ctx('x')) and id == 3",
        "sum(e.price * 2 for e in ctx('x')) == 6.0 and not any(e.name == 'q' for e in ctx('x')) and price == 3.0",
        "name == 'c' or sum(ctx('x').price) == 99",
    ],
)
def test_conditions_on_events_before(condition: str) -> None:
    pattern = case(element("x", "price < 3.0", "begin", quantifier="times(2)"), element("y", condition))
    result = find(pattern)
    wanted = 2 if "+ price == 4.0" not in condition else None
    assert result == ([[0, 1, wanted]] if wanted else [])


@pytest.mark.parametrize(
    "text", ["", "name ==", "name == 'a' b", "speed > 1", "f(1)", "name.upper('x')", "1 # 2", "(name"]
)
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UnsupportedCaseError, match="cannot be read"):
        parse(text)


def test_results() -> None:
    one = element("x", "name == 'b'", "begin")
    assert run_case(case(one, expected_idx=[[3], [1]])).status == "pass"
    assert run_case(case(one, expected_idx=[[3]])).status == "fail"
    assert run_case(case(one, expected_idx=None, expected_values=[[[2, "b", 2.0]], [[4, "b", 4.0]]])).status == "pass"
    assert run_case(case(one, expected_error="FlinkRuntimeException")).reason == "an error was expected"
    bad = case(one, element("x", "true"), expected_error="MalformedPatternException")
    assert run_case(bad).status == "pass"
    assert run_case({**bad, "expected_error": "FlinkRuntimeException"}).status == "fail"
    back = case(one, element("y", "true"), events=[[1, "b", 1.0, 5], [2, "b", 1.0, 3]], expected_idx=[[0, 1]])
    assert run_case(back, take_turns).status == "pass"
    assert run_case({**back, "within_ms": 9}, take_turns).status == "unsupported"
    for strange in (
        case(one, skip_strategy={"type": "skipBack"}),
        case(element("x", "true", "begin", quantifier="some")),
        case(one, element("y", "true", "before")),
        case(one, within_ms=1, within_type="OTHER"),
        case(element("x", "what?", "begin")),
    ):
        assert run_case({**strange, "expected_idx": []}).status == "unsupported"
