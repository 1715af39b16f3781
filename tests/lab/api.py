"""The controller's HTTP API over its unix socket, with one kept connection."""
import http.client
import json
import socket


class ApiError(RuntimeError):
    """The controller refused; `status` and `code` say how."""

    def __init__(self, status, body):
        error = body.get("error", {}) if isinstance(body, dict) else {}
        self.status, self.code = status, error.get("code")
        super().__init__(f"{status}: {error.get('message', body)}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """api.get("/v1/status"), api.post("/v1/jobs", {...}): decoded JSON, or ApiError."""

    def __init__(self, path, timeout=300):
        self.path, self.timeout = path, timeout
        self.connection = None

    def close(self):
        """Drops the connection; the next request opens another."""
        if self.connection:
            self.connection.close()
        self.connection = None

    def raw(self, method, path, body=None):
        """Status and bytes; connection errors come out as OSError."""
        kept = self.connection is not None
        if not kept:
            self.connection = _UnixConnection(self.path, self.timeout)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            self.connection.request(method, path, body=body, headers=headers)
            reply = self.connection.getresponse()
            return reply.status, reply.read()
        except (ConnectionResetError, BrokenPipeError):  # RemoteDisconnected is one of the former
            self.close()
            if kept and method == "GET":  # the server closed an idle connection
                return self.raw(method, path, body)
            raise
        except (OSError, http.client.HTTPException) as e:
            self.close()
            if isinstance(e, OSError):
                raise
            raise ConnectionError(str(e)) from e

    def request(self, method, path, body=None):
        """Sends JSON, returns JSON."""
        text = json.dumps(body).encode() if body is not None else None
        status, data = self.raw(method, path, text)
        decoded = json.loads(data) if data else None
        if status >= 400:
            raise ApiError(status, decoded)
        return decoded

    def get(self, path):
        """GET."""
        return self.request("GET", path)

    def post(self, path, body):
        """POST."""
        return self.request("POST", path, body)
