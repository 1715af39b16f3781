"""Functions as jobs, in the way of concurrent.futures."""
from __future__ import annotations

import concurrent.futures
import functools
import os
import sys
import threading
import uuid
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import payload
from .client import Client
from .errors import AcequiaError, ControllerError
from .job import Job
from .options import make_spec
from .upload import Packages, upload_of

ARCHIVE_BYTES = 2 << 20  # of the calls of one array; a script may have 4 MiB
ELEMENTS_MAX = 1000      # of one array


class Executor(concurrent.futures.Executor):
    """Runs functions as jobs.

        with Executor(project="nlp", gpus=0.5) as ex:
            results = list(ex.map(f, xs))

    Options are those of Client.submit. `python`: the interpreter on the nodes, by default this one's path. `by_value`: modules whose functions
    are sent whole; those of the main program always are, others must be importable on the nodes. `upload`: a folder that goes with the jobs, in which
    they begin. `pip`: packages that they need, a list or the path of a requirements file; installed once on each node."""

    def __init__(self, client: Optional[Client] = None, *, python: Optional[str] = None, by_value: Sequence[ModuleType] = (),
                 upload: Union[str, "os.PathLike[str]", None] = None, pip: Packages = None, **options: Any) -> None:
        self.upload = upload_of(upload, pip)
        make_spec(options)  # mistakes are told here, not at the first submit
        self.client = client or Client()
        self.python = python or sys.executable or "python3"
        self.options = options
        self._lock = threading.Lock()
        self._jobs: "set[Job]" = set()
        self._shut = False
        payload.by_value(by_value)

    # --- concurrent.futures ---

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Runs fn(*args, **kwargs) as a job."""
        return self._submit([(fn, args, kwargs)])[0]

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: Optional[float] = None, chunksize: int = 1,
            ordered: bool = True, return_exceptions: bool = False) -> Iterator[Any]:
        """One job for each item, all submitted before this returns; results in order, or with ordered=False as they come."""
        calls: List[payload.Call] = [(fn, args, {}) for args in zip(*iterables)]
        jobs = self._submit(calls) if calls else []
        return self._results(jobs, timeout, ordered, return_exceptions)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._shut = True
            jobs = list(self._jobs)
        if cancel_futures and jobs:
            self.client.act("cancel", [job.id for job in jobs if not job.done()])
        if wait:
            concurrent.futures.wait(jobs)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> Optional[bool]:
        """After an exception what is not done is cancelled: nobody waits for it any more."""
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)
        return None

    # --- how ---

    @staticmethod
    def _results(jobs: List[Job], timeout: Optional[float], ordered: bool, return_exceptions: bool) -> Iterator[Any]:
        import time
        until = None if timeout is None else time.monotonic() + timeout
        source: Iterable[Any] = jobs if ordered else concurrent.futures.as_completed(jobs, timeout)
        for job in source:
            try:
                yield job.result(None if until is None else max(0.0, until - time.monotonic()))
            except concurrent.futures.TimeoutError:
                raise
            except Exception as e:
                if not return_exceptions:
                    raise
                yield e

    def _submit(self, calls: Sequence[payload.Call]) -> List[Job]:
        with self._lock:
            if self._shut:
                raise RuntimeError("the executor was shut down: it takes no more work")
        packed = [payload.dumps(call, f"{_name(call[0])} or its arguments") for call in calls]
        jobs: List[Job] = []
        for part in _parts(packed):
            jobs += self._submit_part(part, _name(calls[0][0]))
        with self._lock:
            self._jobs.update(jobs)
        for job in jobs:
            job.add_done_callback(self._done)
        return jobs

    def _done(self, job: Any) -> None:
        with self._lock:
            self._jobs.discard(job)

    def _submit_part(self, calls: List[bytes], name: str) -> List[Job]:
        key = uuid.uuid4().hex
        spec: Dict[str, Any] = {"command_text": name}
        if len(calls) > 1:
            spec["array"] = [{"first": 0, "last": len(calls) - 1, "step": 1}]

        def fetch(i: int) -> Callable[[Job], Any]:
            return functools.partial(self._fetch, f"{key}.{i}" if len(calls) > 1 else key)

        script = payload.script(calls, self.python, key)
        if self.upload is not None:
            script = self.upload.script("python", script, self.python)
        jobs = self.client.submit_spec(spec, script, self.options, name, fetch, upload=self.upload)
        for job in jobs:
            job.key = key
        return jobs

    def _fetch(self, file: str, job: Job) -> Any:
        """Reads the result from the job's node."""
        info = job.info()
        parts = info.get("parts") or []
        node = parts[0].get("node") if parts else info.get("nodes")
        path = f"~/{payload.RESULTS}/{file}"
        try:
            data = self.client.read_file(path, node)
        except ControllerError as e:
            if e.code != "ENOENT":
                raise
            raise job._failure(info) if info["state"] != "COMPLETED" else AcequiaError(
                f"job {job.id} ended well and left no result in {path} on {node}") from None
        try:
            return payload.read_result(data)
        finally:
            try:
                self.client.remove_file(path, node)
            except AcequiaError:
                pass


def _name(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", type(fn).__name__).strip("<>") or "function"


def _parts(packed: List[bytes]) -> Iterator[List[bytes]]:
    """As many calls in one array as its script can hold."""
    part: List[bytes] = []
    size = 0
    for one in packed:
        if part and (size + len(one) > ARCHIVE_BYTES or len(part) == ELEMENTS_MAX):
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one)
    if part:
        yield part


class RemoteFunction:
    """A function that runs here when it is called, and as a job with submit and map."""

    def __init__(self, fn: Callable[..., Any], options: Dict[str, Any], client: Optional[Client] = None) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._options, self._client = fn, options, client
        self._executor: Optional[Executor] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def options(self, **options: Any) -> "RemoteFunction":
        """The same function with other options."""
        return RemoteFunction(self._fn, {**self._options, **options}, self._client)

    def _ex(self) -> Executor:
        if self._executor is None:
            self._executor = Executor(self._client, **self._options)
        return self._executor

    def submit(self, *args: Any, **kwargs: Any) -> Job:
        return self._ex().submit(self._fn, *args, **kwargs)

    def map(self, *iterables: Iterable[Any], **how: Any) -> Iterator[Any]:
        return self._ex().map(self._fn, *iterables, **how)

    def __reduce__(self) -> Tuple[Any, ...]:
        return RemoteFunction, (self._fn, self._options)


def remote(fn: Optional[Callable[..., Any]] = None, *, client: Optional[Client] = None, **options: Any) -> Any:
    """@remote or @remote(gpus=1): f(x) runs here, f.submit(x) as a job, f.map(xs) as many."""
    if fn is not None:
        return RemoteFunction(fn, options, client)
    return lambda f: RemoteFunction(f, options, client)
