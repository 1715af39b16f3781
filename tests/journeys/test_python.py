"""The Python package: functions and programs as jobs, results, exceptions and their tracebacks, arrays, restarts of the controller meanwhile."""
import asyncio
import concurrent.futures
import functools
import operator
import os
import pwd
import re
import subprocess
import sys
import threading
import time
import types
from datetime import timedelta

import pytest

from tests.lab.cluster import Cluster
from tests.lab.proc import wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python"))
cloudpickle = pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
import acequia  # noqa: E402
from acequia import options  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[cluster]\ngrace = 1s\n[node *]\ncpus = 16\nmemory = 8G\ngpus = h200:2\ngpus_simulated = true\n") as c:
        yield c


@pytest.fixture(name="client")
def _client(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ACEQUIA_HOME", cluster.home)
    monkeypatch.delenv("ACEQUIA_HOST", raising=False)
    return acequia.Client()


def execute(client, **kw):
    return acequia.Executor(client, python=sys.executable, cpus=1, memory="64M", **kw)


def double(x):
    return 2 * x


def where():
    return os.environ["ACEQUIA_JOB_ID"], os.getpid()


class Odd(Exception):
    def __init__(self, number):
        super().__init__(f"{number} is odd")
        self.number = number


def refuse_odd(x):
    if x % 2:
        raise Odd(x)
    return x


class Unsendable(Exception):
    def __init__(self, a, b):
        super().__init__("too much")
        self.lock = threading.Lock()


def raise_unsendable():
    raise Unsendable(1, 2)


def test_a_function(client):
    with execute(client) as ex:
        job = ex.submit(double, 21)
        assert job.result(120) == 42 and job.done() and not job.cancelled() and job.state == "COMPLETED"
        number, pid = ex.submit(where).result(120)
        assert int(number) > 0 and pid != os.getpid()
        assert ex.submit(functools.partial(operator.add, 1), 2).result(120) == 3
        held = 5
        assert ex.submit(lambda x: x + held, 1).result(120) == 6
    results = os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".cache/acequia/results")  # in the home that the job has
    assert not [f for f in os.listdir(results) if f.startswith(job.key)]  # nothing is left


def test_map(client):
    with execute(client) as ex:
        before = client.jobs(finished=True, limit=1)
        assert list(ex.map(double, range(20))) == [2 * i for i in range(20)]
        assert sorted(ex.map(operator.mul, [1, 2, 3], [4, 5, 6], ordered=False)) == [4, 10, 18]
        assert list(ex.map(double, [])) == []
        out = list(ex.map(refuse_odd, range(4), return_exceptions=True))
        assert out[0] == 0 and out[2] == 2 and isinstance(out[1], Odd) and out[3].number == 3
        with pytest.raises(Odd):
            list(ex.map(refuse_odd, range(2)))
    newest = client.jobs(finished=True, limit=1)[0]
    assert not before or newest["id"] > before[0]["id"]


def test_large_arguments_go_in_several_arrays(client):
    blob = os.urandom(700 << 10)
    with execute(client) as ex:
        assert list(ex.map(len, [blob] * 5)) == [len(blob)] * 5
        with pytest.raises(acequia.ControllerError, match="max_script"):
            ex.submit(len, os.urandom(5 << 20))


def test_exceptions(client):
    with execute(client) as ex:
        error = ex.submit(refuse_odd, 3).exception(120)
        assert isinstance(error, Odd) and error.number == 3
        assert "refuse_odd" in str(error.__cause__) and "Traceback" in str(error.__cause__)
        with pytest.raises(acequia.RemoteError, match="too much"):
            ex.submit(raise_unsendable).result(120)
        with pytest.raises(SystemExit):
            ex.submit(sys.exit, 4).result(120)
        with pytest.raises(acequia.JobFailed, match="signal 9") as e:
            ex.submit(lambda: os.kill(os.getpid(), 9)).result(120)
        assert e.value.state == "FAILED"
        with pytest.raises(acequia.AcequiaError, match="cannot be sent"):
            ex.submit(double, threading.Lock())
    with pytest.raises(RuntimeError, match="shut down"):
        ex.submit(double, 1)


def test_another_python(client):
    fake = os.path.abspath("python9")
    with open(fake, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nexec {sys.executable} -c \"import sys; sys.version_info=(9,9); exec(open('$1').read())\"\n")
    os.chmod(fake, 0o755)
    with acequia.Executor(client, python=fake) as ex, pytest.raises(RuntimeError, match=r"this node has 9\.9"):
        ex.submit(double, 1).result(120)


def test_programs(client):
    job = client.submit("echo hello; echo $WORD", name="words", env={"WORD": "world"}, time="5m", tags=["a"])
    assert job.result(120) == 0 and job.logs() == "hello\nworld\n" and job.logs(follow=True) == "hello\nworld\n"
    info = job.info()
    assert info["name"] == "words" and info["time_limit_s"] == 300 and info["tags"] == ["a"]
    with pytest.raises(acequia.JobFailed, match="exit code 3") as e:
        client.submit(["sh", "-c", "echo it broke; exit 3"]).result(120)
    assert e.value.exit_code == 3 and "it broke" in e.value.log
    script = client.submit_script("#!/bin/sh\necho $1 $ACEQUIA_JOB_NAME\n", "first", name="script")
    assert script.result(120) == 0 and script.logs() == "first script\n"
    jobs = client.submit_array("echo $ACEQUIA_ARRAY_TASK_ID", array=range(2, 7, 2))
    assert [job.result(120) for job in jobs] == [0, 0, 0] and [job.logs() for job in jobs] == ["2\n", "4\n", "6\n"]
    assert client.job(job.id).result(120) == 0  # of an earlier one
    assert client.status()["cluster"] and client.nodes()[0]["name"] and isinstance(client.shares(), list)


def test_cancel_and_futures(client):
    slow, quick = client.submit("sleep 600"), client.submit("true")
    done, left = concurrent.futures.wait([slow, quick], timeout=120, return_when=concurrent.futures.FIRST_COMPLETED)
    assert done == {quick} and left == {slow}
    wait_until(slow.running, 60, "it runs")
    assert slow.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        slow.result(120)
    assert slow.cancelled() and not slow.cancel() and isinstance(slow.exception(), acequia.JobFailed)
    try:
        with execute(client) as ex:
            held = ex.submit(time.sleep, 600)
            raise KeyError("mine")
    except KeyError:
        pass
    assert held.wait(120) == "CANCELLED"  # after an exception nothing goes on


def test_await(client):
    async def both():
        return await asyncio.gather(client.submit("true"), client.submit("exit 0"))
    assert asyncio.run(both()) == [0, 0]


def test_remote(client):
    @acequia.remote(client=client, python=sys.executable, cpus=1, memory="64M")
    def add(a, b=1):
        return a + b
    assert add(1) == 2 and add.__name__ == "add"
    assert add.submit(1, b=5).result(120) == 6 and list(add.map([1, 2])) == [2, 3]
    job = add.options(name="renamed").submit(1)
    assert job.result(120) == 2 and job.info()["name"] == "renamed"


def test_the_controller_restarts(cluster, client):
    with execute(client) as ex:
        jobs = [ex.submit(lambda: (time.sleep(2), 7)[1]) for _ in range(3)]
        cluster.kill_controller()
        late = []
        submitter = threading.Thread(target=lambda: late.append(ex.submit(double, 4)))
        submitter.start()
        cluster.start_controller()
        submitter.join(120)
        assert [job.result(120) for job in jobs] == [7, 7, 7] and late[0].result(120) == 8


def test_options():
    assert options.size_bytes("memory", "1.5G") == 3 << 29 and options.size_bytes("memory", 0) == 0
    assert options.duration_s("time", "1h30m") == 5400 and options.duration_s("time", "2-12:00:00") == 216000
    assert options.duration_s("time", timedelta(minutes=2)) == 120 and options.duration_s("time", "unlimited") == options.UNLIMITED_S
    spec = options.make_spec({"gpus": 0, "hold": False, "nodes": (1, 4), "comment": None, "interactive": True})
    assert spec == {"gpus_milli": 0, "hold": False, "nodes_min": 1, "nodes_max": 4, "class": "interactive"}
    assert options.make_spec({"gpus": "h200:2"}) == {"gpus_milli": 2000, "gpu_model": "h200"}
    for wrong, words in (({"gpu": 1}, "did you mean gpus"), ({"time": 90}, "'90m'"), ({"memory": "lots"}, "not a size"), ({"gpus": 1.5}, "whole number"),
                         ({"nodes": (4, 1)}, "the least and the most"), ({"tasks": True}, "expected int"), ({"array": 0}, None)):
        if words:
            with pytest.raises(acequia.AcequiaError, match=words):
                options.make_spec(wrong)
    for wrong in (0, True, "a-b", range(3, 1)):
        with pytest.raises(acequia.AcequiaError, match="array"):
            options.array_ranges(wrong)


def test_the_guide(client, capsys):
    """Every example of docs/python.md runs, one after the other."""
    with open(os.path.join(os.path.dirname(acequia.__file__), "../../docs/python.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```python\n(.*?)^```", f.read(), re.M | re.S)
    assert len(blocks) > 4
    main = types.ModuleType("__main__")
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        for block in blocks:
            exec(compile(block, "docs/python.md", "exec"), main.__dict__)
    finally:
        sys.modules["__main__"] = before
    assert "[0, 1, 4, 9]" in capsys.readouterr().out


def test_no_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("ACEQUIA_HOME", str(tmp_path))
    with pytest.raises(acequia.Unreachable, match="is it running"):
        acequia.Client(patience_s=0.2).status()


def test_the_package_is_typed():
    folder = os.path.join(os.path.dirname(acequia.__file__), os.pardir)
    if subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("mypy is not installed")
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-incremental"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
