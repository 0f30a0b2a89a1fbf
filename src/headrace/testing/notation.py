"""How conformance cases write windows and triggers, and what these are here.

Two notations: calls as in Python, `AfterWatermark(early=AfterCount(3))`, and JSON objects, `{"type": "AfterWatermark",
"early": {...}}`, in which arguments may be named or stand in `args` or `of`. Both become a `Call`, which is then built.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.time.instants import END
from headrace.windows import (
    after_all,
    after_any,
    after_count,
    after_each,
    after_end,
    after_processing_time,
    after_watermark,
    default,
    every_interval,
    global_,
    never,
    or_finally,
    repeatedly,
    session,
    sliding,
    tumbling,
)

if TYPE_CHECKING:
    from headrace.windows import Assigner, Trigger
    from headrace.windows.panes import Closing, Firing, Mode, Timestamp


class UnsupportedNotationError(HeadraceError, ValueError):
    """A case uses something that has no counterpart here."""


@dataclass(frozen=True)
class Call:
    """A name with arguments."""

    name: str
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def get(self, position: int, *names: str) -> Any:
        """Return an argument by name or position, None where it is not given."""
        for name in names:
            if name in self.named:
                return self.named[name]
        return self.args[position] if position < len(self.args) else None


def call(written: object) -> Call:
    """Read either notation.

    >>> call("AfterWatermark(early=AfterCount(3))").named["early"]
    Call(name='AfterCount', args=(3,), named={})
    >>> call({"type": "AfterCount", "n": 3})
    Call(name='AfterCount', args=(), named={'n': 3})
    """
    if isinstance(written, Call):
        return written
    if isinstance(written, str):
        try:
            found = _from_ast(ast.parse(written.strip(), mode="eval").body)
        except SyntaxError as error:
            raise UnsupportedNotationError(f"cannot read {written!r}: {error.msg}") from error
        return found if isinstance(found, Call) else Call(str(found))
    if isinstance(written, dict) and "type" in written:
        named = {name: _from_json(value) for name, value in written.items() if name not in ("type", "args", "of")}
        args = [_from_json(value) for value in written.get("args", [])]
        inner = written.get("of", [])
        args += [_from_json(value) for value in (inner if isinstance(inner, list) else [inner])]
        return Call(str(written["type"]), tuple(args), named)
    raise UnsupportedNotationError(f"cannot read {written!r}")


def window(written: object, *, touching: bool = False) -> Assigner:
    """Build windows; one unit of time is one microsecond.

    >>> window("SlidingWindows(10, 5)").describe()
    'sliding(10us every 5us)'
    """
    made = call(written)
    name = made.name
    if name == "FixedWindows":
        return tumbling(whole(made.get(0, "size")), offset=whole(made.get(1, "offset") or 0))
    if name == "SlidingWindows":
        size, period = whole(made.get(0, "size")), whole(made.get(1, "period", "every"))
        return sliding(size, every=period, offset=whole(made.get(2, "offset") or 0))
    if name == "Sessions":
        return session(whole(made.get(0, "gap", "gap_size")), touching=touching)
    if name in ("GlobalWindows", "GlobalWindow"):
        return global_()
    raise UnsupportedNotationError(f"there are no windows {name!r}")


def trigger(written: object, *, clock_passes: bool = False) -> Trigger:
    """Build a trigger.

    Args:
        written: In either notation.
        clock_passes: Whether a delay is over only when the clock is past it, one unit later than when it is reached.

    >>> trigger({"type": "Repeatedly", "of": {"type": "AfterCount", "n": 2}}).describe()
    'repeatedly(after_count(2))'
    """

    def build(part: object) -> Trigger:
        return trigger(part, clock_passes=clock_passes)

    made = call(written)
    name = made.name
    if name in ("Default", "DefaultTrigger"):
        return default()
    if name == "AfterWatermark":
        early, late = made.get(0, "early"), made.get(1, "late")
        return after_watermark(
            early=None if early is None else build(early), late=None if late is None else build(late)
        )
    if name in ("AfterCount", "AfterPane"):
        return after_count(whole(made.get(0, "n", "count", "element_count")))
    if name == "AfterProcessingTime":
        return after_processing_time(whole(made.get(0, "delay") or 0) + clock_passes)
    if name == "Repeatedly":
        return repeatedly(build(made.get(0, "underlying", "trigger")))
    if name in ("AfterAny", "AfterFirst"):
        return after_any(*(build(part) for part in made.args))
    if name == "AfterAll":
        return after_all(*(build(part) for part in made.args))
    if name in ("AfterEach", "AfterEachInOrder"):
        return after_each(*(build(part) for part in made.args))
    if name == "OrFinally":
        return or_finally(build(made.get(0, "main", "body")), build(made.get(1, "until", "finally")))
    if name in ("ContinuousEventTime", "ContinuousEventTimeTrigger"):
        return every_interval(whole(made.get(0, "interval", "every")))
    if name == "AfterEnd":
        return after_end(whole(made.get(0, "delay")))
    if name in ("Never", "NeverTrigger"):
        return never()
    if name == "Always":
        return repeatedly(after_count(1))
    raise UnsupportedNotationError(f"there is no trigger {name!r}")


def mode(written: str) -> Mode:
    """Translate an accumulation mode.

    >>> mode("discarding")
    'delta'
    """
    known: dict[str, Mode] = {
        "accumulating": "value",
        "discarding": "delta",
        "retracting": "value_and_retraction",
        "accumulating_and_retracting": "value_and_retraction",
    }
    plain = written.lower().removesuffix("_fired_panes")
    if plain not in known:
        raise UnsupportedNotationError(f"there is no accumulation mode {written!r}")
    return known[plain]


def timestamp(written: str) -> Timestamp:
    """Translate a timestamp combiner.

    >>> timestamp("OUTPUT_AT_EARLIEST")
    'earliest'
    """
    known: dict[str, Timestamp] = {"eow": "end_of_window", "earliest": "earliest", "latest": "latest"}
    plain = written.lower().removeprefix("output_at_").replace("end_of_window", "eow")
    if plain not in known:
        raise UnsupportedNotationError(f"there is no timestamp combiner {written!r}")
    return known[plain]


def firing(written: str) -> Firing:
    """Translate what happens with an empty pane on time.

    >>> firing("FIRE_IF_NON_EMPTY")
    'if_non_empty'
    """
    known: dict[str, Firing] = {"fire_always": "always", "fire_if_non_empty": "if_non_empty"}
    if written.lower() not in known:
        raise UnsupportedNotationError(f"there is no behaviour {written!r}")
    return known[written.lower()]


def closing(written: str) -> Closing:
    """Translate what happens when a window expires.

    >>> closing("FIRE_ALWAYS")
    'always'
    """
    return firing(written)


def lateness(written: object) -> int:
    """Translate an allowed lateness; "inf" is for ever.

    >>> lateness("inf") == END, lateness(7)
    (True, 7)
    """
    if written is None:
        return 0
    if isinstance(written, str) and written.lower() in ("inf", "infinity", "max"):
        return END
    if isinstance(written, float) and written == float("inf"):
        return END
    return whole(written)


def instant(written: object) -> int:
    """Take a point in time; "inf", and what lies at the end of other engines' time, is the end of time.

    >>> instant(5), instant("inf") == END
    (5, True)
    """
    if isinstance(written, str):
        return lateness(written)
    time = whole(written)
    return END if time >= _LAST_MILLISECOND else time


#: A day before the last instant that fits into 64 bits of microseconds, in milliseconds: Beam's end of the global
#: window.
_LAST_MILLISECOND = (2**63 - 1) // 1000 - 86_400_000


def whole(number: object) -> int:
    """Take a number that stands for a whole one.

    >>> whole(10.0)
    10
    """
    if isinstance(number, bool) or not isinstance(number, int | float) or number != int(number):
        raise UnsupportedNotationError(f"{number!r} is not a whole number of time units")
    return int(number)


def _from_json(value: Any) -> Any:
    return call(value) if isinstance(value, dict) and "type" in value else value


def _from_ast(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return Call(node.id)
    if isinstance(node, ast.Attribute):
        return Call(node.attr)
    if isinstance(node, ast.Constant):
        return None if node.value is None else node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_from_ast(node.operand)
    if isinstance(node, ast.List | ast.Tuple):
        return [_from_ast(part) for part in node.elts]
    if isinstance(node, ast.Call):
        base = _from_ast(node.func)
        named = {word.arg: _from_ast(word.value) for word in node.keywords if word.arg}
        return Call(base.name, tuple(_from_ast(part) for part in node.args), named)
    raise UnsupportedNotationError(f"cannot read {ast.unparse(node)!r}")
