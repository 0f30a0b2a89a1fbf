"""What users bring along: jobs in files and modules of their own, and what packages offer by entry points."""

from headrace.registry.job_files import JobFile, UnknownJobError, is_job_file, load_jobs
from headrace.registry.jobs import JobRegistry
from headrace.registry.plugins import KINDS, Plugin, find_objects

__all__ = [
    "JobRegistry",
    "JobFile",
    "UnknownJobError",
    "is_job_file",
    "load_jobs",
    "Plugin",
    "KINDS",
    "find_objects",
]
