"""Long lists of jobs: streamed while others are served, complete, each job once, by index where one fits."""
import concurrent.futures
import json
import os
import socket
import threading
import time

import pytest

from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.proc import rss_bytes, wait_until

PENDING = 20000
FIELDS = "id,label,name,user,project,state,submit_ms,start_ms,end_ms,exit_code,partition,cpus,nodes,spec,usage"


def job(name="l", argv=("true",), **more):
    return {"spec": {"name": name, "workdir": "/tmp", "output": "/dev/null", "argv": list(argv), **more}}


def stream(api, **query):
    """Rows of a streamed list as dicts; checks that it is complete."""
    text = "&".join(f"{k}={v}" for k, v in query.items())
    status, data = api.raw("GET", f"/v1/jobs?stream=1&{text}")
    assert status == 200, data
    head, *rows, last = [json.loads(line) for line in data.splitlines()]
    assert last == {"rows": len(rows)}
    return [dict(zip(head["fields"], row, strict=True)) for row in rows]


@pytest.fixture(scope="module", name="cluster")
def _cluster():
    with Cluster(config="[node *]\ncpus = 64\n") as c:
        yield c


@pytest.fixture(scope="module", name="past")
def _past(cluster):
    """Finished jobs of several names and outcomes, an array among them; their records."""
    ids = [r["id"] for r in cluster.api.post("/v1/jobs", [job(f"n{i % 3}", argv=["sh", "-c", f"exit {i % 2}"]) for i in range(60)])]
    ids += [cluster.api.post("/v1/jobs", job("slow", argv=["sleep", "1.2"]))["id"]]
    array = cluster.api.post("/v1/jobs", job("a", array=[{"first": 0, "last": 40, "step": 4}]))["id"]
    cluster.wait_empty(60)
    rows = cluster.api.get("/v1/jobs?finished=1&limit=1000")["jobs"]
    assert len(rows) == len(ids) + 11
    return {"array": array, "rows": {r["id"]: r for r in rows}}


def test_a_stream_has_what_pages_have(cluster, past):
    pages = cluster.api.get(f"/v1/jobs?finished=1&limit=1000&fields={FIELDS}")["jobs"]
    streamed = stream(cluster.api, all=1, fields=FIELDS)
    assert sorted(streamed, key=lambda r: r["id"]) == sorted(pages, key=lambda r: r["id"])
    one = next(iter(past["rows"]))
    assert stream(cluster.api, ids=one, fields=FIELDS) == [r for r in pages if r["id"] == one]
    # A few fields decode as all of them do.
    for field in FIELDS.split(","):
        few = {r["id"]: r[field] for r in stream(cluster.api, finished=1, fields=f"id,{field}")}
        assert few == {r["id"]: r[field] for r in pages}, field


@pytest.mark.parametrize("query, wanted", [
    ({"name": "n1"}, lambda r: r["name"] == "n1"),
    ({"state": "FAILED"}, lambda r: r["state"] == "FAILED"),
    ({"state": "FAILED,COMPLETED", "name": "n0"}, lambda r: r["name"] == "n0"),
    ({"user": "root,nobody"}, lambda r: r["user"] == "root"),
    ({"user": "nobody"}, lambda r: False),
    ({"project": "default", "partition": "other,main"}, lambda r: True),
    ({"partition": "mai"}, lambda r: False),
    ({"limit": 7}, None),
])
def test_filters(cluster, past, query, wanted):
    got = {r["id"] for r in stream(cluster.api, all=1, **query)}
    if wanted is None:
        assert len(got) == query["limit"]
    else:
        assert got == {i for i, r in past["rows"].items() if wanted(r)}


def test_jobs_that_were_there_at_a_time(cluster, past):
    rows = past["rows"].values()
    times = sorted({r["end_ms"] for r in rows} | {r["start_ms"] for r in rows})
    for begin in times[::9]:
        for end in times[::7]:
            got = {r["id"] for r in stream(cluster.api, all=1, from_ms=begin, to_ms=end, fields="id")}
            assert got == {r["id"] for r in rows if r["end_ms"] >= begin and r["start_ms"] <= end}


def test_an_element_of_a_finished_array(cluster, past):
    array = past["array"]
    assert cluster.api.get(f"/v1/jobs/{array}_36")["array_index"] == 36
    assert [r["label"] for r in stream(cluster.api, ids=f"{array}_36")] == [f"{array}_36"]
    assert len(stream(cluster.api, ids=array)) == 11
    with pytest.raises(ApiError) as missing:
        cluster.api.get(f"/v1/jobs/{array}_37")
    assert missing.value.code == "ENOENT"


def test_bad_questions(cluster):
    for query in ("fields=nothing", "state=SLEEPING"):
        with pytest.raises(ApiError) as refused:
            cluster.api.get(f"/v1/jobs?stream=1&{query}")
        assert refused.value.code == "EINVAL"


def test_each_job_once_while_they_end(cluster, past):
    """Jobs move from the queue to history while the list is written: none is missed, named or not."""
    first = cluster.api.post("/v1/jobs", [job("moving")] * 600)[0]["id"]
    ids = set(range(first, first + 600))
    for _ in range(40):
        rows = stream(cluster.api, all=1, name="moving", fields="id,state")
        assert {r["id"] for r in rows} == ids
        out = cluster.cli("slurm", "sacct", "-nXP", "-o", "JobIDRaw", "--name=moving", "-S", "now-1hour").stdout.split()
        assert [int(i) for i in out] == sorted(ids)
        for _ in range(5):
            named = stream(cluster.api, ids=",".join(str(i) for i in sorted(ids)), fields="id")
            assert {r["id"] for r in named} == ids
        if all(r["state"] == "COMPLETED" for r in rows):
            return
    cluster.wait_empty(60)


class Reader:
    """A client that asks for a list and reads when it likes."""

    def __init__(self, path, target):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        self.sock.connect(path)
        self.sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())

    def rest(self):
        data = b""
        while piece := self.sock.recv(1 << 20):
            data += piece
        return data


def read_all(readers):
    """What each gets, all at once: who does not read for too long is cut off, also on a busy machine."""
    with concurrent.futures.ThreadPoolExecutor(len(readers)) as pool:
        return list(pool.map(Reader.rest, readers))


def test_slow_readers_hold_nobody_up():
    with Cluster() as c:
        for _ in range(PENDING // 10000):
            c.api.post("/v1/jobs", [job(hold=True)] * 10000)
        target = f"/v1/jobs?stream=1&fields={FIELDS}"
        pid = c.pid("controller")
        readers = [Reader(f"{c.home}/run/api.sock", target) for _ in range(30)]
        time.sleep(1)
        before = rss_bytes(pid)
        for _ in range(50):  # none of the readers has read a byte: others are answered nevertheless
            c.api.get("/v1/status")
        for r in readers[:15]:
            r.sock.close()
        assert rss_bytes(pid) - before < 64 << 20 and before < 300 << 20
        for data in read_all(readers[15:18]):
            assert data.count(b'"PENDING"') == PENDING and f'{{"rows":{PENDING}}}\n'.encode() in data
        for r in readers[18:]:
            r.sock.close()
        wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < 60, 10, "connections stay open")
        assert len(stream(Api(f"{c.home}/run/api.sock"), fields="id")) == PENDING


def test_waiting_elements_stay_in_one_row(cluster):
    """However long the queue is, an array is folded as a whole."""
    array = cluster.api.post("/v1/jobs", job("folded", hold=True, array=[{"first": 0, "last": 49999, "step": 1}]))["id"]
    cluster.api.post("/v1/jobs", [job("other", hold=True)] * 5000)
    rows = stream(cluster.api, fields="id,label,name")
    assert [r["label"] for r in rows if r["name"] == "folded"] == [f"{array}_[0-49999]"]
    assert len(rows) == 5001
    assert len(stream(cluster.api, fields="id", name="folded", elements=1)) == 50000
    cluster.api.post("/v1/jobs/cancel", {"ids": [str(array)]})


def ids_of(data, form):
    """The ids of a list as it came over the wire, in pieces."""
    body = b"".join(piece for piece in chunks(data.split(b"\r\n\r\n", 1)[1]))
    if form == "lines":
        head, *rows, last = [json.loads(line) for line in body.splitlines()]
        assert last == {"rows": len(rows)}
        return [row[head["fields"].index("id")] for row in rows]
    return [row["id"] for row in json.loads(body)["jobs"]]


def chunks(text):
    while True:
        size, text = text.split(b"\r\n", 1)
        if not int(size, 16):
            return
        yield text[:int(size, 16)]
        text = text[int(size, 16) + 2:]


def test_a_job_that_ends_while_the_list_is_written_comes_once():
    with Cluster() as c:
        ids = [r["id"] for r in c.api.post("/v1/jobs", [job(hold=True, comment="x" * 200)] * 6000)]
        reader = Reader(f"{c.home}/run/api.sock", f"/v1/jobs?stream=1&all=1&fields={FIELDS}")
        reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(0.5)  # its first megabyte is written, the rest waits for its reader
        assert c.api.post("/v1/jobs/cancel", {"all": True})["done"] == len(ids)
        wait_until(lambda: not c.api.get("/v1/jobs")["jobs"], 20, "they do not end")
        got = ids_of(reader.rest(), "lines")
        assert sorted(got) == ids


def test_documents_are_written_in_pieces_too():
    """As long as the list is: the controller keeps little of it, and others are served meanwhile."""
    with Cluster() as c:
        for _ in range(PENDING // 10000):
            c.api.post("/v1/jobs", [job(hold=True)] * 10000)
        pid = c.pid("controller")
        before = rss_bytes(pid)
        readers = [Reader(f"{c.home}/run/api.sock", f"/v1/jobs?fields={FIELDS}") for _ in range(20)]
        time.sleep(1)
        assert rss_bytes(pid) - before < 64 << 20  # one of them is 30 MB long
        first, second = read_all(readers[:2])
        assert sorted(ids_of(first, "document")) == sorted(ids_of(second, "document"))
        for r in readers:
            r.sock.close()
        assert len(json.loads(c.cli("list", "--json").stdout)["jobs"]) == PENDING
        assert len(json.loads(c.cli("list", "--json", "--limit", "7").stdout)["jobs"]) == 7
        c.api.post("/v1/jobs/cancel", {"all": True})
        seen, target = set(), "/v1/jobs?finished=1&state=CANCELLED&fields=id"
        after = ""
        while after is not None:
            page = c.api.get(target + after)
            assert len(page["jobs"]) <= 1000
            seen |= {r["id"] for r in page["jobs"]}
            after = page["next"] and f"&after={page['next']}"
        assert len(seen) == PENDING


def test_a_trace_is_written_in_pieces(cluster, past):
    rows = cluster.cli("trace").stdout.splitlines()
    ran = [r for r in cluster.api.get("/v1/jobs?finished=1&limit=100000")["jobs"] if r["start_ms"]]
    assert len(rows) == len(ran) + 1
    middle = sorted(r["end_ms"] for r in ran)[len(ran) // 2]
    status, data = cluster.api.raw("GET", f"/v1/trace?since_ms={middle}")
    assert status == 200 and len(data.splitlines()) == sum(r["end_ms"] >= middle for r in ran) + 1
    status, data = cluster.api.raw("GET", f"/v1/trace?until_ms={middle}")
    assert status == 200 and len(data.splitlines()) == sum(r["end_ms"] < middle for r in ran) + 1


def test_a_folded_array_is_listed_in_slices():
    """Elements that end, and the array with them, while the row that stands for them is being made."""
    with Cluster(config="[node *]\ncpus = 64\n") as c:
        array = c.api.post("/v1/jobs", job("wide", hold=True, tags=["t"], array=[{"first": 0, "last": 99999, "step": 1}]))["id"]
        readers = [Api(f"{c.home}/run/api.sock") for _ in range(4)]
        done = []

        def read(api, query):
            done.append(api.get(f"/v1/jobs?{query}")["jobs"])

        threads = [threading.Thread(target=read, args=(api, q)) for api, q in zip(readers, ("", "where=tag%3Dt", "fields=id,spec,elements", "where=index%3C30000"))]
        for t in threads:
            t.start()
        c.cli("cancel", str(array))
        for t in threads:
            t.join()
        assert len(done) == 4
        for rows in done:
            assert all(r.get("name", "wide") == "wide" for r in rows), rows
        wait_until(lambda: not c.api.get("/v1/jobs")["jobs"], 120, "it does not end")
