"""What each kind of step did with the rows of a key, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cep.operator import PatternOperator
from headrace.cep.sql.operator import MatchRecognizeOperator
from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    ORIGINAL,
    PANE_INDEX,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.stream.relay import RelayOperator
from headrace.time.duration import text as duration_text
from headrace.time.instants import BEGINNING, END, instant
from headrace.trace.events import capital
from headrace.trace.look import Look, Standing, window_text
from headrace.trace.patterns import pattern_facts
from headrace.trace.story import ALWAYS, Fact, time_text
from headrace.windows.assigners import Aligned, Global
from headrace.windows.deduplicate import DeduplicateOperator
from headrace.windows.operator import WindowOperator
from headrace.windows.previous import PreviousOperator
from headrace.windows.sequences import SequenceOperator
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    from headrace.stream.stages import Stage
    from headrace.windows.firing import Trigger

#: What the table of open windows says of a window beside its values.
_BOOKS = ("panes", "rows_since_pane", "closed", "timer", "timer_by_clock", "key_group")
_WINDOWS = (SlicedOperator, WindowOperator, SequenceOperator)

#: Steps whose answer for a key depends on the rows of that key alone, and on the watermark.
BY_KEY = (*_WINDOWS, DeduplicateOperator, PreviousOperator, PatternOperator, MatchRecognizeOperator)


def told_by(look: Look) -> list[Fact]:
    """Tell what a turn of a step did with the rows of the key."""
    facts = [*_late(look), *_dismissed(look)]
    operator: object = look.stage.operator
    gone = look.numbers(look.outcome.late) | look.numbers(look.outcome.dismissed)
    if isinstance(operator, PatternOperator):
        facts += pattern_facts(operator, look)
    elif isinstance(operator, DeduplicateOperator):
        facts += _deduplicated(look, gone)
    elif isinstance(operator, _WINDOWS):
        facts += _counted(look, operator, gone)
    else:
        facts += _kept(look, gone)
    return [*facts, *_given(look)]


def waits_of(stage: Stage, tables: dict[str, pl.DataFrame], stands: Standing) -> list[Fact]:
    """Tell what a step keeps of the key, and what it waits for."""
    facts: list[Fact] = []
    for name, table in tables.items():
        for row in table.to_dicts():
            fact = _waits(stage, name, row, stands)
            if fact is not None:
                facts.append(fact)
    return facts


def _late(look: Look) -> list[Fact]:
    late = look.of_key(look.outcome.late)
    facts = []
    for row in [] if late is None else late.to_dicts():
        event = look.event(row)
        lateness, mark = row.pop("lateness", None), row.pop("watermark", None)
        by = None if lateness is None else round(lateness.total_seconds() * 1e6)
        reason = row.get("late_reason")
        text = f"{capital(look.name(event, row))} came too late"
        text += "" if by is None else f" by {duration_text(by)}"
        if row.get(WINDOW_END) is not None:
            text += f": {window_text(row)}, the last that would hold it, is over"
        elif reason is not None:
            text += f": it is {reason}"
        text += f"; before its batch {look.was.told('stood')}."
        data = {"late_by_us": by, "watermark": None if mark is None else time_text(instant(mark))}
        holder = look.was.holder
        data["held_back_by"] = None if holder is None else holder.partition
        time = look.time(row)
        facts.append(
            Fact("late", text, step=look.stage.step, batch=look.batch, event=event, span=(time, time), data=data)
        )
    return facts


def _dismissed(look: Look) -> list[Fact]:
    dismissed = look.of_key(look.outcome.dismissed)
    return [
        Fact(
            "dismissed",
            f"{capital(look.name(event, row))} could not be used: {reason}.",
            step=look.stage.step,
            batch=look.batch,
            event=event,
            data={"reason": reason},
        )
        for row in ([] if dismissed is None else dismissed.to_dicts())
        for event in [look.event(row)]
        for reason in [row.pop("reason", "")]
    ]


def _deduplicated(look: Look, gone: set[bytes]) -> list[Fact]:
    passed = look.numbers(look.outcome.rows)
    facts = []
    if look.rows is None or ORIGINAL not in look.rows.columns:
        return []
    remembered = look.after.get("passed")
    for number in look.rows.get_column(ORIGINAL):
        if number in gone or number in passed:
            continue
        row = look.rows.row(by_predicate=pl.col(ORIGINAL) == number, named=True)
        time = look.time(row)
        event = look.event(dict(row))
        times = [] if remembered is None else remembered.get_column(EVENT_TIME).to_physical().to_list()
        twin = min(times, key=lambda each: abs(each - time), default=None)
        as_that = "" if twin is None else f" as the one of {time_text(twin)}, which passed before"
        text = f"{capital(look.name(event, row))} was dropped: it is the same{as_that}."
        data = {"same_as": None if twin is None else time_text(twin)}
        facts.append(
            Fact("duplicate", text, step=look.stage.step, batch=look.batch, event=event, span=(time, time), data=data)
        )
    return facts


def _counted(look: Look, operator: Any, gone: set[bytes]) -> list[Fact]:
    facts = []
    for event, row, number in _in_time(look, gone):
        time = look.time(row)
        windows = _windows_of(look, operator, row, number)
        if windows:
            last = f" to {window_text(windows[-1])}" if len(windows) > 1 else ""
            how = f"{len(windows)} windows, {window_text(windows[0])}" if len(windows) > 1 else window_text(windows[0])
            text = f"{capital(look.name(event, row))} was counted in {how}{last}."
            spans = [look.span(each) for each in windows]
            span = (min(begin for begin, _ in spans), max(end for _, end in spans))
        else:
            text = (
                f"{capital(look.name(event, row))} waits for the watermark to pass it: its order is not known before."
            )
            span = (time, time)
        kind: Any = "counted" if windows else "kept"
        data = {"windows": [window_text(each).removeprefix("the window ") for each in windows]}
        facts.append(Fact(kind, text, step=look.stage.step, batch=look.batch, event=event, data=data, span=span))
    return facts


def _windows_of(look: Look, operator: Any, row: dict[str, Any], number: bytes | None) -> list[dict[str, Any]]:
    """Find the windows that a row counts in."""
    time = look.time(row)
    if isinstance(operator.assigner, Aligned) and not isinstance(operator, SequenceOperator):
        mine = look.rows if number is None or look.rows is None else look.rows.filter(pl.col(ORIGINAL) == number)
        if mine is None or mine.is_empty():
            return []
        lateness = getattr(operator, "lateness", 0)
        bounds = operator.assigner.assign(mine.filter(pl.col(EVENT_TIME).to_physical() == time).head(1))
        open_still = bounds.filter(pl.col(WINDOW_END).to_physical() + lateness > look.was.watermark)
        return open_still.select(WINDOW_START, WINDOW_END).sort(WINDOW_END).to_dicts()
    if isinstance(operator.assigner, Global):
        return [{WINDOW_START: None, WINDOW_END: None}]
    tables = [each for each in (look.after.get("windows"), look.results()) if each is not None]
    found = []
    for table in tables:
        for each in table.select(WINDOW_START, WINDOW_END).to_dicts():
            start, end = each[WINDOW_START], each[WINDOW_END]
            if start is not None and end is not None and instant(start) <= time < instant(end) and each not in found:
                found.append(each)
    return found


def _kept(look: Look, gone: set[bytes]) -> list[Fact]:
    operator: object = look.stage.operator
    does = "was taken in"
    if isinstance(operator, MatchRecognizeOperator):
        does = "was taken in by the pattern"
    elif isinstance(operator, RelayOperator):
        does = "was taken in by the step before the windows"
    facts = []
    for event, row, _ in _in_time(look, gone):
        time = look.time(row)
        pending = look.after.get("pending")
        waits = pending is not None and time in pending.get_column(EVENT_TIME).to_physical()
        text = f"{capital(look.name(event, row))} {does}" + (
            " and waits for the watermark to pass it." if waits else "."
        )
        facts.append(Fact("kept", text, step=look.stage.step, batch=look.batch, event=event, span=(time, time)))
    return facts


def _in_time(look: Look, gone: set[bytes]) -> list[tuple[Any, dict[str, Any], bytes | None]]:
    found = []
    for row in [] if look.rows is None else look.rows.to_dicts():
        number = row.get(ORIGINAL)
        if number is not None and number in gone:
            continue
        found.append((look.event(row), row, number))
    return found


def _given(look: Look) -> list[Fact]:
    results = look.results()
    if results is None:
        return []
    facts = []
    for row in results.to_dicts():
        back = bool(row.get(IS_RETRACTION))
        values = look.shown(row)
        if row.get(WINDOW_END) is not None or PANE_INDEX in row:
            timing = {"on_time": "on time", "early": "early", "late": "again, for late rows"}.get(
                str(row.get(PANE_TIMING)), str(row.get(PANE_TIMING))
            )
            does = "took back" if back else f"fired {timing}:"
            text = f"{capital(window_text(row))} {does} {values}; {look.stands.text}."
        else:
            does = "taken back" if back else "given"
            text = f"A result of {time_text(look.time(row))} was {does}: {values}."
        data = {"result": {name: value for name, value in row.items() if name != "key_group"}, "retraction": back}
        facts.append(Fact("given", text, step=look.stage.step, batch=look.batch, data=data, span=look.span(row)))
    return facts


def _waits(stage: Stage, table: str, row: dict[str, Any], stands: Standing) -> Fact | None:
    if table == "windows":
        return _open_window(stage, row, stands)
    if table == "partial_matches" and "waits_for" in row:
        began = instant(row["began"])
        deadline = row.get("deadline")
        until = "" if deadline is None else f", until {time_text(instant(deadline))}"
        ready = "is complete and waits for" if row["complete"] else "waits for"
        text = (
            f"The match that began at {time_text(began)} ({row['rows']} rows, the last as {row['last']} at "
            f"{time_text(instant(row['last_time']))}) {ready} {row['waits_for']}{until}; {stands.text}."
        )
        end = END if deadline is None else instant(deadline)
        return Fact("waits", text, step=stage.step, span=(began, end), data={"waits_for": row["waits_for"]})
    time = row.get(EVENT_TIME)
    at = BEGINNING if time is None else instant(time)
    span = (at, at) if time is not None else ALWAYS
    named = f"The row of {time_text(at)}" if time is not None else "A row"
    if table == "pending":
        text = f"{named} waits for the watermark to pass it; {stands.text}."
        return Fact("waits", text, step=stage.step, data={"waits_for": "watermark"}, span=span)
    if table == "partial_matches":
        text = f"It is not decided yet what {named[0].lower()}{named[1:]} matches; {stands.text}."
        return Fact("waits", text, step=stage.step, data={"waits_for": "further rows"}, span=span)
    if table in ("left", "right", "waiting", "given"):
        due = row.get("due")
        until = "" if due is None else f" until the watermark passes {time_text(instant(due))}"
        hidden = {"key_group", "due"}
        values = ", ".join(f"{name.removeprefix('_')} = {value}" for name, value in row.items() if name not in hidden)
        text = f"A row of the {table} side ({values}) is kept for a partner{until}; {stands.text}."
        return Fact("waits", text, step=stage.step, data={"waits_for": "a partner"})
    return None


def _open_window(stage: Stage, row: dict[str, Any], stands: Standing) -> Fact:
    operator: Any = stage.operator
    hidden = {*stage.keys, WINDOW_START, WINDOW_END, *_BOOKS}
    values = ", ".join(f"{name} = {value}" for name, value in row.items() if name not in hidden)
    named = f"{capital(window_text(row))} holds {values}"
    end = None if row.get(WINDOW_END) is None else instant(row[WINDOW_END])
    start = BEGINNING if row.get(WINDOW_START) is None else instant(row[WINDOW_START])
    data: dict[str, Any] = {"waits_for": "watermark"}
    trigger: Trigger | None = getattr(operator, "trigger", None)
    fires_by_itself = trigger is None or trigger.fires_on_time()
    if isinstance(operator, SequenceOperator):
        data["waits_for"] = operator.assigner.describe()
        text = f"{named} and is open until {operator.assigner.describe()} ends it; {stands.text}."
    elif row.get("closed"):
        data["waits_for"] = "nothing"
        text = f"{named}; it has fired for the last time."
    elif end is not None and stands.watermark >= end:
        lateness = getattr(operator, "lateness", 0)
        data["waits_for"] = "late rows"
        text = f"{named} and has fired; it takes late rows until the watermark passes {time_text(end + lateness)}."
    elif fires_by_itself and end is not None:
        rest = f", {duration_text(end - stands.watermark)} more" if stands.watermark > BEGINNING else ""
        text = f"{named}; it fires when the watermark has come to {time_text(end)}{rest}: {stands.text}."
    elif trigger is not None:
        data["waits_for"] = "trigger"
        by_clock = row.get("timer_by_clock")
        due = "" if by_clock is None else f", which is asked again at {time_text(instant(by_clock))} by the clock"
        text = f"{named}; its trigger {trigger.describe()} is not due yet{due}."
    else:
        text = f"{named}; {stands.text}."
    if trigger is not None and "trigger" not in text and trigger.describe() not in ("default", "after_watermark()"):
        text += f" Its trigger is {trigger.describe()}."
    return Fact("waits", text, step=stage.step, span=(start, END if end is None else end - 1), data=data)
