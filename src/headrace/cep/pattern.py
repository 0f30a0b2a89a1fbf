"""The pattern builder: say in Python which rows make a match.

A pattern is a chain of named elements. How an element follows the one before is its **contiguity**:

| method | rows between the two |
|---|---|
| `next` | none |
| `followed_by` | rows that do not match; the first that matches is taken |
| `followed_by_any` | any rows; every row that matches begins a match of its own |
| `not_next` | the next row must not match |
| `not_followed_by` | no row up to the next element (or the end of the time bound) may match |

A quantifier (`one_or_more`, `times`, `times_or_more`, `optional`) lets an element match several rows, or none. Between
the rows of one element other rows are passed over, unless it is `consecutive`; `allow_combinations` also passes over
rows that match. An element can be a whole pattern, a group. A pattern is immutable: each method gives a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import polars as pl

from headrace.cep.conditions import Condition, check_condition, combine
from headrace.cep.limits import AtLimit, Limit
from headrace.cep.skip import Skip, SkipKind
from headrace.errors import PlanError
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

Contiguity: TypeAlias = Literal["begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inner: TypeAlias = Literal["relaxed", "consecutive", "combinations"]


@dataclass(frozen=True, eq=False)
class Element:
    """One element of a pattern, as the builder's methods describe it.

    Args:
        name: The label of its rows; of a group, a name for messages.
        contiguity: How it follows the element before.
        condition: What a row must fulfil; None for every row.
        group: The pattern that stands for this element.
        low: The least number of rows (or rounds of a group), if it is there at all.
        high: The greatest number; None for no bound.
        quantified: Whether a quantifier was given.
        optional: Whether it may be missing.
        greedy: Whether rows that match it are taken by it and by nothing after it.
        inner: The contiguity between its own rows.
        until: A row that ends the repetition.
        step_within: Its row comes less than this many microseconds after the one before.
        times_within: The time bound given with the quantifier.
    """

    name: str
    contiguity: Contiguity
    condition: Condition | None = None
    group: Pattern | None = None
    low: int = 1
    high: int | None = 1
    quantified: bool = False
    optional: bool = False
    greedy: bool = False
    inner: Inner = "relaxed"
    until: Condition | None = None
    step_within: int | None = None
    times_within: int | None = None

    @property
    def negated(self) -> bool:
        """Whether the element says what must not come."""
        return self.contiguity in ("not_next", "not_followed_by")

    @property
    def looping(self) -> bool:
        """Whether it repeats without an upper bound."""
        return self.high is None

    @property
    def can_be_empty(self) -> bool:
        """Whether it may match no row: it is optional, or a group of nothing else."""
        if self.optional or self.group is None:
            return self.optional
        return all(element.negated or element.can_be_empty for element in self.group.elements)

    def __str__(self) -> str:
        return f"element {self.name!r}" if self.group is None else f"group {self.name}"


@dataclass(frozen=True, eq=False)
class Pattern:
    """What to find in the rows of each key; begin with `Pattern.begin`.

    Args:
        elements: The elements in order.
        within_us: All rows lie less than this many microseconds after the first.
        after_match: What a match gives away.
        bound: How many partial matches one key may have at once.
        version: Raise it when a running pattern is replaced by another.

    >>> from polars import col
    >>> stop = (
    ...     Pattern.begin("cruising", col("speed") >= 10)
    ...     .next("braking", col("acceleration") < 0).one_or_more()
    ...     .next("stopped", col("speed") < 1)
    ...     .within("10s")
    ...     .skip("past_last")
    ... )
    >>> stop.names
    ('cruising', 'braking', 'stopped')
    """

    elements: tuple[Element, ...]
    within_us: int | None = None
    after_match: Skip = field(default_factory=Skip)
    bound: Limit = field(default_factory=Limit)
    version: int = 1

    @classmethod
    def begin(cls, name: str | Pattern, condition: Condition | bool | None = None) -> Pattern:
        """Begin with an element, or with a group.

        Args:
            name: The name of the element; or a pattern, which becomes a group.
            condition: What a row must fulfil; None for every row.
        """
        empty = cls(())
        return empty._add("begin", name, condition)

    def next(self, name: str | Pattern, condition: Condition | bool | None = None) -> Pattern:
        """The very next row must match."""
        return self._add("next", name, condition)

    def followed_by(self, name: str | Pattern, condition: Condition | bool | None = None) -> Pattern:
        """The next row that matches; those between are passed over."""
        return self._add("followed_by", name, condition)

    def followed_by_any(self, name: str | Pattern, condition: Condition | bool | None = None) -> Pattern:
        """Any later row that matches, each for a match of its own."""
        return self._add("followed_by_any", name, condition)

    def not_next(self, name: str, condition: Condition | bool | None = None) -> Pattern:
        """The very next row must not match."""
        return self._add("not_next", name, condition)

    def not_followed_by(self, name: str, condition: Condition | bool | None = None) -> Pattern:
        """No row up to the next element may match; at the end of a pattern, no row up to the end of its time bound."""
        return self._add("not_followed_by", name, condition)

    def where(self, condition: Condition | bool) -> Pattern:
        """Add a condition to the last element: it and the earlier ones must hold."""
        return self._where("and", condition)

    def or_where(self, condition: Condition | bool) -> Pattern:
        """Add a condition to the last element: it or the earlier ones must hold."""
        return self._where("or", condition)

    def subtype(self, name: str, *, column: str = "type") -> Pattern:
        """Let the last element match only rows whose type column has this name."""
        return self.where(pl.col(column) == name)

    def optional(self) -> Pattern:
        """Let the last element be missing."""
        last = self._last
        if last.negated:
            raise self._refuse("cannot be optional", "A negation says what must not come; leave it out instead.")
        if last.optional:
            raise self._refuse("is optional already", "Leave out one of the two.")
        if len(self.elements) > 1 and self.elements[-2].greedy:
            raise self._refuse(
                f"cannot be optional after the greedy {self.elements[-2]}",
                "What the greedy element leaves must begin something that is there.",
            )
        return self._change(optional=True)

    def one_or_more(self, *, within: str | timedelta | int | None = None) -> Pattern:
        """Let the last element match one or more rows; see `times` for `within`."""
        return self._quantify(1, None, within)

    def times(self, low: int, high: int | None = None, *, within: str | timedelta | int | None = None) -> Pattern:
        """Let the last element match `low` rows, or `low` to `high` rows.

        Args:
            low: The number of rows, or the least number; 0 makes the element optional.
            high: The greatest number.
            within: A time bound between a row of this element and the row matched before it, as Flink has it: it is
                not checked for the last repetition, nor after a row was passed over for an optional row.
        """
        if high is None and low < 1:
            raise self._refuse(f"cannot match {low} times", "Give a number of at least 1.")
        return self._quantify(low, low if high is None else high, within)

    def times_or_more(self, low: int, *, within: str | timedelta | int | None = None) -> Pattern:
        """Let the last element match at least `low` rows."""
        if low < 1:
            raise self._refuse(f"cannot match {low} or more times", "Give a number of at least 1, and optional().")
        return self._quantify(low, None, within)

    def greedy(self) -> Pattern:
        """Let the last element take every row that matches it; what follows gets none of these."""
        last = self._last
        if last.negated:
            raise self._refuse("cannot be greedy", "A negation matches no rows.")
        if last.group is not None:
            raise self._refuse("cannot be greedy, as it is a group", "Make an element within it greedy.")
        if not last.quantified:
            raise self._refuse("cannot be greedy, as it matches one row", "Give one_or_more() or times(a, b) first.")
        if last.inner == "combinations":
            raise self._refuse("cannot be greedy and allow combinations", "Leave out one of the two.")
        return self._change(greedy=True)

    def consecutive(self) -> Pattern:
        """Let no other row come between the rows of the last element."""
        return self._inner("consecutive")

    def allow_combinations(self) -> Pattern:
        """Let the last element also pass over rows that match it, so that every combination is found."""
        return self._inner("combinations")

    def until(self, condition: Condition | bool) -> Pattern:
        """End the repetition of the last element at a row that fulfils a condition; that row is not part of it."""
        last = self._last
        if last.until is not None:
            raise self._refuse("has an until condition already", "Join the two with |.")
        if not last.looping:
            raise self._refuse(
                "has no repetition without an upper bound, which until needs",
                "Give one_or_more() or times_or_more(n) first.",
            )
        return self._change(until=check_condition(condition, f"until of {last}"))

    def within(self, duration: str | timedelta | int, *, of: Literal["match", "step"] = "match") -> Pattern:
        """Bound the time of a match.

        Args:
            duration: "10s", a timedelta, or microseconds. A row exactly this long after is too late.
            of: "match": from the first row to any other. "step": from the row matched before to the row of the last
                element given so far, if that element has no quantifier.
        """
        time = micros(duration, what="within")
        if time <= 0:
            raise PlanError(f"within {duration!r} is not positive", hint='Give a duration such as "10s".')
        if of == "step":
            return self._change(step_within=time)
        if of != "match":
            raise PlanError(f'within(of={of!r}) is neither "match" nor "step"')
        if self.within_us is not None:
            raise PlanError("the pattern has two time bounds within(...)", hint="Keep the smaller one.")
        return replace(self, within_us=time)

    def skip(
        self, kind: SkipKind | Skip, name: str | None = None, *, on_missing: Literal["ignore", "error"] = "ignore"
    ) -> Pattern:
        """Say what a match gives away: "none", "to_next", "past_last", "to_first" or "to_last" an element."""
        chosen = kind if isinstance(kind, Skip) else Skip(kind, name, on_missing)
        return replace(self, after_match=chosen)

    def limit(self, partial: int, *, at_limit: AtLimit = "fail") -> Pattern:
        """Bound the partial matches that one key may have at once.

        Args:
            partial: How many; 100,000 unless told.
            at_limit: "fail" the job where a key has more, or "give_up" the oldest: their first rows are dismissed, with
                the reason.
        """
        return replace(self, bound=Limit(partial, at_limit))

    def with_version(self, version: int) -> Pattern:
        """Give the pattern a version, to tell it from the one that it replaces."""
        return replace(self, version=version)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all elements, also within groups, in order; without negated ones."""
        return tuple(element.name for element in self.walk() if not element.negated and element.group is None)

    def walk(self) -> Iterator[Element]:
        """All elements, those of a group after it."""
        for element in self.elements:
            yield element
            if element.group is not None:
                yield from element.group.walk()

    @property
    def bounded(self) -> bool:
        """Whether there is a time bound anywhere, so that a partial match can time out."""
        return self.within_us is not None or any(
            element.step_within is not None or element.times_within is not None for element in self.walk()
        )

    def cautions(self) -> tuple[str, ...]:
        """What works and may surprise: partial matches that nothing ends."""
        if self.within_us is not None:
            return ()
        relaxed = [
            e for e in self.walk() if e.contiguity.startswith("followed") or (e.looping and e.inner != "consecutive")
        ]
        if not relaxed:
            return ()
        names = ", ".join(dict.fromkeys(str(element) for element in relaxed))
        return (f"without within(...) partial matches may wait for {names} for ever, and state grows",)

    @property
    def _last(self) -> Element:
        return self.elements[-1]

    def _refuse(self, why: str, hint: str) -> PlanError:
        return PlanError(f"{self._last} {why}", hint=hint)

    def _change(self, **changes: object) -> Pattern:
        return replace(self, elements=(*self.elements[:-1], replace(self._last, **changes)))  # type: ignore[arg-type]

    def _add(self, contiguity: Contiguity, name: str | Pattern, condition: Condition | bool | None) -> Pattern:
        group: Pattern | None = None
        if isinstance(name, Pattern):
            group, name = name, f"({' '.join(name.names)})"
        elif not isinstance(name, str) or not name:
            raise PlanError(f"an element's name is {name!r}", hint="Give a non-empty text.")
        element = Element(name, contiguity, group=group)
        if condition is not None:
            if group is not None:
                raise PlanError(f"{element} takes no condition", hint="Put it on the elements of the group.")
            element = replace(element, condition=check_condition(condition, str(element)))
        if element.negated:
            if group is not None:
                raise PlanError(f"{element} cannot be negated", hint="Negate a single element.")
            before = self._last
            if before.can_be_empty:
                raise PlanError(
                    f"{element} negates after the optional {before}",
                    hint="Use two patterns, one with the optional element and one without.",
                )
        if group is not None and group.within_us is not None:
            raise PlanError(f"{element} has a time bound of its own", hint="Give within(...) to the whole pattern.")
        names = set(self.names) | {e.name for e in self.walk() if e.negated}
        for new in element.group.walk() if element.group is not None else (element,):
            if new.group is None and new.name in names:
                raise PlanError(f"two elements are named {new.name!r}", hint="Names must be unique in a pattern.")
        return replace(self, elements=(*self.elements, element))

    def _where(self, how: Literal["and", "or"], condition: Condition | bool) -> Pattern:
        last = self._last
        if last.group is not None:
            raise self._refuse("takes no condition", "Put it on the elements of the group.")
        return self._change(condition=combine(how, last.condition, check_condition(condition, str(last))))

    def _quantify(self, low: int, high: int | None, within: str | timedelta | int | None) -> Pattern:
        last = self._last
        if last.negated:
            raise self._refuse("cannot have a quantifier", "A negation matches no rows.")
        if last.quantified:
            raise self._refuse("has a quantifier already", "Leave out one of the two.")
        if high is not None and (low < 0 or high < max(low, 1)):
            raise self._refuse(f"cannot match {low} to {high} times", "Give 0 <= low <= high, and high at least 1.")
        bound = None if within is None else micros(within, what="within")
        # A quantifier replaces what was said about a single row, except that it may be missing.
        return self._change(
            low=max(low, 1), high=high, quantified=True, optional=low == 0 or last.optional, times_within=bound
        )

    def _inner(self, inner: Inner) -> Pattern:
        last = self._last
        if not last.quantified:
            raise self._refuse(f"cannot be {inner}, as it matches one row", "Give a quantifier first.")
        if last.inner != "relaxed":
            raise self._refuse(f"is {last.inner} already", "consecutive() and allow_combinations() exclude each other.")
        return self._change(inner=inner)
