"""`Session`: statements one after the other, on one catalog.

What a statement does is done here as far as it is a definition or a question about definitions. A query is planned, and
an INSERT INTO becomes a job; who runs them, and where, is for others to say.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.delivery import DELIVERIES
from headrace.errors import PlanError
from headrace.streaming_sql import statements
from headrace.streaming_sql.catalog import Catalog, FunctionEntry, TableEntry, ViewEntry
from headrace.streaming_sql.column_types import type_name
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.script import Fragment
from headrace.streaming_sql.table_sink import insert_job, job_name, target_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.stream import Job, Stream
    from headrace.streaming_sql.planning import Planned
    from headrace.streaming_sql.statements import Insert, Statement
    from headrace.streaming_sql.table_sink import TargetColumn

#: What SET knows, with what it does.
SETTINGS: Final = {
    "pipeline.name": "The name of the job of the next INSERT INTO.",
    "job.description": "A sentence about the job of the next INSERT INTO.",
    "job.delivery": f"What readers of results may rely on: {', '.join(DELIVERIES)}.",
}
#: Settings of Flink that say nothing here.
_WITHOUT_EFFECT: Final = (
    "table.",
    "execution.",
    "parallelism.",
    "state.",
    "sql-client.",
    "restart-strategy",
    "pipeline.",
)


@dataclass(frozen=True)
class Done:
    """A statement was carried out.

    Args:
        text: What was done.
        notes: What was written and has no effect.
    """

    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """The answer to a question about definitions: a table of texts."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Text:
    """The answer to EXPLAIN or SHOW CREATE."""

    text: str


@dataclass(frozen=True)
class Answer:
    """A query that was planned.

    Args:
        query: The query.
        planned: Its rows and columns.
        tables: The tables that it reads, views taken apart.
    """

    query: Fragment
    planned: Planned
    tables: tuple[TableEntry, ...]

    @property
    def is_bounded(self) -> bool:
        """Whether all that it reads is there already."""
        return all(table.bounded is not None for table in self.tables)


@dataclass(frozen=True)
class Insertion:
    """An INSERT INTO that was planned.

    Args:
        answer: Its query.
        target: The table.
        columns: The columns of the table, and what each is made of.
        job: It as a job; None for a table that only this process can write.
        insert: The statement.
    """

    answer: Answer
    target: TableEntry
    columns: tuple[TargetColumn, ...]
    job: Job | None
    insert: Insert


@dataclass(frozen=True)
class Insertions:
    """One INSERT INTO, or those of a statement set."""

    parts: tuple[Insertion, ...]


Result: TypeAlias = Done | Listing | Text | Answer | Insertions


class Session:
    """Carries out statements on a catalog.

    Args:
        catalog: Tables, views and functions; a new one if not given.
        name: What its jobs are called, if they are not named.
        alone: Whether the first job has the plain name, without that of its table.

    >>> import polars as pl
    >>> session = Session()
    >>> session.catalog.add("doors", pl.DataFrame({"door": ["a"]}))
    >>> [type(result).__name__ for result in session.run("CREATE VIEW b AS SELECT door FROM doors; SHOW VIEWS")]
    ['Done', 'Listing']
    """

    def __init__(self, catalog: Catalog | None = None, *, name: str = "sql", alone: bool = False) -> None:
        self.catalog = Catalog() if catalog is None else catalog
        self.settings: dict[str, str] = {}
        self.jobs: dict[str, Job] = {}
        self._name = name
        self._alone = alone

    def run(self, text: str) -> Iterator[Result]:
        """Carry out the statements of a text, one when the result of the one before was taken.

        Args:
            text: Statements with semicolons between them. All of them are read before the first is carried out.

        Raises:
            PlanError: A statement is wrong; those before it were carried out.
        """
        for statement in parse_script(text):
            yield self.execute(statement)

    def execute(self, statement: Statement) -> Result:
        """Carry out one statement.

        Raises:
            PlanError: It is wrong.
        """
        match statement:
            case statements.CreateTable():
                entry = self.catalog.create_table(statement)
                return Done(f"Table {entry.name} is {entry.what}.", entry.notes)
            case statements.CreateView():
                view = self.catalog.create_view(statement)
                return Done(f"View {view.name} is there.")
            case statements.CreateFunction():
                function = self.catalog.create_function(statement)
                return Done(f"Function {function.name} is there.")
            case statements.Query():
                return self.answer(statement.query)
            case statements.Insert():
                return Insertions((self._insertion(statement, in_set=False),))
            case statements.StatementSet():
                return Insertions(
                    tuple(self._insertion(each, in_set=len(statement.inserts) > 1) for each in statement.inserts)
                )
            case statements.SetOption():
                return self._set(statement)
            case statements.ResetOption():
                return self._reset(statement)
            case statements.Drop():
                self.catalog.drop(statement)
                return Done(f"{statement.kind.capitalize()} {statement.name} is gone.")
            case _:
                return self._told(statement)

    def answer(self, query: Fragment) -> Answer:
        """Plan a query.

        Raises:
            PlanError: It is wrong.
        """
        planned = self.catalog.plan(query)
        return Answer(query, planned, self.catalog.read_by(planned))

    def stream(self, query: str) -> Stream:
        """Give a query as a stream, whose columns have the names that the query gives them.

        Args:
            query: A query over the tables and views of the session.

        Raises:
            PlanError: It is wrong.

        >>> from headrace.stream import Stream
        >>> import polars as pl
        >>> session = Session()
        >>> session.catalog.add("doors", Stream.rows("doors", {"door": pl.String}))
        >>> session.stream("SELECT UPPER(door) AS d FROM doors").schema.names()
        ['event_time', 'd']
        """
        return self.catalog.plan(Fragment.whole(query)).named_stream

    # --- jobs

    def _insertion(self, insert: Insert, *, in_set: bool) -> Insertion:
        found = self.catalog.find(insert.table, insert.text)
        if not isinstance(found, TableEntry):
            raise insert.text.problem(f"INSERT INTO {insert.table}, which is a view", hint="Name a table.")
        answer = self.answer(insert.query)
        columns = target_columns(found, insert, answer.planned)
        job = None
        if not any(table.bounded is not None for table in answer.tables) and found.connector not in (
            "print",
            "blackhole",
        ):
            name = self._job_name(insert, in_set=in_set)
            description = self.settings.pop("job.description", "")
            job = insert_job(name, found, insert, answer.planned, self.catalog.formats, description=description)
            delivery = self.settings.get("job.delivery")
            job = job if delivery is None else replace(job, delivery=delivery)  # type: ignore[arg-type]
            self.jobs[name] = job
        return Insertion(answer, found, columns, job, insert)

    def _job_name(self, insert: Insert, *, in_set: bool) -> str:
        named = self.settings.get("pipeline.name")
        base = job_name(named or self._name)
        wanted = base if not in_set and (named or self._alone) else job_name(f"{base}-{insert.table}")
        if not in_set:
            self.settings.pop("pipeline.name", None)
        if wanted in self.jobs and named:
            raise insert.text.problem(f"there is a job {wanted} already", hint="SET 'pipeline.name' to another name.")
        name, count = wanted, 1
        while name in self.jobs:
            count += 1
            name = f"{wanted}-{count}"
        return name

    # --- settings

    def _set(self, statement: statements.SetOption) -> Result:
        if statement.key is None:
            return Listing(("setting", "value"), tuple(sorted(self.settings.items())))
        key = statement.key
        if key not in SETTINGS:
            if key.startswith(_WITHOUT_EFFECT):
                return Done(f"{key} has no effect: the settings of Headrace are in headrace.toml.")
            close = difflib.get_close_matches(key, SETTINGS, n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            hint = f"{guess}SET knows {', '.join(SETTINGS)}; all else is in headrace.toml."
            raise statement.text.problem(f"there is no setting {key!r}", hint=hint)
        if key == "job.delivery" and statement.value not in DELIVERIES:
            hint = f"Choose one of {', '.join(DELIVERIES)}."
            raise statement.text.problem(f"job.delivery is {statement.value!r}", hint=hint)
        self.settings[key] = statement.value
        return Done(f"{key} is {statement.value}.")

    def _reset(self, statement: statements.ResetOption) -> Result:
        if statement.key is None:
            self.settings.clear()
        elif self.settings.pop(statement.key, None) is None and statement.key not in SETTINGS:
            raise statement.text.problem(f"there is no setting {statement.key!r}")
        return Done("Reset.")

    # --- questions

    def _told(self, statement: Statement) -> Result:
        match statement:
            case statements.Show():
                return self._listed(statement)
            case statements.ShowCreate():
                return Text(self._definition(statement))
            case statements.Describe():
                return self.described(statement.name, statement.text)
            case statements.Explain():
                return Text(self._explained(statement.statement))
        raise TypeError(f"{type(statement).__name__} is no statement")

    def _listed(self, show: statements.Show) -> Listing:
        header: tuple[str, ...]
        rows: list[tuple[str, ...]]
        if show.what == "jobs":
            header = ("job", "reads", "writes")
            rows = [(job.name, ", ".join(job.sources), ", ".join(job.result_topics)) for job in self.jobs.values()]
        elif show.what == "functions":
            header, rows = ("function", "place"), [(each.name, _place(each)) for each in self.catalog.functions]
        elif show.what == "views":
            header, rows = ("view",), [(each.name,) for each in self.catalog.views]
        else:
            header, rows = ("table", "what"), [(each.name, each.what) for each in self.catalog.tables]
        return Listing(header, tuple(row for row in rows if _is_like(row[0], show.like)))

    def described(self, name: str, at: Fragment | None = None) -> Listing:
        """List the columns of a table or view.

        Raises:
            PlanError: There is none of this name.
        """
        found = self.catalog.find(name, at)
        if isinstance(found, ViewEntry):
            schema = found.planned.schema
            return Listing(
                ("column", "type", "how"), tuple((each, type_name(kind), "") for each, kind in schema.items())
            )
        ways = {} if found.definition is None else {each.name: _way(each) for each in found.definition.columns}
        keys = () if found.definition is None else found.definition.primary_key
        watermark = None if found.definition is None else found.definition.watermark
        rows = []
        for column, dtype in found.columns.items():
            how = [ways[column]] if ways.get(column) else []
            how += ["PRIMARY KEY"] if column in keys else []
            how += [watermark.at.text] if watermark is not None and watermark.column == column else []
            rows.append((column, type_name(dtype), ", ".join(how)))
        return Listing(("column", "type", "how"), tuple(rows))

    def _definition(self, show: statements.ShowCreate) -> str:
        if show.kind == "function":
            for each in self.catalog.functions:
                if each.name.lower() == show.name.lower() and each.definition is not None:
                    return f"{each.definition.text.text};"
            raise show.text.problem(f"there is no CREATE FUNCTION {show.name}")
        found = self.catalog.find(show.name, show.text)
        if found.definition is None:
            raise show.text.problem(
                f"{show.name} was given by the program", hint=f"DESCRIBE {show.name} lists its columns."
            )
        return f"{found.definition.text.text};"

    def _explained(self, statement: statements.Query | statements.Insert | statements.StatementSet) -> str:
        if isinstance(statement, statements.Query):
            return self.catalog.plan(statement.query).stream.explain()
        kept, settings = dict(self.jobs), dict(self.settings)
        try:
            found = self.execute(statement)
        finally:
            self.jobs, self.settings = kept, settings
        if not isinstance(found, Insertions):
            raise PlanError("EXPLAIN of a statement that computes nothing")
        plans = [
            part.answer.planned.stream.explain() if part.job is None else part.job.explain() for part in found.parts
        ]
        return "\n\n".join(plans)


def _place(function: FunctionEntry) -> str:
    if function.definition is not None:
        return function.definition.place
    return f"{getattr(function.function, '__module__', '')}:{getattr(function.function, '__qualname__', '')}"


def _way(column: Any) -> str:
    match column:
        case statements.ComputedColumn():
            return f"AS {column.expression.text}"
        case statements.MetadataColumn():
            return f"METADATA FROM '{column.key}'" + (" VIRTUAL" if column.is_virtual else "")
    return ""


def _is_like(name: str, pattern: str | None) -> bool:
    """Tell whether a name is LIKE a pattern: % is any text, _ any character; without regard to case."""
    if pattern is None:
        return True
    written = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)
    return re.fullmatch(written, name, re.IGNORECASE | re.DOTALL) is not None
