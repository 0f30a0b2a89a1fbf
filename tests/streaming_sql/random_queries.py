"""Random queries, each in Headrace's SQL and in DuckDB's, over the tables of `random_table`.

Where the two differ on purpose, what means the same in both is written; `DIFFERENCES` says which these are.
"""

# ruff: noqa: S608

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import polars as pl

if TYPE_CHECKING:
    import random

#: Where the two differ on purpose, and what the generator does about it.
DIFFERENCES: Final = {
    "a / b of integers": "Headrace cuts towards zero, as Flink does; DuckDB gives a double: there it is a // b.",
    "a / b of decimals": "Headrace gives a decimal, DuckDB a double: operands are cast to DOUBLE.",
    "division by zero": "Headrace gives null for integers, an infinity for doubles; DuckDB null: divisors are not 0.",
    "overflow of BIGINT": "Headrace wraps around, DuckDB fails: numbers stay small.",
    "AVG of integers": "Headrace cuts to an integer, as Flink does: arguments are cast to DOUBLE.",
    "order of nulls": "In Headrace they are the smallest, in DuckDB the last: both are told NULLS FIRST or LAST.",
    "CAST of a double to an integer": "Headrace cuts, DuckDB rounds: doubles are floored before.",
    "ties of ROW_NUMBER": "Which of equal rows is first is not defined: the order ends with a key.",
    "aggregates of no rows": "Without GROUP BY, Headrace gives a row with the first row, as Flink does; DuckDB always: "
    "HAVING COUNT(*) > 0 is added.",
    "windows": "DuckDB has none: TUMBLE is written as time_bucket there.",
}

INSTANT: Final = pl.Datetime("us", "UTC")
START: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
COLUMNS: Final[dict[str, Any]] = {
    "id": pl.Int64(),
    "i": pl.Int64(),
    "j": pl.Int32(),
    "d": pl.Float64(),
    "m": pl.Decimal(10, 2),
    "s": pl.String(),
    "b": pl.Boolean(),
    "ts": INSTANT,
}
_TEXTS: Final = ("a", "b", "ab", "", "x%y", "Zed", "ä", None)


def random_table(rng: random.Random, rows: int) -> pl.DataFrame:
    """Rows with many equal values and nulls, in the order of their time or not far from it."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    data = []
    for number in range(rows):
        seconds = number * 3 + rng.randint(-4, 4)
        data.append(
            (
                number,
                maybe(rng.randint(-5, 5)),
                maybe(rng.randint(0, 3)),
                maybe(rng.choice([-1.5, 0.0, 0.25, 2.0, 100.5])),
                maybe(Decimal(rng.randint(-300, 300)) / 100),
                rng.choice(_TEXTS),
                maybe(rng.random() < 0.5),
                START + dt.timedelta(seconds=max(seconds, 0)),
            )
        )
    return pl.DataFrame(data, schema=COLUMNS, orient="row")


_FUNCTIONS: Final = (
    *("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "SUM(i)", "COUNT(*)", "COUNT(s)", "MIN(j)", "MAX(d)"),
    *("LAG(i)", "LAG(s, 2)", "LEAD(i)", "FIRST_VALUE(i)", "LAST_VALUE(id)"),
)


@dataclass
class Query:
    """A query in both dialects.

    Args:
        ours: In Headrace's.
        theirs: In DuckDB's.
        ordered: Whether the order of the rows counts.
    """

    ours: str
    theirs: str
    ordered: bool = False


@dataclass
class Generator:
    """Makes random queries.

    Args:
        rng: Where chance comes from.
    """

    rng: random.Random

    def query(self) -> Query:
        """Make a query."""
        kinds = [self.plain, self.plain, self.grouped, self.grouped, self.joined, self.set_operation, self.over,
                 self.subquery, self.windowed, self.top, self.nested]  # fmt: skip
        return self.rng.choice(kinds)()

    # Expressions: pairs of texts

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def column(self, *names: str, table: str = "") -> tuple[str, str]:
        name = self.rng.choice(names)
        text = f"{table}.{name}" if table else name
        return text, text

    def integer(self, table: str, depth: int = 2) -> tuple[str, str]:
        kind = self.rng.randint(0, 13 if depth else 2)
        if kind <= 1:
            return self.column("i", "j", "id", table=table)
        if kind == 2:
            return (str(self.rng.randint(-3, 9)),) * 2
        a, b = self.integer(table, depth - 1), self.integer(table, depth - 1)
        if kind <= 5:
            sign = self.pick("+", "-", "*")
            return tuple(f"({x} {sign} {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 6:
            divisor = self.pick(2, 3, -2, 7)
            return f"({a[0]} / {divisor})", f"({a[1]} // {divisor})"
        if kind == 7:
            return tuple(f"MOD({x}, 4)" for x in a)  # type: ignore[return-value]
        if kind == 8:
            return tuple(f"ABS({x})" for x in a)  # type: ignore[return-value]
        if kind == 9:
            return tuple(f"COALESCE({x}, {y}, 0)" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 10:
            return tuple(f"NULLIF({x}, {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 11:
            text = self.text(table, depth - 1)
            return f"CHAR_LENGTH({text[0]})", f"LENGTH({text[1]})"
        if kind == 12:
            c = self.condition(table, depth - 1)
            return tuple(f"CASE WHEN {z} THEN {x} ELSE {y} END" for x, y, z in zip(a, b, c, strict=True))  # type: ignore[return-value]
        number = self.double(table, 0)
        return f"CAST(FLOOR({number[0]}) AS BIGINT)", f"CAST(FLOOR({number[1]}) AS BIGINT)"

    def double(self, table: str, depth: int = 2) -> tuple[str, str]:
        kind = self.rng.randint(0, 7 if depth else 1)
        if kind == 0:
            return self.column("d", table=table)
        if kind == 1:
            value = self.pick("0.5", "-2.25", "3.0")
            return f"CAST({value} AS DOUBLE)", f"CAST({value} AS DOUBLE)"
        if kind == 2:
            a = self.integer(table, depth - 1)
            return f"CAST({a[0]} AS DOUBLE)", f"CAST({a[1]} AS DOUBLE)"
        if kind == 3:
            a = self.column("m", table=table)
            return f"CAST({a[0]} AS DOUBLE)", f"CAST({a[1]} AS DOUBLE)"
        a, b = self.double(table, depth - 1), self.double(table, depth - 1)
        if kind in (4, 5):
            sign = self.pick("+", "-", "*")
            return tuple(f"({x} {sign} {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 6:
            return tuple(f"({x} / CAST(4 AS DOUBLE))" for x in a)  # type: ignore[return-value]
        name = self.pick("ABS", "FLOOR", "CEIL")
        return tuple(f"{name}({x})" for x in a)  # type: ignore[return-value]

    def text(self, table: str, depth: int = 2) -> tuple[str, str]:
        kind = self.rng.randint(0, 9 if depth else 1)
        if kind == 0:
            return self.column("s", table=table)
        if kind == 1:
            value = self.pick("'a'", "'ab'", "''", "'it''s'", "'é'")
            return value, value
        a = self.text(table, depth - 1)
        if kind == 2:
            name = self.pick("UPPER", "LOWER", "TRIM", "REVERSE")
            return tuple(f"{name}({x})" for x in a)  # type: ignore[return-value]
        if kind == 3:
            b = self.text(table, depth - 1)
            return tuple(f"({x} || {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 4:
            start, length = self.rng.randint(1, 3), self.rng.randint(0, 2)
            return tuple(f"SUBSTRING({x}, {start}, {length})" for x in a)  # type: ignore[return-value]
        if kind == 5:
            number = self.integer(table, depth - 1)
            return tuple(f"CAST({x} AS VARCHAR)" for x in number)  # type: ignore[return-value]
        if kind == 6:
            return tuple(f"REPLACE({x}, 'a', 'zz')" for x in a)  # type: ignore[return-value]
        if kind == 7:
            return tuple(f"COALESCE({x}, 'none')" for x in a)  # type: ignore[return-value]
        if kind == 8:
            return tuple(f"LPAD({x}, 3, '*')" for x in a)  # type: ignore[return-value]
        return tuple(f"CONCAT_WS('-', {x}, 'q')" for x in a)  # type: ignore[return-value]

    def condition(self, table: str, depth: int = 2) -> tuple[str, str]:
        kind = self.rng.randint(0, 14 if depth else 2)
        if kind <= 2:
            make = self.pick(self.integer, self.double, self.text)
            a, b = make(table, max(depth - 1, 0)), make(table, max(depth - 1, 0))
            sign = self.pick("=", "<>", "<", "<=", ">", ">=")
            return tuple(f"({x} {sign} {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        a = self.condition(table, depth - 1)
        if kind in (3, 4):
            b, word = self.condition(table, depth - 1), self.pick("AND", "OR")
            return tuple(f"({x} {word} {y})" for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
        if kind == 5:
            return tuple(f"(NOT {x})" for x in a)  # type: ignore[return-value]
        if kind == 6:
            return self.column("b", table=table)
        if kind == 7:
            test = self.pick("IS NULL", "IS NOT NULL")
            c = self.pick(self.integer, self.text)(table, 1)
            return tuple(f"({x} {test})" for x in c)  # type: ignore[return-value]
        if kind == 8:
            values = ", ".join(self.pick("1", "2", "-1", "NULL", "0") for _ in range(self.rng.randint(1, 6)))
            word = self.pick("IN", "NOT IN")
            c = self.integer(table, 1)
            return tuple(f"({x} {word} ({values}))" for x in c)  # type: ignore[return-value]
        if kind == 9:
            c, word = self.integer(table, 1), self.pick("BETWEEN", "NOT BETWEEN")
            return tuple(f"({x} {word} -1 AND 3)" for x in c)  # type: ignore[return-value]
        if kind == 10:
            c, word = self.text(table, 1), self.pick("LIKE", "NOT LIKE")
            pattern = self.pick("a%", "%b", "_", "%", "x!%%' ESCAPE '!")
            return tuple(f"({x} {word} '{pattern}')" for x in c)  # type: ignore[return-value]
        if kind == 11:
            c, test = a, self.pick("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE")
            return tuple(f"({x} {test})" for x in c)  # type: ignore[return-value]
        if kind == 12:
            c, e = self.integer(table, 1), self.integer(table, 1)
            word = self.pick("IS DISTINCT FROM", "IS NOT DISTINCT FROM")
            return tuple(f"({x} {word} {y})" for x, y in zip(c, e, strict=True))  # type: ignore[return-value]
        if kind == 13:
            second = self.rng.randint(0, 60)
            moment = (START + dt.timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S")
            (column, _) = self.column("ts", table=table)
            return (f"({column} < TIMESTAMP '{moment}')",) * 2
        c = self.text(table, 1)
        return tuple(f"({x} IN ('a', 'ab', 'Zed', 'b'))" for x in c)  # type: ignore[return-value]

    def value(self, table: str) -> tuple[str, str]:
        kind = self.rng.randint(0, 5)
        if kind == 0:
            return self.column("m", "ts", "b", table=table)
        if kind == 5:
            return self.condition(table, 1)
        make = self.pick(self.integer, self.double, self.text)
        return make(table)

    def where(self, table: str) -> tuple[str, str]:
        if self.rng.random() < 0.4:
            return "", ""
        c = self.condition(table)
        return f" WHERE {c[0]}", f" WHERE {c[1]}"

    # Queries

    def listed(self, table: str, count: int | None = None) -> list[tuple[str, str]]:
        return [self.value(table) for _ in range(count or self.rng.randint(1, 3))]

    def plain(self) -> Query:
        items, where = self.listed(""), self.where("")
        distinct = "DISTINCT " if self.rng.random() < 0.25 else ""
        return self.both(f"SELECT {distinct}", items, " FROM t", where)

    def both(self, before: str, items: list[tuple[str, str]], middle: str, after: tuple[str, str]) -> Query:
        ours, theirs = (
            before + ", ".join(f"{item[side]} AS c{n}" for n, item in enumerate(items)) + middle + after[side]
            for side in (0, 1)
        )
        return Query(ours, theirs)

    def aggregate(self, table: str = "") -> tuple[str, str]:
        kind = self.rng.randint(0, 8)
        where = self.condition(table, 1) if self.rng.random() < 0.2 else None
        if kind == 0:
            found = ("COUNT(*)", "COUNT(*)")
        elif kind == 1:
            a = self.value(table)
            found = (f"COUNT({a[0]})", f"COUNT({a[1]})")
        elif kind == 2:
            a = self.pick(self.integer, self.text)(table, 1)
            found = (f"COUNT(DISTINCT {a[0]})", f"COUNT(DISTINCT {a[1]})")
        elif kind == 3:
            a = self.integer(table, 1)
            found = (f"SUM({a[0]})", f"SUM({a[1]})")
        elif kind == 4:
            a = self.double(table, 1)
            found = (f"AVG({a[0]})", f"AVG({a[1]})")
        elif kind == 5:
            name, a = self.pick("MIN", "MAX"), self.pick(self.integer, self.text, self.double)(table, 1)
            found = (f"{name}({a[0]})", f"{name}({a[1]})")
        elif kind == 6:
            a = self.column("m", table=table)
            name = self.pick("SUM", "MIN", "MAX")
            found = (f"{name}({a[0]})", f"{name}({a[1]})")
        elif kind == 7:
            name, a = self.pick("STDDEV_POP", "VAR_SAMP", "STDDEV_SAMP"), self.column("d", table=table)
            found = (f"{name}({a[0]})", f"{name}({a[1]})")
        else:
            a = self.integer(table, 1)
            found = (f"SUM(DISTINCT {a[0]})", f"SUM(DISTINCT {a[1]})")
        if where is not None:
            found = (f"{found[0]} FILTER (WHERE {where[0]})", f"{found[1]} FILTER (WHERE {where[1]})")
        return found

    def grouped(self) -> Query:
        keys = [self.pick(self.integer, self.text, lambda t, d: self.column("b", "m", "j", "s", table=t))("", 1)
                for _ in range(self.rng.randint(0, 2))]  # fmt: skip
        keys = [key for key in keys if any(c.isalpha() for c in key[0].replace("'", ""))]
        keys = [key for key in keys if any(name in key[0] for name in ("i", "j", "d", "s", "b", "m"))]
        aggregates = [self.aggregate() for _ in range(self.rng.randint(1, 3))]
        having = ("", "")
        if self.rng.random() < 0.3:
            test = self.aggregate_condition()
            having = (f" HAVING {test[0]}", f" HAVING {test[1]}")
        if not having[0]:
            having = (" HAVING COUNT(*) > 0",) * 2
        where = self.where("")
        group = [""] * 2
        if keys:
            word = self.pick("", "", "", "ROLLUP", "CUBE")
            for side in (0, 1):
                names = ", ".join(key[side] for key in keys)
                group[side] = f" GROUP BY {word} ({names})" if word else f" GROUP BY {names}"
        after = (where[0] + group[0] + having[0], where[1] + group[1] + having[1])
        return self.both("SELECT ", [*keys, *aggregates], " FROM t", after)

    def aggregate_condition(self) -> tuple[str, str]:
        number = self.rng.randint(0, 4)
        return self.pick(
            (f"COUNT(*) > {number}",) * 2,
            (f"SUM(i) > {number}",) * 2,
            ("COUNT(*) > 0 AND MAX(s) IS NOT NULL",) * 2,
            ("MIN(i) < COUNT(DISTINCT j)",) * 2,
        )

    def joined(self) -> Query:
        how = self.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        on = self.pick("x.i = y.i", "x.j = y.j AND x.s = y.s", "x.s = y.s", "x.id = y.id", "x.i = y.j AND x.id < y.id")
        if self.rng.random() < 0.2 and how == "JOIN":
            on += " AND x.d > y.d"
        items = [self.value(self.pick("x", "y")) for _ in range(self.rng.randint(1, 3))]
        where = self.where(self.pick("x", "y"))
        if self.rng.random() < 0.3:
            groups = self.column("s", "j", table="x")
            return self.both("SELECT ", [groups, self.aggregate("y")], f" FROM t AS x {how} u AS y ON {on}",
                             (f"{where[0]} GROUP BY {groups[0]}", f"{where[1]} GROUP BY {groups[1]}"))  # fmt: skip
        return self.both("SELECT ", items, f" FROM t AS x {how} u AS y ON {on}", where)

    def set_operation(self) -> Query:
        word = self.pick("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
        makes = [self.pick(self.integer, self.text) for _ in range(self.rng.randint(1, 2))]
        sides = [[make("", 1) for make in makes] for _ in range(2)]
        first = self.both("SELECT ", sides[0], " FROM t", self.where(""))
        second = self.both("SELECT ", sides[1], " FROM u", self.where(""))
        return Query(f"{first.ours} {word} {second.ours}", f"{first.theirs} {word} {second.theirs}")

    def over(self) -> Query:
        partition = self.pick("", "PARTITION BY j ", "PARTITION BY s, b ")
        down = self.pick("", " DESC")
        nulls = "NULLS LAST" if down else "NULLS FIRST"
        column = self.pick("i", "d", "s")
        order = f"ORDER BY {column}{down} {nulls}, id"
        frame = self.pick(
            "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        )
        function = self.pick(*_FUNCTIONS)
        if function.startswith(("ROW", "RANK", "DENSE", "LAG", "LEAD")):
            frame = ""
        where = self.where("")
        text = f"SELECT id AS c0, {function} OVER ({partition}{order}{frame}) AS c1 FROM t"
        return Query(text + where[0], text + where[1])

    def top(self) -> Query:
        down = self.pick("", " DESC")
        nulls = "NULLS LAST" if down else "NULLS FIRST"
        rank, n = self.pick("ROW_NUMBER", "RANK", "DENSE_RANK"), self.rng.randint(1, 3)
        partition = self.pick("PARTITION BY j", "PARTITION BY s", "PARTITION BY b, j")
        tail = ", id" if rank == "ROW_NUMBER" else ""
        shown = self.pick("id, i", "id, i, rn")
        where = self.where("")
        texts = [
            f"SELECT {shown} FROM (SELECT *, {rank}() OVER ({partition} ORDER BY i{down} {nulls}{tail}) AS rn FROM t"
            f"{where[side]}) WHERE rn <= {n}"
            for side in (0, 1)
        ]
        return Query(*texts)

    def subquery(self) -> Query:
        inner = self.where("")
        outer = self.listed("t", 2)
        test = self.pick(
            "t.i IN (SELECT u.i FROM u{w})",
            "t.i NOT IN (SELECT u.j FROM u{w})",
            "EXISTS (SELECT 1 FROM u WHERE u.i = t.i AND u.id > 3)",
            "NOT EXISTS (SELECT 1 FROM u WHERE u.s = t.s)",
            "t.i > (SELECT AVG(CAST(u.i AS DOUBLE)) FROM u{w})",
            "t.id <= (SELECT COUNT(*) FROM u WHERE u.j = t.j)",
            "t.i = (SELECT MAX(u.i) FROM u WHERE u.s = t.s)",
        )
        both = (f" WHERE {test.replace('{w}', inner[0])}", f" WHERE {test.replace('{w}', inner[1])}")
        return self.both("SELECT ", outer, " FROM t", both)

    def windowed(self) -> Query:
        size = self.pick(5, 10, 60)
        key = self.pick("j", "s", "b")
        aggregate, where = self.aggregate(), self.where("")
        ours = (
            f"SELECT window_start AS c0, {key} AS c1, {aggregate[0]} AS c2 FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), "
            f"INTERVAL '{size}' SECOND)){where[0]} GROUP BY window_start, window_end, {key}"
        )
        theirs = (
            f"SELECT time_bucket(INTERVAL '{size} seconds', ts) AS c0, {key} AS c1, {aggregate[1]} AS c2 FROM t"
            f"{where[1]} GROUP BY 1, {key}"
        )
        return Query(ours, theirs)

    def nested(self) -> Query:
        first, where = self.grouped_by_column(), self.where("t")
        how = self.pick("JOIN", "LEFT JOIN")
        items = [self.integer("t", 1), self.text("t", 1)]
        texts = [
            f"WITH g AS ({first[side]}) SELECT {items[0][side]} AS c0, {items[1][side]} AS c1, g.n AS c2, "
            f"g.total AS c3 FROM t {how} g ON t.j = g.j{where[side]}"
            for side in (0, 1)
        ]
        return Query(*texts)

    def grouped_by_column(self) -> tuple[str, str]:
        where = self.where("")
        texts = [f"SELECT j, COUNT(*) AS n, SUM(i) AS total FROM u{where[side]} GROUP BY j" for side in (0, 1)]
        return texts[0], texts[1]


__all__ = ["COLUMNS", "DIFFERENCES", "Generator", "Query", "random_table"]
