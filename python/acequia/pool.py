"""Pools: many small tasks, values that stay on the node, and actors, in worker processes of one job."""
from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import socket
import struct
import sys
import time
import uuid
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from . import connection as wire
from . import payload, values
from .client import Client
from .connection import Ref
from .errors import AcequiaError, ControllerError, JobFailed, PoolLost
from .options import SHAPE, make_spec, size_bytes, span
from .upload import Packages, upload_of
from .tunnel import Tunnel, unix_port

Refs = Union[Ref, Sequence[Ref]]
START_PATIENCE_S = 600.0
SECRET_VARIABLE = "POOL_SECRET"
LOCAL_PATIENCE_S = 1.0  # before the pool is looked for on other machines


def milli(name: str, value: float, most: int = 1_000_000) -> int:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value * 1000 <= most:
        raise AcequiaError(f"{name}={value!r}: give a number, for example 1 or 0.5")
    return round(value * 1000)


class Work:
    """What can be done in a pool: by whoever started it, and by its tasks (acequia.current_pool())."""
    _connection: wire.Connection

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Ref:
        """Runs fn(*args, **kwargs) in a worker process. References among the arguments are replaced by their values first."""
        if isinstance(fn, Task):
            return fn._submit(self, args, kwargs)
        c = self._connection
        known, name = c.function(fn, _name(fn))
        return c.submit(known, name, args, kwargs)

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: Optional[float] = None, ordered: bool = True,
            return_exceptions: bool = False) -> Iterator[Any]:
        """A task for each item; results in order, or with ordered=False as they come. Items are taken as tasks end, so there may be any number."""
        return _results(self, fn, zip(*iterables), timeout, ordered, return_exceptions)

    def put(self, value: Any) -> Ref:
        """Stores a value in the pool, once, for any number of tasks."""
        if isinstance(value, Ref):
            raise AcequiaError("this is a reference already")
        return self._connection.put_packed(values.pack(value, "the value"), type(value).__name__)

    def get(self, refs: Any, timeout: Optional[float] = None) -> Any:
        """The value of a reference, or the list of values of several."""
        if isinstance(refs, Ref):
            return refs.result(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        refs = list(refs)
        for ref in refs:
            ref._wanted = True
            self._connection.ask(ref)
        return [ref.result(None if until is None else max(0.0, until - time.monotonic())) for ref in refs]

    def wait(self, refs: Sequence[Ref], count: int = 1, timeout: Optional[float] = None) -> Tuple[List[Ref], List[Ref]]:
        """Waits until `count` of the references have ended; returns those that have, and the others."""
        refs = list(refs)
        if not 0 <= count <= len(refs):
            raise AcequiaError(f"count={count}: of {len(refs)} references")
        until = None if timeout is None else time.monotonic() + timeout
        for ref in refs:
            self._connection.ask(ref)
        self._connection.flush()
        blocked = self._connection.kind == wire.WORKER
        if blocked:
            self._connection.read_in_background()
            self._connection.send(wire.BLOCKED, b"\1")
            self._connection.flush()
        try:
            while sum(ref.done() for ref in refs) < count:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                concurrent.futures.wait([r for r in refs if not r.done()], left, concurrent.futures.FIRST_COMPLETED)
        finally:
            if blocked:
                self._connection.send(wire.BLOCKED, b"\0")
                self._connection.flush()
        return [r for r in refs if r.done()], [r for r in refs if not r.done()]

    def actor(self, cls: Any, /, *args: Any, **kwargs: Any) -> "ActorHandle":
        """Starts an actor: an instance of the class in a process of its own."""
        made = cls if isinstance(cls, ActorClass) else ActorClass(cls, {})
        return made._start(self, args, kwargs)

    def cancel(self, ref: Ref, force: bool = False) -> bool:
        return ref.cancel(force)

    def kill(self, handle: "ActorHandle") -> None:
        """Ends an actor's process at once; its calls raise ActorLost."""
        self._connection.send(wire.CANCEL, struct.pack("<QB", handle._ref.id, True))
        self._connection.flush()

    def _list(self, what: int) -> Any:
        return json.loads(self._connection.list(what))

    def tasks(self) -> List[Dict[str, Any]]:
        """Tasks that have not ended, and the newest that have."""
        rows: List[Dict[str, Any]] = self._list(0)["rows"]
        return rows

    def actors(self) -> List[Dict[str, Any]]:
        rows: List[Dict[str, Any]] = self._list(1)["rows"]
        return rows

    def objects(self) -> List[Dict[str, Any]]:
        rows: List[Dict[str, Any]] = self._list(2)["rows"]
        return rows

    def nodes(self) -> List[Dict[str, Any]]:
        """The nodes that are there, the first of which has the pool's state."""
        rows: List[Dict[str, Any]] = self._list(4)["rows"]
        return rows

    def summary(self) -> Dict[str, Any]:
        counts: Dict[str, Any] = self._list(3)["summary"]
        return counts


class Pool(Work):
    """A pool of worker processes, on one node or several: one job.

        with Pool(cpus=8, memory="16G") as pool:
            data = pool.put(table)
            parts = [pool.submit(f, data, i) for i in range(100)]
            print(pool.get(pool.submit(merge, *parts)))

    Options are those of Client.submit, for each node. `nodes`: 4, or (1, 8) for a number that may change while the pool runs. `objects`: how
    much shared memory for values, by default half of the job's memory. `linger`: how many seconds the pool lives on when its clients have gone.
    `max_pending`: how many unfinished tasks a client may have before submit() waits. `upload` and `pip`: as of Executor."""

    def __init__(self, client: Optional[Client] = None, *, python: Optional[str] = None, by_value: Sequence[ModuleType] = (),
                 objects: Union[str, int, None] = None, linger: int = 10, max_pending: int = 50_000, nodes: Any = 1,
                 upload: Union[str, "os.PathLike[str]", None] = None, pip: Packages = None, **options: Any) -> None:
        options.setdefault("name", "pool")
        for name in ("ports", "workers", "container"):
            if name in options:
                raise AcequiaError(f"{name}: a pool is one process tree on each node, outside of containers; nodes= says on how many")
        fewest, most = span("nodes", nodes)
        if not 1 <= fewest <= most <= 1024:
            raise AcequiaError(f"nodes={nodes!r}: give a number of nodes, or (fewest, most), up to 1024")
        spec: Dict[str, Any] = {"command_text": "pool", "network": "node"}
        shape = {k: v for k, v in make_spec(options).items() if k in SHAPE}
        if most > 1:
            spec["on_worker_end"] = "continue"
            spec["components"] = [{"name": "head", "workers_min": 1, "workers_max": 1, "nodes_min": 1, "tasks": 1, **shape},
                                  {"name": "node", "workers_min": fewest - 1, "workers_max": most - 1, "workers_given": True, "nodes_min": 1,
                                   "tasks": 1, **shape}]
        files = upload_of(upload, pip)
        self.client = client or Client()
        payload.by_value(by_value)
        key = uuid.uuid4().hex[:16]
        self._path = f"/tmp/acequia-{os.geteuid()}-{key}.sock"
        settings: Dict[str, Any] = {"linger": linger, "memory": size_bytes("objects", objects) if objects is not None else None}
        if most > 1:
            settings["key"] = os.urandom(32).hex()
            given = options.get("secrets") or []
            options["secrets"] = [*([given] if isinstance(given, str) else given), f"{_own_secret(self.client)}={SECRET_VARIABLE}"]
        script = payload.program("pool_program.txt", python or sys.executable or "python3", settings, packages=("acequia",))
        if files is not None:
            script = files.script("python", script, python or sys.executable or "python3")
        spec["ports"] = [f"unix:{self._path}"]
        tags = options.get("tags") or []
        options["tags"] = ["pool", *([tags] if isinstance(tags, str) else tags)]
        self.job = self.client.submit_spec(spec, script, options, "pool", None, without=SHAPE if most > 1 else (), upload=files)[0]
        try:
            self._connection = self._connect(max_pending)
        except BaseException:
            self.job.cancel()
            raise
        _stack.append(self)

    def _here(self) -> Optional[socket.socket]:
        """The pool's own socket, if it is on this machine."""
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(self._path)
            owner = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
            if owner == os.geteuid():
                return sock
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            pass
        sock.close()
        return None

    def _elsewhere(self) -> Optional[Tunnel]:
        """The same socket by way of the controller; None: it does not listen yet."""
        try:
            return Tunnel(self.client.transport, self.job.id, unix_port(self.job.id))
        except ControllerError as e:
            if e.status in (401, 403):
                raise
        except OSError:
            pass
        return None

    def _connect(self, max_pending: int) -> wire.Connection:
        begun, pause = time.monotonic(), 0.002
        while True:
            sock = self._here()
            if sock is not None:
                return wire.connect(sock, True, max_pending)
            waited = time.monotonic() - begun
            tunnel = self._elsewhere() if waited > LOCAL_PATIENCE_S else None
            if tunnel is not None:
                sock = self._here()  # it listens by now: it may be here after all
                try:
                    return wire.connect(sock or tunnel, sock is not None, max_pending)
                except OSError:
                    tunnel.close()  # the agent could not reach it yet
            if self.job.done():
                self._raise_ended()
            if waited > START_PATIENCE_S:
                raise PoolLost(f"the pool's job {self.job.id} has not started within {START_PATIENCE_S:.0f} s: see acequia why {self.job.id}")
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)

    def _raise_ended(self) -> None:
        try:
            self.job.result(0)
        except JobFailed as e:
            raise PoolLost(f"the pool's job {self.job.id} has ended: {e}\n{e.log}") from None
        raise PoolLost(f"the pool's job {self.job.id} has ended")

    def shutdown(self, wait: bool = True) -> None:
        """Ends the pool with everything in it."""
        if self in _stack:
            _stack.remove(self)
        if self._connection.error is None:
            self._connection.send(wire.END, b"")
        self._connection.close()
        if wait:
            concurrent.futures.wait([self.job])
            try:
                os.unlink(self._path)  # left there by a job that was killed
            except OSError:
                pass

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        self.shutdown()

    def __reduce__(self) -> Tuple[Any, ...]:
        return current_pool, ()


def _own_secret(client: Client) -> str:
    """A secret of the user, made when it is first needed: with the pool's number in the script it makes the key that the nodes of a pool prove
    to each other. Scripts can be read by those the user shares logs with, secrets by nobody."""
    name = "acequia-pools"
    if not any(s["name"] == name and not s.get("project") for s in client.get("/v1/secrets")["secrets"]):
        client.transport.json("PUT", f"/v1/secrets/{name}", {"value": os.urandom(32).hex().encode().hex()}, repeat=True)
    return name


class WorkerPool(Work):
    """The pool, seen from a task of it."""

    def __init__(self, connection: wire.Connection) -> None:
        self._connection = connection

    def __reduce__(self) -> Tuple[Any, ...]:
        return current_pool, ()


_stack: List[Pool] = []


def current_pool() -> Work:
    """In a task or an actor, its pool; elsewhere the newest pool that this program has started."""
    if wire.current is not None and wire.current.kind == wire.WORKER:
        return WorkerPool(wire.current)
    if not _stack:
        raise AcequiaError("there is no pool: with acequia.Pool(...) as pool: …")
    return _stack[-1]


class Task:
    """A function with what it needs: pool.submit(task(f, gpus=0.5), x)."""

    def __init__(self, fn: Callable[..., Any], options: Dict[str, Any]) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._options = fn, options
        self._how = task_options(options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def options(self, **options: Any) -> "Task":
        return Task(self._fn, {**self._options, **options})

    def submit(self, *args: Any, **kwargs: Any) -> Ref:
        """In the current pool."""
        return self._submit(current_pool(), args, kwargs)

    def _submit(self, pool: Work, args: Any, kwargs: Dict[str, Any]) -> Ref:
        c = pool._connection
        known, name = c.function(self._fn, _name(self._fn))
        return c.submit(known, name, args, kwargs, **self._how)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Task, (self._fn, self._options)


def task_options(options: Dict[str, Any], cpus: float = 1) -> Dict[str, Any]:
    known = {"cpus", "gpus", "retries"}
    for name in options:
        if name not in known:
            raise AcequiaError(f"unknown option {name}; there are {', '.join(sorted(known))}")
    retries = options.get("retries", 3)
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= 65535:
        raise AcequiaError(f"retries={retries!r}: give a number from 0 to 65535")
    return {"cpu_milli": milli("cpus", options.get("cpus", cpus)), "gpu_milli": milli("gpus", options.get("gpus", 0)), "retries": retries}


def task(fn: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """@task or @task(cpus=2, gpus=0.5, retries=0): f(x) runs here, f.submit(x) or pool.submit(f, x) in a pool."""
    if fn is not None:
        return Task(fn, options)
    return lambda f: Task(f, options)


class ActorClass:
    """A class whose instances may be actors; called, it makes an ordinary instance here."""

    def __init__(self, cls: Any, options: Dict[str, Any]) -> None:
        functools.update_wrapper(self, cls, updated=())
        self._cls, self._options = cls, options
        renamed = {("retries" if k == "restarts" else k): v for k, v in options.items()}
        if "retries" in options:
            raise AcequiaError("retries: an actor has restarts; calls that were under way are not repeated")
        self._how = task_options({"retries": 0, **renamed}, cpus=0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._cls(*args, **kwargs)

    def options(self, **options: Any) -> "ActorClass":
        return ActorClass(self._cls, {**self._options, **options})

    def start(self, *args: Any, **kwargs: Any) -> "ActorHandle":
        """An actor in the current pool."""
        return self._start(current_pool(), args, kwargs)

    def _start(self, pool: Work, args: Any, kwargs: Dict[str, Any]) -> "ActorHandle":
        c = pool._connection
        known, name = c.function(self._cls, _name(self._cls))
        ref = c.submit(known, name, args, kwargs, flags=wire.WANT | wire.NEW_ACTOR, **self._how)
        return ActorHandle(ref, tuple(m for m in dir(self._cls) if callable(getattr(self._cls, m)) and (m[:2] != "__" or m == "__call__")))

    def __reduce__(self) -> Tuple[Any, ...]:
        return ActorClass, (self._cls, self._options)


def actor(cls: Any = None, **options: Any) -> Any:
    """@actor or @actor(cpus=1, gpus=0.5, restarts=2) before a class: pool.actor(C, …) or C.start(…) makes an actor of it."""
    if cls is not None:
        return ActorClass(cls, options)
    return lambda c: ActorClass(c, options)


class ActorHandle:
    """An actor: its methods return references. Calls of one caller are done in order. It ends when no handle is left."""

    def __init__(self, ref: Ref, methods: Tuple[str, ...]) -> None:
        self._ref, self._methods = ref, methods

    def __getattr__(self, name: str) -> Callable[..., Ref]:
        if name.startswith("_") or name not in self._methods:
            raise AttributeError(f"the actor {self._ref.name} has no method {name}; it has {', '.join(self._methods)}")
        return functools.partial(self._call, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Ref:
        return self._call("__call__", *args, **kwargs)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Ref:
        return self._ref._connection.submit(None, f"{self._ref.name}.{name}", args, kwargs, actor=self._ref.id, method=name, cpu_milli=0,
                                            retries=0)

    def ready(self, timeout: Optional[float] = None) -> None:
        """Waits until its constructor has ended; raises what it raised."""
        self._ref.result(timeout)

    def __repr__(self) -> str:
        return f"<Actor {self._ref.name} {self._ref.id:x}>"

    def __reduce__(self) -> Tuple[Any, ...]:
        return ActorHandle, (self._ref, self._methods)


def _name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", type(fn).__name__)).strip("<>") or "function"


def _results(pool: Work, fn: Callable[..., Any], calls: Iterator[Tuple[Any, ...]], timeout: Optional[float], ordered: bool,
             return_exceptions: bool) -> Iterator[Any]:
    import collections
    until = None if timeout is None else time.monotonic() + timeout
    ahead = max(1, min(10_000, pool._connection.max_pending // 2))
    pending: Any = collections.deque() if ordered else set()
    add = pending.append if ordered else pending.add

    def fill() -> None:
        while len(pending) < ahead:
            for args in calls:
                add(pool.submit(fn, *args))
                break
            else:
                return

    def value(ref: Ref) -> Any:
        try:
            return ref.result(None if until is None else max(0.0, until - time.monotonic()))
        except concurrent.futures.TimeoutError:
            raise
        except Exception as e:
            if not return_exceptions:
                raise
            return e

    def results() -> Iterator[Any]:
        fill()
        while pending:
            if ordered:
                done = [pending.popleft()]
            else:
                ended, _ = pool.wait(list(pending), 1, None if until is None else max(0.0, until - time.monotonic()))
                if not ended:
                    raise concurrent.futures.TimeoutError()
                done = ended
                pending.difference_update(ended)
            for ref in done:
                yield value(ref)
            if len(pending) < ahead // 2:
                fill()

    return results()
