"""A WebSocket client for the tests."""
import base64
import json
import os
import socket
import struct


class Socket:
    """A WebSocket client, as bare as it can be."""

    def __init__(self, path, target):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(120)
        self.sock.connect(path)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = self.sock.recv(1)
            assert piece, head
            head += piece
        self.status = int(head.split()[1])

    def send(self, opcode, data):
        size = len(data)
        head = bytes([0x80 | opcode]) + (bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + struct.pack(">H", size) if size < 65536
                                         else bytes([0x80 | 127]) + struct.pack(">Q", size))
        self.sock.sendall(head + bytes(4) + data)  # a mask of zeros

    def _take(self, n):
        data = b""
        while len(data) < n:
            piece = self.sock.recv(n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def receive(self):
        head = self._take(2)
        size = head[1] & 127
        if size == 126:
            size = struct.unpack(">H", self._take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self._take(8))[0]
        return head[0] & 15, self._take(size)

    def until(self, key):
        """The first message that says `key`."""
        while True:
            said = json.loads(self.receive()[1])
            if key in said:
                return said[key]

    def close(self):
        self.sock.close()
