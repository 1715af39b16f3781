"""Finds the controller as the command line does, and speaks HTTP to it: over its unix socket, or over TLS."""
from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
import stat
import threading
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .errors import AcequiaError, ControllerError, Unreachable

PORT = 6820
SYSTEM_SOCKET = "/run/acequia/api.sock"
PATIENCE_S = 60.0  # how long a controller that does not answer is tried again
AGAIN = (429, 503)
NOT_LEADING = "EREMOTE"


class Address:
    """One controller: a socket, or a host and a port."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.socket = text[5:] if text.startswith("unix:") else text if text.startswith("/") else None
        self.host, self.port = "", PORT
        if self.socket is None:
            host, colon, port = text.rpartition(":")
            if colon and (not host or ":" not in host or host.startswith("[")):
                if not port.isdigit() or not 0 < int(port) < 65536:
                    raise AcequiaError(f'the controller\'s address is "{text}"; write HOST:PORT or the path of a unix socket')
                self.host, self.port = host.strip("[]"), int(port)
            else:
                self.host = text.strip("[]")
        self.place = (self.socket, self.host, self.port)


def addresses(text: str) -> List[Address]:
    """Those of all controllers, divided by commas."""
    return [Address(one.strip()) for one in text.split(",") if one.strip()]


def config_folder() -> str:
    home = os.environ.get("ACEQUIA_HOME")
    if home:
        return home
    if os.geteuid() == 0:
        return "/etc/acequia"
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "acequia")


def own_socket() -> str:
    home = os.environ.get("ACEQUIA_HOME")
    if home:
        return f"{home}/run/api.sock"
    if os.geteuid() == 0:
        return SYSTEM_SOCKET
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return f"{runtime}/acequia/api.sock" if runtime else f"{state}/acequia/run/api.sock"


def configured(folder: str) -> Optional[str]:
    """`controller` of the section [cluster] of the configuration file."""
    section = ""
    try:
        with open(f"{folder}/acequia.conf", encoding="utf-8") as f:
            for line in f:
                line = line.strip()
                if line.startswith("["):
                    section = line
                key, equals, value = line.partition("=")
                if section == "[cluster]" and equals and key.strip() == "controller":
                    return value.split("#")[0].strip() or None
    except OSError:
        pass
    return None


def read_private(path: str) -> str:
    """A file that only its owner can read."""
    with open(path, encoding="utf-8") as f:
        if os.fstat(f.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise AcequiaError(f"{path} is readable by others; protect it: chmod 600 {path}")
        return f.read()


class Login:
    """What `acequia login` saved: where, with which token, and the fingerprint of the authority."""

    def __init__(self, text: str, path: str) -> None:
        try:
            fields = json.loads(text)
            self.server, self.token, self.fingerprint = str(fields["server"]), str(fields["token"]), str(fields["fingerprint"])
        except (ValueError, KeyError, TypeError):
            raise AcequiaError(f"{path} is damaged; log in again: acequia login HOST") from None
        self.places = [a.place for a in addresses(self.server)]


class Endpoint:
    """Where the controllers are, and as whom to speak to them."""

    def __init__(self, host: Optional[str] = None, token: Optional[str] = None) -> None:
        folder = config_folder()
        self.login = self._saved_login(folder)
        self.folder = folder
        named = host or os.environ.get("ACEQUIA_HOST")
        if not named and self.login:
            named = self.login.server
        if not named:
            own, alone = own_socket(), bool(os.environ.get("ACEQUIA_HOME"))
            named = own if os.path.exists(own) else SYSTEM_SOCKET if not alone and os.path.exists(SYSTEM_SOCKET) else configured(folder)
            named = named or (own if alone else SYSTEM_SOCKET)
        self.addresses = addresses(named)
        self.token = token or self._token(folder)

    @staticmethod
    def _saved_login(folder: str) -> Optional[Login]:
        path = f"{folder}/login"
        return Login(read_private(path), path) if os.path.exists(path) else None

    def _token(self, folder: str) -> Optional[str]:
        path = os.environ.get("ACEQUIA_TOKEN_FILE")
        if path:
            return read_private(path).strip()
        if self.login and all(a.place in self.login.places for a in self.addresses):
            return self.login.token
        return read_private(f"{folder}/token").strip() if os.path.exists(f"{folder}/token") else None

    def tls(self, address: Address) -> ssl.SSLContext:
        """The server's authority is the one of the configuration folder, or the one of the login."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority = os.environ.get("ACEQUIA_CA_FILE") or f"{self.folder}/ca.pem"
        if os.path.exists(authority):
            context.load_verify_locations(authority)
        elif self.login and address.place in self.login.places:
            context.load_verify_locations(cadata=self._authority_of_login(address, self.login.fingerprint))
        else:
            raise AcequiaError(f"nothing says which server to trust: log in first (acequia login {address.text})")
        return context

    @staticmethod
    def _authority_of_login(address: Address, fingerprint: str) -> str:
        """Of the certificates that the server shows, the one with this fingerprint; nothing else is believed."""
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((address.host, address.port), timeout=20) as raw, blind.wrap_socket(raw) as s:
            inner = getattr(s, "_sslobj", None)
            chain = getattr(s, "get_unverified_chain", None) or getattr(inner, "get_unverified_chain", None)
            if chain is None:
                raise AcequiaError("this Python cannot read the server's certificates: use Python 3.10 or later, or give the authority's "
                                   "certificate in ACEQUIA_CA_FILE")
            for shown in chain():
                der = shown if isinstance(shown, bytes) else ssl.PEM_cert_to_DER_cert(shown.public_bytes())
                if hashlib.sha256(der).hexdigest() == fingerprint.lower().replace(":", ""):
                    return ssl.DER_cert_to_PEM_cert(der)
        raise AcequiaError(f"{address.text} is not the server that you logged in to; if it was set up anew: acequia login {address.text}")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def problem(status: int, body: bytes) -> ControllerError:
    try:
        fields = json.loads(body)
        error = fields.get("error") or {}
        return ControllerError(fields.get("detail") or error.get("message") or f"the controller answered {status}", status,
                               error.get("code"), fields.get("field"))
    except (ValueError, AttributeError):
        return ControllerError(f"the controller answered {status}", status)


class Transport:
    """Requests to whichever controller leads. Each thread has its own connection. What may be repeated (every GET, and submits, which carry a
    key) is tried again while no controller answers."""

    def __init__(self, host: Optional[str] = None, token: Optional[str] = None, patience_s: float = PATIENCE_S) -> None:
        self.endpoint = Endpoint(host, token)
        self.patience_s = patience_s
        self._local = threading.local()
        self._turn = 0  # whose turn it is of several controllers

    def _connect(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        address = self.endpoint.addresses[self._turn % len(self.endpoint.addresses)]
        if address.socket is not None:
            return UnixConnection(address.socket, timeout)
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout, context=self.endpoint.tls(address))

    def _headers(self) -> Dict[str, str]:
        headers = {"Accept": "application/json, application/problem+json", "Sec-Fetch-Site": "none"}
        if self.endpoint.token:
            headers["Authorization"] = f"Bearer {self.endpoint.token}"
        return headers

    def _once(self, method: str, target: str, body: Optional[bytes], headers: Dict[str, str], timeout: Optional[float]) -> Tuple[int, bytes]:
        c: Optional[http.client.HTTPConnection] = getattr(self._local, "connection", None)
        if c is None:
            c = self._local.connection = self._connect(timeout)
        try:
            c.timeout = timeout
            if c.sock is not None:
                c.sock.settimeout(timeout)
            c.request(method, target, body, headers)
            answer = c.getresponse()
            return answer.status, answer.read()
        except BaseException:
            c.close()
            self._local.connection = None
            raise

    def call(self, method: str, target: str, body: Any = None, *, repeat: Optional[bool] = None, data: Optional[bytes] = None,
             timeout: Optional[float] = 60.0) -> bytes:
        """The answer's body. `body` is sent as JSON, `data` as it is. `repeat`: whether sending it twice does no harm; default: for GET."""
        headers = self._headers()
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        again = method == "GET" if repeat is None else repeat
        until, pause = time.monotonic() + self.patience_s, 0.05
        while True:
            wait: Exception
            try:
                status, text = self._once(method, target, data, headers, timeout)
                if status < 400:
                    return text
                error = problem(status, text)
                leads = error.code != NOT_LEADING  # else nothing was done with the request: the leader gets it
                if leads and (status not in AGAIN or not again):
                    raise error
                wait = error
                if not leads:
                    self.next_controller()
            except (OSError, http.client.HTTPException) as e:
                fresh = isinstance(e, (ConnectionRefusedError, FileNotFoundError))  # nothing was sent
                if not (again or fresh):
                    raise Unreachable(f"the connection to the controller broke, and {method} {target.split('?')[0]} may have been done: {e}") from e
                wait = e
                self.next_controller()
            if time.monotonic() + pause > until:
                raise wait if isinstance(wait, ControllerError) else Unreachable(
                    f"no controller answers at {', '.join(a.text for a in self.endpoint.addresses)}: {wait}; is it running? (acequia status)") from wait
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def json(self, method: str, target: str, body: Any = None, *, repeat: Optional[bool] = None, timeout: Optional[float] = 60.0) -> Any:
        return json.loads(self.call(method, target, body, repeat=repeat, timeout=timeout) or b"null")

    def stream(self, target: str, headers: Optional[Dict[str, str]] = None, timeout: Optional[float] = 60.0) -> "Stream":
        """An answer that goes on, on a connection of its own; it has begun when this returns."""
        c = self._connect(timeout)
        try:
            c.request("GET", target, headers={**self._headers(), **(headers or {})})
            answer = c.getresponse()
            if answer.status >= 400:
                raise problem(answer.status, answer.read())
        except http.client.HTTPException as e:
            c.close()
            raise ConnectionError(str(e)) from e
        except BaseException:
            c.close()
            raise
        return Stream(c, answer)

    def next_controller(self) -> None:
        """What this thread asks next goes to the next of several controllers."""
        c: Optional[http.client.HTTPConnection] = getattr(self._local, "connection", None)
        if c is not None:
            c.close()
        self._local.connection = None
        self._turn += 1


class Stream:
    """An answer that goes on. Iterating raises OSError where it breaks off."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection, self._answer = connection, answer

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._answer
        except http.client.HTTPException as e:
            raise ConnectionError(str(e)) from e


class Event:
    """One server-sent event."""

    def __init__(self, name: str, id_: str, data: str) -> None:
        self.name, self.id, self.data = name, id_, data


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    name, id_, data = "message", "", []  # type: Tuple[str, str, List[str]]
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Event(name, id_, "\n".join(data))
            name, data = "message", []
            continue
        key, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if key == "event":
            name = value
        elif key == "id":
            id_ = value
        elif key == "data":
            data.append(value)
