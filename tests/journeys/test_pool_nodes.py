"""Pools over several nodes: values that stay where they were made, nodes that come, go and are killed, and who may join."""
import os
import signal
import socket
import sys
import time

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")
sys.path.insert(0, PACKAGE)
cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
import acequia  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
WAIT = int(os.environ.get("POOL_WAIT", "120"))
BIG = 1 << 20


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\n") as c:
        yield c


@pytest.fixture(name="client")
def _client(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACEQUIA_HOME", cluster.home)
    monkeypatch.delenv("ACEQUIA_HOST", raising=False)
    return acequia.Client()


def start(client, nodes=3, **kw):
    pool = acequia.Pool(client, **{"python": sys.executable, "cpus": 1, "memory": "256M", "nodes": nodes, **kw})
    there(pool, nodes)
    return pool


def there(pool, nodes):
    wait_until(lambda: len(pool.nodes()) == nodes, WAIT, f"{nodes} nodes are not there")


@pytest.fixture(name="pool")
def _pool(client):
    with start(client) as pool:
        yield pool


def place(_=None):
    """Where a task runs: the process that forked its worker. It takes long enough that others run elsewhere."""
    time.sleep(0.1)
    return os.environ["ACEQUIA_COMPONENT"], os.getppid()


def made(i, size=BIG):
    time.sleep(0.05)
    return bytes([i % 251]) * size


def spread(pool):
    """One process of each node."""
    found = set()
    wait_until(lambda: len(found.update(pool.map(place, range(6))) or found) == 3, WAIT, "not all nodes get tasks")
    return found


def program_of(template):
    """acequia-tasks below a template."""
    for one in os.listdir("/proc"):
        try:
            with open(f"/proc/{one}/stat", encoding="utf-8") as f:
                text = f.read()
        except OSError:
            continue
        if text[text.index("(") + 1:text.rindex(")")] == "acequia-tasks" and int(text[text.rindex(")") + 2:].split()[1]) == template:
            return int(one)
    raise AssertionError("it has gone")


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_values_stay_where_they_were_made_and_move_once(pool):
    spread(pool)
    refs = [pool.submit(made, i) for i in range(9)]
    pool.wait(refs, len(refs), WAIT)
    before = pool.summary()
    assert sum(row["memory_used_bytes"] > 0 for row in pool.nodes()) > 1, pool.nodes()  # not all on one node
    total = pool.submit(lambda *values: sum(len(v) for v in values), *refs)
    assert total.result(WAIT) == 9 * BIG
    moved = pool.summary()["moved"]
    assert moved > before["moved"]
    assert [v[0] for v in pool.get(refs, WAIT)] == list(range(9))
    once = pool.summary()["moved"]
    assert [v[0] for v in pool.get(refs, WAIT)] == list(range(9))
    assert pool.submit(lambda *values: len(values), *refs).result(WAIT) == 9
    assert pool.summary()["moved"] <= once + 9  # a node at most that did not have them
    table = pool.put(b"x" * (4 << 20))  # from the client to all nodes
    assert set(pool.get([pool.submit(lambda t: len(acequia.current_pool().get(t[0])), [table]) for _ in range(12)], WAIT)) == {4 << 20}
    del refs, total, table
    assert list(pool.map(len, [b"x" * BIG] * 9)) == [BIG] * 9  # arguments of their own, which have to be brought, too
    wait_until(lambda: pool.summary()["memory_used_bytes"] == 0, WAIT, "values are not freed on all nodes")


def test_a_task_goes_to_its_data(pool):
    spread(pool)
    refs = [pool.submit(made, i, 8 * BIG) for i in range(3)]
    pool.wait(refs, 3, WAIT)
    wait_until(lambda: pool.summary()["given"] == 0, WAIT, "something runs")
    moved = pool.summary()["moved"]
    for ref in refs:  # one after the other: all nodes have room
        assert pool.submit(len, ref).result(WAIT) == 8 * BIG
    assert pool.summary()["moved"] == moved


def test_a_lost_node_is_made_good_or_said(pool):
    nodes = spread(pool)
    victim = next(pid for kind, pid in sorted(nodes) if kind == "node")
    refs = [pool.submit(made, i) for i in range(12)]
    sums = [pool.submit(lambda v: sum(v[:10]), r) for r in refs]
    assert pool.get(sums, WAIT) == [10 * i for i in range(12)]
    inside = [pool.submit(lambda: (time.sleep(0.1), os.getppid(), acequia.current_pool().put(b"p" * BIG))[1:]) for _ in range(9)]
    there_put = [ref for pid, ref in pool.get(inside, WAIT) if pid == victim]
    counter = acequia.actor(restarts=5)(Place)
    actors = [pool.actor(counter) for _ in range(6)]
    where = pool.get([a.where() for a in actors], WAIT)
    slow = [pool.submit(place) for _ in range(6)]
    os.kill(program_of(victim), signal.SIGKILL)
    assert len(pool.get(slow, WAIT)) == 6  # tried again elsewhere
    there(pool, 2)
    assert [v[0] for v in pool.get(refs, WAIT)] == list(range(12))  # made again
    for ref in there_put:
        with pytest.raises(acequia.ReferenceLost, match="lost with the node"):
            ref.result(WAIT)
    for actor, at in zip(actors, where):
        if at == victim:  # a call that came while it was made again
            wait_until(lambda a=actor: a.where().exception(WAIT) is None, WAIT, "the actor is not made again")
        assert (actor.where().result(WAIT) == at) == (at != victim)
    with pytest.raises(acequia.WorkerLost, match="node .* was lost"):
        once = acequia.task(retries=0)(lambda: time.sleep(600))
        lasting = [pool.submit(once) for _ in range(2)]
        wait_until(lambda: sum(t["state"] == "running" for t in pool.tasks()) == 2, WAIT, "they do not run")
        other = next(pid for kind, pid in nodes if kind == "node" and pid != victim)
        os.kill(program_of(other), signal.SIGKILL)
        concurrent_errors(lasting)
    wait_until(lambda: gone(victim), WAIT, "the lost node's first process lives on")


def concurrent_errors(refs):
    done, _ = acequia.current_pool().wait(refs, 1, WAIT)
    done[0].result()


class Place:
    def where(self):
        return os.getppid()


def test_the_first_node_is_the_pool(client):
    pool = start(client)
    nodes = spread(pool)
    waiting = pool.submit(time.sleep, 600)
    os.kill(program_of(next(pid for kind, pid in nodes if kind == "head")), signal.SIGKILL)
    with pytest.raises(acequia.PoolLost):
        waiting.result(WAIT)
    pool.job.wait(WAIT)
    assert pool.job.done()
    wait_until(lambda: all(gone(pid) for _, pid in nodes), WAIT, "processes of the pool are left")
    pool.shutdown()


def test_workers_come_and_go(cluster, client):
    with acequia.Pool(client, python=sys.executable, cpus=1, memory="256M", nodes=(1, 4)) as pool:
        there(pool, 4)
        refs = [pool.submit(made, i) for i in range(12)]
        assert len(pool.get(refs, WAIT)) == 12
        cluster.cli("resize", str(pool.job.id), "node=0")
        there(pool, 1)
        assert [pool.submit(len, r).result(WAIT) for r in refs] == [BIG] * 12
        cluster.cli("resize", str(pool.job.id), "node=2")
        there(pool, 3)


def test_restarts_of_agent_and_controller_are_not_noticed(cluster, client):
    with start(client) as pool:
        sleeping = [pool.submit(place) for _ in range(30)]
        cluster.cli("down")
        refs = [pool.submit(made, i) for i in range(6)]
        cluster.cli("up")
        assert len(pool.get(sleeping, WAIT)) == 30 and len(pool.get(refs, WAIT)) == 6
        assert len(pool.nodes()) == 3


def listening(pid):
    """TCP ports that a process listens at."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    out = []
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="utf-8") as f:
            rows = [line.split() for line in f.readlines()[1:]]
        out += [int(r[1].rpartition(":")[2], 16) for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in inodes]
    return out


def test_nobody_joins_without_the_key(pool):
    nodes = spread(pool)
    for _, template in nodes:
        ports = listening(program_of(template))
        assert len(ports) == 1
        for said in (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200, b"aqT1" + b"n" * 32 + b"p" * 32 + b"r" * 100):
            with socket.create_connection(("127.0.0.1", ports[0]), 10) as s:
                s.settimeout(30)
                s.sendall(said)
                try:
                    while s.recv(4096):  # ended by the other side
                        pass
                except ConnectionResetError:
                    pass
    assert len(pool.nodes()) == 3 and pool.submit(len, "abc").result(WAIT) == 3
    with open(f"/proc/{program_of(next(iter(nodes))[1])}/cmdline", "rb") as f:  # the key is no argument
        assert not any(len(word) == 64 for word in f.read().split(b"\0"))


def test_strangers_do_not_use_up_the_places(pool):
    """Many connections that say nothing: the oldest make room, and a descriptor each is all that they cost."""
    port = listening(program_of(next(iter(spread(pool)))[1]))[0]
    strangers = [socket.create_connection(("127.0.0.1", port), WAIT) for _ in range(200)]
    try:
        for s in strangers[:100]:
            s.settimeout(WAIT)
            assert s.recv(1) == b""
        assert pool.submit(len, "abc").result(WAIT) == 3
    finally:
        for s in strangers:
            s.close()


@pytest.mark.long
def test_who_does_not_prove_the_key_is_sent_away(pool):
    port = listening(program_of(next(iter(spread(pool)))[1]))[0]
    with socket.create_connection(("127.0.0.1", port), 10) as s:
        s.settimeout(WAIT)
        s.sendall(b"aqT1" + b"n" * 8)
        assert s.recv(4096) == b""


@pytest.mark.long
def test_a_node_that_says_nothing_is_lost(pool):
    nodes = spread(pool)
    victim = program_of(next(pid for kind, pid in sorted(nodes) if kind == "node"))
    os.kill(victim, signal.SIGSTOP)
    try:
        there(pool, 2)
        assert pool.get([pool.submit(len, "abc") for _ in range(50)], WAIT) == [3] * 50
    finally:
        os.kill(victim, signal.SIGCONT)
    there(pool, 3)  # it comes back, empty
