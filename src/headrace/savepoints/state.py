"""The state of a job outside of a runner: segments by step, key group and name.

It has the form in which operators wrote it. Of a step, the segment `clock` is the engine's own and says how far time
has come; those that begin with `op/` are the operator's.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl
from polars.exceptions import PolarsError

from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A job's state: by step and key group, segments by name.
State = dict[tuple[str, int], dict[str, bytes]]
#: The same as the runner in this process keeps it: by step, the segments of each key group.
Snapshot = dict[str, list[dict[str, bytes]]]

_STEP_SCHEMA = pl.Schema({"key_group": pl.Int32, "name": pl.String, "value": pl.Binary})


def state_of(snapshot: Mapping[str, list[dict[str, bytes]]]) -> State:
    """Give a snapshot of the runner in this process as the state of a job.

    >>> state_of({"counts": [{"clock": b"1"}, {"clock": b"2"}]})
    {('counts', 0): {'clock': b'1'}, ('counts', 1): {'clock': b'2'}}
    """
    return {(step, group): dict(parts) for step, groups in snapshot.items() for group, parts in enumerate(groups)}


def snapshot_of(state: State) -> Snapshot:
    """Give the state of a job as a snapshot of the runner in this process."""
    return {step: segments_of(state, step) for step in steps_of(state)}


def steps_of(state: State) -> tuple[str, ...]:
    """Name the steps."""
    return tuple(dict.fromkeys(step for step, _ in state))


def segments_of(state: State, step: str) -> list[dict[str, bytes]]:
    """Give the segments of each key group of a step; none for a step that is not there."""
    groups = 1 + max((group for name, group in state if name == step), default=-1)
    return [dict(state.get((step, group), {})) for group in range(groups)]


def step_to_bytes(groups: list[dict[str, bytes]]) -> bytes:
    """Write the segments of a step as an Arrow file with the columns `key_group`, `name` and `value`."""
    rows = [(group, name, value) for group, parts in enumerate(groups) for name, value in sorted(parts.items())]
    sink = io.BytesIO()
    pl.DataFrame(rows, schema=_STEP_SCHEMA, orient="row").write_ipc(
        sink, compression="zstd", compat_level=pl.CompatLevel.oldest()
    )
    return sink.getvalue()


def step_from_bytes(value: bytes, groups: int, *, where: str) -> list[dict[str, bytes]]:
    """Read what `step_to_bytes` wrote.

    Args:
        value: The file.
        groups: How many key groups there are.
        where: Names the file in messages.

    Raises:
        StateError: It is damaged, or of another form.
    """
    try:
        frame = pl.read_ipc(io.BytesIO(value))
    except PolarsError as problem:
        raise StateError(
            f"{where} cannot be read: {str(problem).splitlines()[0]}",
            hint="The savepoint is damaged; take another one, or restore its files from a copy.",
        ) from problem
    numbers = frame.get_column("key_group") if frame.schema == _STEP_SCHEMA else None
    if numbers is None or (frame.height and not 0 <= numbers.min() <= numbers.max() < groups):  # type: ignore[operator]
        raise StateError(
            f"{where} does not hold the segments of {groups} key groups",
            hint="It was written by another version of Headrace, or is not a file of this savepoint.",
        )
    found: list[dict[str, bytes]] = [{} for _ in range(groups)]
    for group, name, segment in frame.iter_rows():
        found[group][name] = segment
    return found
