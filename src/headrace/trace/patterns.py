"""What a pattern did with each row of a key: which element it matched, or which condition failed.

The rows that became ready in a turn are given to a copy of the operator one after the other. That changes nothing: a
pattern gives the same however rows are cut into pieces. After each row the partial matches are compared with those
before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import PolarsError

from headrace.cep.operator import PatternOperator
from headrace.cep.saved import pack, unpack
from headrace.engine import MemorySegments, Turn
from headrace.engine.contents import state_tables
from headrace.engine.frames import columns_read
from headrace.engine.group import OWN
from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.savepoints.contents import is_key
from headrace.time.duration import text as duration_text
from headrace.time.instants import BEGINNING, instant
from headrace.trace.events import capital
from headrace.trace.story import Event, Fact, time_text

if TYPE_CHECKING:
    from headrace.cep.pattern import Element
    from headrace.trace.look import Look

Partial = dict[str, Any]


def pattern_facts(operator: PatternOperator, look: Look) -> list[Fact]:
    """Tell what became of the rows that a pattern could put in order in a turn, and of its partial matches."""
    return _Walk(operator, look).facts()


class _Walk:
    def __init__(self, operator: PatternOperator, look: Look) -> None:
        self._look = look
        self._operator = operator
        # What decides the order is known already: the copy needs no clocks of its own.
        self._copy = PatternOperator(
            operator.pattern,
            key=operator.key,
            measures=operator.measures,
            timed_out=operator.timed_out,
            mark_timed_out=operator.mark_timed_out,
        )
        own = {name.removeprefix(OWN): value for name, value in look.content.items() if name.startswith(OWN)}
        self._before = state_tables(operator, own)
        self._segments = MemorySegments(own)

    def facts(self) -> list[Fact]:
        """Walk through the rows that are ready, then let time pass."""
        rows, pending = self._rows(), self._look.after.get("pending")
        reached = self._look.outcome.watermark
        watermark = self._look.stands.watermark if reached is None else reached
        waiting = set() if pending is None else set(pending.get_column(EVENT_TIME).to_physical())
        earlier = self._look.of_key(self._before.get("pending"))
        known = set() if earlier is None else set(earlier.get_column(EVENT_TIME).to_physical())
        partial = self._begin()
        facts: list[Fact] = []
        if rows is None and not partial:
            return []
        for time, same in _by_time(rows):
            events = [self._look.event(row) for row in same]
            if time in waiting and time >= watermark:
                if time not in known:
                    waits = "waits for the watermark to pass it."
                    facts += [self._fact("kept", row, event, waits) for row, event in zip(same, events, strict=True)]
                continue
            partial, told = self._step(partial, time, same, events)
            facts += told
        self._turn(None, max(watermark, BEGINNING + 1))
        return [*facts, *self._timed_out(partial, self._partial(), watermark)]

    def _begin(self) -> list[Partial]:
        """Take the rows that waited out of the copy: they are walked through one by one."""
        for name, value in list(self._segments.content.items()):
            if value[:2] == b"HP" and name == "pattern":
                record, frames = unpack(value)
                frames.pop("pending", None)
                self._segments.put(name, pack(record, frames))
        return self._partial()

    def _rows(self) -> pl.DataFrame | None:
        """Give the rows that waited and those that came, without those that were late or could not be used."""
        look = self._look
        gone = look.numbers(look.outcome.late) | look.numbers(look.outcome.dismissed)
        parts = []
        waiting = look.of_key(self._before.get("pending"))
        if waiting is not None:
            parts.append(waiting)
        if look.rows is not None:
            came = look.rows
            if ORIGINAL in came.columns:
                came = came.filter(~pl.col(ORIGINAL).is_in(list(gone)).fill_null(value=False))
            parts.append(came.filter(pl.col(EVENT_TIME).is_not_null()))
        rows = pl.concat(parts, how="diagonal_relaxed") if parts else None
        return rows if rows is not None and rows.height else None

    def _turn(self, rows: pl.DataFrame | None, watermark: int) -> tuple[int, bool]:
        schema = self._look.stage.schema
        given = schema.to_frame() if rows is None else rows.select([name for name in schema if name in rows.columns])
        outcome = self._copy.turn(self._segments, Turn(given, watermark=watermark, now=self._look.stands.now))
        mine = self._look.of_key(outcome.rows)
        return (0 if mine is None else mine.height), outcome.dismissed is not None

    def _partial(self) -> list[Partial]:
        found = state_tables(self._copy, self._segments.content).get("partial_matches")
        if found is None:
            return []
        keys = tuple(self._operator.key)
        return found.filter(is_key(keys, self._look.key)).to_dicts() if keys else found.to_dicts()

    def _step(
        self, before: list[Partial], time: int, rows: list[dict[str, Any]], events: list[Event | None]
    ) -> tuple[list[Partial], list[Fact]]:
        """Give the rows of one moment to the copy."""
        schema = self._look.stage.schema
        frame = pl.DataFrame(
            [{name: row.get(name) for name in schema} for row in rows], schema=dict(schema), orient="row"
        )
        matches, _ = self._turn(frame, time + 1)
        after = self._partial()
        facts: list[Fact] = []
        began = [each for each in after if instant(each["began"]) == time and each["rows"] == 1]
        moved = [each for each in after if instant(each["last_time"]) == time and each["rows"] > 1]
        row, event = rows[-1], events[-1]
        begins = "matched {} and begins a match."
        facts += [self._fact("matched", row, event, begins.format(each["last"]), each) for each in began]
        for each in moved:
            text = f"matched {each['last']} of the match that began at {time_text(instant(each['began']))}."
            facts.append(self._fact("matched", row, event, text, each))
        if matches:
            which = "a match" if matches == 1 else f"{matches} matches"
            facts.append(self._fact("matched", row, event, f"completed {which}."))
        alive = {each["began"] for each in after}
        if not matches:
            facts += [self._ended(each, time, row, event) for each in before if each["began"] not in alive]
        if not facts:
            facts.append(
                self._fact("passed_over", row, event, f"fits no element that is waited for{self._why(before, row)}")
            )
        return after, facts

    def _ended(self, partial: Partial, time: int, row: dict[str, Any], event: Event | None) -> Fact:
        deadline = partial.get("deadline")
        if deadline is not None and instant(deadline) <= time:
            return self._over(partial)
        began = time_text(instant(partial["began"]))
        elements = self._elements(partial["waits_for"].split(" or "))
        forbidden = [each for each in self._operator.pattern.walk() if each.negated and self._holds(each, row)]
        if forbidden:
            why = f"it is {forbidden[0].name}, which must not come"
        else:
            why = f"{partial['waits_for']} is waited for, " + "; ".join(self._failed(each, row) for each in elements)
            if any(each.contiguity == "next" or each.inner == "consecutive" for each in elements):
                why += "; no other row may come between"
        text = f"ended the match that began at {began} ({partial['rows']} rows, the last as {partial['last']}): {why}."
        return self._fact("broken", row, event, text, partial)

    def _timed_out(self, before: list[Partial], after: list[Partial], watermark: int) -> list[Fact]:
        kept = {_id(each) for each in after}
        over = [each for each in before if _id(each) not in kept and each.get("deadline") is not None]
        return [self._over(each) for each in over if instant(each["deadline"]) <= watermark]

    def _over(self, partial: Partial) -> Fact:
        began, deadline = instant(partial["began"]), instant(partial["deadline"])
        text = (
            f"The match that began at {time_text(began)} ({partial['rows']} rows, the last as {partial['last']}) ran "
            f"out of time: no {partial['waits_for']} came before {time_text(deadline)}, "
            f"{duration_text(deadline - began)} after its begin."
        )
        data = {"waits_for": partial["waits_for"], "deadline": time_text(deadline)}
        return Fact(
            "timed_out", text, step=self._look.stage.step, batch=self._look.batch, span=(began, deadline), data=data
        )

    def _why(self, before: list[Partial], row: dict[str, Any]) -> str:
        names = [name for each in before for name in each["waits_for"].split(" or ")]
        elements = self._elements(names) or list(self._operator.pattern.elements[:1])
        first = self._operator.pattern.elements[0]
        chosen = elements if first in elements else [*elements, first]
        return ": " + "; ".join(self._failed(each, row) for each in chosen) + "."

    def _elements(self, names: list[str]) -> list[Element]:
        return [each for each in self._operator.pattern.walk() if each.name in names]

    def _holds(self, element: Element, row: dict[str, Any]) -> bool | None:
        """Whether the condition of an element holds for a row; None where that depends on the match."""
        condition = element.condition
        if condition is None:
            return True
        if not isinstance(condition, pl.Expr):
            return None
        schema = {name: kind for name, kind in self._look.stage.schema.items() if name in row}
        try:
            found = pl.DataFrame([{name: row[name] for name in schema}], schema=schema).select(condition.alias("#"))
        except PolarsError:
            return None
        return bool(found.item() or False)

    def _failed(self, element: Element, row: dict[str, Any]) -> str:
        condition = element.condition
        if condition is None:
            return f"{element.name} takes any row"
        reads = columns_read(condition) if isinstance(condition, pl.Expr) else None
        values = ", ".join(f"{name} = {row[name]}" for name in sorted(reads or ()) if name in row)
        told = f"{element.name} asks {condition}"
        holds = self._holds(element, row)
        state = "depends on the rows matched before" if holds is None else "holds" if holds else "does not hold"
        return f"{told}, which {state}" + (f" ({values})" if values else "")

    def _fact(
        self, kind: Any, row: dict[str, Any], event: Event | None, text: str, partial: Partial | None = None
    ) -> Fact:
        time = self._look.time(row)
        begin = time if partial is None else instant(partial["began"])
        deadline = None if partial is None else partial.get("deadline")
        data = {} if partial is None else {name: str(value) for name, value in partial.items() if name != "key_group"}
        return Fact(
            kind,
            f"{capital(self._look.name(event, row))} {text}",
            step=self._look.stage.step,
            batch=self._look.batch,
            event=event,
            span=(begin, time if deadline is None else max(time, instant(deadline))),
            data=data,
        )


def _by_time(rows: pl.DataFrame | None) -> list[tuple[int, list[dict[str, Any]]]]:
    """Give rows in the order of time, those of a moment together."""
    if rows is None:
        return []
    ordered = rows.with_columns(pl.col(EVENT_TIME).to_physical().alias("#time")).sort("#time", maintain_order=True)
    parts = ordered.partition_by("#time", as_dict=True, maintain_order=True)
    return [(int(time), part.drop("#time").to_dicts()) for (time,), part in parts.items()]


def _id(partial: Partial) -> tuple[Any, ...]:
    return partial["began"], partial["rows"], partial["last"], partial["last_time"], partial["waits_for"]
