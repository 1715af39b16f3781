"""Acequia from Python: functions and programs as jobs of a cluster.

    from acequia import Executor
    with Executor(project="nlp", gpus=0.5) as ex:
        results = list(ex.map(f, xs))
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client as Client
    from .connection import Ref as Ref
    from .errors import (AcequiaError as AcequiaError, ActorLost as ActorLost, ControllerError as ControllerError, Impossible as Impossible,
                         JobCancelled as JobCancelled, JobFailed as JobFailed, PoolError as PoolError, PoolFull as PoolFull,
                         PoolLost as PoolLost, ReferenceLost as ReferenceLost, RemoteError as RemoteError, RemoteTraceback as RemoteTraceback,
                         TaskCancelled as TaskCancelled, Unreachable as Unreachable, WorkerLost as WorkerLost)
    from .executor import Executor as Executor, RemoteFunction as RemoteFunction, remote as remote
    from .job import Job as Job
    from .pool import ActorHandle as ActorHandle, Pool as Pool, actor as actor, current_pool as current_pool, task as task

# Loaded when they are first used: a worker process needs few of them, and a program that only submits starts sooner.
_WHERE = {"Client": "client", "Ref": "connection", "Executor": "executor", "RemoteFunction": "executor", "remote": "executor", "Job": "job",
          "ActorHandle": "pool", "Pool": "pool", "actor": "pool", "current_pool": "pool", "task": "pool",
          **{name: "errors" for name in (
              "AcequiaError", "ActorLost", "ControllerError", "Impossible", "JobCancelled", "JobFailed", "PoolError", "PoolFull", "PoolLost",
              "ReferenceLost", "RemoteError", "RemoteTraceback", "TaskCancelled", "Unreachable", "WorkerLost")}}
__all__ = sorted(_WHERE)
__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module acequia has no attribute {name}")
    import importlib
    value = getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value
