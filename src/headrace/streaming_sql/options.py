"""The options of WITH: each is asked for by its name, and what nobody asked for is an error."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.streaming_sql.script import ScriptError
    from headrace.streaming_sql.statements import CreateTable

#: Options that Flink has and that say nothing here, by the beginning of their names, with the reason.
_WITHOUT_EFFECT = {
    "properties.": "the settings say where Kafka is (broker.bootstrap)",
    "scan.startup.": "`headrace run --from` says where a job begins",
    "scan.": "sources are read in one way",
    "sink.parallelism": "results are written by the key groups",
    "sink.transactional-id-prefix": "transactional ids are made from the checkpoint",
    "sink.partitioner": "records are spread by their keys",
    "json.ignore-parse-errors": "records that cannot be read are dead letters always",
    "json.fail-on-missing-field": "a field that is missing is null",
    "json.timestamp-format.standard": "both ISO 8601 and SQL timestamps are read",
    "csv.ignore-parse-errors": "records that cannot be read are dead letters always",
    "debezium-json.ignore-parse-errors": "records that cannot be read are dead letters always",
}


class Options:
    """The options of a table.

    Args:
        table: The table.
    """

    def __init__(self, table: CreateTable) -> None:
        self._table = table
        self._asked: set[str] = set()
        #: What was given and has no effect, with the reason.
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._table.options

    def text(self, name: str, default: str = "") -> str:
        """Give an option as it was written."""
        self._asked.add(name)
        option = self._table.options.get(name)
        return default if option is None else option.value

    def needed(self, name: str, *, hint: str) -> str:
        """Give an option that has to be there.

        Raises:
            ScriptError: It is not there, or empty.
        """
        found = self.text(name)
        if not found:
            raise self.problem(name, f"table {self._table.name} has no option {name!r}", hint=hint)
        return found

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """Give an option that has one of some values.

        Raises:
            ScriptError: It has another.
        """
        known = list(choices)
        found = self.text(name, default)
        if found not in known:
            raise self.problem(name, f"{name!r} is {found!r}", hint=_similar(found, known))
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Give an option that is true or false."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def duration(self, name: str) -> int | None:
        """Give an option that is a duration, in microseconds; None if it is not there."""
        found = self.text(name)
        if not found:
            return None
        try:
            return micros(found, what=name)
        except PlanError as wrong:
            raise self.problem(name, wrong.message, hint=wrong.hint) from wrong

    def others(self, *but: str) -> dict[str, str]:
        """Give all options but some as they were written, named as arguments: `roll-rows` as `roll_rows`."""
        found = {name: self.text(name) for name in self._table.options if name not in but}
        return {name.replace("-", "_").replace(".", "_"): value for name, value in found.items()}

    def finish(self) -> None:
        """Refuse what nobody has asked for, and note what has no effect.

        Raises:
            ScriptError: There is such an option.
        """
        for name, option in self._table.options.items():
            if name in self._asked:
                continue
            why = next((why for begin, why in _WITHOUT_EFFECT.items() if name.startswith(begin)), None)
            if why is None:
                close = difflib.get_close_matches(name, self._asked, n=1, cutoff=0.7)
                guess = f"Did you mean {close[0]!r}? " if close else ""
                hint = f"{guess}Options of this table: {', '.join(sorted(self._asked))}."
                raise option.at.problem(f"table {self._table.name} has an unknown option {name!r}", hint=hint)
            self.notes.append(f"table {self._table.name}: {name!r} has no effect: {why}")

    def problem(self, name: str, message: str, *, hint: str = "") -> ScriptError:
        """Make the error for something wrong with an option: at its place, or at the table's where it is missing."""
        option = self._table.options.get(name)
        return (self._table.text if option is None else option.at).problem(message, hint=hint)


def _similar(found: str, known: list[str]) -> str:
    close = difflib.get_close_matches(found, known, n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Choose one of {', '.join(map(repr, known))}."
