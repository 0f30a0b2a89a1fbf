"""The in-process runner: the same pipeline and operators, one call per step; for tests and notebooks."""

from headrace.inprocess.runner import Batch, Runner, run

__all__ = ["Batch", "Runner", "run"]
