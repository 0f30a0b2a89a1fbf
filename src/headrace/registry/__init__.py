"""What users bring along: jobs in files and modules of their own, and what packages offer by entry points.

`Registry` is the one object that is asked for any of it.
"""

from headrace.plugins import KINDS, Plugin
from headrace.registry.job_files import JobFile, UnknownJobError, is_job_file, load_jobs
from headrace.registry.registry import Registry

__all__ = [
    "Registry",
    "JobFile",
    "UnknownJobError",
    "is_job_file",
    "load_jobs",
    "Plugin",
    "KINDS",
]
