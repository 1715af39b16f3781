"""What goes with a job: a folder, by the hash of its content, and a list of Python packages. upload_program.txt is the other side: a shell script
that unpacks and installs them on the job's node, once for each content, before the job's program begins."""
from __future__ import annotations

import base64
import fnmatch
import gzip
import hashlib
import importlib.resources
import io
import os
import re
import stat
import tarfile
from typing import List, Optional, Sequence, Tuple, Union

from .errors import AcequiaError

Packages = Union[str, Sequence[str], None]
TEXT_MAX = 4 << 20     # of the folder as it is sent; the cluster's limit is max_script
FOLDER_MAX = 256 << 20  # of the files before they are compressed
FILES_MAX = 20_000
LEFT_OUT = (".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache",
            ".ipynb_checkpoints", ".tox", "acequia-*.out")
IGNORE_FILES = (".acequiaignore", ".gitignore")


class Rule:
    """A line of .acequiaignore or .gitignore."""

    def __init__(self, line: str) -> None:
        self.keep = line.startswith("!")
        line = line[1:] if self.keep else line
        self.folder = line.endswith("/")
        line = line.rstrip("/")
        self.whole = "/" in line  # of the path from the folder on, not of a name
        parts = re.split(r"(\*\*/|/\*\*)", line.lstrip("/"))
        text = "".join("(?:.*/)?" if p == "**/" else "/.*" if p == "/**" else fnmatch.translate(p)[4:-3].replace(".*", "[^/]*") for p in parts)
        self.pattern = re.compile(text + r"\Z", re.S)

    def matches(self, path: str, folder: bool) -> bool:
        if self.folder and not folder:
            return False
        return self.pattern.match(path if self.whole else os.path.basename(path)) is not None


def rules(folder: str) -> List[Rule]:
    lines = list(LEFT_OUT)
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                lines += f.read().splitlines()
            break
        except FileNotFoundError:
            pass
    return [Rule(line.strip()) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def files(folder: str) -> List[Tuple[str, str]]:
    """What is sent, as (path in the folder, path here), in order."""
    known = rules(folder)
    out: List[Tuple[str, str]] = []

    def left_out(path: str, is_folder: bool) -> bool:
        last = False
        for rule in known:
            if rule.matches(path, is_folder):
                last = not rule.keep
        return last

    def walk(inside: str) -> None:
        with os.scandir(os.path.join(folder, inside)) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                path = f"{inside}/{entry.name}" if inside else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if left_out(path, is_folder):
                    continue
                out.append((path, entry.path))
                if len(out) > FILES_MAX:
                    raise AcequiaError(f"upload={folder!r} has more than {FILES_MAX} files; name what is not needed in .acequiaignore")
                if is_folder:
                    walk(path)

    walk("")
    return out


def archive(folder: str) -> bytes:
    """The same bytes for the same content, whoever has it and whenever it was written."""
    if not os.path.isdir(folder):
        raise AcequiaError(f"upload={folder!r} is not a folder")
    held = io.BytesIO()
    sizes: List[Tuple[int, str]] = []
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, here in files(folder):
            info = tar.gettarinfo(here, path)
            if info is None or not (info.isreg() or info.isdir() or info.issym()):
                continue  # sockets and the like
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            info.mode = 0o755 if info.isdir() or info.mode & stat.S_IXUSR else 0o644
            if info.islnk():
                info.type = tarfile.REGTYPE
            if info.isreg():
                sizes.append((info.size, path))
                if sum(size for size, _ in sizes) > FOLDER_MAX:
                    break
                with open(here, "rb") as f:
                    tar.addfile(info, f)
            else:
                tar.addfile(info)
    packed = gzip.compress(held.getvalue(), mtime=0)
    if len(packed) * 4 // 3 > TEXT_MAX * 9 // 10 or sum(size for size, _ in sizes) > FOLDER_MAX:
        largest = ", ".join(f"{path} ({size / (1 << 20):.1f} MB)" for size, path in sorted(sizes, reverse=True)[:3])
        raise AcequiaError(f"upload={folder!r} is too large to go with a job: compressed it may have about {TEXT_MAX * 3 // 4 >> 20} MB. The largest "
                           f"files are {largest}: name what is not needed in .acequiaignore, and put data into a volume")
    return packed


def requirements(packages: Packages) -> str:
    """The text of a requirements file: given as its path, or as a list of packages."""
    if packages is None:
        return ""
    if isinstance(packages, str):
        try:
            with open(packages, encoding="utf-8") as f:
                return f.read()
        except OSError as e:
            raise AcequiaError(f"pip={packages!r}: give a list of packages, or the path of a requirements file ({e.strerror})") from None
    lines = [str(one) for one in packages]
    for line in lines:
        if "\n" in line:
            raise AcequiaError(f"pip: {line!r} is not a package")
    return "\n".join(lines) + "\n" if lines else ""


class Upload:
    """Read once: all jobs of an executor get the same."""

    def __init__(self, folder: Union[str, "os.PathLike[str]", None], packages: Packages) -> None:
        data = archive(os.fspath(folder)) if folder is not None else b""
        self.hash = hashlib.sha256(data).hexdigest() if data else ""
        self.text = _part("FOLDER", data) + _part("PACKAGES", requirements(packages).encode())

    def script(self, kind: str, program: str, python: str) -> str:
        """The job's script. What the cluster puts behind it is `text`. `kind`: python or script, which are run; command: the arguments are."""
        if "'" in python:
            raise AcequiaError(f"python={python!r}: the path must not have a quote")
        source = importlib.resources.files("acequia").joinpath("upload_program.txt").read_text(encoding="utf-8")
        for name, value in (("PYTHON", python), ("HASH", self.hash), ("UMASK", f"{_umask():03o}"), ("KIND", kind)):
            source = source.replace(f"@{name}@", value)
        return source + "exit\n" + _part("PROGRAM", program.encode())


def upload_of(folder: Union[str, "os.PathLike[str]", None], packages: Packages) -> Optional[Upload]:
    return None if folder is None and packages is None else Upload(folder, packages)


def _umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now


def _part(name: str, data: bytes) -> str:
    return f"#ACEQUIA-{name}\n{base64.encodebytes(data).decode()}#ACEQUIA-END\n"
