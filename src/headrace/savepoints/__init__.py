"""Savepoints: the state of jobs in files of a documented form, to go on from later, elsewhere or otherwise.

`headrace.savepoints.files` reads and writes them, `headrace.savepoints.rescale` spreads state over another number of
key groups, `headrace.savepoints.compatibility` says what a changed job can do with old state. docs/savepoints.md
describes the form.
"""

from headrace.savepoints.compatibility import StepPlan, fitted, plan_job, plan_jobs
from headrace.savepoints.contents import JobState
from headrace.savepoints.files import Savepoint, read_manifest, read_savepoint, verify, write_savepoint
from headrace.savepoints.manifest import JobEntry, Manifest, StepEntry
from headrace.savepoints.state import State, snapshot_of, state_of

__all__ = [
    "Savepoint",
    "Manifest",
    "JobEntry",
    "JobState",
    "StepEntry",
    "State",
    "StepPlan",
    "fitted",
    "plan_job",
    "plan_jobs",
    "read_manifest",
    "read_savepoint",
    "snapshot_of",
    "state_of",
    "verify",
    "write_savepoint",
]
