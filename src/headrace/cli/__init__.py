"""The command `headrace`: one file per command.

`main.py` is the front door: it holds what all commands share (settings, errors, exit codes). A command's file reads its
arguments, calls the layers below, and prints through `terminal.py`. Heavy packages (pyspark, polars, confluent_kafka)
are imported inside the functions that need them, so that `headrace --help` and shell completion answer at once.
"""
