"""One tree of errors.

Every error that Headrace raises on purpose is a `HeadraceError` and also the built-in kind a Python reader expects
(`ValueError`, `OSError`, ...). A message says what was wrong, where, and what to do about it; `hint` holds the last
part apart, so that the command line can print it on a line of its own.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the `headrace` command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 3
    ENVIRONMENT = 4
    BROKER = 5
    JOB = 6
    INTERRUPTED = 130


class HeadraceError(Exception):
    """Root of all errors that Headrace raises on purpose.

    Args:
        message: What was wrong, and where.
        hint: What to do about it.

    >>> print(ConfigError("broker.port is 'abc'", hint="Give a number from 1 to 65535."))
    broker.port is 'abc'. Give a number from 1 to 65535.
    """

    exit_code: ExitCode = ExitCode.FAILURE

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(message, hint)

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message.removesuffix('.')}. {self.hint}"


class ConfigError(HeadraceError, ValueError):
    """A setting is unknown or has a bad value."""

    exit_code = ExitCode.CONFIG


class PlanError(HeadraceError, ValueError):
    """A stream, window, trigger, pattern or job cannot work as described."""

    exit_code = ExitCode.JOB


class SchemaError(HeadraceError, TypeError):
    """A type is not registered, or its schema does not fit."""

    exit_code = ExitCode.JOB


class EnvironmentProblem(HeadraceError, OSError):  # noqa: N818 - `EnvironmentError` is a name that Python has taken
    """The machine lacks something: Java, memory, disk, a port, a readable file."""

    exit_code = ExitCode.ENVIRONMENT

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


class MissingExtraError(HeadraceError, ImportError):
    """A part of Headrace is used whose packages are not installed; `hint` has the command that installs them.

    Args:
        message: What needs which packages.
        extras: The names of the extras that have them.
    """

    exit_code = ExitCode.ENVIRONMENT

    def __init__(self, message: str, *, extras: tuple[str, ...]) -> None:
        self.extras = extras
        super().__init__(message, hint=f"Install it: pip install 'headrace[{','.join(extras)}]'")

    def __reduce__(self) -> tuple[object, ...]:
        return _missing_extra, (self.message, self.extras)


def _missing_extra(message: str, extras: tuple[str, ...]) -> MissingExtraError:
    """Rebuild a pickled error: its options are keyword-only."""
    return MissingExtraError(message, extras=extras)


class BrokerError(HeadraceError, ConnectionError):
    """Kafka cannot be started, reached or used."""

    exit_code = ExitCode.BROKER

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


class RegistryError(HeadraceError, ConnectionError):
    """A schema registry cannot be reached, or does not do what it was asked for."""

    exit_code = ExitCode.ENVIRONMENT

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


class StateError(HeadraceError, RuntimeError):
    """Saved state does not fit the job that wants to continue from it."""

    exit_code = ExitCode.JOB


class JobError(HeadraceError, RuntimeError):
    """A running job failed."""

    exit_code = ExitCode.JOB


class FailedJobError(JobError):
    """A running job failed by its own code; the others of its query need not.

    Args:
        job: Its name.
        reason: What was wrong.
        hint: What to do about it.

    >>> FailedJobError.read("job 'counts' failed: KeyError: 'line'").job
    'counts'
    """

    def __init__(self, job: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"job {job!r} failed: {reason}", hint=hint)
        self.job = job
        self.reason = reason

    @classmethod
    def read(cls, text: str) -> FailedJobError:
        """Read what another process said with such an error."""
        job, _, reason = text.removeprefix("job '").partition("' failed: ")
        return cls(job, reason)

    def __reduce__(self) -> tuple[object, ...]:
        return _failed_job, (self.job, self.reason, self.hint)


def _failed_job(job: str, reason: str, hint: str) -> FailedJobError:
    return FailedJobError(job, reason, hint=hint)
