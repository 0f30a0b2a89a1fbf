"""Conformance cases for sketches: exact values on small data, and bounds of the error on large random data.

A case names a sketch, its size (`k`, or `compression` as t-digests call it), and either `data` with `checks`, or a
`distribution` of `n` values with `bounds`. Bounds are written as text; each is looked up by its shape here, and a
case with a bound of another shape is unsupported rather than half checked. Random values come from a fixed seed.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import TYPE_CHECKING, Any

import datasketches
import numpy as np

from headrace.testing.case import CaseResult
from headrace.testing.notation import UnsupportedNotationError
from headrace.windows.tdigest import Digest, k_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Case = dict[str, Any]
_SEED = 20_240_601
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"


class _Subject:
    """A sketch under test, with one vocabulary for both kinds."""

    def __init__(self, kind: str, size: float | None) -> None:
        self.kind = kind
        if kind == "tdigest":
            self.limit = size or 100
            self.digest = Digest(k_for(self.limit))
        elif kind == "kll":
            self.kll = datasketches.kll_doubles_sketch(int(size or 200))
        else:
            raise UnsupportedNotationError(f"there is no sketch {kind!r} to test")

    def update(self, values: Floats) -> None:
        if self.kind == "kll":
            self.kll.update(np.array(values, dtype=np.float64))
        else:
            self.digest.update(np.array(values, dtype=np.float64))

    def merge(self, other: _Subject) -> None:
        if self.kind == "kll":
            self.kll.merge(other.kll)
        else:
            self.digest.merge(other.digest)

    def quantile(self, q: float) -> float:
        found = self.kll.get_quantile(q, inclusive=True) if self.kind == "kll" else self.digest.centroids().quantile(q)
        return math.nan if found is None else float(found)

    def cdf(self, x: float) -> float:
        found = self.kll.get_rank(x, inclusive=True) if self.kind == "kll" else self.digest.centroids().cdf(x)
        return math.nan if found is None else float(found)

    def low(self) -> float:
        return float(self.kll.get_min_value()) if self.kind == "kll" else self.digest.centroids().low

    def high(self) -> float:
        return float(self.kll.get_max_value()) if self.kind == "kll" else self.digest.centroids().high

    def count(self) -> int:
        return int(self.kll.n) if self.kind == "kll" else round(self.digest.centroids().total)

    def centroids(self) -> int:
        return int(self.kll.num_retained) if self.kind == "kll" else self.digest.centroids().means.size


def run_sketch(case: Case) -> CaseResult:
    """Run one case."""
    name = str(case["id"])
    stated = case.get("checks") or case.get("bounds") or case.get("formula")
    try:
        if "checks" in case:
            got, wrong = _checks(case)
        elif "bounds" in case:
            got, wrong = _bounds(case)
        elif "formula" in case:
            got, wrong = _formula(case)
        else:
            raise UnsupportedNotationError("the case states neither checks, bounds nor a formula")
    except UnsupportedNotationError as error:
        return CaseResult(name, "unsupported", stated, None, error.message)
    return CaseResult(name, "fail" if wrong else "pass", stated, got, "; ".join(wrong))


def _size(case: Case) -> float | None:
    size = case.get("compression", case.get("k"))
    return None if size is None else float(size)


def _checks(case: Case) -> tuple[object, list[str]]:
    subject = _Subject(case["sketch"], _size(case))
    subject.update(np.array(_data(case["data"]), dtype=np.float64))
    readers: dict[str, Callable[[float], float]] = {
        "quantile": subject.quantile,
        "cdf": subject.cdf,
        "rank": subject.cdf,
        "min": lambda _: subject.low(),
        "max": lambda _: subject.high(),
    }
    got, wrong = [], []
    for check in case["checks"]:
        reader = readers.get(check["fn"])
        if reader is None:
            raise UnsupportedNotationError(f"there is no function {check['fn']!r} to check")
        argument = check.get("arg")
        value = reader(math.nan if argument is None else float(argument))
        got.append(value)
        tolerance = check.get("tol") or 0.0
        if not abs(value - check["expected"]) <= tolerance:
            asked = f"{check['fn']}({'' if argument is None else argument})"
            wrong.append(f"{asked} is {value}, expected {check['expected']} within {tolerance}")
    return got, wrong


def _data(written: Any) -> list[float]:
    if isinstance(written, list):
        return [float(value) for value in written]
    if isinstance(written, dict) and "concat" in written:
        return [value for part in written["concat"] for value in _data(part)]
    if isinstance(written, dict) and "repeat" in written:
        return _data(written["of"]) * int(written["repeat"])
    raise UnsupportedNotationError(f"cannot read the data {written!r}")


def _sample(written: str, n: int, seed: int = _SEED) -> Floats:
    """Draw the values of a distribution that is written as text: by name, as a mixture, or as a formula over i."""
    random = np.random.default_rng(seed)
    plain = written.replace(" ", "").lower()
    if found := re.fullmatch(r"(.+?),i=(\d+)\.\.(\d+)", plain):
        return _sequence(found[1], np.arange(int(found[2]), int(found[3]) + 1, dtype=np.float64))
    parts = re.findall(rf"({_NUMBER})\*([a-z]+\([^()]*\))(?:\+|$)", plain)
    if parts and "+".join(f"{weight}*{part}" for weight, part in parts) == plain:
        weights = [float(weight) for weight, _ in parts]
        if not math.isclose(sum(weights), 1.0):
            raise UnsupportedNotationError(f"the weights of {written!r} do not add up to 1")
        drawn = np.stack([_sample(part, n, seed + 1 + number) for number, (_, part) in enumerate(parts)])
        return np.asarray(drawn[random.choice(len(parts), size=n, p=weights), np.arange(n)])
    extra = re.search(rf"plus(?:one)?({_NUMBER})$", plain)
    size = n - 1 if extra else n
    if plain.startswith("round(u(0,1)*10)/10"):
        values = np.round(random.random(size) * 10) / 10
    elif found := re.match(rf"(?:uniform|u)\(({_NUMBER}),({_NUMBER})\)", plain):
        values = random.uniform(float(found[1]), float(found[2]), size)
    elif found := re.match(rf"gamma\(shape=({_NUMBER}),(rate|scale)=({_NUMBER})\)", plain):
        scale = float(found[3]) if found[2] == "scale" else 1 / float(found[3])
        values = random.gamma(float(found[1]), scale, size)
    elif found := re.match(rf"(?:normal|n)\(({_NUMBER}),({_NUMBER})\)", plain):
        values = random.normal(float(found[1]), float(found[2]), size)
    elif found := re.match(rf"(?:exponential|exp)\((?:rate=)?({_NUMBER})\)", plain):
        values = random.exponential(1 / float(found[1]), size)
    else:
        raise UnsupportedNotationError(f"cannot draw from {written!r}")
    return np.append(values, float(extra[1])) if extra else values


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _sequence(written: str, i: Floats) -> Floats:
    """Give the values of a formula over `i`, such as `i*pi*1e-5`."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.Name) and node.id in ("i", "pi", "e"):
            return {"i": i, "pi": math.pi, "e": math.e}[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise UnsupportedNotationError(f"cannot read the formula {written!r}")

    try:
        formula = ast.parse(written, mode="eval").body
    except SyntaxError as error:
        raise UnsupportedNotationError(f"cannot read the formula {written!r}") from error
    return np.broadcast_to(np.asarray(value(formula), dtype=np.float64), i.shape).copy()


def _bounds(case: Case) -> tuple[object, list[str]]:
    values = _sample(case["distribution"], int(case["n"]))
    n = values.size
    subject = _Subject(case["sketch"], _size(case))
    subject.update(values)
    ordered = np.sort(values)
    got: dict[str, Any] = {}
    wrong: list[str] = []
    bounds = dict(case["bounds"])
    allowed = int(bounds.pop("soft_violations_allowed", 0))
    levels = [float(q) for q in case.get("q", [])]
    for bound, wanted in bounds.items():
        if bound == "cdf_abs_err_at_true_quantile":
            got[bound] = max(abs(subject.cdf(float(np.quantile(ordered, q))) - q) for q in levels)
            ok = got[bound] <= wanted
        elif bound in ("rank_err_of_estimated_quantile_hard", "rank_err_soft"):
            errors = [_rank_error(ordered, subject.quantile(q), q) for q in levels]
            got[bound] = errors
            ok = sum(error > wanted for error in errors) <= (allowed if bound == "rank_err_soft" else 0)
        elif bound == "max_centroids":
            got[bound] = subject.centroids()
            limit = _size(case)
            strict = str(wanted).strip().startswith("<") and not str(wanted).strip().startswith("<=")
            ok = limit is not None and (got[bound] < limit if strict else got[bound] <= limit)
        elif bound == "sum of weights == n":
            got[bound] = subject.count()
            ok = got[bound] == n
        elif bound.startswith("for z in"):
            got[bound], ok = _steps_of_ten(subject, str(wanted))
        elif bound.startswith("min<="):
            got[bound] = [subject.low(), subject.quantile(0.01), subject.quantile(0.99), subject.high()]
            ok = subject.low() <= subject.quantile(0.01) and subject.high() >= subject.quantile(0.99)
        elif bound == "merge with copy doubles n":
            got[bound], ok = _doubled(case, values)
        elif found := re.match(
            rf"(?:merge with (?P<other>.+?) of n: )?(?P<fn>rank|quantile)\((?P<arg>{_NUMBER})\)", bound
        ):
            target = subject
            if found["other"] or "after merge" in bound:
                target = _merged_with(case, values, found["other"] or _other(bounds))
            reader = target.cdf if found["fn"] == "rank" else target.quantile
            expected, tolerance = wanted
            got[bound] = reader(float(found["arg"]))
            ok = abs(got[bound] - expected) <= tolerance
        else:
            raise UnsupportedNotationError(f"cannot check the bound {bound!r}")
        if not ok:
            wrong.append(f"{bound}: {got[bound]} against {wanted}")
    return got, wrong


def _rank_error(ordered: Floats, value: float, q: float) -> float:
    low = float(np.searchsorted(ordered, value, side="left")) / ordered.size
    high = float(np.searchsorted(ordered, value, side="right")) / ordered.size
    return 0.0 if low <= q <= high else min(abs(low - q), abs(high - q))


def _steps_of_ten(subject: _Subject, wanted: str) -> tuple[object, bool]:
    """Check a distribution of eleven values: between two the share stands still, and quantiles are one of them."""
    limits = re.findall(rf"<=({_NUMBER})", wanted.replace(" ", ""))
    if len(limits) != 2:
        raise UnsupportedNotationError(f"cannot read the bound {wanted!r}")
    worst = [0.0, 0.0]
    for step in range(10):
        for delta in (0.01, 0.02, 0.03, 0.07, 0.08, 0.09):
            x = step / 10 + delta
            worst[0] = max(worst[0], abs(subject.cdf(x) - (step / 10 + 0.05)))
            worst[1] = max(worst[1], abs(subject.quantile(x) - round(x * 10) / 10))
    return worst, worst[0] <= float(limits[0]) and worst[1] <= float(limits[1])


def _doubled(case: Case, values: Floats) -> tuple[int, bool]:
    both = []
    for _ in range(2):
        one = _Subject(case["sketch"], _size(case))
        one.update(values)
        both.append(one)
    both[0].merge(both[1])
    return both[0].count(), both[0].count() == 2 * values.size


def _merged_with(case: Case, values: Floats, other: str) -> _Subject:
    one, two = _Subject(case["sketch"], _size(case)), _Subject(case["sketch"], _size(case))
    one.update(values)
    two.update(_sample(other, values.size, _SEED + 1))
    one.merge(two)
    return one


def _other(bounds: dict[str, Any]) -> str:
    for bound in bounds:
        if found := re.match(r"merge with (.+?) of n", bound):
            return found[1]
    raise UnsupportedNotationError("the case does not say what to merge with")


def _formula(case: Case) -> tuple[object, list[str]]:
    """Compare the stated error of a sketch with the formula it is said to follow."""
    got: dict[str, list[float]] = {}
    wrong = []
    for which, written in case["formula"].items():
        found = re.fullmatch(rf"({_NUMBER})/k\^({_NUMBER})", str(written).replace(" ", ""))
        meant = re.search(r"pmf=(true|false)", which.replace(" ", "").lower())
        if case.get("sketch") != "kll" or found is None or meant is None:
            raise UnsupportedNotationError(f"cannot check the formula {written!r}")
        got[which] = []
        for k in (20, 100, 200, 400, 1000):
            stated = datasketches.kll_doubles_sketch(k).normalized_rank_error(meant[1] == "true")
            expected = float(found[1]) / k ** float(found[2])
            got[which].append(stated)
            if not math.isclose(stated, expected, rel_tol=1e-3):
                wrong.append(f"{which}: k={k} gives {stated}, the formula {expected}")
    return got, wrong
