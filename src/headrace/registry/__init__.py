"""What users bring along: jobs in files and modules of their own."""

from headrace.registry.job_files import JobFile, UnknownJobError, is_job_file, load_jobs

__all__ = ["JobFile", "UnknownJobError", "is_job_file", "load_jobs"]
