"""The cluster: submits jobs, lists them, and answers questions about it."""
from __future__ import annotations

import os
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union, cast

from .errors import AcequiaError
from .job import Job
from .options import array_ranges, environment, make_spec
from .transport import PATIENCE_S, Transport
from .upload import Upload, upload_of
from .types import JobRow, NodeStatus, Share, Status, When
from .watch import Watcher

Command = Union[str, Sequence[str]]


class Client:
    """A connection to a cluster: the one that `acequia` would use, or `host` ("HOST:PORT", several joined by commas, or a socket's path).
    While no controller answers, what can be repeated is tried again for `patience_s` seconds."""

    def __init__(self, host: Optional[str] = None, token: Optional[str] = None, patience_s: float = PATIENCE_S) -> None:
        self.transport = Transport(host, token, patience_s)
        self._watcher = Watcher(self)

    # --- questions ---

    def get(self, target: str) -> Any:
        return self.transport.json("GET", target)

    def status(self) -> Status:
        return cast(Status, self.get("/v1/status"))

    def nodes(self) -> List[NodeStatus]:
        return cast(List[NodeStatus], self.get("/v1/nodes")["nodes"])

    def shares(self) -> List[Share]:
        return cast(List[Share], self.get("/v1/shares")["projects"])

    def jobs(self, **filters: Any) -> List[JobRow]:
        """Jobs that have not ended; with finished=True the newest that have. Filters: mine, user, project, state, name, where …"""
        query = {k: ("1" if v else "0") if isinstance(v, bool) else str(v) for k, v in filters.items() if v is not None}
        return cast(List[JobRow], self.get("/v1/jobs?" + urllib.parse.urlencode(query))["jobs"])

    def job(self, id_: Union[int, str]) -> Job:
        """A job that was submitted by somebody else, or earlier. Also as Job.attach of its number."""
        info = self.get(f"/v1/jobs/{urllib.parse.quote(str(id_))}")
        job = Job(self, int(info["id"]))
        self._watcher.add([job])
        return job

    def when(self, **options: Any) -> When:
        """When a job with these options would start."""
        return cast(When, self.transport.json("POST", "/v1/when", {"spec": make_spec(options)}, repeat=True))

    # --- jobs ---

    def submit(self, command: Command, **options: Any) -> Job:
        """Submits a program: a list of words, or a text for the shell. Options as those of `acequia submit`: gpus=0.5, cpus=4,
        memory="64G", time="8h", project="nlp", env={...}, container=..., nodes=2."""
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else [os.fspath(word) for word in command]
        if not words:
            raise AcequiaError("the command is empty")
        shown = command if isinstance(command, str) else " ".join(words)
        return self._submit_one({"argv": words, "command_text": shown[:1000]}, None, options, words[0], "command")

    def submit_script(self, script: Union[str, "os.PathLike[str]"], *arguments: str, **options: Any) -> Job:
        """Submits a batch script, given as its text or as its path."""
        text, name = os.fspath(script), "job"
        if "\n" not in text:
            name = os.path.basename(text)
            with open(text, encoding="utf-8") as f:
                text = f.read()
        return self._submit_one({"argv": list(arguments)}, text, options, name, "script")

    def submit_array(self, command: Command, array: Any, **options: Any) -> List[Job]:
        """Submits an array: 10, range(1, 20, 2) or "0-99". Each element finds its number in ACEQUIA_ARRAY_TASK_ID."""
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else [os.fspath(word) for word in command]
        spec = {"argv": words, "array": array_ranges(array)}
        return self.submit_spec(spec, None, options, words[0])

    def _submit_one(self, spec: Dict[str, Any], script: Optional[str], options: Mapping[str, Any], name: str, kind: str) -> Job:
        if options.get("array") is not None:
            raise AcequiaError("an array has several jobs: use submit_array")
        options = dict(options)
        upload = upload_of(options.pop("upload", None), options.pop("pip", None))
        if upload is not None:
            script = upload.script(kind, script or "", "python3")
        return self.submit_spec(spec, script, options, name, upload=upload)[0]

    def submit_spec(self, spec: Dict[str, Any], script: Optional[str], options: Mapping[str, Any], name: str,
                    fetch: Optional[Callable[[int], Callable[[Job], Any]]] = None, without: Sequence[str] = (),
                    upload: Optional[Upload] = None) -> List[Job]:
        """Submits a spec of the API. `fetch(i)` gives what reads the result of the i-th element."""
        whole = {"name": os.path.basename(name)[:60] or "job", "workdir": os.getcwd(), **spec, **{k: v for k, v in make_spec(options).items() if k not in without}}
        whole.setdefault("output", "acequia-%A_%a.out" if whole.get("array") else "acequia-%j.out")
        body: Dict[str, Any] = {"spec": whole, "environment": environment(options.get("env")), "key": f"python-{uuid.uuid4()}"}
        if script is not None:
            body["script"] = script
        if upload is not None:
            body["upload"] = upload.text
        answer = self.transport.json("POST", "/v1/jobs", body, repeat=True)
        first, count = int(answer["id"]), int(answer.get("count") or 1)
        jobs = [Job(self, first + i, fetch(i) if fetch else None) for i in range(count)]
        self._watcher.add(jobs)
        return jobs

    def act(self, action: str, ids: Iterable[int]) -> None:
        """cancel, hold, release, requeue, suspend or resume. Jobs that have ended meanwhile are no error."""
        answer = self.transport.json("POST", f"/v1/jobs/{action}", {"ids": [str(i) for i in ids]}, repeat=True)
        for one in answer.get("errors") or []:
            error = one.get("error") or {}
            if error.get("code") not in ("EALREADY", "ENOENT"):
                raise AcequiaError(f"job {one.get('id')}: {error.get('message') or action + ' failed'}")

    def pause(self) -> None:
        """Before something is tried again; another controller may lead by now."""
        self.transport.next_controller()
        time.sleep(0.5)

    # --- files on nodes ---

    def read_file(self, path: str, node: Optional[str] = None) -> bytes:
        query = {"path": path.replace("%", "%25"), **({"node": node} if node else {})}
        return self.transport.call("GET", "/v1/files/content?" + urllib.parse.urlencode(query), timeout=600)

    def remove_file(self, path: str, node: Optional[str] = None) -> None:
        query = {"path": path.replace("%", "%25"), **({"node": node} if node else {})}
        self.transport.call("DELETE", "/v1/files?" + urllib.parse.urlencode(query), repeat=True)
