"""What can go wrong, each with a sentence for people."""
from __future__ import annotations

import concurrent.futures
from typing import Optional


class AcequiaError(Exception):
    """Everything that this package raises."""


class ControllerError(AcequiaError):
    """The controller refused a request. `code` is for programs (EINVAL, ENOENT, EPERM …), `field` names what is to blame."""

    def __init__(self, message: str, status: int, code: Optional[str] = None, field: Optional[str] = None) -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


class Unreachable(AcequiaError):
    """No controller answered, although it was tried again for some time."""


class JobFailed(AcequiaError):
    """A job did not end well. `state` is FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY …; `log` the end of its output."""

    def __init__(self, message: str, job: int, state: str, exit_code: int = 0, log: str = "") -> None:
        super().__init__(message)
        self.job, self.state, self.exit_code, self.log = job, state, exit_code, log


class JobCancelled(JobFailed, concurrent.futures.CancelledError):
    """The job was cancelled."""


class RemoteError(AcequiaError):
    """A function raised an exception that cannot be sent back as it is; the text has its traceback."""


class RemoteTraceback(Exception):
    """The cause of an exception that a function raised on a node: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class PoolError(AcequiaError):
    """A task of a pool did not end with a value, for a reason that is not an exception of its function."""


class PoolLost(PoolError):
    """The pool itself has ended or cannot be reached."""


class WorkerLost(PoolError):
    """The worker process ended while it ran the task, more often than the task is tried again."""


class ActorLost(PoolError):
    """The actor's process has ended."""


class ReferenceLost(PoolError):
    """A value that is not there any more."""


class PoolFull(PoolError):
    """There is no room for a value or for more tasks."""


class Impossible(PoolError):
    """The task needs more than the pool has."""


class TaskCancelled(PoolError, concurrent.futures.CancelledError):
    """The task was cancelled."""
