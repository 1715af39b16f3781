"""What runs on a pool's node: the job's first process, which forks worker processes, and the loop of a worker.

The first process starts acequia-tasks and then does nothing but fork when told to, so that a new worker has everything imported. Pickles are
opened in workers only."""
from __future__ import annotations

import gc
import hmac
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Tuple

from . import connection as wire
from . import values

TASK, QUIT = 48, 49
PACKET_MAX = 128 << 10
TASK_HEAD = struct.Struct("<BQQQBH")
ERROR_BYTES_MAX = 256 << 10
JOIN_AGAIN = 75


# --- the job's first process ---

def cpus() -> int:
    for name in ("ACEQUIA_CPUS_ON_NODE", "SLURM_CPUS_ON_NODE"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """Half of the job's memory, or of the node's."""
    given = os.environ.get("SLURM_MEM_PER_NODE", "")
    if given.isdigit() and int(given) > 0:
        return int(given) << 19
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


class Template:
    """Forks worker processes for acequia-tasks, and tells it of their ends."""

    def __init__(self, settings: Dict[str, Any]) -> None:
        program = os.environ.get("ACEQUIA_TASKS")
        if not program:
            raise SystemExit("the node's release of Acequia has no pools: upgrade the node")
        self.joins = os.environ.get("ACEQUIA_COMPONENT") == "node"  # not the pool's first node
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.children: Dict[int, int] = {}  # pid: worker
        self.wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        environment = dict(os.environ)
        words = [program, "--control", str(other.fileno()), "--cpus", str(settings.get("cpus") or cpus()),
                 "--memory", str(settings.get("memory") or memory_bytes()), "--gpus", os.environ.get("CUDA_VISIBLE_DEVICES", "")]
        if self.joins:
            words += ["--join", os.environ["ACEQUIA_WORKERS_FILE"]]
        else:
            words += ["--socket", os.environ["ACEQUIA_SOCKET"], "--linger", str(settings["linger"])]
        if settings.get("key"):
            environment["ACEQUIA_POOL_KEY"] = hmac.new(settings["secret"], settings["key"].encode(), "sha256").hexdigest()
            words += [] if self.joins else ["--nodes", "1"]
        self.tasks = subprocess.Popen(words, pass_fds=[other.fileno()], env=environment)
        other.close()

    def run(self) -> int:
        import cloudpickle  # noqa: F401  # so that workers have it
        gc.collect()
        gc.freeze()
        while True:
            ready, _, _ = select.select([self.control, self.wakeup[0]], [], [])
            if self.wakeup[0] in ready:
                os.read(self.wakeup[0], 4096)
                self.reap()
                if self.tasks.returncode is not None:
                    break
            if self.control in ready and not self.order():
                break
        for pid in self.children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        status = self.tasks.wait()
        self.control.close()
        signal.set_wakeup_fd(-1)
        for fd in self.wakeup:
            os.close(fd)
        if self.joins:
            return status
        try:
            os.unlink(os.environ["ACEQUIA_SOCKET"])  # left there by one that was killed
        except OSError:
            pass
        return status

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.tasks.pid:
                self.tasks.returncode = os.waitstatus_to_exitcode(status)
            elif pid in self.children:
                self.say(f"end {self.children.pop(pid)} {status}")

    def say(self, text: str) -> None:
        try:
            self.control.send(text.encode())
        except OSError:
            pass

    def order(self) -> bool:
        try:
            data, fds, _, _ = socket.recv_fds(self.control, 65536, 4)
        except ConnectionResetError:
            return False
        if not data:
            return False
        words = data.decode().split(" ", 4)
        if words[0] == "start":
            self.start(int(words[1]), int(words[2]), int(words[3]), words[4], fds)
        elif words[0] == "kill":
            for pid, worker in self.children.items():
                if worker == int(words[1]):
                    os.kill(pid, signal.SIGKILL)
        return True

    def start(self, number: int, connection: int, memory: int, gpus: str, fds: List[int]) -> None:
        try:
            pid = os.fork()
        except OSError as e:
            print(f"a worker process cannot be started: {e}", file=sys.stderr, flush=True)
            self.say(f"end {number} 256")
            pid = -1
        if pid == 0:
            status = 1
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.control.close()
                status = Worker(connection, memory, gpus, fds).run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        if pid > 0:
            self.children[pid] = number
        for fd in fds:
            os.close(fd)


# --- a worker ---

class Worker:
    def __init__(self, connection: int, memory: int, gpus: str, fds: List[int]) -> None:
        import ctypes
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the first process
        channel, stream, output, shared = fds
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus
        self.channel = socket.socket(fileno=channel)
        self.wire = wire.Connection(socket.socket(fileno=stream), connection, wire.Memory(shared, memory), wire.WORKER)
        self.functions: Dict[int, Any] = {}
        self.instance: Any = None

    def run(self) -> int:
        packet = bytearray(PACKET_MAX)
        view = memoryview(packet)
        receive = self.channel.recv_into
        while True:
            n = receive(packet)
            if n <= 0 or packet[0] == QUIT:
                break
            self.task(view[:n])
        self.wire.flush()
        sys.stdout.flush()
        return 0

    def task(self, packet: memoryview) -> None:
        _, id_, fn, actor, flags, count = TASK_HEAD.unpack_from(packet)
        began = time.perf_counter_ns()
        try:
            value = self.call(packet, fn, actor, flags, count)
            packed = values.pack(value, "the result")
            del value
            shared = packed.size > wire.INLINE_MAX
            if len(packed.ids) > wire.NESTED_MAX:
                raise ValueError(f"the result has {len(packed.ids)} references inside; at most {wire.NESTED_MAX} are possible")
            if shared:
                self.wire.write(id_, packed)
            error, ids, data = 0, packed.ids, b"" if shared else packed.join()
        except BaseException as e:
            error, shared, ids, data = 1, False, [], described(e)
            sys.stdout.flush()
        micros = min((time.perf_counter_ns() - began) // 1000, 0xFFFFFFFF)
        body = struct.pack(f"<QBBIH{len(ids)}Q", id_, error, shared, micros, len(ids), *ids) + data
        self.wire.send(wire.DONE, body)
        self.wire.flush()

    def call(self, packet: memoryview, fn: int, actor: int, flags: int, count: int) -> Any:
        at = TASK_HEAD.size
        found: List[Any] = []
        for _ in range(count):
            where, id_ = packet[at], int.from_bytes(packet[at + 1:at + 9], "little")
            at += 9
            if where == wire.VALUE_INLINE:
                length = int.from_bytes(packet[at:at + 4], "little")
                found.append(bytes(packet[at + 4:at + 4 + length]))
                at += 4 + length
            elif where == wire.VALUE_SHARED:
                offset, size = struct.unpack_from("<QQ", packet, at)
                found.append(self.wire.lease(id_, offset, size))
                at += 16
            else:
                found.append(self.ask(id_))
        arguments: Any = found.pop() if flags & wire.ARGS_OBJECT else bytes(packet[at:])
        unpacked = arguments.value if isinstance(arguments, Loaded) else values.unpack(arguments)
        method: Optional[str] = None
        if actor:
            method, args, kwargs = unpacked
        else:
            args, kwargs = unpacked
        if found:
            loaded = [values.unpack(f) if not isinstance(f, Loaded) else f.value for f in found]
            args = [loaded[a.at] if type(a) is wire.Dependency else a for a in args]
            kwargs = {k: loaded[a.at] if type(a) is wire.Dependency else a for k, a in kwargs.items()}
        if method is not None:
            return getattr(self.instance, method)(*args, **kwargs)
        function = self.function(fn)
        if flags & wire.NEW_ACTOR:
            self.instance = function(*args, **kwargs)
            return None
        return function(*args, **kwargs)

    def ask(self, id_: int) -> Any:
        return Loaded(self.fetch(id_))

    def fetch(self, id_: int) -> Any:
        ref = self.wire.reference(id_, "")
        self.wire.wait_for(ref, None, there=True)
        return ref.result()

    def function(self, id_: int) -> Any:
        known = self.functions.get(id_)
        if known is None:
            known = self.functions[id_] = self.fetch(id_)
            if len(self.functions) > 1024:
                del self.functions[next(iter(self.functions))]
        return known


class Loaded:
    """A dependency that was asked for."""
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def described(e: BaseException) -> bytes:
    """An exception and its traceback; only the text where it cannot be sent."""
    lines = traceback.format_exception(type(e), e, e.__traceback__)
    text = "".join(line for line in lines if "acequia/worker.py" not in line)
    pickled = b""
    try:
        pickled = values.cloudpickle().dumps(e, protocol=4)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    if len(pickled) > ERROR_BYTES_MAX:
        pickled = b""
    told = text[-ERROR_BYTES_MAX // 4:].encode("utf-8", "replace")
    return struct.pack("<I", len(told)) + told + pickled


def main(settings: Dict[str, Any]) -> None:
    settings["secret"] = os.environb.pop(b"POOL_SECRET", b"")  # tasks need not know it
    while True:
        status = Template(settings).run()
        if status != JOIN_AGAIN:
            sys.exit(status)
        time.sleep(0.2)  # the first node was lost for this one, or this one for it: it begins again, empty
