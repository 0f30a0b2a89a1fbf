"""From a `Pattern` to a `Program`.

The pattern is first laid out as **stations**: places where a partial match waits for the next row, with ways out: take
the row, pass over it, or go on to another station before the row is dealt with. It is built from the end to the
beginning, since each element must know where to go after it. Then the stations are written down as instructions.

The layout gives relaxed contiguity, repetition and negation the meaning they have in Flink's pattern library, whose
users find their results here. Three of its choices are worth knowing:

- An optional or repeated row that waits past a row waits at a second station, from which it cannot be left out any
  more: leaving it out is the way of the station after it. So no match is found twice.
- A greedy element restricts the station after it: what the element could take is taken by nothing else.
- A forbidden element is no station: the stations up to the next mandatory element stop at its row. Once an optional
  element between has taken a row, the prohibition is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from headrace.cep.compiled import Compiled
from headrace.cep.conditions import Condition, is_iterative, names_of, never_holds
from headrace.cep.program import (
    Accept,
    Check,
    ConditionKind,
    Consume,
    Gap,
    Instruction,
    Jump,
    Program,
    Rest,
    Split,
    Stop,
    Term,
)
from headrace.errors import PlanError

if TYPE_CHECKING:
    from headrace.cep.pattern import Element, Inner, Pattern


def compile_pattern(pattern: Pattern) -> Compiled:
    """Compile a pattern; refuse one that cannot work."""
    return _Layout(pattern).compile()


def refuse_impossible(pattern: Pattern, compiled: Compiled) -> None:
    """Refuse a pattern that can match nothing, whatever the rows.

    Raises:
        PlanError: A condition that every match needs is a constant that is not true.
    """
    never = [n for n, c in enumerate(compiled.conditions) if not isinstance(c, tuple) and never_holds(c)]
    if never and not compiled.program.can_match(never):
        elements = (e for e in pattern.walk() if not e.negated and e.condition is not None)
        blamed = next((str(e) for e in elements if e.condition is not None and never_holds(e.condition)), "it")
        raise PlanError(
            f"the pattern can match nothing: the condition of {blamed} never holds",
            hint="Give it one that depends on the row.",
        )


@dataclass(eq=False)
class _Station:
    label: str
    kind: Literal["normal", "final", "stop"] = "normal"
    within: int | None = None
    completes: bool = False
    ways: list[_Way] = field(default_factory=list)
    forbids: Element | None = None

    def take(self, target: _Station, term: Term) -> None:
        self.ways.append(_Way("take", target, term))

    def gap(self, target: _Station, term: Term) -> None:
        self.ways.append(_Way("gap", target, term))

    def go(self, target: _Station, term: Term) -> None:
        self.ways.append(_Way("go", target, term))


@dataclass(eq=False)
class _Way:
    kind: Literal["take", "gap", "go"]
    target: _Station
    term: Term


@dataclass(frozen=True, eq=False)
class _Place:
    """An element in its surroundings."""

    element: Element
    before: tuple[Element, ...]
    following: Element | None
    group: Element | None

    @property
    def heads_group(self) -> bool:
        return self.group is not None and not self.before

    @property
    def prohibitions(self) -> list[Element]:
        """The not_followed_by elements that hold up to this element: directly before it, or before optional ones."""
        found = []
        for element in reversed(self.before):
            if element.contiguity == "not_followed_by":
                found.append(element)
            elif not element.optional:
                break
        return found


class _Layout:
    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.conditions: list[Condition | Term] = []
        self.kinds: list[ConditionKind] = []
        self.numbers: dict[object, int] = {}
        self.stops: dict[int, _Station] = {}
        self.used_names: set[str] = set()
        self.first_round: dict[int, bool] = {}
        self.unrestricted: dict[int, _Station] = {}

    def compile(self) -> Compiled:
        pattern = self.pattern
        self._check()
        final = _Station("", "final")
        start = self._chain(pattern.elements, final, following=None, group=None)
        code = _write(start)
        program = Program(code, tuple(self.kinds), within=pattern.within_us, version=pattern.version)
        return Compiled(program, tuple(self.conditions), pattern.after_match)

    def _check(self) -> None:
        pattern = self.pattern
        if not pattern.elements:
            raise PlanError("the pattern is empty", hint="Begin with Pattern.begin(...).")
        target = pattern.after_match.name
        if target is not None and target not in pattern.names:
            raise PlanError(
                f"skip {pattern.after_match.kind!r} names the element {target!r}, which the pattern does not have",
                hint=f"It has: {', '.join(pattern.names)}.",
            )
        for element in pattern.walk():
            bounds = [bound for bound in (element.step_within, element.times_within) if bound is not None]
            if pattern.within_us is not None and any(bound > pattern.within_us for bound in bounds):
                raise PlanError(
                    f"{element} has a longer time bound than the whole pattern",
                    hint="Give the step a shorter bound, or the pattern a longer one.",
                )
            asked = names_of(element.condition) | names_of(element.until)
            if unknown := sorted(asked - set(pattern.names)):
                raise PlanError(
                    f"the condition of {element} asks for rows of {unknown[0]!r}, which the pattern does not have",
                    hint=f"It has: {', '.join(pattern.names)}.",
                )

    @staticmethod
    def _endless(element: Element) -> PlanError:
        return PlanError(
            f"{element} at the end of a pattern needs a time bound: it is never known that no such row will come",
            hint="Add within(...).",
        )

    # Conditions

    def _number(self, condition: Condition | Term, kind: ConditionKind, key: object) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.conditions)
            self.conditions.append(condition)
            self.kinds.append(kind)
        return self.numbers[key]

    def _term(self, condition: Condition | None) -> Term:
        """A condition as a term; none holds always."""
        if condition is None:
            return ()
        return ((self._number(condition, "path" if is_iterative(condition) else "mask", id(condition)), True),)

    def _not(self, term: Term) -> Term:
        """The negation of a conjunction, which gets a number of its own where it has several parts."""
        if len(term) == 1:
            number, wanted = term[0]
            return ((number, not wanted),)
        kind: ConditionKind = "path" if any(self.kinds[number] == "path" for number, _ in term) else "mask"
        return ((self._number(term, kind, term), False),)

    def _take(self, place: _Place) -> Term:
        """What a row must fulfil to be taken."""
        return self._term(place.element.condition) + self._group_goes_on(place)

    def _group_goes_on(self, place: _Place) -> Term:
        until = place.group.until if place.group is not None else None
        return () if until is None else self._not(self._term(until))

    def _goes_on(self, place: _Place) -> Term:
        until = place.element.until
        return () if until is None else self._not(self._term(until))

    def _outer_gap(self, place: _Place) -> Term | None:
        """What a row must fulfil to be passed over before the element; None if none may be."""
        contiguity: str = place.element.contiguity
        if place.heads_group and place.group is not None:
            first = self.first_round.get(id(place.group), True)
            contiguity = place.group.contiguity if first else _INNER[place.group.inner]
        return self._gap(place, contiguity)

    def _inner_gap(self, place: _Place) -> Term | None:
        """What a row must fulfil to be passed over between two rows of the element."""
        owner = place.group if place.heads_group and place.group is not None else place.element
        gap = self._gap(place, _INNER[owner.inner])
        return None if gap is None else gap + self._goes_on(place)

    def _gap(self, place: _Place, contiguity: str) -> Term | None:
        if place.element.group is not None:
            return None  # the first element of the group passes over rows
        if contiguity == "followed_by":
            return self._not(self._term(place.element.condition)) + self._group_goes_on(place)
        if contiguity == "followed_by_any":
            return self._group_goes_on(place)
        return None

    # Stations

    def _station(self, place: _Place, *, bounded: bool = True) -> _Station:
        element = place.element
        repeated = element.name in self.used_names
        self.used_names.add(element.name)
        within = None
        if bounded:
            # As in Flink, a quantifier's bound is not checked at the station laid out first, the last repetition.
            within = element.step_within if not element.quantified else element.times_within if repeated else None
        return _Station(element.name, within=within)

    def _stop(self, element: Element) -> _Station:
        if id(element) not in self.stops:
            self.stops[id(element)] = _Station(element.name, "stop", forbids=element)
        return self.stops[id(element)]

    def _chain(
        self, elements: tuple[Element, ...], then: _Station, *, following: Element | None, group: Element | None
    ) -> _Station:
        for number in reversed(range(len(elements))):
            element = elements[number]
            if number + 1 < len(elements):
                following = elements[number + 1]
            place = _Place(element, elements[:number], following, group)
            if element.contiguity == "not_followed_by":
                then = self._forbid_till_end(place, then)
            elif element.contiguity == "not_next":
                then = self._forbid_next(place, then)
            else:
                then = self._lay_out(place, then)
        return then

    def _forbid_till_end(self, place: _Place, then: _Station) -> _Station:
        """At the end of a pattern, wait for the end of the time bound; elsewhere, stations stop by themselves."""
        term = self._take(place)
        if then.kind == "final":
            if self.pattern.within_us is None and place.element.step_within is None:
                raise self._endless(place.element)
            waiting = self._station(place)
            waiting.completes = True
            waiting.go(self._stop(place.element), term)
            waiting.gap(waiting, self._not(term))
            return waiting
        if then.completes:
            for way in then.ways:
                if way.kind == "gap":
                    way.term += self._not(term)
            then.go(self._stop(place.element), term)
        return then

    def _forbid_next(self, place: _Place, then: _Station) -> _Station:
        term = self._take(place)
        waiting = self._station(place)
        if then.kind == "final":
            # The match is complete only with the row that does not match.
            waiting.gap(then, self._not(term))
        else:
            waiting.go(then, self._not(term))
        waiting.go(self._stop(place.element), term)
        return waiting

    def _lay_out(self, place: _Place, then: _Station) -> _Station:
        element = place.element
        if element.looping:
            self.first_round[id(element)] = False
            loop = self._loop(place, self._freed(place, then))
            entry = self._repeat(place, loop, then, element.low, element.low)
        elif element.quantified:
            entry = self._repeat(place, then, then, element.low, element.high or element.low)
        else:
            entry = self._single(place, then, then, self._take(place), self._outer_gap(place), element.optional)
        self._add_stops(place, entry)
        return entry

    def _repeat(self, place: _Place, sink: _Station, after: _Station, low: int, high: int) -> _Station:
        """Lay out `low` rows and `high - low` more that may be missing; `after` is where to go without them."""
        element = place.element
        take = self._take(place) + self._goes_on(place)
        self.first_round[id(element)] = False
        if element.greedy and low != high:
            if element.until is not None:
                self.unrestricted[id(sink)] = self._copy(sink)
            self._restrict(sink, take)
        inner = self._inner_gap(place)
        last = sink
        for missing in [True] * (high - low) + [False] * (low - 1):
            last = self._single(place, last, after, take, inner, missing)
            self._add_stop_of_following(place, last)
        self.first_round[id(element)] = True
        return self._single(place, last, after, take, self._outer_gap(place), element.optional)

    def _single(
        self, place: _Place, sink: _Station, after: _Station, take: Term, gap: Term | None, optional: bool
    ) -> _Station:
        """Lay out one row of an element, or one round of a group."""
        element = place.element
        always = self._group_goes_on(place)
        if element.group is not None:
            entry = self._chain(element.group.elements, sink, following=place.following, group=element)
            if optional:
                entry.go(after, always)
            return entry
        station = self._station(place)
        sink = self._freed(place, sink)
        station.take(sink, take)
        if optional:
            if element.greedy and element.until is not None:
                until = self._term(element.until)
                station.go(self.unrestricted.get(id(after), after), always + until)
                station.go(after, always + self._not(until))
            else:
                station.go(after, always)
        if gap is not None:
            waiting = station
            if optional or self._heads_optional_group(place):
                waiting = self._station(place, bounded=False)
                waiting.take(sink, take)
                waiting.gap(waiting, gap)
                self._add_stops(place, waiting)
            station.gap(waiting, gap)
        return station

    def _heads_optional_group(self, place: _Place) -> bool:
        group = place.group
        return place.heads_group and group is not None and group.optional and self.first_round.get(id(group), True)

    def _loop(self, place: _Place, sink: _Station) -> _Station:
        """Lay out a repetition without an upper bound, after its first row."""
        element = place.element
        always = self._group_goes_on(place)
        if element.group is not None:
            turn = self._station(place)
            entry = self._chain(element.group.elements, turn, following=place.following, group=element)
            entry.go(sink, always)
            turn.go(entry, always)
            return entry
        take = self._take(place) + self._goes_on(place)
        gap = self._inner_gap(place)
        station = self._station(place)
        if element.greedy and element.until is not None:
            copied = self.unrestricted[id(sink)] = self._copy(sink)
            until = self._term(element.until)
            station.go(copied, always + until)
            station.go(sink, always + self._not(until))
        else:
            station.go(sink, always)
        if element.greedy:
            self._restrict(sink, self._take(place))
        station.take(station, take)
        self._add_stop_of_following(place, station)
        if gap is not None:
            waiting = self._station(place, bounded=False)
            waiting.take(station, take)
            waiting.gap(waiting, gap)
            station.gap(waiting, gap)
            self._add_stop_of_following(place, waiting)
        return station

    def _add_stops(self, place: _Place, station: _Station) -> None:
        for element in place.prohibitions:
            station.go(self._stop(element), self._prohibition(element, place.group))

    def _add_stop_of_following(self, place: _Place, station: _Station) -> None:
        if place.following is not None and place.following.contiguity == "not_followed_by":
            station.go(self._stop(place.following), self._prohibition(place.following, place.group))

    def _prohibition(self, element: Element, group: Element | None) -> Term:
        return self._take(_Place(element, (), None, group))

    def _restrict(self, station: _Station, greedy: Term) -> None:
        for way in station.ways:
            way.term += self._not(greedy)

    def _freed(self, place: _Place, station: _Station) -> _Station:
        """The station for when an optional element has taken a row: without what was forbidden only up to that row."""
        over = place.prohibitions
        if not over or not place.element.optional:
            return station
        copy = _Station(station.label, station.kind, completes=station.completes)
        for way in station.ways:
            target = way.target
            if way.kind == "go":
                if target.forbids is not None:
                    if any(target.forbids is element for element in over):
                        continue
                elif target is not station:
                    target = self._freed(place, target)
            copy.ways.append(_Way(way.kind, copy if way.target is station else target, way.term))
        return copy

    @staticmethod
    def _copy(station: _Station) -> _Station:
        copy = _Station(station.label, station.kind, completes=station.completes)
        copy.ways = [_Way(w.kind, copy if w.target is station else w.target, w.term) for w in station.ways]
        return copy


_INNER: dict[Inner, str] = {
    "relaxed": "followed_by",
    "consecutive": "next",
    "combinations": "followed_by_any",
}


def _write(start: _Station) -> tuple[Instruction, ...]:
    """Write stations down as instructions; of the ways out, those that deal with the row come first."""
    code: list[Instruction] = []
    places: dict[int, int] = {}
    jumps: list[tuple[int, _Station]] = []
    todo = [start]
    keep: list[_Station] = []
    while todo:
        station = todo.pop()
        if id(station) in places:
            continue
        keep.append(station)
        places[id(station)] = len(code)
        if station.kind == "final":
            code.append(Accept())
            continue
        code.append(Rest(station.within, station.completes))
        ways = [w for w in station.ways if w.kind != "go"] + [w for w in reversed(station.ways) if w.kind == "go"]
        for number, way in enumerate(ways):
            split = len(code)
            if number + 1 < len(ways):
                code.append(Jump(0))
            _write_way(code, way, station, jumps)
            if number + 1 < len(ways):
                code[split] = Split(split + 1, len(code))
            if way.target.kind != "stop":
                todo.append(way.target)
    for at, target in jumps:
        code[at] = Jump(places[id(target)])
    return tuple(code)


def _write_way(code: list[Instruction], way: _Way, station: _Station, jumps: list[tuple[int, _Station]]) -> None:
    if way.kind == "take":
        own = way.term[0][0] if len(way.term) == 1 and way.term[0][1] else None
        if own is None and way.term:
            code.append(Check(way.term))
        code.append(Consume(station.label, own))
    elif way.kind == "gap":
        code.append(Gap(way.term))
    elif way.target.kind == "stop":
        code.append(Stop(way.term))
        return
    elif way.term:
        code.append(Check(way.term))
    jumps.append((len(code), way.target))
    code.append(Jump(0))
