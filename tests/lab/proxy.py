"""A socket in front of another one, whose connections the test ends or holds up: unix sockets by their paths, TCP by
(host, port).

    with Proxy(front, back) as p:
        p.cut()        # every connection ends, as by a reset
        p.hold(45)     # half open: nothing passes for so long, and nobody is told
        p.stop("in", "out"); p.go_on()   # a link that loses everything, one way or both, for a while
"""
import os
import select
import socket
import threading
import time

PIECE = 65536
STOPPED_LOOK_S = 0.05


class Proxy:
    """Connections to `front` go to `back`. Port 0 in front: a free one, see `front` afterwards."""

    def __init__(self, front, back):
        self.front, self.back = front, back
        self.pairs, self.lock = [], threading.Lock()
        self.stopped = set()  # directions in which nothing passes: "in" to the client, "out" from it
        self.closed = False

    def __enter__(self):
        self.listener = self._socket(self.front)
        if isinstance(self.front, tuple):
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(self.front)
        self.listener.listen(64)
        if isinstance(self.front, tuple):
            self.front = self.listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closed = True
        self.stopped = set()
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self.listener.close()
        self.cut()
        if isinstance(self.front, str):
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
            timer = threading.Timer(seconds, a.close)
            timer.daemon = True  # the test does not wait for it
            timer.start()

    def stop(self, *directions):
        """Nothing passes in these directions until go_on(); bytes wait, as a network's senders would repeat them."""
        self.stopped = set(directions)

    def go_on(self):
        """Ends stop()."""
        self.stopped = set()

    @staticmethod
    def _socket(address):
        kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        return socket.socket(kind, socket.SOCK_STREAM)

    def _accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client):
        while self.stopped and not self.closed:  # the first packets of a connection are lost too
            time.sleep(STOPPED_LOOK_S)
        server = self._socket(self.back)
        try:
            server.connect(self.back)
        except OSError:
            client.close()
            server.close()
            return
        with self.lock:
            self.pairs.append((client, server))
        self._carry(client, server)

    def _carry(self, client, server):
        other = {client: server, server: client}
        while True:
            try:
                stopped = self.stopped
                listened = [end for end, way in ((client, "out"), (server, "in")) if way not in stopped]
                if len(listened) < 2:
                    time.sleep(STOPPED_LOOK_S)
                ready, _, _ = select.select(listened, [], [], 0.2)
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
