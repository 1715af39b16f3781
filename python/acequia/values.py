"""Values as bytes, for pools: pickles with their large buffers apart, so that arrays are read where they lie in shared memory.

A packed value is a byte 0 and a pickle; or a byte 1, the number of buffers (4 bytes), the length of the pickle and of each buffer (8 bytes
each), the pickle, and the buffers, each at a multiple of 64."""
from __future__ import annotations

import pickle
import struct
import threading
from typing import Any, List, Optional, Sequence, Union

from .errors import AcequiaError

ALIGNED = 64
SMALL = frozenset((int, float, str, bytes, bool, type(None), complex))
Bytes = Union[bytes, memoryview]


class Collected(threading.local):
    """References that are met while a value is pickled, by thread; None: no value is being pickled for a pool."""
    ids: Optional[List[int]] = None


collected = Collected()


def cloudpickle() -> Any:
    from .payload import _cloudpickle
    return _cloudpickle()


class Packed:
    """A value on its way: `size` bytes, the ids of the references in it."""
    __slots__ = ("parts", "size", "ids")

    def __init__(self, parts: Sequence[Bytes], size: int, ids: List[int]) -> None:
        self.parts, self.size, self.ids = parts, size, ids

    def join(self) -> bytes:
        return b"".join(self.parts)

    def write(self, to: memoryview) -> None:
        at = 0
        for part in self.parts:
            n = part.nbytes if isinstance(part, memoryview) else len(part)
            to[at:at + n] = part
            at += n


def simple(value: Any) -> bool:
    """Whether plain pickle does, and no reference can be in it."""
    kind = type(value)
    if kind in SMALL:
        return True
    return (kind is tuple or kind is list) and len(value) < 64 and all(type(v) in SMALL for v in value)


def pack(value: Any, what: str) -> Packed:
    if simple(value):
        data = pickle.dumps(value, 5)
        return Packed((b"\0", data), 1 + len(data), [])
    buffers: List[pickle.PickleBuffer] = []
    before, collected.ids = collected.ids, []
    try:
        data = cloudpickle().dumps(value, protocol=5, buffer_callback=buffers.append)
        ids = sorted(set(collected.ids))
    except AcequiaError:
        raise
    except Exception as e:
        raise AcequiaError(f"{what} cannot be sent: {e}") from e
    finally:
        collected.ids = before
    if not buffers:
        return Packed((b"\0", data), 1 + len(data), ids)
    views = [b.raw() for b in buffers]
    head = b"\1" + struct.pack(f"<IQ{len(views)}Q", len(views), len(data), *(v.nbytes for v in views))
    parts: List[Bytes] = [head, data]
    size = len(head) + len(data)
    for view in views:
        pad = -size % ALIGNED
        parts += [b"\0" * pad, view]
        size += pad + view.nbytes
    return Packed(parts, size, ids)


def unpack(data: Bytes) -> Any:
    """The value. Its large buffers are parts of `data`, read-only."""
    view = memoryview(data)
    if view[0] == 0:
        return pickle.loads(view[1:])
    count, length = struct.unpack_from("<IQ", view, 1)
    sizes = struct.unpack_from(f"<{count}Q", view, 13)
    at = 13 + 8 * count
    main = view[at:at + length]
    at += length
    buffers = []
    for size in sizes:
        at += -at % ALIGNED
        buffers.append(view[at:at + size])
        at += size
    return pickle.loads(main, buffers=buffers)
