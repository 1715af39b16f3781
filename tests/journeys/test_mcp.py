"""Tools for AI assistants: `acequia mcp` on standard input and output, and the same over HTTP. Plain JSON-RPC by
default; in the long run the protocol's own client (PyPI's mcp) as well."""
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile

import pytest

from tests.lab.api import Api
from tests.lab.cluster import Cluster as LabCluster
from tests.lab.command import ACEQUIA, Cluster
from tests.lab.proc import free_ports, wait_until


@pytest.fixture(scope="module")
def cluster():
    c = Cluster("[node *]\ncpus = 4\nmemory = 4G\n")
    yield c
    c.close()


def ask(cluster, *messages):
    """The answers of one run of `acequia mcp`, by id."""
    lines = "".join(json.dumps({"jsonrpc": "2.0", **m}) + "\n" for m in messages)
    out = cluster.acequia("mcp", input=lines)
    return {a["id"]: a for a in map(json.loads, out.splitlines())}


def call(number, name, **arguments):
    return {"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def test_an_assistant_submits_reads_and_cancels(cluster):
    spec = {"name": "asked", "workdir": cluster.work, "argv": ["sh", "-c", "echo hello; sleep 60"]}
    answers = ask(cluster, {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
                  {"method": "notifications/initialized"}, {"id": 2, "method": "tools/list"},
                  call(3, "check_job", spec=spec), call(4, "submit_job", spec=spec, key="once"),
                  call(5, "submit_job", spec=spec, key="once"))
    assert set(answers) == {1, 2, 3, 4, 5}
    assert answers[1]["result"]["serverInfo"]["name"] == "acequia"
    assert "explain_job" in {t["name"] for t in answers[2]["result"]["tools"]}
    ids = [json.loads(answers[n]["result"]["content"][0]["text"])["id"] for n in (4, 5)]
    assert ids[0] == ids[1]
    cluster.wait_state(ids[0], "RUNNING")

    def log():
        return ask(cluster, call(1, "job_logs", job=ids[0], tail=5))[1]["result"]["content"][0]["text"]

    wait_until(lambda: log() == "hello\n", 20, "the log is not read")
    listed = json.loads(ask(cluster, call(1, "list_jobs", state="RUNNING"))[1]["result"]["content"][0]["text"])
    assert [r["id"] for r in listed["rows"]] == [ids[0]]
    assert not ask(cluster, call(1, "cancel_jobs", ids=[str(ids[0])]))[1]["result"]["isError"]
    cluster.wait_state(ids[0], "CANCELLED")


def test_the_same_over_http(cluster):
    api = Api(os.path.join(cluster.home, "run/api.sock"))
    answer = api.post("/v1/mcp", {"jsonrpc": "2.0", "id": "a", "method": "tools/call",
                                  "params": {"name": "list_nodes", "arguments": {}}})
    assert json.loads(answer["result"]["content"][0]["text"])["nodes"] and answer["id"] == "a"
    api.close()


def test_a_controller_that_is_not_there_is_an_error_not_silence(cluster):
    with tempfile.TemporaryDirectory() as home:
        r = subprocess.run([ACEQUIA, "mcp"], input='{"jsonrpc":"2.0","id":1,"method":"ping"}\n', text=True, timeout=60,
                           capture_output=True, env={**cluster.env, "ACEQUIA_HOME": home}, check=False)
    assert json.loads(r.stdout)["error"]["message"]


@pytest.fixture(scope="module", name="own_client")
def _own_client():
    """PyPI's mcp, the protocol's own client."""
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", folder, "mcp"], check=False,
                              capture_output=True, timeout=600)
        if made.returncode:
            pytest.skip("PyPI's mcp cannot be installed here")
        sys.path.insert(0, folder)
        yield
        sys.path.remove(folder)


@pytest.mark.long
def test_the_protocols_own_client(cluster, own_client):  # pylint: disable=unused-argument
    asyncio.run(over_stdio(cluster))


@pytest.mark.long
def test_the_protocols_own_client_over_http(own_client):  # pylint: disable=unused-argument
    """With a token, over TLS; one that only reads is refused what it may not."""
    port = free_ports(1)[0]
    with LabCluster(config=f"[cluster]\nlisten = 127.0.0.1:{port}\n[node *]\ncpus = 4\nmemory = 4G\n") as c:
        tokens = [json.loads(c.cli("token", "create", "--user", "root", "--json", *more).stdout)["token"] for more in ((), ("--scopes", "read"))]
        asyncio.run(over_http(f"https://127.0.0.1:{port}/v1/mcp", *tokens))


def failed(result):
    """Of a tool's result; its attribute has had several names."""
    return result.model_dump(by_alias=True)["isError"]


async def works(session):
    """What an assistant does, over any transport."""
    await session.initialize()
    tools = (await session.list_tools()).tools
    assert {"list_jobs", "submit_job", "cancel_jobs"} <= {t.name for t in tools}
    spec = {"workdir": "/", "argv": ["sleep", "60"], "output": "/dev/null"}
    assert not failed(await session.call_tool("check_job", {"spec": spec}))
    result = await session.call_tool("submit_job", {"spec": spec})
    assert not failed(result)
    job = json.loads(result.content[0].text)["id"]
    shown = await session.call_tool("get_job", {"job": str(job)})
    assert json.loads(shown.content[0].text)["id"] == job
    assert not failed(await session.call_tool("explain_job", {"job": str(job)}))
    assert not failed(await session.call_tool("cancel_jobs", {"ids": [str(job)]}))
    assert failed(await session.call_tool("get_job", {"job": "999999"}))


async def over_stdio(cluster):
    """A session of the protocol's own client with `acequia mcp`."""
    from mcp import ClientSession, StdioServerParameters  # pylint: disable=import-outside-toplevel
    from mcp.client.stdio import stdio_client  # pylint: disable=import-outside-toplevel
    server = StdioServerParameters(command=ACEQUIA, args=["mcp"], env=cluster.env)
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await works(session)


@contextlib.asynccontextmanager
async def http_session(url, token):
    """A session of the protocol's own client over HTTP; the cluster's certificate is its own, so nobody vouches for it."""
    from mcp import ClientSession  # pylint: disable=import-outside-toplevel
    from mcp.client import streamable_http  # pylint: disable=import-outside-toplevel
    http = getattr(streamable_http, "httpx2", None) or streamable_http.httpx
    async with http.AsyncClient(headers={"Authorization": f"Bearer {token}"}, verify=False, timeout=60) as client:
        async with streamable_http.streamable_http_client(url, http_client=client) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                yield session


async def over_http(url, token, read_only):
    async with http_session(url, token) as session:
        await works(session)
    async with http_session(url, read_only) as session:
        await session.initialize()
        assert not failed(await session.call_tool("list_jobs", {}))
        refused = await session.call_tool("submit_job", {"spec": {"workdir": "/", "argv": ["true"]}})
        assert failed(refused) and "read" in refused.content[0].text, refused
