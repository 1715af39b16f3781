"""A job as a future: it can be waited for, awaited, cancelled, and asked about."""
from __future__ import annotations

import asyncio
import concurrent.futures
import html
import json
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterator, Optional, cast

from .errors import AcequiaError, ControllerError, JobCancelled, JobFailed
from .transport import events
from .types import Job as JobFields, Why

if TYPE_CHECKING:
    from .client import Client

ENDED = frozenset(("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "DEADLINE"))
TAIL_LINES = 20


class Job(concurrent.futures.Future):  # type: ignore[type-arg]  # not subscriptable at run time in Python 3.9's stubs
    """One job of the cluster. result() gives what its function returned, or 0 for a program that ended well; else it raises: what the
    function raised, or JobFailed with the state and the end of the output."""

    def __init__(self, client: "Client", id_: int, fetch: Optional[Callable[["Job"], Any]] = None) -> None:
        super().__init__()
        self._client, self.id, self._fetch = client, id_, fetch
        self.key = ""  # of a function: begins the names of the files of its result
        self._job_state = "PENDING"
        self._settled = threading.Lock()

    # --- what it is ---

    @property
    def state(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED …, as the controller said last."""
        return self._job_state

    def info(self) -> JobFields:
        """All that the controller knows about it, asked now."""
        return cast(JobFields, self._client.get(f"/v1/jobs/{self.id}"))

    def why(self) -> Why:
        """Why it waits."""
        return cast(Why, self._client.get(f"/v1/jobs/{self.id}/why"))

    def url(self, port: int = 0) -> str:
        """The address of its program in the browser."""
        urls = self.info().get("urls") or []
        for one in urls:
            if not port or f"-{port}-" in one or f":{port}" in one or len(urls) == 1:
                return str(one)
        raise AcequiaError(f"job {self.id} has no address: submit it with ports=, and wait until it runs")

    def logs(self, follow: bool = False, tail: Optional[int] = None, error: bool = False) -> str:
        """Its output so far; with follow all of it, when it has ended."""
        if follow:
            return "".join(self.follow(error))
        query = {"source": "error" if error else "output", **({} if tail is None else {"tail": str(tail)})}
        return self._client.transport.call("GET", f"/v1/jobs/{self.id}/logs?{urllib.parse.urlencode(query)}").decode("utf-8", "replace")

    def follow(self, error: bool = False) -> Iterator[str]:
        """Its output as it is written, until it has ended. A lost connection is made again, and nothing is missed."""
        last = ""
        while True:
            target = f"/v1/jobs/{self.id}/logs?follow=1&source={'error' if error else 'output'}"
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            try:
                with self._client.transport.stream(target, headers, timeout=None) as stream:
                    for e in events(stream):
                        last = e.id or last
                        if e.name == "log":
                            yield json.loads(e.data)["text"]
                        elif e.name == "end":
                            return
            except OSError:
                pass
            self._client.pause()

    # --- what can be done with it ---

    def cancel(self) -> bool:
        """Ends it. True if it had not ended before."""
        if self.done():
            return False
        self._client.act("cancel", [self.id])
        return True

    def cancelled(self) -> bool:
        return self._job_state == "CANCELLED"

    def wait(self, timeout: Optional[float] = None) -> str:
        """Waits until it has ended, well or not; its state."""
        concurrent.futures.wait([self], timeout)
        return self._job_state

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self).__await__()

    # --- the watcher calls these ---

    def _saw(self, state: str) -> bool:
        """The controller says that it is in this state. True: it has ended, and its result is to be fetched."""
        self._job_state = state
        if state not in ENDED:
            if state != "PENDING" and not self.running() and not self.done():
                try:
                    self.set_running_or_notify_cancel()
                except concurrent.futures.InvalidStateError:
                    pass
            return False
        return not self.done()

    def _finish(self) -> None:
        """Fetches its result and makes it known."""
        with self._settled:
            if self.done():
                return
            try:
                info = self.info()
                self._job_state = info["state"]
                value = self._fetch(self) if self._fetch and self._job_state in ("COMPLETED", "FAILED") else self._exit(info)
            except BaseException as e:
                self.set_exception(e)
            else:
                self.set_result(value)

    def _exit(self, info: JobFields) -> int:
        if info["state"] == "COMPLETED":
            return 0
        raise self._failure(info)

    def _failure(self, info: JobFields) -> JobFailed:
        state, code = info["state"], int(info.get("exit_code") or 0)
        text = f"job {self.id} ({info.get('name')}): {state}"
        if code:
            text += f", exit code {code}"
        if info.get("exit_signal"):
            text += f", signal {info.get('exit_signal')}"
        if info.get("reason"):
            text += f", {info.get('reason')}"
        try:
            log = self.logs(tail=TAIL_LINES)
        except AcequiaError:
            log = ""
        kind = JobCancelled if state == "CANCELLED" else JobFailed
        return kind(text + (f"; the end of its output:\n{log}" if log else ""), self.id, state, code, log)

    def __repr__(self) -> str:
        return f"<acequia.Job {self.id} {self._job_state}>"

    def _repr_html_(self) -> str:
        """In notebooks."""
        try:
            info = self.info()
        except ControllerError:
            return html.escape(repr(self))
        cells = [("job", self.id), ("name", info.get("name")), ("state", info["state"]), ("nodes", info.get("nodes")), ("reason", info.get("reason"))]
        done = info.get("progress_milli")
        if done is not None:
            cells.append(("progress", f"{done / 10:.0f} %"))
        rows = "".join(f"<tr><th style='text-align:left'>{k}</th><td>{html.escape(str(v))}</td></tr>" for k, v in cells if v)
        return f"<table>{rows}</table>"
