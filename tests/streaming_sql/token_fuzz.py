"""Random sequences of tokens, and queries with tokens left out, repeated, swapped and put in: a clear error each.

`python -m tests.streaming_sql.token_fuzz --texts 1000000` runs many. A text is planned, not run. It must plan, or be
refused with an error that has a place; any other exception, or more than ten seconds, is a fault.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.streaming_sql.queries import planned

from headrace.cep.sql.lexer import tokenize
from headrace.errors import HeadraceError, PlanError

if TYPE_CHECKING:
    from types import FrameType

_SECONDS: Final = 10
QUERIES: Final = (
    "SELECT k, v + 1 AS w FROM t WHERE v BETWEEN 1 AND 3 AND k LIKE 'a%' ESCAPE '!'",
    "SELECT k, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
    "GROUP BY k, window_start, window_end EMIT EARLY EVERY INTERVAL '1' SECOND ALLOWED LATENESS INTERVAL '1' MINUTE",
    "SELECT x.k, y.v FROM t AS x LEFT JOIN u y ON x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL '1' HOUR AND x.ts",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST) AS r FROM t) WHERE r < 3",
    "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT k, SUM(DISTINCT v) FILTER (WHERE v > 1) FROM t GROUP BY CUBE (k, v) HAVING COUNT(*) > 1 ORDER BY k LIMIT 5",
    "SELECT k FROM t WHERE v IN (SELECT v FROM u) AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k) UNION SELECT 'x'",
    "WITH c AS (SELECT k, a FROM t) SELECT k, e FROM c CROSS JOIN UNNEST(a) WITH ORDINALITY AS x (e, n)",
    "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS av, LAST(B.v) AS bv "
    "ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C?) WITHIN INTERVAL '1' HOUR "
    "DEFINE B AS B.v > A.v, C AS C.v < PREV(C.v))",
    "SELECT CASE WHEN v > 1 THEN CAST(v AS VARCHAR) ELSE COALESCE(k, '-') END, EXTRACT(HOUR FROM ts), "
    "JSON_VALUE('{}', '$.a' RETURNING INT NULL ON EMPTY), MAP['a', 1]['a'], ARRAY[1, 2][1], ROW(1, 'x') FROM t",
    "SELECT x.k FROM t x JOIN u FOR SYSTEM_TIME AS OF x.arrived AS y ON x.k = y.k",
    "SELECT k FROM t INTERSECT SELECT k FROM u EXCEPT (VALUES ('a'), ('b'))",
)
_WORDS: Final = """
    ( ) [ ] , . ; * + - / % || = <> < > <= >= => :: : ? @ ! ' " ` -- /* */ 0 1 2.5 1e9 9999999999999999999 'x' ''
    NULL TRUE FALSE SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET FETCH UNION ALL DISTINCT JOIN LEFT RIGHT FULL
    CROSS NATURAL USING ON AS AND OR NOT IN IS LIKE BETWEEN EXISTS CASE WHEN THEN ELSE END CAST INTERVAL DAY MONTH
    SECOND DATE TIMESTAMP TIME OVER PARTITION ROWS RANGE UNBOUNDED PRECEDING FOLLOWING CURRENT ROW WINDOW TABLE TUMBLE
    HOP SESSION CUMULATE DESCRIPTOR LATERAL UNNEST VALUES WITH RECURSIVE MATCH_RECOGNIZE PATTERN DEFINE MEASURES EMIT
    LATE ALLOWED LATENESS CUBE ROLLUP GROUPING SETS FILTER WITHIN INSERT DELETE DROP CREATE PIVOT QUALIFY TOP t u k v
    ts a nope arrived COUNT SUM MAX ROW_NUMBER LAG UPPER SUBSTRING TRIM POSITION OVERLAY JSON_VALUE MAP ARRAY FOR
    SYSTEM_TIME OF ASOF ANY SOME EXCEPT INTERSECT {d '2020-01-01'} $1 # ~ ^ & | é
"""
_MORE: Final = (*_WORDS.split(), "\\", "\u2028", "\x00")


def tokens_of(query: str) -> list[str]:
    """Cut a query into its tokens."""
    return [query[token.start : token.end] for token in tokenize(query) if token.kind != "end"]


_CUT: Final = tuple(tokens_of(query) for query in QUERIES)
_POOL: Final = (*_MORE, *(token for cut in _CUT for token in cut))


def text_of(seed: int) -> str:
    """Make a text: mostly a query that was changed, else any tokens."""
    rng = random.Random(seed)
    if rng.random() < 0.2:
        return " ".join(rng.choice(_POOL) for _ in range(rng.randint(1, 25)))
    tokens = list(rng.choice(_CUT))
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(tokens) + 1)
        match rng.randint(0, 5):
            case 0:
                del tokens[place : place + rng.randint(1, 3)]
            case 1:
                tokens[place:place] = tokens[place : place + rng.randint(1, 4)]
            case 2 | 3:
                tokens.insert(place, rng.choice(_POOL))
            case 4:
                tokens[place : place + 1] = [rng.choice(_POOL)]
            case _:
                other = rng.choice(_CUT)
                begin = rng.randrange(len(other))
                tokens[place:place] = other[begin : begin + rng.randint(1, 8)]
    return " ".join(tokens)


class TooSlowError(Exception):
    """A text took too long."""


@dataclass(frozen=True)
class Fault:
    """A text that was not refused as it should be."""

    seed: int
    text: str
    told: str


def fault_of(seed: int, text: str) -> Fault | None:
    """Plan a text; None if it plans, or is refused with a place and without the words of a library."""
    begin = time.perf_counter()
    try:
        planned(text)
    except PlanError as problem:
        told = problem.message
        if not told.startswith("line ") and text.strip():
            return Fault(seed, text, f"no place: {told}")
    except HeadraceError as problem:
        return Fault(seed, text, f"{type(problem).__name__}: {problem}")
    except Exception as problem:  # noqa: BLE001 - that is what is looked for
        where = traceback.extract_tb(problem.__traceback__)[-1]
        own = [each for each in traceback.extract_tb(problem.__traceback__) if "headrace" in each.filename][-1]
        told = f"{type(problem).__name__}: {problem} at {own.filename.rpartition('/')[2]}:{own.lineno}, {where.name}"
        return Fault(seed, text, told)
    if time.perf_counter() - begin > _SECONDS:
        return Fault(seed, text, "too slow")
    return None


def _too_slow(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise TooSlowError


def main() -> int:
    """Try many texts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_slow)
    faults: dict[str, Fault] = {}
    count = 0
    for seed in range(given.seed, given.seed + given.texts):
        signal.alarm(6 * _SECONDS)
        found = fault_of(seed, text_of(seed))
        signal.alarm(0)
        if found is not None:
            count += 1
            kind = found.told.rpartition(" at ")[2] if " at " in found.told else found.told[:60]
            if kind not in faults:
                faults[kind] = found
                print(f"seed {seed}: {found.text[:600]!r}\n  {found.told[:500]}\n", flush=True)
    print(f"{given.texts:,} texts, {count} faults of {len(faults)} kinds")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
