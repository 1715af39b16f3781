"""A connection to the process of a pool (src/tasks/ of Acequia), of a client or of a worker: frames out and in, references, shared memory.

What is sent is collected and sent together: when there is much of it, when somebody waits for a value, or after a millisecond. Values come to
a thread, which hands them to the references that wait for them. A process says itself which references it holds; see tasks/pool.h there."""
from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import functools
import itertools
import mmap
import os
import pickle
import queue
import socket
import struct
import threading
import time
import types
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Type, Union

from . import values
from .errors import (AcequiaError, ActorLost, Impossible, PoolError, PoolFull, PoolLost, ReferenceLost, RemoteError, RemoteTraceback,
                     TaskCancelled, WorkerLost)

VERSION = 2
INLINE_MAX = 32 << 10
PIECE = 256 << 10
SEND_AT = 64 << 10
DEPENDENCIES_MAX, NESTED_MAX = 1024, 4096
(HELLO, SUBMIT, PUT, ALLOC, WRITE, SEAL, GET, HOLD, RELEASE, DONE, CANCEL, BLOCKED, LIST, END) = range(1, 15)
WELCOME, VALUE, ALLOCATED, DATA, LISTED = range(32, 37)
CLIENT, VIEWER, WORKER = 1, 2, 3
VALUE_INLINE, VALUE_SHARED, VALUE_ERROR, VALUE_ASK, VALUE_ELSEWHERE = range(5)
WANT, NEW_ACTOR, ARGS_OBJECT = 1, 2, 4
EXCEPTION, CANCELLED = 1, 3
ERRORS: Dict[int, Type[PoolError]] = {2: WorkerLost, 3: TaskCancelled, 4: ActorLost, 5: ReferenceLost, 6: PoolFull, 7: Impossible}
FRAME = struct.Struct("<IB")
SUBMIT_HEAD = struct.Struct("<IBQQQIIHBBHH")
NOTHING = 0xFFFFFFFFFFFFFFFF

current: Optional["Connection"] = None  # of this process: references that arrive in pickles belong to it


class Dependency:
    """Stands for an argument that is a reference, in the pickled arguments of a task."""
    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        self.at = at

    def __reduce__(self) -> Tuple[Any, ...]:
        return Dependency, (self.at,)


class Memory:
    """The shared memory of a pool, mapped once."""

    def __init__(self, fd: int, size: int) -> None:
        self.map = mmap.mmap(fd, size)
        os.close(fd)

    def view(self, offset: int, size: int) -> memoryview:
        return memoryview(self.map)[offset:offset + size]

    def leased(self, offset: int, size: int, done: Callable[[], None]) -> memoryview:
        """A read-only view; `done` is called when nothing uses it any more."""
        part = (ctypes.c_char * size).from_buffer(self.map, offset)
        weakref.finalize(part, done).atexit = False
        return memoryview(part).toreadonly().cast("B")


class Ref(concurrent.futures.Future):  # type: ignore[type-arg]
    """A value of a pool that is there or will be: a future that may also be an argument of tasks, or lie inside their arguments and results."""
    _connection: "Connection"
    id: int
    name: str

    def __init__(self, connection: "Connection", id_: int, name: str = "") -> None:
        super().__init__()
        self._connection, self.id, self.name = connection, id_, name
        self._value: Any = values  # values itself: not unpacked yet
        self._wanted = False       # a value on another node is brought here before the reference is done

    def __repr__(self) -> str:
        return f"<Ref {self.id:x} {self.name} {'done' if self.done() else 'pending'}>"

    def __reduce__(self) -> Tuple[Any, ...]:
        if values.collected.ids is None:
            raise AcequiaError("a reference belongs to its pool: it can be sent with tasks of that pool, and not be pickled otherwise")
        values.collected.ids.append(self.id)
        return found, (self.id, self.name)

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection._dropped.append(self.id)
            connection._wake()

    def result(self, timeout: Optional[float] = None) -> Any:
        """The value; raises what the task raised, with the worker's traceback and output as its cause."""
        raw = self._raw(timeout)
        if raw[0] == VALUE_ERROR:
            raise failure(raw[1], raw[2])
        if self._value is values:
            self._value = self._connection._unpack(self, raw)
        return self._value

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        try:
            if not self.done():
                self._connection.wait_for(self, timeout)
            raw = super().result(0)
        except PoolError as e:
            return e  # the pool was lost
        return failure(raw[1], raw[2]) if raw[0] == VALUE_ERROR else None

    def cancel(self, force: bool = False) -> bool:
        """Asks for the end of the task: one that has not begun does not begin; with `force` the process of one that runs is killed. True: asked."""
        if self.done():
            return False
        self._connection.send(CANCEL, struct.pack("<QB", self.id, force))
        self._connection.flush()
        return True

    def cancelled(self) -> bool:
        if not self.done() or super().exception() is not None:
            return False
        raw = super().result()
        return bool(raw[0] == VALUE_ERROR and raw[1] == CANCELLED)

    def _raw(self, timeout: Optional[float]) -> Any:
        if not self.done():
            self._wanted = True
            self._connection.wait_for(self, timeout)
        raw = super().result(0)
        if raw[0] == VALUE_ELSEWHERE:
            here = self._connection.reference(self.id, self.name)
            here._wanted = True
            self._connection.wait_for(here, timeout, there=True)
            raw = self._result = concurrent.futures.Future.result(here, 0)
        return raw

    def add_done_callback(self, fn: Any) -> None:
        self._wanted = True  # callbacks run in the thread that would bring it
        super().add_done_callback(fn)

    def __await__(self) -> Any:
        import asyncio
        loop = asyncio.get_running_loop()
        there: "asyncio.Future[None]" = loop.create_future()

        def tell() -> None:
            if not there.done():
                there.set_result(None)

        def come(_: Any) -> None:
            try:
                loop.call_soon_threadsafe(tell)
            except RuntimeError:
                pass  # the loop was closed meanwhile

        self._connection.ask(self)
        self._connection.flush()
        self.add_done_callback(come)
        try:
            yield from there.__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result()  # here, so that a value that cannot be opened raises for whoever waits


def found(id_: int, name: str) -> Ref:
    """A reference that arrived in a pickle."""
    if current is None:
        raise AcequiaError("a reference arrived outside of its pool")
    return current.reference(id_, name)


def failure(code: int, data: Any) -> BaseException:
    if code != EXCEPTION:
        return ERRORS.get(code, PoolError)(bytes(data).decode("utf-8", "replace"))
    data = bytes(data)
    length = struct.unpack_from("<I", data)[0]
    output = data[4:4 + length].decode("utf-8", "replace")
    told = struct.unpack_from("<I", data, 4 + length)[0]
    text, pickled = data[8 + length:8 + length + told].decode("utf-8", "replace"), data[8 + length + told:]
    if output.strip():
        text += f"\nIts output ends with:\n{output}"
    try:
        error = pickle.loads(pickled) if pickled else None
    except Exception:
        error = None
    if not isinstance(error, BaseException):
        return RemoteError(text)
    error.__cause__ = RemoteTraceback(text)
    return error


class Connection:
    def __init__(self, sock: Any, number: int, memory: Optional[Memory], kind: int = CLIENT, max_pending: int = 50_000,
                 rest: bytes = b"") -> None:
        global current
        self.sock, self.number, self.memory, self.kind = sock, number, memory, kind
        self.max_pending = max_pending
        self.error: Optional[PoolError] = None
        self._ids = itertools.count((number << 40) + 1)
        self._lock = threading.RLock()
        self._out: List[bytes] = []
        self._out_bytes = 0
        self._waiting: Dict[int, Ref] = {}
        self._held: Dict[int, int] = {}
        self._dropped: Deque[int] = collections.deque()
        self._allocating: Dict[int, "concurrent.futures.Future[int]"] = {}
        self._listing: Deque["concurrent.futures.Future[bytes]"] = collections.deque()
        self._arriving: Dict[int, Tuple[bytearray, int]] = {}
        self._functions: "collections.OrderedDict[Any, Tuple[Ref, str]]" = collections.OrderedDict()
        self._room = threading.Condition()
        self._rest = rest
        self._woken = False
        self._reading = False
        self._wakes: "queue.SimpleQueue[bool]" = queue.SimpleQueue()  # no descriptor: references are dropped after close() too
        current = self
        if kind == CLIENT:
            self.read_in_background()
        threading.Thread(target=self._flush_later, daemon=True, name="acequia-pool-send").start()

    # --- out ---

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._wakes.put(True)

    def _flush_later(self) -> None:
        try:
            while self._wakes.get():
                time.sleep(0.001)
                self._woken = False
                self.flush()
        except PoolError:
            pass

    def _append(self, frame: bytes) -> None:
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= SEND_AT:
            self.flush()
        elif not self._woken:
            self._wake()

    def send(self, kind: int, body: bytes) -> None:
        with self._lock:
            self._append(FRAME.pack(len(body) + 1, kind) + body)

    def _drop(self) -> None:
        ids = []
        while self._dropped:
            id_ = self._dropped.popleft()
            left = self._held.get(id_, 0) - 1
            if left > 0:
                self._held[id_] = left
            elif left == 0:
                del self._held[id_]
                ids.append(id_)
        for i in range(0, len(ids), 8192):
            part = ids[i:i + 8192]
            self._out.append(FRAME.pack(8 * len(part) + 1, RELEASE) + struct.pack(f"<{len(part)}Q", *part))

    def flush(self) -> None:
        with self._lock:
            if self._dropped:
                self._drop()
            if not self._out:
                return
            data = b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            try:
                self.sock.sendall(data)
            except OSError as e:
                self.lost(e)
        if self.error:
            raise self.error

    # --- references ---

    def _new(self, name: str) -> Ref:
        id_ = next(self._ids)
        self._held[id_] = 1
        return Ref(self, id_, name)

    def reference(self, id_: int, name: str) -> Ref:
        with self._lock:
            known = self._held.get(id_, 0)
            self._held[id_] = known + 1
            if not known:
                self._append(FRAME.pack(9, HOLD) + struct.pack("<Q", id_))
        return Ref(self, id_, name)

    def ask(self, ref: Ref) -> None:
        """Makes the value come, of a reference that this process did not make."""
        with self._lock:
            if ref.done() or self._waiting.get(ref.id) is ref:
                return
            other = self._waiting.get(ref.id)
            if other is not None:
                other.add_done_callback(lambda done: _copy(done, ref))
                return
            self._waiting[ref.id] = ref
            self._append(FRAME.pack(9, GET) + struct.pack("<Q", ref.id))

    def wait_for(self, ref: Ref, timeout: Optional[float], there: bool = False) -> None:
        """Until it has come; `there`: it is known to be in the pool, so that no other task need run meanwhile."""
        blocked = self.kind == WORKER and not there
        self.ask(ref)
        self.read_in_background()
        if blocked:
            self.send(BLOCKED, b"\1")
        self.flush()
        try:
            concurrent.futures.Future.result(ref, timeout)
        finally:
            if blocked:
                self.send(BLOCKED, b"\0")

    # --- work ---

    def function(self, fn: Callable[..., Any], name: str) -> Tuple[Ref, str]:
        """The function as an object of the pool; each is sent once. Methods and other objects that can be called are sent each time: they may
        have changed."""
        if _may_change(fn):
            return self.put_packed(values.pack(fn, name), name), name
        known = self._functions.get(fn)
        if known is None:
            known = self.put_packed(values.pack(fn, name), name), name
            self._functions[fn] = known
            if len(self._functions) > 1024:
                self._functions.popitem(last=False)
        return known

    def submit(self, fn: Optional[Ref], name: str, args: Any, kwargs: Dict[str, Any], *, actor: int = 0, method: str = "", cpu_milli: int = 1000,
               gpu_milli: int = 0, retries: int = 3, flags: int = WANT) -> Ref:
        if self.error:
            raise self.error
        if not self._reading:
            self.read_in_background()
        dependencies: List[int] = []
        nested: List[int] = []
        arguments = b""
        if not kwargs and not method and all(type(a) in values.SMALL for a in args):
            arguments = b"\0" + pickle.dumps((args, kwargs), 5)
        if not arguments or len(arguments) > INLINE_MAX:
            held: List[Ref] = []  # until the frame is written
            for i, a in enumerate(args):
                if isinstance(a, Ref):
                    args = list(args) if not held else args
                    args[i] = Dependency(len(dependencies))
                    dependencies.append(a.id)
                    held.append(a)
            if any(isinstance(a, Ref) for a in kwargs.values()):
                kwargs = dict(kwargs)
                for key, a in kwargs.items():
                    if isinstance(a, Ref):
                        kwargs[key] = Dependency(len(dependencies))
                        dependencies.append(a.id)
                        held.append(a)
            packed = values.pack((method, args, kwargs) if method else (args, kwargs), f"{name} or its arguments")
            nested = packed.ids
            if packed.size > INLINE_MAX:
                whole = self.put_packed(packed, name)
                held.append(whole)
                dependencies.append(whole.id)
                arguments, nested, flags = b"", [], flags | ARGS_OBJECT
            else:
                arguments = packed.join()
        if len(dependencies) > DEPENDENCIES_MAX or len(nested) > NESTED_MAX:
            raise AcequiaError(f"{name} has {len(dependencies)} references as arguments and {len(nested)} inside them; at most "
                               f"{DEPENDENCIES_MAX} and {NESTED_MAX} are possible: put() lists of them and pass those")
        if len(self._waiting) >= self.max_pending:
            self._wait_for_room()
        label = name.encode()[:255]
        count, inside = len(dependencies), len(nested)
        ids = struct.pack(f"<{count + inside}Q", *dependencies, *nested) if count + inside else b""
        with self._lock:
            ref = self._new(name)
            if flags & WANT:
                self._waiting[ref.id] = ref
            self._append(SUBMIT_HEAD.pack(41 + len(label) + len(ids) + len(arguments), SUBMIT, ref.id, fn.id if fn else 0, actor, cpu_milli,
                                          gpu_milli, retries, flags, len(label), count, inside) + label + ids + arguments)
        return ref

    def _wait_for_room(self) -> None:
        """Backpressure: a submitter that is far ahead waits until half of what it submitted has ended."""
        if self.kind == WORKER:
            self.read_in_background()
        self.flush()
        with self._room:
            while len(self._waiting) > self.max_pending // 2 and not self.error:
                self._room.wait(0.1)

    def put_packed(self, packed: values.Packed, name: str) -> Ref:
        if len(packed.ids) > NESTED_MAX:
            raise AcequiaError(f"a value has {len(packed.ids)} references inside; at most {NESTED_MAX} are possible: put() parts of it")
        ids = struct.pack(f"<H{len(packed.ids)}Q", len(packed.ids), *packed.ids)
        with self._lock:
            ref = self._new(name)
        head = struct.pack("<Q", ref.id)
        if packed.size <= INLINE_MAX:
            data = packed.join()
            self.send(PUT, head + ids + data)
            ref.set_result((VALUE_INLINE, data))  # known here: whoever put it need not ask for it
            return ref
        offset = self.write(ref.id, packed)
        self.send(SEAL, head + ids)
        if offset is not None:
            ref.set_result((VALUE_SHARED, offset, packed.size))
        return ref

    def write(self, id_: int, packed: values.Packed) -> Optional[int]:
        """Writes a large value to the shared memory and returns where it is, or sends it there in pieces."""
        self.read_in_background()
        answer: "concurrent.futures.Future[int]" = concurrent.futures.Future()
        with self._lock:
            self._allocating[id_] = answer
        self.send(ALLOC, struct.pack("<QQ", id_, packed.size))
        self.flush()
        offset = answer.result()
        if self.memory is not None:
            packed.write(self.memory.view(offset, packed.size))
            return offset
        at = 0
        for part in packed.parts:
            view = memoryview(part).cast("B")
            for i in range(0, len(view), PIECE):
                piece = bytes(view[i:i + PIECE])
                self.send(WRITE, struct.pack("<QQ", id_, at) + piece)
                at += len(piece)
        return None

    def list(self, what: int, id_: int = 0, limit: int = 0) -> bytes:
        answer: "concurrent.futures.Future[bytes]" = concurrent.futures.Future()
        with self._lock:
            self._listing.append(answer)
            self.send(LIST, struct.pack("<BQI", what, id_, limit))
        self.read_in_background()
        self.flush()
        return answer.result(60)

    # --- in ---

    def read_in_background(self) -> None:
        with self._lock:
            if self._reading:
                return
            self._reading = True
        threading.Thread(target=self._read, daemon=True, name="acequia-pool-receive").start()

    def _read(self) -> None:
        held = bytearray(self._rest)
        try:
            while True:
                at, end = 0, len(held)
                while end - at >= 5:
                    length, kind = FRAME.unpack_from(held, at)
                    if end - at < 4 + length:
                        break
                    self._frame(kind, memoryview(held)[at + 5:at + 4 + length])
                    at += 4 + length
                if at:
                    held = held[at:]
                if self._room._waiters:  # type: ignore[attr-defined]
                    with self._room:
                        self._room.notify_all()
                data = self.sock.recv(PIECE)
                if not data:
                    raise ConnectionError("it has ended")
                held += data
        except OSError as e:
            self.lost(e)
        with self._lock:  # here, so that nobody uses the socket's number when another file has it
            self.sock.close()

    def _frame(self, kind: int, body: memoryview) -> None:
        if kind == LISTED:
            self._listing.popleft().set_result(bytes(body))
            return
        id_ = int.from_bytes(body[:8], "little")
        if kind == VALUE:
            where = body[8]
            if where == VALUE_INLINE:
                self._arrived(id_, (where, bytes(body[9:])))
            elif where == VALUE_ERROR:
                self._arrived(id_, (where, body[9], bytes(body[10:])))
            elif where == VALUE_ELSEWHERE:
                self._arrived(id_, (where,))
            else:
                offset, size = struct.unpack_from("<QQ", body, 9)
                if self.memory is not None:
                    self._arrived(id_, (where, offset, size))
                else:
                    self._arriving[id_] = (bytearray(), size)
        elif kind == DATA:
            data, size = self._arriving[id_]
            data += body[8:]
            if len(data) >= size:
                del self._arriving[id_]
                self._arrived(id_, (VALUE_INLINE, bytes(data)))
        elif kind == ALLOCATED:
            answer = self._allocating.pop(id_)
            offset = struct.unpack_from("<Q", body, 8)[0]
            if offset == NOTHING:
                answer.set_exception(PoolFull(bytes(body[16:]).decode("utf-8", "replace")))
            else:
                answer.set_result(offset)

    def _arrived(self, id_: int, raw: Tuple[Any, ...]) -> None:
        ref = self._waiting.pop(id_, None)
        if ref is None or ref.done():
            return
        if raw[0] == VALUE_ELSEWHERE and ref._wanted:
            with self._lock:
                self._waiting[id_] = ref
                self._append(FRAME.pack(9, GET) + struct.pack("<Q", id_))
            return
        ref.set_result(raw)

    def _unpack(self, ref: Ref, raw: Tuple[Any, ...]) -> Any:
        if raw[0] == VALUE_INLINE:
            return values.unpack(raw[1])
        return values.unpack(self.lease(ref.id, raw[1], raw[2]))

    def lease(self, id_: int, offset: int, size: int) -> memoryview:
        """The bytes of a value in shared memory; it stays while they are used. To be called while something holds it."""
        assert self.memory is not None
        with self._lock:
            known = self._held.get(id_, 0)
            self._held[id_] = known + 1
            if not known:
                self._append(FRAME.pack(9, HOLD) + struct.pack("<Q", id_))

        def done() -> None:
            self._dropped.append(id_)
            self._wake()

        return self.memory.leased(offset, size, done)

    # --- the end ---

    def lost(self, why: Union[Exception, str]) -> None:
        if self.error is None:
            self.error = why if isinstance(why, PoolError) else PoolLost(f"the connection to the pool has ended: {why}")
        waiting: List[Any] = []
        with self._lock:
            waiting += self._waiting.values()
            self._waiting.clear()
            waiting += self._allocating.values()
            waiting += self._listing
            self._allocating.clear()
            self._listing.clear()
        for ref in waiting:
            if not ref.done():
                ref.set_exception(self.error)
        with self._room:
            self._room.notify_all()

    def close(self) -> None:
        global current
        try:
            self.flush()
        except PoolError:
            pass
        self.lost("it was closed")
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._wakes.put(False)
        if current is self:
            current = None


def _may_change(fn: Any) -> bool:
    """A method of an object, or an object with __call__: the same one may hold something else when it is submitted again."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    of = getattr(fn, "__self__", None)
    if of is not None and not isinstance(of, (type, types.ModuleType)):
        return True
    return isinstance(getattr(type(fn), "__call__", None), types.FunctionType)


def _copy(done: Any, to: Ref) -> None:
    try:
        raw = concurrent.futures.Future.result(done, 0)
    except Exception as e:
        to.set_exception(e)
        return
    if not to.done():
        to.set_result(raw)


def connect(sock: Any, shares: bool, max_pending: int = 50_000) -> Connection:
    """Greets the pool's process. Over the socket of this node its memory comes with the answer."""
    sock.sendall(FRAME.pack(7, HELLO) + struct.pack("<IBB", VERSION, CLIENT, shares))
    data, fds = b"", []  # type: Tuple[bytes, List[int]]
    while len(data) < 22:
        if shares:
            more, got, _, _ = socket.recv_fds(sock, 65536, 1)
            fds += got
        else:
            more = sock.recv(65536)
        if not more:
            raise PoolLost("the pool's process has closed the connection")
        data += more
    _, kind, version, number, size, shared = struct.unpack_from("<IBIIQB", data)
    if kind != WELCOME or version != VERSION:
        raise PoolLost(f"the pool's process speaks version {version}, and this package {VERSION}: use the package of the cluster's release")
    memory = Memory(fds[0], size) if shared and fds else None
    return Connection(sock, number, memory, max_pending=max_pending, rest=data[22:])
