"""Where matching goes on after a match.

Without a strategy every match comes out, also those that share rows. A strategy gives away partial matches (and
complete ones that still wait) which began too early once a match is out:

| kind | partial matches that are given away |
|---|---|
| none | none |
| to_next | those that began with the same row as the match |
| past_last | those that began before the match ended |
| to_first | those that began before the first row of the named element in the match |
| to_last | those that began before the last row of the named element in the match |

With a strategy matches come out in the order of their first rows: a match waits while one that began earlier may still
be completed, and may be given away by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from headrace.errors import JobError, PlanError

if TYPE_CHECKING:
    from headrace.cep.matcher import Path

SkipKind: TypeAlias = Literal["none", "to_next", "past_last", "to_first", "to_last"]


@dataclass(frozen=True, slots=True)
class Skip:
    """What is given away after a match.

    Args:
        kind: See the table above.
        name: The element that "to_first" and "to_last" go to.
        on_missing: What to do if the match has no row of that element: "ignore" gives nothing away, "error" fails.

    >>> from headrace.cep.matcher import Path
    >>> Skip("past_last").first_kept(Path.EMPTY.add("a", 3).add("b", 5))
    6
    """

    kind: SkipKind = "none"
    name: str | None = None
    on_missing: Literal["ignore", "error"] = "ignore"

    def __post_init__(self) -> None:
        if self.kind not in get_args(SkipKind):
            raise PlanError(f"unknown skip strategy {self.kind!r}", hint=f"Use one of {', '.join(get_args(SkipKind))}.")
        if (self.name is not None) != (self.kind in ("to_first", "to_last")):
            raise PlanError(
                f"skip {self.kind!r} {'takes no' if self.name is not None else 'needs the'} name of an element",
                hint='Write skip("to_first", "name") or skip("past_last").',
            )

    def first_kept(self, path: Path) -> int:
        """The row from which on a partial match must have begun to be kept after this match; 0 keeps all."""
        rows = path.rows() if self.name is None else path.rows(self.name)
        if self.kind == "none":
            return 0
        if self.kind == "to_next":
            return rows[0] + 1
        if self.kind == "past_last":
            return rows[-1] + 1
        if not rows:
            if self.on_missing == "error":
                raise JobError(
                    f"cannot skip to {self.name!r}: the match has no row of it",
                    hint='Make the element mandatory, or use on_missing="ignore".',
                )
            return 0
        target = rows[0] if self.kind == "to_first" else rows[-1]
        if self.on_missing == "error" and target == path.first():
            raise JobError(
                f"cannot skip to {self.name!r}: it is the first row of the match, which would be found again for ever",
                hint="Skip to an element that comes later, or past the last row.",
            )
        return target
