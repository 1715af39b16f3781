"""A unix socket in front of another one, whose connections the test ends or holds up.

    with Proxy(front, back) as p:
        p.cut()        # every connection ends, as by a reset
        p.hold(45)     # half open: nothing passes for so long, and nobody is told
"""
import os
import select
import socket
import threading

PIECE = 65536


class Proxy:
    """Connections to `front` go to `back`."""

    def __init__(self, front, back):
        self.front, self.back = front, back
        self.pairs, self.lock = [], threading.Lock()
        self.closed = False

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.front)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closed = True
        self.listener.close()
        self.cut()
        os.unlink(self.front)

    def cut(self):
        """Ends every connection that there is."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def hold(self, seconds):
        """What is there now stays open and carries nothing; what comes later works."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for a, b in pairs:
            b.shutdown(socket.SHUT_RDWR)  # the controller sees an end, the client nothing
            threading.Timer(seconds, a.close).start()

    def _accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(self.back)
            except OSError:
                client.close()
                continue
            with self.lock:
                self.pairs.append((client, server))
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client, server):
        other = {client: server, server: client}
        while True:
            try:
                ready, _, _ = select.select([client, server], [], [], 5)
                for end in ready:
                    data = end.recv(PIECE)
                    if not data:
                        raise OSError("ended")
                    other[end].sendall(data)
            except (OSError, ValueError):
                with self.lock:
                    here = (client, server) in self.pairs
                    if here:
                        self.pairs.remove((client, server))
                if here:
                    client.close()
                    server.close()
                return
