"""Batches of rows through functions and models: lazy, streamed, in bounded memory, and resumed after whatever ends it.

    from acequia import data
    data.read_images("s3://bucket/val/", size=224).map_batches(Model, gpus=0.5).write_parquet("out")

Nothing is read before results are asked for. The work is done by acequia-data, on this machine (in a job: within its limits), or with
options(job={...}) as a job of the cluster."""
from __future__ import annotations

import base64
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import payload
from .errors import AcequiaError

Batch = Dict[str, Any]
Inputs = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
LINE_MAX = 1 << 26


class DataError(AcequiaError):
    """A pipeline that could not be run, or ended early. What was done is kept; the same pipeline goes on after it."""


@dataclass(frozen=True)
class Result:
    """Of a pipeline that has written its results."""
    rows: int
    failures: int
    parts: List[str]


@dataclass(frozen=True)
class _Settings:
    memory: Optional[int] = None
    max_errors: Optional[int] = None
    fresh: bool = False
    python: Optional[str] = None
    cpus: Optional[int] = None
    explain: bool = False
    progress: bool = True
    job: Optional[Mapping[str, Any]] = None


# --- what is read ---

def _inputs(inputs: Inputs) -> List[str]:
    if isinstance(inputs, (str, os.PathLike)):
        return [os.fspath(inputs)]
    return [os.fspath(i) for i in inputs]


def _source(kind: str, inputs: Inputs, **more: Any) -> "Dataset":
    return Dataset({"kind": kind, "inputs": _inputs(inputs), **{k: v for k, v in more.items() if v}})


def read_images(inputs: Inputs, *, size: Union[None, int, Tuple[int, int]] = None, shorter: int = 0, mode: str = "RGB", filter: str = "bilinear",
                normalize: Union[None, str, Mapping[str, Sequence[float]]] = None, any_name: bool = False) -> "Dataset":
    """Columns image and path. `size`: pixels, or (width, height); without it images keep their sizes. `shorter`: resize the shorter side to this
    length and cut the middle out. `normalize`: "imagenet", "unit" (0 to 1) or {"mean": …, "std": …}: float32 planes for a model (CHW) instead of
    bytes (HWC)."""
    return _image_source("images", inputs, size, shorter, mode, filter, normalize, any_name)


def read_tar(inputs: Inputs, *, size: Union[None, int, Tuple[int, int]] = None, shorter: int = 0, mode: str = "RGB", filter: str = "bilinear",
             normalize: Union[None, str, Mapping[str, Sequence[float]]] = None, any_name: bool = False) -> "Dataset":
    """Images in tar archives; path is the member's name."""
    return _image_source("tar", inputs, size, shorter, mode, filter, normalize, any_name)


def _image_source(kind: str, inputs: Inputs, size: Any, shorter: int, mode: str, filter: str, normalize: Any, any_name: bool) -> "Dataset":
    width, height = (size, size) if isinstance(size, int) else size or (0, 0)
    modes = {"RGB": "rgb", "L": "grey"}
    if mode not in modes:
        raise ValueError(f"mode {mode!r}: RGB or L")
    more: Dict[str, Any] = {"width": width, "height": height, "shorter": shorter, "filter": filter, "mode": modes[mode], "any_name": any_name}
    if normalize:
        known: Dict[str, Dict[str, Any]] = {"imagenet": dict(IMAGENET), "unit": {}}
        chosen = known.get(normalize) if isinstance(normalize, str) else dict(normalize)
        if chosen is None:
            raise ValueError(f"normalize {normalize!r}: imagenet, unit, or mean and std")
        more.update(chosen, planes=True)
    return _source(kind, inputs, **more)


def read_files(inputs: Inputs) -> "Dataset":
    """Columns bytes and path: every file, whatever its name."""
    return _source("files", inputs)


def read_text(inputs: Inputs) -> "Dataset":
    """A row per line, in column text."""
    return _source("text", inputs)


def read_jsonl(inputs: Inputs) -> "Dataset":
    """A row per line, each a JSON object."""
    return _source("jsonl", inputs)


def read_csv(inputs: Inputs) -> "Dataset":
    """The first line names the columns. Numbers that stand without quotation marks are numbers, nothing is None."""
    return _source("csv", inputs)


def read_parquet(inputs: Inputs, columns: Optional[Sequence[str]] = None) -> "Dataset":
    """By groups of rows; needs pyarrow where it runs."""
    said: Dict[str, Any] = {"op": "read_parquet"}
    if columns is not None:
        said["columns"] = list(columns)
    stage = _Stage("python", "read_parquet", {"operations": [said]}, json.dumps(said))
    return Dataset(_source("parquet", inputs).source, (stage,))


def range(rows: int) -> "Dataset":
    """Column id: 0 to rows - 1."""
    if rows < 0:
        raise ValueError("range: a number from 0 on")
    return Dataset({"kind": "range", "inputs": [], "rows": rows})


# --- what is done ---

@dataclass(frozen=True)
class _Stage:
    kind: str
    name: str
    settings: Mapping[str, Any]
    identity: str
    batch: int = 0
    replicas: int = 0
    threads: int = 0
    cpus: float = 0
    gpus: float = 0

    def fuses_with(self, other: "_Stage") -> bool:
        """Both can run in one process, one after the other on the same batch."""
        return (self.kind == other.kind == "python" and self.name != "read_parquet" and not other.batch and not other.replicas
                and other.cpus in (0, self.cpus) and other.gpus in (0, self.gpus))


@dataclass(frozen=True)
class Dataset:
    """Rows to come. Every method gives a new one; nothing happens before results are asked for."""
    source: Mapping[str, Any]
    stages: Tuple[_Stage, ...] = ()
    settings: _Settings = field(default_factory=_Settings)

    # --- steps ---

    def _with(self, stage: _Stage) -> "Dataset":
        return replace(self, stages=self.stages + (stage,))

    def _function(self, op: str, fn: Any, args: Sequence[Any], kwargs: Optional[Mapping[str, Any]], **more: Any) -> "Dataset":
        if not callable(fn):
            raise TypeError(f"{op}: a function or a class is needed, not {type(fn).__name__}")
        name = getattr(fn, "__qualname__", type(fn).__name__)
        said: Dict[str, Any] = {"op": op, "function": {"pickle": base64.b64encode(payload.dumps(fn, name)).decode()}}
        if args or kwargs:
            said["arguments"] = base64.b64encode(payload.dumps((tuple(args), dict(kwargs or {})), f"the arguments of {name}")).decode()
        identity = f"{op} {_module_name(fn)}.{name} {list(args)!r} {dict(kwargs or {})!r}"
        return self._with(_Stage("python", name, {"operations": [said]}, identity, **more))

    def map_batches(self, fn: Any, *, args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, batch_size: int = 0, concurrency: int = 0,
                    cpus: float = 1, gpus: float = 0) -> "Dataset":
        """fn(batch) gets a dict of columns and gives one. A class is made once per process, with args and kwargs. Sizes of batches and the number
        of processes are found while it runs, unless they are given."""
        return self._function("map_batches", fn, args, kwargs, batch=batch_size, replicas=concurrency, cpus=cpus, gpus=gpus)

    def map(self, fn: Callable[[Dict[str, Any]], Dict[str, Any]]) -> "Dataset":
        """fn(row) gives the new row."""
        return self._function("map", fn, (), None)

    def flat_map(self, fn: Callable[[Dict[str, Any]], Sequence[Dict[str, Any]]]) -> "Dataset":
        """fn(row) gives any number of rows."""
        return self._function("flat_map", fn, (), None)

    def filter(self, fn: Callable[[Dict[str, Any]], bool]) -> "Dataset":
        """Keeps the rows for which fn(row) is true."""
        return self._function("filter", fn, (), None)

    def select(self, *columns: str) -> "Dataset":
        said = {"op": "select", "columns": list(columns)}
        return self._with(_Stage("python", "select", {"operations": [said]}, json.dumps(said)))

    def drop(self, *columns: str) -> "Dataset":
        said = {"op": "drop", "columns": list(columns)}
        return self._with(_Stage("python", "drop", {"operations": [said]}, json.dumps(said)))

    def with_model(self, model: "os.PathLike[str] | str", *, outputs: str = "top1", columns: Optional[Mapping[str, str]] = None,
                   keep: Optional[Sequence[str]] = None, batch_size: int = 0, concurrency: int = 0, threads: int = 0, gpus: float = 0) -> "Dataset":
        """An ONNX model, run by ONNX Runtime. `outputs`: "top1" gives columns prediction and score, "all" the model's own. `columns`: which column
        is which of the model's inputs, where names differ."""
        path = os.path.abspath(os.fspath(model))
        settings: Dict[str, Any] = {"model": path, "outputs": outputs, "gpu": gpus > 0}
        if columns:
            settings["columns"] = dict(columns)
        if keep is not None:
            settings["keep"] = list(keep)
        return self._with(_Stage("onnx", os.path.basename(path), settings, json.dumps(settings, sort_keys=True), batch_size, concurrency, threads,
                                 float(threads), gpus))

    def through(self, command: Sequence[str], *, batch_size: int = 0, concurrency: int = 0) -> "Dataset":
        """Any program that reads rows as JSON, one per line, and answers each with a line."""
        said = {"command": [os.fspath(c) for c in command]}
        return self._with(_Stage("program", os.path.basename(said["command"][0]), said, json.dumps(said), batch_size, concurrency))

    def limit(self, rows: int) -> "Dataset":
        """At most so many inputs."""
        return replace(self, source={**self.source, "limit": rows})

    def options(self, *, memory: Optional[int] = None, max_errors: Optional[int] = None, fresh: Optional[bool] = None, python: Optional[str] = None,
                cpus: Optional[int] = None, explain: Optional[bool] = None, progress: Optional[bool] = None,
                job: Optional[Mapping[str, Any]] = None) -> "Dataset":
        """`memory`: bytes of shared memory for rows. `max_errors`: rows that may fail, -1 for any number. `fresh`: begin anew instead of going on.
        `job`: run as a job with these options (those of Client.submit), {} for the defaults."""
        given = {k: v for k, v in dict(memory=memory, max_errors=max_errors, fresh=fresh, python=python, cpus=cpus, explain=explain, progress=progress,
                                       job=job).items() if v is not None}
        return replace(self, settings=replace(self.settings, **given))

    # --- results ---

    def write_jsonl(self, path: "os.PathLike[str] | str", *, single: bool = False) -> Result:
        """A folder of parts, or one file."""
        return self._write("jsonl", path, single)

    def write_csv(self, path: "os.PathLike[str] | str", *, single: bool = False) -> Result:
        return self._write("csv", path, single)

    def write_parquet(self, path: "os.PathLike[str] | str") -> Result:
        """A folder of parts; needs pyarrow where it runs."""
        return self._write("parquet", path, False)

    def run(self) -> None:
        """For functions that keep their results themselves."""
        self._finish({"kind": "none"})

    def iter_batches(self, batch_size: Optional[int] = None) -> Iterator[Batch]:
        """Batches of columns, in order, as they become ready; each is the reader's own. Without a size as they come."""
        held: List[Batch] = []
        for batch in _Stream(self):
            if batch_size is None:
                yield batch
                continue
            held.append(batch)
            while sum(map(_count, held)) >= batch_size:
                whole = _join(held)
                yield {name: column[:batch_size] for name, column in whole.items()}
                rest = {name: column[batch_size:] for name, column in whole.items()}
                held = [rest] if _count(rest) else []
        if held:
            yield _join(held)

    def iter_rows(self) -> Iterator[Dict[str, Any]]:
        for batch in self.iter_batches():
            yield from _rows(batch)

    def take(self, rows: int = 20) -> List[Dict[str, Any]]:
        """The first rows; nothing more is read than is needed for them."""
        out: List[Dict[str, Any]] = []
        if rows <= 0:
            return out
        for row in self.iter_rows():
            out.append(row)
            if len(out) >= rows:
                break
        return out

    def take_all(self) -> List[Dict[str, Any]]:
        return list(self.iter_rows())

    def count(self) -> int:
        return sum(_count(batch) for batch in self.iter_batches())

    def schema(self) -> Dict[str, str]:
        """The columns of the first batch."""
        for batch in self.iter_batches():
            return {name: f"{column.dtype}{list(column.shape[1:]) if column.ndim > 1 else ''}" for name, column in batch.items()}
        return {}

    # --- how ---

    def plan(self, output: Mapping[str, Any]) -> Dict[str, Any]:
        """The document that acequia-data reads."""
        out: Dict[str, Any] = {"source": dict(self.source), "output": dict(output), "python": self.settings.python or sys.executable}
        stages = []
        for s in self._fused():
            settings = dict(s.settings, path=_paths()) if s.kind == "python" else dict(s.settings)
            stages.append({"kind": s.kind, "name": s.name, "settings": json.dumps(settings), "identity": s.identity, "batch": s.batch,
                           "replicas": s.replicas, "threads": s.threads, "cpus": s.cpus, "gpus": s.gpus})
        out["stages"] = stages
        if self.settings.memory:
            out["memory_bytes"] = self.settings.memory
        if self.settings.max_errors is not None:
            unlimited = self.settings.max_errors < 0
            out["errors_unlimited" if unlimited else "errors_max"] = True if unlimited else self.settings.max_errors
        if self.settings.fresh:
            out["fresh"] = True
        return out

    def _fused(self) -> List[_Stage]:
        out: List[_Stage] = []
        for s in self.stages:
            if out and out[-1].fuses_with(s):
                last = out.pop()
                operations = list(last.settings["operations"]) + list(s.settings["operations"])
                s = replace(last, name=f"{last.name}, {s.name}", settings={"operations": operations}, identity=f"{last.identity}; {s.identity}")
            out.append(s)
        return out

    def _write(self, kind: str, path: "os.PathLike[str] | str", single: bool) -> Result:
        place = os.fspath(path)
        if not place.startswith("s3://"):
            place = os.path.abspath(place)
        self._finish({"kind": kind, "path": place, "single": single})
        return _result(place + ".parts" if single else place)

    def _arguments(self) -> List[str]:
        more = ["--explain"] if self.settings.explain else []
        if self.settings.cpus:
            more += ["--cpus", str(self.settings.cpus)]
        return more if self.settings.progress else more + ["--quiet"]

    def _finish(self, output: Mapping[str, Any]) -> None:
        plan = json.dumps(self.plan(output))
        if self.settings.job is not None:
            _run_as_job(plan, self._arguments(), self.settings.job)
            return
        done = subprocess.run([_engine(), "run", *self._arguments()], input=plan, text=True, stderr=None if self.settings.progress else subprocess.PIPE)
        if done.returncode:
            raise DataError(_last_line(done.stderr) if done.stderr else f"the pipeline ended with status {done.returncode}; the reason stands above")


def _module_name(fn: Any) -> str:
    """The same whether a file is run or imported."""
    name = str(getattr(fn, "__module__", ""))
    path = getattr(sys.modules.get("__main__"), "__file__", None) if name == "__main__" else None
    return os.path.splitext(os.path.basename(str(path)))[0] if path else name


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].replace("acequia data: ", "", 1) if lines else "the pipeline ended without a reason"


def _paths() -> List[str]:
    return [os.getcwd()] + [p for p in sys.path if p and os.path.isdir(p) and not p.startswith(sys.prefix)]


def _engine() -> str:
    """The program acequia-data: a job's own, or the one beside the command line."""
    given = os.environ.get("ACEQUIA_DATA")
    if given:
        return given
    cli = shutil.which("acequia")
    here = os.path.dirname(os.path.realpath(cli)) if cli else ""
    for place in ("../libexec/acequia", "../data", ".") if here else ():
        path = os.path.join(here, place, "acequia-data")
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    raise DataError("acequia-data was not found: install Acequia on this machine, set ACEQUIA_DATA, or run as a job with options(job={})")


def _run_as_job(plan: str, arguments: Sequence[str], options: Mapping[str, Any]) -> None:
    from .client import Client
    script = ("#!/bin/sh\nexec \"${ACEQUIA_DATA:?has no value: the release of Acequia on this node has no data engine}\" run "
              + " ".join(arguments) + " <<'END_OF_PIPELINE'\n" + plan + "\nEND_OF_PIPELINE\n")
    chosen = {"name": "data", **options}
    job = Client().submit_spec({"command_text": "acequia data"}, script, chosen, "data", lambda i: lambda job: None)[0]
    job.result()


def _read(path: str) -> bytes:
    if not path.startswith("s3://"):
        with open(path, "rb") as f:
            return f.read()
    done = subprocess.run([_engine(), "cat", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise DataError(_last_line(done.stderr.decode(errors="replace")))
    return done.stdout


def _result(folder: str) -> Result:
    base = folder.rstrip("/") + "/"
    said = json.loads(_read(base + "_manifest.json"))
    return Result(said["rows"], said["failures"], [base + p["part"] for p in said["parts"]])


# --- batches as they become ready ---

_TYPES = {"bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8", "f16": "f2", "f32": "f4",
          "f64": "f8"}


def _column(memory: mmap.mmap, c: Mapping[str, Any], rows: int) -> Any:
    """A copy: the memory is used again when the reader goes on."""
    import numpy as np
    if c["type"] in _TYPES:
        count = rows
        for n in c["shape"]:
            count *= n
        return np.frombuffer(memory, _TYPES[c["type"]], count, c["at"]).reshape([rows] + c["shape"]).copy()
    offsets = np.frombuffer(memory, "u8", rows + 1, c["offsets"]).tolist()
    parts: List[Any] = [memory[c["at"] + a:c["at"] + b] for a, b in zip(offsets, offsets[1:])]
    if c["type"] == "text":
        parts = [p.decode("utf-8", "surrogateescape") for p in parts]
    elif c["type"] in ("json", "rows"):
        parts = [json.loads(p) for p in parts]
    elif c["type"] == "array":
        shapes = np.frombuffer(memory, "u4", rows * 3, c["shapes"]).reshape(rows, 3).tolist()
        parts = [np.frombuffer(p, "u1").reshape(s) for p, s in zip(parts, shapes)]
    out = np.empty(rows, dtype=object)
    for i, part in enumerate(parts):
        out[i] = part
    return out


class _Stream:
    """A pipeline whose results are read here. It ends with its reader."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Batch]:
        plan = json.dumps(self.dataset.plan({"kind": "stream"})).encode()
        memory_fd = os.memfd_create("acequia-data", os.MFD_CLOEXEC)
        here, there = socket.socketpair()
        quiet = [] if "--quiet" in self.dataset._arguments() else ["--quiet"]
        child = subprocess.Popen([_engine(), "run", *self.dataset._arguments(), *quiet, "--stream-fd", str(there.fileno()), "--memory-fd", str(memory_fd)],
                                 stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[there.fileno(), memory_fd])
        there.close()
        assert child.stdin and child.stderr
        finished = False
        try:
            child.stdin.write(plan)
            child.stdin.close()
            memory: Optional[mmap.mmap] = None
            for line in here.makefile("rb"):
                if memory is None:
                    memory = mmap.mmap(memory_fd, os.fstat(memory_fd).st_size)
                for piece in json.loads(line)["pieces"]:
                    batch = {c["name"]: _column(memory, c, piece["rows"]) for c in piece["columns"]}
                    yield _spread(batch)
                here.send(b"x")
            finished = True
        finally:
            here.shutdown(socket.SHUT_RDWR)  # closing alone leaves it open while it is read line by line
            here.close()
            os.close(memory_fd)
            said = child.stderr.read().decode(errors="replace")
            code = child.wait()
            if finished and code:
                raise DataError(_last_line(said))
            if finished and said.strip():
                sys.stderr.write(said)


def _spread(batch: Batch) -> Batch:
    """Rows that are objects become columns."""
    if list(batch) != ["row"] or batch["row"].dtype != object or not all(isinstance(r, dict) for r in batch["row"]):
        return batch
    import numpy as np
    rows = batch["row"].tolist()
    names = list(dict.fromkeys(name for row in rows for name in row))
    out: Batch = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kinds = {type(v) for v in values}
        if kinds <= {int} or kinds <= {int, float} or kinds == {bool}:
            out[name] = np.array(values)
        else:
            out[name] = np.empty(len(values), dtype=object)
            out[name][:] = values
    return out


def _count(batch: Batch) -> int:
    for column in batch.values():
        return len(column)
    return 0


def _join(batches: List[Batch]) -> Batch:
    import numpy as np
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def _rows(batch: Batch) -> Iterator[Dict[str, Any]]:
    names = list(batch)
    for values in zip(*batch.values()):
        yield {name: v.item() if hasattr(v, "item") and not getattr(v, "shape", None) else v for name, v in zip(names, values)}
