"""Acequia from Python: functions and programs as jobs of a cluster.

    from acequia import Executor
    with Executor(project="nlp", gpus=0.5) as ex:
        results = list(ex.map(f, xs))
"""
from .client import Client
from .errors import AcequiaError, ControllerError, JobCancelled, JobFailed, RemoteError, RemoteTraceback, Unreachable
from .executor import Executor, RemoteFunction, remote
from .job import Job

__all__ = ["AcequiaError", "Client", "ControllerError", "Executor", "Job", "JobCancelled", "JobFailed", "RemoteError", "RemoteFunction",
           "RemoteTraceback", "Unreachable", "remote"]
__version__ = "0.3.0"
