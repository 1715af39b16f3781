"""Learns of jobs that have changed: the controller sends it, nothing is asked again and again."""
from __future__ import annotations

import collections
import concurrent.futures
import json
import threading
import weakref
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional

from .errors import AcequiaError
from .transport import events

if TYPE_CHECKING:
    from .client import Client
    from .job import Job

FETCHERS = 8
ASKED_AT_ONCE = 500
EARLY_MAX = 20000  # states of jobs that nobody watches yet: their submit is being answered
QUIET_S = 60.0     # a feed that is silent for longer is opened anew


class Watcher:
    """One thread that follows the live feed while there are jobs to watch, and a few that fetch results."""

    def __init__(self, client: "Client") -> None:
        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._jobs: Dict[int, "Job"] = {}
        self._early: "collections.OrderedDict[int, str]" = collections.OrderedDict()
        self._thread: Optional[threading.Thread] = None
        self._pool = concurrent.futures.ThreadPoolExecutor(FETCHERS, thread_name_prefix="acequia-result")

    def add(self, jobs: Iterable["Job"]) -> None:
        known = []
        with self._lock:
            for job in jobs:
                self._jobs[job.id] = job
                if job.id in self._early:
                    known.append((job.id, self._early.pop(job.id)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="acequia-watch", daemon=True)
                self._thread.start()
        for id_, state in known:
            self._saw(id_, state)

    def _saw(self, id_: int, state: str) -> None:
        with self._lock:
            job = self._jobs.get(id_)
            if job is None:
                self._early[id_] = state
                if len(self._early) > EARLY_MAX:
                    self._early.popitem(last=False)
                return
            if not job._saw(state):
                return
            del self._jobs[id_]
        self._pool.submit(job._finish)

    def _rows(self, rows: List[Any]) -> None:
        for row in rows:
            if isinstance(row, dict) and "id" in row and "state" in row:
                self._saw(int(row["id"]), str(row["state"]))

    def _ask(self, client: "Client") -> None:
        """The states of all that are watched: at the beginning, and after something was missed."""
        with self._lock:
            ids = sorted(self._jobs)
        for i in range(0, len(ids), ASKED_AT_ONCE):
            part = ",".join(map(str, ids[i:i + ASKED_AT_ONCE]))
            self._rows(client.get(f"/v1/jobs?elements=1&fields=id,state&ids={part}")["jobs"])

    def _follow(self, client: "Client") -> None:
        with client.transport.stream("/v1/live?topics=jobs&mine=1", {"Accept": "text/event-stream"}, timeout=QUIET_S) as stream:
            self._ask(client)  # whatever changes from now on is sent
            for event in events(stream):
                if event.name == "jobs":
                    self._rows(json.loads(event.data).get("jobs", []))
                elif event.name == "reset":
                    self._ask(client)
                with self._lock:
                    if not self._jobs:
                        return

    def _run(self) -> None:
        while True:
            client = self._client()
            with self._lock:
                if client is None or not self._jobs:
                    self._thread = None
                    self._early.clear()
                    return
            try:
                self._follow(client)
            except (OSError, AcequiaError, ValueError):
                client.pause()
            client = None
