"""A connection to a port of a job by way of the controller, a WebSocket, with the methods of a socket that a pool needs."""
from __future__ import annotations

import base64
import json
import os
import socket
import struct
import threading
from typing import Any

from .errors import PoolLost
from .transport import Transport, problem

PIECE = 64 << 10
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
PORTS_PER_JOB, CHOSEN_FIRST, CHOSEN_COUNT = 16, 20_000, 10_000


def unix_port(job: int, index: int = 0) -> int:
    """The number that stands for the unix socket of a job (src/model/port.c)."""
    return CHOSEN_FIRST + (job * PORTS_PER_JOB + index) % CHOSEN_COUNT


class Tunnel:
    """Open when it was made; ControllerError if the controller refuses, PoolLost where it ends."""

    def __init__(self, transport: Transport, job: int, port: int) -> None:
        connection = transport._connect(20.0)
        connection.connect()
        self._sock: Any = connection.sock
        self._lock = threading.Lock()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET /v1/jobs/{job}/connect?port={port} HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *(f"{k}: {v}" for k, v in transport._headers().items())]
        try:
            self._sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            self._held = self._greeting()
            self._sock.settimeout(None)
        except BaseException:
            self._sock.close()
            raise

    def _greeting(self) -> bytearray:
        data = bytearray()
        while b"\r\n\r\n" not in data:
            more = self._sock.recv(65536)
            if not more or len(data) > 1 << 20:
                raise PoolLost("the controller has closed the connection")
            data += more
        head, _, rest = bytes(data).partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if status != 101:
            length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            while len(rest) < min(length, 1 << 20):
                more = self._sock.recv(65536)
                if not more:
                    break
                rest += more
            raise problem(status, rest)
        return bytearray(rest)

    def _frame(self, kind: int, data: bytes) -> None:
        mask = os.urandom(4)
        n = len(data)
        head = struct.pack("!BB", 0x80 | kind, 0x80 | n) if n < 126 else struct.pack("!BBH", 0x80 | kind, 0x80 | 126, n) \
            if n < 65536 else struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, n)
        key = (mask * (n // 4 + 1))[:n]
        hidden = (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(n, "little")
        with self._lock:
            self._sock.sendall(head + mask + hidden)

    def sendall(self, data: bytes) -> None:
        for i in range(0, len(data), PIECE):
            self._frame(BINARY, data[i:i + PIECE])

    def _need(self, n: int) -> None:
        while len(self._held) < n:
            more = self._sock.recv(max(65536, n - len(self._held)))
            if not more:
                raise ConnectionError("the controller has closed the connection")
            self._held += more

    def recv(self, _: int) -> bytes:
        while True:
            self._need(2)
            kind, n = self._held[0] & 15, self._held[1] & 127
            at = 2
            if n > 125:
                at = 4 if n == 126 else 10
                self._need(at)
                n = int.from_bytes(self._held[2:at], "big")
            self._need(at + n)
            data = bytes(self._held[at:at + n])
            del self._held[:at + n]
            if kind in (BINARY, 0):
                if data:
                    return data
            elif kind == PING:
                self._frame(PONG, data)
            elif kind == CLOSE:
                return b""
            elif kind == TEXT:
                said = json.loads(data)
                if "error" in said:
                    raise ConnectionError((said["error"] or {}).get("message") or "the controller reports a failure")
                return b""

    def shutdown(self, how: int) -> None:
        try:
            self._frame(CLOSE, b"\x03\xe8")
        except OSError:
            pass
        self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()
