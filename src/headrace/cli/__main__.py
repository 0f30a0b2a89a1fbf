"""`python -m headrace.cli`: the same as the command `headrace`."""

from __future__ import annotations

from headrace.cli.main import main

main()
