"""What a job asks for: options of Python become fields of the API."""
from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import Any, Dict, List, Mapping, Optional, Union

from .errors import AcequiaError

Size = Union[int, str]
Duration = Union[str, timedelta]
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
UNLIMITED_S = 0xFFFFFFFF


def size_bytes(name: str, value: Size) -> int:
    """'64G', '512M', '1.5T', or a number of bytes."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise AcequiaError(f"{name}={value!r}: give a size as '64G' or '512M', or a number of bytes")
    if isinstance(value, int):
        if value < 0:
            raise AcequiaError(f"{name}={value}: a size cannot be negative")
        return value
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgtp]?)(?:i?b)?\s*", value.lower())
    if not m:
        raise AcequiaError(f"{name}={value!r} is not a size; write it as '64G' or '512M'")
    return round(float(m.group(1)) * UNITS[m.group(2)])


def duration_s(name: str, value: Duration) -> int:
    """'90m', '8h', '1h30m', '2-12:00:00', '1:30:00' or a timedelta. A bare number could be seconds or minutes: it is refused."""
    if isinstance(value, timedelta):
        return max(0, int(value.total_seconds()))
    if not isinstance(value, str):
        raise AcequiaError(f"{name}={value!r}: give a duration as '90m' or '8h', or a timedelta")
    text = value.strip().lower()
    if text in ("unlimited", "infinite"):
        return UNLIMITED_S
    m = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d{1,2})(?::(\d{1,2}))?", text)
    if m:
        days, first, second, third = (int(g) if g else 0 for g in m.groups())
        if m.group(1) is None and m.group(4) is None:
            return first * 60 + second  # minutes:seconds, as on the command line
        return days * 86400 + first * 3600 + second * 60 + third
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not parts or "".join(a + b for a, b in parts) != text.replace(" ", ""):
        raise AcequiaError(f"{name}={value!r} is not a duration; write it as '90m', '8h' or '2-12:00:00'")
    return round(sum(float(n) * SECONDS[unit] for n, unit in parts))


def milli_gpus(name: str, value: Any, spec: Dict[str, Any]) -> int:
    """2, 0.5 or 'a100:2'."""
    model: Optional[str] = None
    if isinstance(value, str):
        model, colon, value = value.rpartition(":")
        model = model if colon else None
    try:
        count = float(value)
    except (TypeError, ValueError):
        raise AcequiaError(f"{name}={value!r}: give a number of GPUs, a fraction below 1, or 'MODEL:NUMBER'") from None
    if count < 0 or (count > 1 and count != int(count)):
        raise AcequiaError(f"{name}={value!r}: give a whole number, or a fraction below 1")
    if model:
        spec["gpu_model"] = model
    return round(count * 1000)


PLAIN = {"name": str, "project": str, "partition": str, "qos": str, "tasks": int, "tasks_per_node": int, "features": str, "exclude": str,
         "reservation": str, "container": str, "container_workdir": str, "exclusive": bool, "spread": bool, "hold": bool, "requeue": bool,
         "nice": int, "comment": str, "output": str, "error": str, "retries": int, "dependency": str, "health": str, "checkpoint": str,
         "array_limit": int}
RENAMED = {"cpus": "cpus_per_task", "nodelist": "nodes", "cwd": "workdir"}
SIZES = {"memory": "memory_per_node_bytes", "memory_per_cpu": "memory_per_cpu_bytes", "gpu_memory": "gpu_memory_bytes"}
DURATIONS = {"time": "time_limit_s", "time_min": "time_min_s", "backoff": "backoff_s", "grace": "grace_s"}
GPUS = {"gpus": "gpus_milli", "gpus_per_node": "gpus_per_node_milli", "gpus_per_task": "gpus_per_task_milli"}
SHAPE = ("cpus_per_task", "memory_per_node_bytes", "memory_per_cpu_bytes", "gpus_milli", "gpus_per_node_milli", "gpus_per_task_milli",
         "gpu_memory_bytes", "gpu_model", "features", "exclude", "nodes", "spread", "partition")  # of a job: what its components have
LISTS = ("tags", "secrets", "volumes", "ports")
KNOWN = sorted({*PLAIN, *RENAMED, *SIZES, *DURATIONS, *GPUS, *LISTS, "nodes", "workers", "interactive", "begin", "mounts", "notify", "array", "env"})


def nearest(name: str) -> str:
    import difflib
    close = difflib.get_close_matches(name, KNOWN, 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(KNOWN)}"


def span(name: str, value: Any) -> List[int]:
    """2, (2, 8) or '2-8' as [least, most]."""
    if isinstance(value, str):
        value = value.split("-")
    both = [value, value] if isinstance(value, int) else list(value)
    try:
        low, high = int(both[0]), int(both[-1])
    except (ValueError, IndexError, TypeError):
        raise AcequiaError(f"{name}={value!r}: give a number, or the least and the most as (2, 8)") from None
    if len(both) > 2 or low < 0 or high < low:
        raise AcequiaError(f"{name}={value!r}: give a number, or the least and the most as (2, 8)")
    return [low, high]


def make_spec(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The spec of a job. None counts as not given; zero and False do not."""
    spec: Dict[str, Any] = {}
    for name, value in options.items():
        if value is None or name in ("env", "array"):
            continue
        if name in PLAIN:
            kind = PLAIN[name]
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise AcequiaError(f"{name}={value!r}: expected {kind.__name__}")
            spec[name] = value
        elif name in RENAMED:
            spec[RENAMED[name]] = os.fspath(value) if name == "cwd" else value
        elif name in SIZES:
            spec[SIZES[name]] = size_bytes(name, value)
        elif name in DURATIONS:
            spec[DURATIONS[name]] = duration_s(name, value)
        elif name in GPUS:
            spec[GPUS[name]] = milli_gpus(name, value, spec)
        elif name in LISTS:
            spec[name] = [str(v) for v in ([value] if isinstance(value, (str, int)) else value)]
        elif name == "nodes":
            spec["nodes_min"], spec["nodes_max"] = span(name, value)
        elif name == "workers":
            spec["workers_min"], spec["workers_max"] = span(name, value)
        elif name == "interactive":
            spec["class"] = "interactive" if value else "train"
        elif name == "begin":
            spec["begin_ms"] = int(value.timestamp() * 1000) if isinstance(value, datetime) else int(value)
        elif name == "mounts":
            spec["container_mounts"] = value if isinstance(value, str) else ",".join(value)
        elif name == "notify":
            spec["notify"] = value if isinstance(value, str) else ",".join(value)
        else:
            raise AcequiaError(f"unknown option {name}{nearest(name)}")
    return spec


def array_ranges(value: Any) -> List[Dict[str, int]]:
    """10 (0 to 9), range(1, 20, 2), or '0-99:2,200'."""
    if isinstance(value, bool):
        raise AcequiaError(f"array={value!r}: give a number of elements, a range, or a text as '0-99'")
    if isinstance(value, int):
        value = range(value)
    if isinstance(value, range):
        if not value or value.step < 1 or value.start < 0:
            raise AcequiaError(f"array={value!r}: it has no elements, or goes downwards")
        return [{"first": value.start, "last": value[-1], "step": value.step}]
    out = []
    for part in str(value).split(","):
        m = re.fullmatch(r"\s*(\d+)(?:-(\d+)(?::(\d+))?)?\s*", part)
        if not m:
            raise AcequiaError(f"array={value!r}: write it as '0-99', '1,3,5-9' or '0-99:2'")
        first = int(m.group(1))
        out.append({"first": first, "last": int(m.group(2) or first), "step": int(m.group(3) or 1)})
    return out


def environment(extra: Optional[Mapping[str, str]], inherit: bool = True) -> List[str]:
    """The environment of a job: this process's, as the command line does, and what is given."""
    held = dict(os.environ) if inherit else {}
    for name in [n for n in held if n.startswith(("ACEQUIA_", "SLURM_")) or n in ("CUDA_VISIBLE_DEVICES", "OLDPWD", "_")]:
        del held[name]
    held.update(extra or {})
    for name, text in held.items():
        if "=" in name or "\0" in name or not name:
            raise AcequiaError(f"env: {name!r} is not a name of a variable")
        if "\0" in str(text):
            raise AcequiaError(f"env: the value of {name} has a byte that is zero")
    return [f"{name}={text}" for name, text in held.items()]
