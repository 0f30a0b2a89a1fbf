"""The in-process runner: the same pipeline and operators, one call per step; for tests and notebooks."""

from headrace.inprocess.previews import Preview, preview
from headrace.inprocess.runner import Batch, Runner, run

__all__ = ["Batch", "Preview", "Runner", "preview", "run"]
