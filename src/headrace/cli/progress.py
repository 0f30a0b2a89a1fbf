"""Steps that take a while: say what is being done, how far it is, and how long it took.

On a terminal each step has a spinner (or a bar, where the amount is known) and a clock; elsewhere a step prints one
line when it begins and one when it is done. All of it goes to standard error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from headrace.cli import terminal

_OUTCOME = {"done": ("✓", "green"), "failed": ("✗", "bold red"), "stopped": ("■", "yellow")}


class _StateColumn(ProgressColumn):
    def __init__(self, table_column: Column | None = None) -> None:
        super().__init__(table_column)
        self._spinner = SpinnerColumn()

    def render(self, task: Task) -> Text:
        outcome = _OUTCOME.get(task.fields["state"])
        if outcome is None:
            spun = self._spinner.render(task)
            return spun if isinstance(spun, Text) else Text("…")
        return Text(*outcome)


class _ClockColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.elapsed or 0:.1f} s", style="dim")


class _AmountColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        if not task.total or task.fields["state"] != "running":
            return Text()
        filled = round(20 * task.completed / task.total)
        return Text("━" * filled, style="cyan") + Text("━" * (20 - filled), style="dim")


class Step:
    """One step under way."""

    def __init__(self, title: str, steps: Steps, task: TaskID | None) -> None:
        self.title = title
        self.began = time.monotonic()
        self.detail = ""
        self._steps = steps
        self._task = task

    def progress(self, message: str, /, *, done: int = 0, total: int = 0) -> None:
        """Tell how far the step is; fits `headrace.dev.progress.Progress`."""
        self.detail = message
        self._steps.show(self._task, detail=message, done=done, total=total)

    def done(self, detail: str) -> None:
        """Set the words that stay behind the finished step."""
        self.detail = detail

    def close(self, state: str) -> None:
        """Mark the step as done, failed or stopped."""
        if self._task is not None:
            self._steps.show(self._task, detail=self.detail, state=state)
        else:
            tail = f": {self.detail}" if self.detail else ""
            terminal.note(f"{self.title} {state} after {time.monotonic() - self.began:.1f} s{tail}")


class Steps:
    """A list of steps that grows downwards.

    >>> with Steps() as steps, steps.step("Counting") as step:
    ...     step.done("3 things")
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        if terminal.err.is_terminal:
            fixed = Column(no_wrap=True)
            rest = Column(no_wrap=True, overflow="ellipsis", ratio=1)
            self._progress = Progress(
                _StateColumn(table_column=fixed.copy()),
                TextColumn("{task.description}", table_column=fixed.copy()),
                _ClockColumn(table_column=Column(no_wrap=True, justify="right")),
                _AmountColumn(table_column=fixed.copy()),
                TextColumn("{task.fields[detail]}", style="dim", markup=False, table_column=rest),
                console=terminal.err,
                expand=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Begin a step; when the block ends it is done, has failed, or was stopped by somebody who wants no more of it.

        Args:
            title: What is being done.
        """
        task = None
        if self._progress is not None:
            task = self._progress.add_task(title, total=None, detail="", state="running")
        else:
            terminal.note(f"{title} ...")
        step = Step(title, self, task)
        state = "stopped"
        try:
            yield step
            state = "done"
        except Exception:
            state = "failed"
            raise
        finally:
            step.close(state)

    def show(self, task: TaskID | None, *, detail: str, done: int = 0, total: int = 0, state: str = "running") -> None:
        """Change what a step shows on a terminal; without one there is nothing to change."""
        if self._progress is None or task is None:
            return
        self._progress.update(task, detail=detail, completed=done, total=total or None, state=state)
        if state != "running":
            self._progress.stop_task(task)
