#!/usr/bin/env python3
"""Serves a Python class or an ONNX file over HTTP: what `acequia serve FILE.py:CLASS` and `acequia serve FILE.onnx` run.

The class is made once, without arguments. A POST calls its method predict with the request's JSON (or, for other
types, with its bytes) and answers what that returns: bytes as they are, anything else as JSON. A GET answers 200 once
the model is loaded. predict may be a coroutine; with `threads = N` in the class it runs in N threads, otherwise one
call after the other. Only Python's own library is used; ONNX files need onnxruntime and numpy.
"""
import asyncio
import concurrent.futures
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback

HEAD_MAX = 64 << 10
BODY_MAX = int(os.environ.get("ACEQUIA_SERVE_BODY_MAX", 64 << 20))
REASONS = {200: "OK", 400: "Bad Request", 405: "Method Not Allowed", 411: "Length Required",
           413: "Content Too Large", 500: "Internal Server Error"}


class OnnxModel:
    """The inputs by name, as lists of numbers; answers the outputs by name."""

    def __init__(self, path):
        try:
            import numpy
            import onnxruntime
        except ImportError as e:
            sys.exit(f"acequia serve: {e.name} is not installed for {sys.executable}, which an ONNX file needs. "
                     f"Install onnxruntime and numpy there (pip install onnxruntime), or give a container that has "
                     f"them with --container.")
        self.numpy = numpy
        options = onnxruntime.SessionOptions()
        cpus = int(os.environ.get("ACEQUIA_CPUS_PER_TASK") or os.environ.get("OMP_NUM_THREADS") or 1)
        options.intra_op_num_threads = cpus
        self.session = onnxruntime.InferenceSession(path, options, providers=onnxruntime.get_available_providers())
        self.types = {i.name: self.type_of(i.type) for i in self.session.get_inputs()}

    def type_of(self, text):
        names = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
                 "tensor(bool)": "bool", "tensor(string)": "object"}
        return names.get(text, text[len("tensor("):-1])

    def predict(self, data):
        if isinstance(data, dict) and "inputs" in data:
            data = data["inputs"]
        if not isinstance(data, dict):  # one input needs no name
            data = {next(iter(self.types)): data}
        unknown = set(data) - set(self.types)
        if unknown:
            raise ValueError(f"the model has no input {sorted(unknown)[0]!r}; it has {', '.join(self.types)}")
        feed = {name: self.numpy.asarray(value, dtype=self.types[name]) for name, value in data.items()}
        outputs = self.session.run(None, feed)
        return {"outputs": {o.name: v.tolist() for o, v in zip(self.session.get_outputs(), outputs)}}


def load(path, name):
    if path.endswith(".onnx"):
        return OnnxModel(path)
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("served", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["served"] = module
    spec.loader.exec_module(module)
    model = getattr(module, name, None)
    if model is None:
        sys.exit(f"acequia serve: {path} has no {name}")
    model = model() if inspect.isclass(model) else model
    if not callable(getattr(model, "predict", None)):
        sys.exit(f"acequia serve: {name} has no method predict")
    return model


class Connection(asyncio.Protocol):
    """One client at a time sends one request after the other; what comes early waits in the buffer."""

    open = set()

    def __init__(self, server):
        self.server = server
        self.buffer = bytearray()
        self.busy = False

    def connection_made(self, transport):
        self.transport = transport
        self.open.add(self)

    def connection_lost(self, error):
        self.open.discard(self)
        self.server.ended()

    def data_received(self, data):
        self.buffer += data
        while not self.busy and not self.transport.is_closing() and self.next_request():
            pass

    def answer(self, status, body, kind=b"application/json", keep=True):
        keep = keep and not self.server.stopping
        self.transport.write(b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n" % (
            status, REASONS.get(status, "Error").encode(), kind, len(body),
            b"" if keep else b"Connection: close\r\n") + body)
        if not keep:
            self.transport.close()

    def fail(self, status, text, keep=False):
        self.answer(status, json.dumps({"error": text}).encode() + b"\n", keep=keep)

    def next_request(self):
        """True: one was taken, and there may be another."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > HEAD_MAX:
                self.fail(400, "the head is too long")
            return False
        lines = bytes(self.buffer[:end]).split(b"\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
        if b"transfer-encoding" in headers:
            self.fail(411, "send the body with its length")
            return False
        try:
            length = int(headers.get(b"content-length", b"0"))
            method = lines[0].split(b" ")[0]
        except ValueError:
            self.fail(400, "the head is malformed")
            return False
        if length > BODY_MAX:
            self.fail(413, f"the body is longer than {BODY_MAX} bytes")
            return False
        if len(self.buffer) < end + 4 + length:
            return False
        body = bytes(self.buffer[end + 4:end + 4 + length])
        del self.buffer[:end + 4 + length]
        self.handle(method, headers, body)
        return True

    def handle(self, method, headers, body):
        if method in (b"GET", b"HEAD"):
            text = b"" if method == b"HEAD" else b'{"ready": true}\n'
            return self.answer(200, text)
        if method != b"POST":
            return self.fail(405, "send a POST", keep=True)
        kind = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
        if kind in (b"application/json", b"application/x-www-form-urlencoded", b""):
            try:
                body = json.loads(body or b"null")
            except ValueError as e:
                return self.fail(400, f"the body is not JSON: {e}", keep=True)
        try:
            if self.server.pool or self.server.coroutine:
                self.busy = True
                asyncio.ensure_future(self.later(body))
            else:
                self.give(self.server.model.predict(body))
        except Exception as e:  # the model's own errors are its caller's to read
            self.failed(e)

    async def later(self, body):
        try:
            predict = self.server.model.predict
            loop = asyncio.get_running_loop()
            self.give(await (predict(body) if self.server.coroutine
                             else loop.run_in_executor(self.server.pool, predict, body)))
        except Exception as e:
            self.failed(e)
        self.busy = False
        self.data_received(b"")
        self.server.ended()

    def failed(self, error):
        traceback.print_exc()
        self.fail(400 if isinstance(error, (ValueError, KeyError, TypeError)) else 500,
                  f"{type(error).__name__}: {error}", keep=True)

    def give(self, result):
        if isinstance(result, (bytes, bytearray)):
            self.answer(200, bytes(result), b"application/octet-stream")
        else:
            self.answer(200, json.dumps(result).encode() + b"\n")


class Server:
    def __init__(self, model):
        self.model = model
        self.coroutine = inspect.iscoroutinefunction(model.predict)
        threads = getattr(model, "threads", 0)
        self.pool = concurrent.futures.ThreadPoolExecutor(threads) if threads else None
        self.stopping = False
        self.done = None

    def ended(self):
        if self.stopping and not any(c.busy for c in Connection.open) and not self.done.done():
            self.done.set_result(None)

    def stop(self):
        """What was begun is answered; connections without a request are closed."""
        self.stopping = True
        self.listening.close()
        for c in list(Connection.open):
            if not c.busy and not c.buffer:
                c.transport.close()
        self.ended()

    async def run(self, port):
        loop = asyncio.get_running_loop()
        self.done = loop.create_future()
        self.listening = await loop.create_server(lambda: Connection(self), "127.0.0.1", port, backlog=1024)
        for s in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(s, self.stop)
        await self.done


def main():
    path, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "Model"
    if not os.path.exists(path):
        sys.exit(f"acequia serve: there is no file {path} on this node; put it on storage that all nodes share")
    asyncio.run(Server(load(path, name)).run(int(os.environ["ACEQUIA_PORT"])))


main()
