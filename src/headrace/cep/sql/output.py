"""A whole MATCH_RECOGNIZE clause on a frame: check, bind, compile, search, and lay out the result.

The columns of the result are, as the standard has it, for ONE ROW PER MATCH the partition columns and the measures,
for ALL ROWS PER MATCH the partition columns, the order columns, the measures, and the columns that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.sql.binder import Binder, Names, SubqueryRunner
from headrace.cep.sql.compiler import Condition, compile_pattern, never_holds, split_condition
from headrace.cep.sql.lexer import problem
from headrace.cep.sql.matching import EMPTY, MATCHED, TIMED_OUT, Matches, SkipRule, find_matches
from headrace.cep.sql.measures import MeasureEvaluator, Places
from headrace.cep.sql.pattern import Exclusion, variables, walk
from headrace.cep.sql.table import SortKey, Table

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.cep.program import Program
    from headrace.cep.sql.bound import Bound, DataType
    from headrace.cep.sql.syntax import Identifier, MatchRecognize, Name, RowsPerMatch
    from headrace.errors import PlanError


@dataclass(frozen=True)
class Plan:
    """A checked and compiled clause, ready to run on any frame of the same columns.

    Args:
        partition_by: Partition columns.
        order_by: Order columns.
        measures: Names and expressions.
        rows: What comes out per match.
        skip: Where to go on after a match.
        program: The compiled pattern.
        conditions: The conditions by variable.
        labels: The variables of the pattern.
        within: Time bound, on the first order column.
        timed_out: Whether partial matches whose time was over come out, too.
    """

    partition_by: tuple[str, ...]
    order_by: tuple[SortKey, ...]
    measures: tuple[tuple[str, Bound], ...]
    rows: RowsPerMatch
    skip: SkipRule
    program: Program
    conditions: Mapping[str, Condition]
    labels: tuple[str, ...]
    within: dt.timedelta | None
    timed_out: bool = False


#: The column that tells partial matches whose time was over from matches, where both are asked for.
TIMED_OUT_COLUMN = "timed_out"


def plan(
    clause: MatchRecognize,
    schema: Mapping[str, DataType],
    *,
    table_name: str = "",
    run: SubqueryRunner | None = None,
    masks: bool = True,
) -> Plan:
    """Checks a clause against the columns of its input and compiles it.

    Args:
        clause: The clause as parsed.
        schema: Columns of the input.
        table_name: How the input is called; PARTITION BY and ORDER BY may name it.
        run: Evaluates subqueries.
        masks: False asks all conditions while matching (slower, the same result).
    """
    primary = variables(clause.pattern)
    unions = _unions(clause, frozenset(primary))
    names = Names(schema, frozenset(primary), unions, run)
    partition_by = tuple(_input_column(column, names, table_name) for column in clause.partition_by)
    order_by = tuple(
        SortKey(_input_column(item.column, names, table_name), item.descending, item.nulls_first)
        for item in clause.order_by
    )
    if order_by and isinstance(schema[order_by[0].column], pl.Datetime | pl.Date):
        names = replace(names, time_column=order_by[0].column)
    _check_exclusion(clause)
    conditions = _conditions(clause, names, masks)
    binder = Binder(names, "MEASURES")
    measures = tuple((measure.alias.text, binder.measure(measure.expression)) for measure in clause.measures)
    if clause.rows == "one" and not partition_by and not measures:
        raise problem("the result has no columns", clause.at, hint="Add MEASURES, or use ALL ROWS PER MATCH.")
    _check_within(clause, order_by, schema)
    _check_timed_out(clause, partition_by, measures)
    micros = None if clause.within is None else round(clause.within.total_seconds() * 1_000_000)
    program = compile_pattern(clause.pattern, conditions, within=micros)
    return Plan(
        partition_by,
        order_by,
        measures,
        clause.rows,
        _skip_rule(clause, names),
        program,
        conditions,
        tuple(primary),
        clause.within,
        clause.timed_out is not None,
    )


def _unions(clause: MatchRecognize, primary: frozenset[str]) -> dict[str, frozenset[str]]:
    unions: dict[str, frozenset[str]] = {}
    for subset in clause.subsets:
        name = subset.variable
        if name.label in primary:
            raise problem(f"SUBSET {name.text} has the name of a variable of the pattern", name.at)
        if name.label in unions:
            raise problem(f"SUBSET {name.text} is declared twice", name.at)
        for member in subset.members:
            _check_primary(member, primary, "SUBSET")
        unions[name.label] = frozenset(member.label for member in subset.members)
    return unions


def _check_primary(name: Identifier, primary: frozenset[str], clause: str) -> None:
    if name.label not in primary:
        raise problem(
            f"{name.text} in {clause} is not a variable of the pattern",
            name.at,
            hint=f"Variables: {', '.join(sorted(primary))}.",
        )


def _check_exclusion(clause: MatchRecognize) -> None:
    if clause.rows != "all with unmatched":
        return
    for node in walk(clause.pattern):
        if isinstance(node, Exclusion):
            raise problem("{- -} is not allowed with ALL ROWS PER MATCH WITH UNMATCHED ROWS", node.at)


def _conditions(clause: MatchRecognize, names: Names, masks: bool) -> dict[str, Condition]:
    binder = Binder(names, "DEFINE")
    conditions: dict[str, Condition] = {}
    for definition in clause.definitions:
        name = definition.variable
        _check_primary(name, names.variables, "DEFINE")
        if name.label in conditions:
            raise problem(f"variable {name.text} is defined twice", name.at)
        conditions[name.label] = split_condition(name.label, binder.condition(definition.condition), masks=masks)
    return conditions


def impossible(clause: MatchRecognize, plan: Plan) -> PlanError | None:
    """Why the pattern can match nothing, whatever the rows; None if it can.

    Over a table this is no error, as SQL has it: the result has no rows. A stream would wait for ever.
    """
    asked = [each for each in plan.conditions.values() if each.mask is not None or each.path is not None]
    never = {number: each.label for number, each in enumerate(asked) if never_holds(each)}
    if plan.rows == "all with unmatched" or plan.program.can_match(never):
        return None
    blamed = next(iter(never.values()), None)
    where = {definition.variable.label: definition.variable.at for definition in clause.definitions}
    why = "^ stands behind a row, or a row behind $" if blamed is None else f"the condition of {blamed} never holds"
    at = clause.at if blamed is None else where[blamed]
    return problem(f"the pattern can match nothing: {why}", at, hint="Change the pattern or the condition.")


def _input_column(name: Name, names: Names, table_name: str) -> str:
    parts = name.parts
    if len(parts) == 2 and parts[0].text.lower() == table_name.lower():
        parts = parts[1:]
    found = names.column(parts[0]) if len(parts) == 1 else None
    if found is None:
        text = ".".join(part.text for part in name.parts)
        raise problem(f"unknown column {text}", name.at, hint=f"Columns: {', '.join(names.columns) or 'none'}.")
    if isinstance(names.columns[found], pl.Object):
        raise problem(f"column {found} holds Python objects, which have no order and no groups", name.at)
    return found


def _check_within(clause: MatchRecognize, order_by: Sequence[SortKey], schema: Mapping[str, DataType]) -> None:
    if clause.within is None:
        return
    if not order_by or order_by[0].descending or not isinstance(schema[order_by[0].column], pl.Datetime | pl.Date):
        raise problem(
            "WITHIN needs ORDER BY with a timestamp column first, ascending",
            clause.at,
            hint="It bounds the time between the first and the last row of a match.",
        )


def _check_timed_out(
    clause: MatchRecognize, partition_by: Sequence[str], measures: Sequence[tuple[str, Bound]]
) -> None:
    if clause.timed_out is None:
        return
    if clause.within is None:
        raise problem(
            "WITH TIMED OUT MATCHES, and no time bound after which a match is timed out",
            clause.timed_out,
            hint="Add WITHIN INTERVAL '...' behind PATTERN (...).",
        )
    if clause.rows == "all with unmatched":
        raise problem(
            "WITH TIMED OUT MATCHES after WITH UNMATCHED ROWS, which shows the same rows",
            clause.timed_out,
            hint="Leave out one of the two.",
        )
    if TIMED_OUT_COLUMN in (*partition_by, *(name for name, _ in measures)):
        raise problem(
            f"a column is named {TIMED_OUT_COLUMN}, like the one that WITH TIMED OUT MATCHES adds",
            clause.timed_out,
            hint="Give it another name.",
        )


def _skip_rule(clause: MatchRecognize, names: Names) -> SkipRule:
    skip = clause.skip
    if skip.variable is None:
        return SkipRule(skip.to)
    labels = names.labels(skip.variable.label)
    if labels is None:
        variables_ = ", ".join(sorted(names.variables | set(names.unions)))
        raise problem(
            f"{skip.variable.text} in AFTER MATCH SKIP is not a variable of the pattern",
            skip.at,
            hint=f"Variables: {variables_}.",
        )
    return SkipRule(skip.to, labels, skip.variable.text)


def execute(plan: Plan, frame: pl.DataFrame) -> pl.DataFrame:
    """Runs a plan on a frame."""
    table = Table(frame, plan.partition_by, plan.order_by)
    matches = find_matches(
        table,
        plan.program,
        plan.conditions,
        plan.skip,
        times=_times(plan, table),
        unmatched=plan.rows == "all with unmatched",
        timed_out=plan.timed_out,
        labels=plan.labels,
    )
    return result(plan, table, matches)


def result(plan: Plan, table: Table, matches: Matches, *, hidden: Collection[str] = ()) -> pl.DataFrame:
    """Lays out the matches that were found in a table.

    Args:
        plan: What was looked for.
        table: The rows.
        matches: The matches.
        hidden: Columns of the table that are not shown.
    """
    places = _places(plan.rows, matches)
    measures = MeasureEvaluator(table, matches, places).evaluate(plan.measures)
    shown = list(plan.partition_by)
    rest: list[str] = []
    if plan.rows != "one":
        shown += [key.column for key in plan.order_by]
        rest = [column for column in table.columns if column not in shown and column not in hidden]
    inputs = table.take(places.rows, list(dict.fromkeys([*shown, *rest])))
    if plan.timed_out:
        measures.insert(0, pl.Series(TIMED_OUT_COLUMN, matches.kinds[places.matches] == TIMED_OUT))
    columns = [inputs[name].alias(name) for name in shown] + measures + [inputs[name].alias(name) for name in rest]
    return pl.DataFrame(_distinct_names(columns))


def _times(plan: Plan, table: Table) -> NDArray[np.int64] | None:
    if plan.within is None:
        return None
    column = plan.order_by[0].column
    times = table.column(column).cast(pl.Datetime("us")).cast(pl.Int64)
    # Rows without a time come last and can be in no match.
    return times.fill_null(2**62).to_numpy()


def _places(rows: RowsPerMatch, matches: Matches) -> Places:
    numbers = np.arange(matches.count, dtype=np.int64)
    if rows == "one":
        last = matches.lengths - 1
        return Places(numbers, last, matches.starts)
    sizes = np.maximum(matches.lengths, 1)
    if rows == "all omit empty":
        sizes = np.where(matches.kinds == EMPTY, 0, sizes)
    owner = np.repeat(numbers, sizes)
    first = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    within = np.arange(len(owner), dtype=np.int64) - np.repeat(first, sizes)
    shown = matches.starts[owner] + within
    has_rows = np.isin(matches.kinds[owner], (MATCHED, TIMED_OUT))
    current = np.where(has_rows, within, -1)
    if matches.excluded is not None:
        flat = np.minimum(matches.offsets[owner] + within, len(matches.excluded) - 1)
        kept = ~(has_rows & matches.excluded[flat])
        owner, current, shown = owner[kept], current[kept], shown[kept]
    return Places(owner, current, shown)


def _distinct_names(columns: Sequence[pl.Series]) -> list[pl.Series]:
    """Names a column that has the name of one before it `name:1`, as Polars' own SQL does."""
    used: dict[str, int] = {}
    result: list[pl.Series] = []
    for column in columns:
        count = used.get(column.name, 0)
        used[column.name] = count + 1
        result.append(column.alias(f"{column.name}:{count}") if count else column)
    return result
