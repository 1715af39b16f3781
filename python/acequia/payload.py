"""A function call as a job's script, and its result as a file on the job's node.

The script is a small Python program with an archive behind it: the pickled calls, one file each, and cloudpickle itself, so that a node
needs nothing but Python. The controller never opens it: pickles are only opened as the user who made them."""
from __future__ import annotations

import base64
import importlib.resources
import io
import os
import pickle
import sys
import zipfile
from types import ModuleType
from typing import Any, Callable, Dict, List, Sequence, Tuple

from .errors import AcequiaError, RemoteError, RemoteTraceback

RESULTS = ".cache/acequia/results"  # below the home, on the job's node
Call = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise AcequiaError("functions are sent with cloudpickle, which is not installed: pip install cloudpickle "
                           "(Debian: apt install python3-cloudpickle)") from None
    return cloudpickle


def dumps(value: Any, what: str) -> bytes:
    try:
        data: bytes = _cloudpickle().dumps(value, protocol=4)
        return data
    except AcequiaError:
        raise
    except Exception as e:
        raise AcequiaError(f"{what} cannot be sent to a node: {e}") from e


def by_value(modules: Sequence[ModuleType]) -> None:
    """Functions of these modules are sent whole, as those of the main program: nodes need not have them."""
    for module in modules:
        _cloudpickle().register_pickle_by_value(module)


def _add_package(archive: zipfile.ZipFile, package: ModuleType) -> None:
    folder = os.path.dirname(package.__file__ or "")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            archive.write(os.path.join(folder, name), f"{package.__name__}/{name}")


def program(name: str, python: str, settings: Dict[str, Any], files: Sequence[Tuple[str, bytes]] = (), packages: Sequence[str] = ()) -> str:
    """A Python program of this package as a job's script, with an archive behind it: cloudpickle, `packages` and `files`."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        _add_package(archive, _cloudpickle())
        for package in packages:
            _add_package(archive, sys.modules[package])
        for path, data in files:
            archive.writestr(path, data)
    source = importlib.resources.files("acequia").joinpath(name).read_text(encoding="utf-8")
    folders = [os.getcwd()] + [p for p in sys.path if p and os.path.isdir(p) and not p.startswith(sys.prefix)]
    settings = {"version": list(sys.version_info[:2]), "path": folders, **settings}
    text = base64.encodebytes(held.getvalue()).decode()
    return f"#!{python}\n" + source.replace("@SETTINGS@", repr(settings)).replace("@ARCHIVE@", text)


def script(calls: Sequence[bytes], python: str, result: str) -> str:
    """The script of a job, or of an array with one call for each element. `result` is the name of the files with the results."""
    return program("node_program.txt", python, {"result": result, "results": RESULTS},
                   [(f"calls/{i}", call) for i, call in enumerate(calls)])


def read_result(data: bytes) -> Any:
    """What the call returned; raises what it raised."""
    parts: List[bytes] = pickle.loads(data)  # a list of texts and bytes, written by node_program.txt
    kind, first, text = parts
    if kind == b"value":
        return pickle.loads(first)
    trace = text.decode("utf-8", "replace")
    try:
        error = pickle.loads(first) if first else None
    except Exception:
        error = None
    if not isinstance(error, BaseException):
        raise RemoteError(trace)
    error.__cause__ = RemoteTraceback(trace)
    raise error
