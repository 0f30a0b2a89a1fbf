"""The in-process runner: the same pipeline and operators, one call per step; for tests and notebooks."""

from headrace.inprocess.previews import Preview, preview
from headrace.inprocess.runner import Batch, Runner, run
from headrace.inprocess.to_sinks import write_to_sinks

__all__ = ["Batch", "Preview", "Runner", "preview", "run", "write_to_sinks"]
