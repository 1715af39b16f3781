"""Pools of the Python package: tasks, references, shared memory, actors; kills of workers, of the pool's process and of clients meanwhile."""
import array
import asyncio
import concurrent.futures
import functools
import gc
import glob
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.helpers import covers
from tests.lab.proc import wait_until

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")
sys.path.insert(0, PACKAGE)
cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
import acequia  # noqa: E402
from acequia import connection as wire  # noqa: E402
from acequia.connection import Connection  # noqa: E402
from acequia.values import pack  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
WAIT = 120  # seconds for anything to happen on a busy machine


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\ngpus = h200:2\ngpus_simulated = true\n") as c:
        yield c


@pytest.fixture(name="client")
def _client(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACEQUIA_HOME", cluster.home)
    monkeypatch.delenv("ACEQUIA_HOST", raising=False)
    return acequia.Client()


@pytest.fixture(name="pool")
def _pool(client):
    with start(client) as pool:
        yield pool


def start(client, **kw):
    return acequia.Pool(client, **{"python": sys.executable, "cpus": 2, "memory": "1G", **kw})


def double(x):
    return 2 * x


def add(*values):
    return sum(values)


def children(pid, name=None):
    """Processes below a process, by its name."""
    out = []
    for one in os.listdir("/proc"):
        try:
            with open(f"/proc/{one}/stat", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        comm, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        if int(rest[1]) == pid and rest[0] != "Z" and (name is None or comm == name):
            out.append(int(one))
    return out


def first_process(pool):
    return pool.submit(os.getppid).result(WAIT)


def workers_of(parent):
    return [pid for pid in children(parent) if pid not in children(parent, "acequia-tasks")]


def test_tasks_and_references(pool):
    assert pool.submit(double, 21).result(WAIT) == 42
    assert pool.submit(lambda x, *, y: x - y, 5, y=pool.put(3)).result(WAIT) == 2
    one, two = pool.put(1), pool.submit(double, 1)
    assert pool.get([pool.submit(add, one, two, 3), one], WAIT) == [6, 1]
    level = [pool.submit(double, i) for i in range(64)]  # a tree of references
    while len(level) > 1:
        level = [pool.submit(add, *level[i:i + 4]) for i in range(0, len(level), 4)]
    assert level[0].result(WAIT) == sum(2 * i for i in range(64))
    inside = pool.submit(lambda refs: sum(acequia.current_pool().get(refs)), [one, two])  # references inside stay references
    assert inside.result(WAIT) == 3
    given = pool.submit(lambda: acequia.current_pool().put("kept")).result(WAIT)  # a reference as a result
    assert isinstance(given, acequia.Ref) and given.result(WAIT) == "kept"
    assert list(pool.map(double, range(100))) == [2 * i for i in range(100)]
    assert sorted(pool.map(add, [1, 2], [3, 4], ordered=False)) == [4, 6]
    done, rest = pool.wait([pool.submit(double, 1), pool.submit(time.sleep, 60)], 1, WAIT)
    assert len(done) == 1 and len(rest) == 1 and not rest[0].done()
    assert {r.result() for r in concurrent.futures.as_completed([pool.submit(double, i) for i in range(3)], WAIT)} == {0, 2, 4}


def test_exceptions(pool):
    class Odd(Exception):
        def __init__(self, number):
            super().__init__(f"{number} is odd")
            self.number = number

        def __reduce__(self):
            return Odd, (self.number,)

    class Unsendable(Exception):
        def __init__(self, a, b):
            super().__init__("too much")
            self.lock = threading.Lock()

    def refuse(x):
        print("before it failed")
        raise Odd(x)

    def unsendable():
        raise Unsendable(1, 2)

    failed = pool.submit(refuse, 3)
    error = failed.exception(WAIT)
    assert error.number == 3 and "refuse" in str(error.__cause__) and "before it failed" in str(error.__cause__)
    with pytest.raises(Exception, match="3 is odd"):  # also of what depends on it
        pool.submit(double, pool.submit(double, failed)).result(WAIT)
    with pytest.raises(acequia.RemoteError, match="too much"):
        pool.submit(unsendable).result(WAIT)
    with pytest.raises(acequia.AcequiaError, match="cannot be sent"):
        pool.submit(double, threading.Lock())
    with pytest.raises(acequia.AcequiaError, match="the result cannot be sent"):
        pool.submit(threading.Lock).result(WAIT)
    with pytest.raises(SystemExit):
        pool.submit(sys.exit, 4).result(WAIT)
    with pytest.raises(acequia.WorkerLost, match="signal 9.* while it ran .*try 2"):
        pool.submit(acequia.task(lambda: os.kill(os.getpid(), 9), retries=1)).result(WAIT)
    assert pool.submit(double, 1).result(WAIT) == 2  # and it goes on


def test_shared_memory(pool):
    big = os.urandom(3 << 20)
    ref = pool.put(big)
    assert ref.done() and ref.result() == big  # without asking the pool
    assert pool.submit(len, ref).result(WAIT) == len(big)
    assert pool.submit(len, big).result(WAIT) == len(big)  # large arguments
    numbers = array.array("d", range(100_000))
    assert pool.submit(sum, numbers).result(WAIT) == sum(numbers)
    made = pool.submit(lambda: bytearray(2 << 20))
    assert len(made.result(WAIT)) == 2 << 20
    assert pool.summary()["memory_used_bytes"] >= 5 << 20
    for maps in (mapped(), pool.submit(mapped).result(WAIT)):  # a memory without a name that could be left behind
        assert "/memfd:acequia-tasks" in maps and "/dev/shm/" not in maps
    with pytest.raises(acequia.PoolFull, match="no room for a value of 10737"):
        pool.submit(lambda: pool_value(10 << 30)).result(WAIT)
    del ref, made, big
    gc.collect()
    wait_until(lambda: pool.summary()["memory_used_bytes"] == 0, WAIT, "values are freed")


def mapped():
    with open("/proc/self/maps", encoding="utf-8") as f:
        return f.read()


def pool_value(size):
    """Something that says it has such a size, without having it."""
    from acequia import values, worker
    values.pack = lambda *_: values.Packed([], size, [])
    worker.values = values
    return None


def test_actors(pool):
    @acequia.actor
    class Counter:
        def __init__(self, first):
            self.n = first

        def add(self, k=1):
            self.n += k
            return self.n

        def fail(self):
            raise ValueError(self.n)

        def __call__(self, x):
            return self.n * x

    assert Counter(1).add() == 2  # here
    counter = pool.actor(Counter, pool.put(10))  # a reference in the constructor
    assert [counter.add(1).result(WAIT), counter.add(k=2).result(WAIT), counter(2).result(WAIT)] == [11, 13, 26]
    with pytest.raises(ValueError, match="13"):
        counter.fail().result(WAIT)
    assert pool.submit(lambda c: c.add(5).result(), counter).result(WAIT) == 18  # a handle in a task
    with pytest.raises(AttributeError, match="no method nothing; it has .*add"):
        counter.nothing()
    with pytest.raises(TypeError):
        pool.actor(Counter, 1, 2).ready(WAIT)
    many = [Counter.start(i) for i in range(10)]
    assert [a.add(1) .result(WAIT) for a in many] == [i + 1 for i in range(10)]
    assert pool.summary()["actors"] >= 11
    again = pool.actor(Counter.options(restarts=1), 0)
    again.add(5).result(WAIT)
    pool.submit(lambda pid: os.kill(pid, 9), pid_of(pool, again)).result(WAIT)
    wait_until(lambda: _try(again.add), WAIT, "the actor was made again")
    pool.kill(counter)
    with pytest.raises(acequia.ActorLost, match="ended"):
        for _ in range(1000):
            counter.add().result(WAIT)
    del many, again, counter
    gc.collect()
    wait_until(lambda: pool.summary()["actors"] == 0, WAIT, "actors without handles end")


def test_calls_of_actors_that_end_early(pool):
    """A call that fails or is cancelled before it begins holds up no other one, and its actor lives on."""
    class Slow:
        def nap(self, s, *_):
            time.sleep(s)
            return s

    actor = pool.actor(Slow)
    before = actor.nap(0, pool.submit(lambda: time.sleep(0.5) or 1 / 0))
    after = actor.nap(0.01)
    assert isinstance(before.exception(WAIT), ZeroDivisionError) and after.result(WAIT) == 0.01
    calls = [actor.nap(0.3) for _ in range(4)]
    time.sleep(0.1)
    calls[2].cancel()
    assert isinstance(calls[2].exception(WAIT), acequia.TaskCancelled)
    assert [calls[i].result(WAIT) for i in (0, 1, 3)] == [0.3] * 3 and actor.nap(0).result(WAIT) == 0


def test_objects_that_change_are_sent_again(pool):
    class Scale:
        def __init__(self):
            self.by = 1

        def times(self, x):
            return self.by * x

        def __call__(self, x):
            return self.by * x

    scale, got = Scale(), []
    for scale.by in (1, 2):
        got.append([pool.submit(f, 5).result(WAIT) for f in (scale.times, scale, functools.partial(scale.times, 5).func)])
    assert got == [[5] * 3, [10] * 3]


def test_many_actors(client):
    """More processes than descriptors of an ordinary limit allow; the pool's process raises its own."""
    class Idle:
        def number(self, n):
            return n

    limited = os.path.abspath("limited")
    with open(limited, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nulimit -S -n 256\nexec {sys.executable} \"$@\"\n")
    os.chmod(limited, 0o755)
    with start(client, python=limited, memory="4G") as pool:
        actors = [pool.actor(Idle) for _ in range(300)]
        assert pool.get([a.number(i) for i, a in enumerate(actors)], WAIT) == list(range(300))


def test_output_that_a_task_closes(pool):
    """The pool's process sleeps while a task runs whose output goes elsewhere."""
    def elsewhere():
        for fd in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
        time.sleep(600)

    ref = pool.submit(acequia.task(elsewhere, retries=0))
    wait_until(lambda: any(t["state"] == "running" for t in pool.tasks()), WAIT, "it runs")
    time.sleep(0.5)
    path = f"/proc/{children(first_process(pool), 'acequia-tasks')[0]}/stat"

    def ticks():
        with open(path, encoding="utf-8") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    before = ticks()
    time.sleep(1)
    assert ticks() - before < 10  # of 100
    ref.cancel(force=True)


def test_waiting_in_asyncio_ends(client):
    class Unknown:
        def __reduce__(self):
            return __import__, ("module_that_nobody_has",)

    async def wait(ref):
        return await ref

    pool = start(client)
    assert asyncio.run(wait(pool.submit(double, 2))) == 4
    with pytest.raises(ImportError):
        asyncio.run(asyncio.wait_for(wait(pool.submit(lambda: Unknown())), WAIT))
    slow = pool.submit(time.sleep, 600)
    threading.Timer(0.5, os.kill, (children(first_process(pool), "acequia-tasks")[0], signal.SIGKILL)).start()
    with pytest.raises(acequia.PoolLost):
        asyncio.run(asyncio.wait_for(wait(slow), WAIT))
    assert isinstance(slow.exception(0), acequia.PoolLost) and not slow.cancelled()
    pool.shutdown()


def pid_of(pool, actor):
    parent = first_process(pool)
    number = next(a["worker"] for a in pool.actors() if a["id"] == f"{actor._ref.id:x}")
    assert number >= 0
    return max(workers_of(parent))  # the newest


def _try(call):
    try:
        return call().result(WAIT)
    except acequia.ActorLost:
        return None


def test_lists(pool, cluster):
    def broken():
        print("on the way")
        raise ValueError("it broke")

    failed, value = pool.submit(broken), pool.put(b"x" * (1 << 20))
    assert isinstance(failed.exception(WAIT), ValueError)
    counter = pool.actor(dict, a=1)
    counter.ready(WAIT)
    job = str(pool.job.id)

    def shown(*words):
        return json.loads(cluster.cli(*words, "--json").stdout)

    rows = shown("tasks", job)
    row = next(r for r in rows if r["name"] == "broken")
    assert row["state"] == "failed" and "on the way" in row["output"] and "ValueError: it broke" in row["error"]
    text = cluster.cli("tasks", job).stdout
    assert "broken" in text and "failed" in text and text.startswith("TASK")
    assert "on the way" in cluster.cli("tasks", job, row["id"]).stdout
    assert shown("actors", job)[0]["state"] == "ready" and "dict" in cluster.cli("actors", job).stdout
    shared = [o for o in shown("objects", job) if o["state"] == "shared"]
    assert shared[0]["bytes"] > 1 << 20 and shown("objects", job, f"{value.id:x}")["holders"] == 1
    assert shown("tasks", job, "--summary")["failed"] == 1
    other = pool.client.submit("sleep 60")
    assert "is not a pool" in cluster.cli("tasks", str(other.id), check=False).stderr
    assert "does not know" in cluster.cli("tasks", job, "abcdef", check=False).stderr
    other.cancel()


def test_resources_and_cancel(client):
    with start(client, gpus=2) as pool:
        def which():
            time.sleep(0.2)
            return os.environ["CUDA_VISIBLE_DEVICES"]

        half = acequia.task(which, gpus=0.5, cpus=0)
        assert {len(w.split(",")) for w in pool.get([half.submit() for _ in range(4)], WAIT)} == {1}
        assert len(pool.submit(acequia.task(which, gpus=2)).result(WAIT).split(",")) == 2
        with pytest.raises(acequia.Impossible, match="more GPUs than the pool has"):
            pool.submit(acequia.task(which, gpus=3)).result(WAIT)
        with pytest.raises(acequia.Impossible, match="more CPUs"):
            pool.submit(acequia.task(which, cpus=3)).result(WAIT)
        with pytest.raises(acequia.AcequiaError, match="unknown option memroy"):
            acequia.task(which, memroy=1)
        long = [pool.submit(acequia.task(time.sleep, retries=0), 600) for _ in range(3)]
        wait_until(lambda: sum(t["state"] == "running" for t in pool.tasks()) == 2, WAIT, "two run")
        waiting = long[2]
        assert waiting.cancel()
        with pytest.raises(acequia.TaskCancelled):
            waiting.result(WAIT)
        assert waiting.cancelled() and not waiting.cancel()
        for ref in long[:2]:
            ref.cancel(force=True)
            assert isinstance(ref.exception(WAIT), acequia.TaskCancelled)
        assert pool.submit(double, 4).result(WAIT) == 8


def sum_under_kills(pool, count, every):
    """The known sums of many tasks, while workers are killed at random."""
    parent, over, kills = first_process(pool), threading.Event(), []

    def kill():
        rand = random.Random(5)
        while not over.wait(every):
            found = workers_of(parent)
            if found:
                victim = rand.choice(found)
                try:
                    os.kill(victim, signal.SIGKILL)
                    kills.append(victim)
                except ProcessLookupError:
                    pass

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done, fn = 0, acequia.task(double, retries=1000)
        while done < count or len(kills) < 3:
            refs = [pool.submit(fn, i) for i in range(1000)]
            assert sum(pool.get(refs, WAIT * 5)) == 1000 * 999
            done += 1000
    finally:
        over.set()
        killer.join()
    del refs
    gc.collect()
    wait_until(lambda: pool.summary()["objects"] <= 10, WAIT, "values are freed")
    assert pool.summary()["memory_used_bytes"] == 0
    return len(kills)


def test_kills_of_workers(pool):
    assert sum_under_kills(pool, 2000, 0.1) > 0


@pytest.mark.long
def test_kills_under_many_tasks_and_actors(pool):
    assert sum_under_kills(pool, 100_000, 0.3) > 0

    class State:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    actors = [pool.actor(State) for _ in range(100)]
    assert [a.add().result(WAIT * 5) for a in actors] == [1] * 100
    refs = [a.add() for _ in range(20) for a in actors]
    assert sum(pool.get(refs, WAIT * 5)) == 100 * sum(range(2, 22))


@covers("acequia-tasks")
def test_ends(client, cluster, tmp_path):
    for whole in (False, True):
        pool = start(client)
        parent = first_process(pool)
        os.kill(parent if whole else children(parent, "acequia-tasks")[0], signal.SIGKILL)
        with pytest.raises(acequia.PoolLost):
            for _ in range(10_000):
                pool.submit(double, 1).result(WAIT)
        if not whole:
            wait_until(lambda path=pool._path: not os.path.exists(path), WAIT, "the first process removes the socket")
        pool.shutdown()
        wait_until(lambda pid=parent: not children(pid), WAIT, "worker processes end with the pool")
        assert not os.path.exists(pool._path)
    text = textwrap.dedent(f"""
        import os, sys
        sys.path.insert(0, {PACKAGE!r})
        import acequia
        pool = acequia.Pool(python={sys.executable!r}, cpus=1, memory="256M", linger=1)
        print(pool.job.id, pool.submit(os.getppid).result(), pool._path, flush=True)
        os.kill(os.getpid(), 9)
    """)
    gone = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT, cwd=tmp_path, check=False)
    job, parent, path = gone.stdout.split()
    assert client.job(int(job)).result(WAIT) == 0  # a client that disappears: the pool ends by itself
    assert not children(int(parent)) and not os.path.exists(path)
    gone = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=WAIT, cwd=tmp_path, check=False)
    job = client.job(int(gone.stdout.split()[0]))  # whoever looks at it does not keep it
    wait_until(lambda: cluster.cli("tasks", str(job.id), check=False) and job.done(), WAIT, "the pool ends")
    with start(client) as pool:
        slow = pool.submit(lambda: time.sleep(3) or "done")
        cluster.kill_controller()
        assert pool.submit(double, 3).result(WAIT) == 6  # nobody needs the controller meanwhile
        cluster.start_controller()
        cluster.wait_ready()
        assert slow.result(WAIT) == "done"
    fake = os.path.abspath("python9")
    with open(fake, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.version_info=(9,9); exec(open('$1').read())\"\n")
    os.chmod(fake, 0o755)
    with pytest.raises(acequia.PoolLost, match=r"this node has 9\.9"):
        start(client, python=fake)


def test_memory_of_a_client_that_never_reads(pool):
    """It is asked for nothing more: what it wants to be told does not pile up in the pool's process."""
    process = next(p for p in children(first_process(pool), "acequia-tasks"))
    with socket.socket(socket.AF_UNIX) as viewer:
        viewer.connect(pool._path)
        viewer.sendall(wire.FRAME.pack(7, wire.HELLO) + struct.pack("<IBB", wire.VERSION, wire.VIEWER, 0))
        viewer.settimeout(3)
        lists = (wire.FRAME.pack(14, wire.LIST) + struct.pack("<BQI", 3, 0, 0)) * 10000  # the answer is ten times as long
        with pytest.raises(TimeoutError):
            for _ in range(200):
                viewer.sendall(lists)
        with open(f"/proc/{process}/status", encoding="ascii") as f:
            resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        assert resident < 100 << 10, f"{resident} KiB"
        assert pool.submit(double, 4).result(WAIT) == 8  # others are served
        viewer.settimeout(WAIT)
        assert len(viewer.recv(1 << 20)) > 0  # and it goes on where it was
    assert pool.submit(double, 5).result(WAIT) == 10


def test_connection_by_itself():
    """What was put is known here. References outlive their connection: what has its descriptors' numbers by then gets no byte and stays open."""
    here, there = socket.socketpair()
    connection = Connection(here, 1, None)
    ref = connection.put_packed(pack("small", "the value"), "late")
    assert ref.result(0) == "small"  # nobody answers here
    wait_until(lambda: not connection._woken, WAIT, "it was sent")
    connection.close()
    wait_until(lambda: here.fileno() < 0, WAIT, "the socket is closed")
    others = [end for _ in range(8) for end in socket.socketpair()]
    del ref
    gc.collect()
    connection.close()
    for end in others:
        end.setblocking(False)
        with pytest.raises(BlockingIOError):
            end.recv(1)
    for end in [there, *others]:
        end.close()


@pytest.mark.parametrize("name, expected", [
    ("core.py", "[0, 1, 4, 9]\n9\n100000\n[11, 12, 13]\n1 1 25\n"), ("batch.py", "[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, ")])
def test_examples(client, cluster, name, expected):
    done = subprocess.run([sys.executable, os.path.join(os.path.dirname(PACKAGE), "examples/tasks", name)], env=cluster.env, capture_output=True,
                          text=True, timeout=WAIT, check=False)
    assert done.returncode == 0 and done.stdout.startswith(expected), done.stdout + done.stderr


def test_from_another_machine(client, monkeypatch):
    """As if the pool's socket were not here: by way of the controller."""
    monkeypatch.setattr(acequia.Pool, "_here", lambda self: None)
    with start(client) as pool:
        assert pool._connection.memory is None and pool.submit(double, 4).result(WAIT) == 8
        big = os.urandom(1 << 20)
        assert pool.submit(lambda b: b[::-1], big).result(WAIT) == big[::-1]
        assert pool.get(pool.put(big)) == big and list(pool.map(double, range(500))) == [2 * i for i in range(500)]


def interpreters():
    """Other Pythons from 3.9 on that this machine has, one of each minor version."""
    found = {}
    for minor in range(9, 15):
        paths = [shutil.which(f"python3.{minor}"), *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3")))]
        path = next((p for p in paths if p and ".pyenv/shims" not in p), None)
        if path and minor != sys.version_info[1]:
            found[f"3.{minor}"] = path
    return found


@pytest.mark.long
def test_other_pythons(cluster, tmp_path):
    pythons = interpreters()
    if not pythons:
        pytest.skip("this machine has no other Python from 3.9 on")
    shutil.copytree(os.path.dirname(cloudpickle.__file__), tmp_path / "with/cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent("""
        import array, acequia

        class Counter:
            def __init__(self, n):
                self.n = n
            def add(self, k):
                self.n += k
                return self.n

        def double(x):
            return 2 * x

        with acequia.Pool(cpus=2, memory="512M") as pool:
            assert list(pool.map(double, range(200))) == [2 * i for i in range(200)]
            counter = pool.actor(Counter, pool.put(3))
            assert pool.get([counter.add(1), counter.add(2)]) == [4, 6]
            assert pool.submit(sum, pool.put(array.array("d", range(100_000)))).result() == sum(range(100_000))
            try:
                pool.submit(int, "x").result()
            except ValueError as e:
                assert "Traceback" in str(e.__cause__)
        with acequia.Executor(cpus=1, memory="64M") as ex:
            assert list(ex.map(double, range(3))) == [0, 2, 4]
        print("whole")
    """), encoding="utf-8")
    env = {**cluster.env, "PYTHONPATH": f"{tmp_path / 'with'}:{PACKAGE}"}
    for version, python in pythons.items():
        done = subprocess.run([python, str(program)], env=env, capture_output=True, text=True, timeout=WAIT, cwd=tmp_path, check=False)
        assert done.stdout == "whole\n", f"Python {version}: {done.stdout}{done.stderr}"


def test_backpressure(client):
    with start(client, max_pending=100) as pool:
        most = [0]
        refs = []
        for i in range(1000):
            refs.append(pool.submit(double, i))
            most[0] = max(most[0], len(pool._connection._waiting))
        assert sum(pool.get(refs, WAIT)) == sum(2 * i for i in range(1000)) and most[0] <= 100
        deep = pool.submit(lambda n: 0 if n == 0 else 1 + acequia.current_pool().submit(descend, n - 1).result(), 8)
        assert deep.result(WAIT) == 8


def descend(n):
    return 0 if n == 0 else 1 + acequia.current_pool().submit(descend, n - 1).result()
