"""`headrace new`: a project to begin with."""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import UsageError
from headrace.cli.template import project_files
from headrace.errors import EnvironmentProblem


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name, and that of its directory.", show_default=False)
    ],
) -> None:
    """Write a small project: a job, its test, settings, sample data."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) or keyword.iskeyword(name) or name == "headrace":
        raise UsageError(
            f"{name!r} cannot be the name of a project",
            hint="Begin with a letter and use lower-case letters, digits and underscores, 40 at most, such as parcels.",
        )
    directory = Path(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory.absolute()} is there already and is not empty", hint="Choose another name, or remove it."
        )
    files = project_files(name)
    try:
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise EnvironmentProblem(
            f"cannot write {directory.absolute()}: {os.strerror(problem.errno or 0)}", hint="Choose another place."
        ) from problem
    for path in files:
        terminal.line(str(directory / path))
    terminal.note(
        f"Next: cd {name}, then `headrace dev` to see it work, or `python -m pytest` for its tests "
        "(pip install pytest brings it)."
    )
