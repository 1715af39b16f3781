"""A worker of `acequia data`: runs functions and models on batches of rows. Needs numpy; pyarrow for Parquet, onnxruntime
for ONNX models.

It is started with three descriptors: a packet socket (3), the shared memory of rows (4), and its settings (5). A message
is JSON; values lie in the shared memory, and arrays are views of it. Nothing here is imported by other programs.
"""
import base64
import importlib
import json
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback
import types

PACKET_MAX = 256 << 10
ERROR_MAX = 8000
TYPES = {"bool": "?", "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8", "i64": "i8", "f16": "f2",
         "f32": "f4", "f64": "f8"}
NAMES = {v: k for k, v in TYPES.items()}


def fail(text):
    sys.stderr.write(f"acequia data: {text}\n")
    raise SystemExit(2)


try:
    import numpy as np
except ImportError:
    np = None


# --- rows in the shared memory ---

def texts(memory, column, rows):
    offsets = np.frombuffer(memory, "u8", rows + 1, column["offsets"]).tolist()
    at = column["at"]
    return [memory[at + a:at + b] for a, b in zip(offsets, offsets[1:])]


def as_column(values):
    """A list of values of rows as an array: of numbers where all are, else of objects."""
    if values and all(isinstance(v, bool) for v in values):
        return np.array(values, dtype=bool)
    if values and all(isinstance(v, int) and not isinstance(v, bool) and -2**63 <= v < 2**63 for v in values):
        return np.array(values, dtype=np.int64)
    if values and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.float64)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def rows_to_columns(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: as_column([row.get(name) for row in rows]) for name in names}


def read_batch(memory, columns, rows):
    batch = {}
    for c in columns:
        kind = c["type"]
        if kind in TYPES:
            count = rows
            for n in c["shape"]:
                count *= n
            batch[c["name"]] = np.frombuffer(memory, TYPES[kind], count, c["at"]).reshape([rows] + c["shape"])
            continue
        parts = texts(memory, c, rows)
        if kind == "rows":
            return rows_to_columns([json.loads(p) for p in parts])
        if kind == "array":
            shapes = np.frombuffer(memory, "u4", rows * 3, c["shapes"]).reshape(rows, 3).tolist()
            parts = [np.frombuffer(p, "u1").reshape(s) for p, s in zip(parts, shapes)]
        elif kind == "text":
            parts = [p.decode("utf-8", "surrogateescape") for p in parts]
        elif kind == "json":
            parts = [json.loads(p) for p in parts]
        column = np.empty(rows, dtype=object)
        for i, part in enumerate(parts):
            column[i] = part
        batch[c["name"]] = column
    return batch


def plain(value):
    """What JSON has no word for."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"a value of type {type(value).__name__} cannot be kept: return numbers, texts, bytes, lists or numpy arrays")


def finite(value):
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def to_json(value):
    try:
        return json.dumps(value, default=plain, allow_nan=False).encode()
    except ValueError:
        return json.dumps(finite(json.loads(json.dumps(value, default=plain)))).encode()


class Column:
    """One column on its way into the shared memory."""

    def __init__(self, name, value):
        if not isinstance(name, str) or not name:
            raise TypeError(f"a column is named {name!r}: names are texts")
        self.name, self.shape, self.parts, self.array = name, [], None, None
        if hasattr(value, "detach"):  # a tensor
            value = value.detach().cpu()
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
        if not isinstance(value, np.ndarray):
            value = list(value) if not isinstance(value, (str, bytes, dict)) else [value]
            column = as_column([v.item() if isinstance(v, np.generic) else v for v in value])
            if column.dtype == object and value and all(isinstance(v, np.ndarray) and v.shape == value[0].shape for v in value):
                column = np.stack(value)
            value = column
        if value.ndim == 0:
            value = value.reshape(1)
        self.rows = value.shape[0]
        code = value.dtype.kind + str(value.dtype.itemsize) if value.dtype.kind != "b" else "?"
        if code in NAMES and len(value.shape) <= 9:
            self.kind, self.shape, self.array = NAMES[code], list(value.shape[1:]), np.ascontiguousarray(value)
        elif value.dtype.kind == "U" or all(isinstance(v, str) for v in value.tolist()):
            self.kind, self.parts = "text", [str(v).encode("utf-8", "surrogateescape") for v in value.tolist()]
        elif value.dtype.kind == "S" or all(isinstance(v, bytes) for v in value.tolist()):
            self.kind, self.parts = "bytes", value.tolist()
        else:
            self.kind, self.parts = "json", [to_json(v) for v in value.tolist()]

    def size(self):
        n = self.array.nbytes if self.parts is None else (self.rows + 1) * 8 + sum(map(len, self.parts))
        return (n + 7) // 8 * 8

    def write(self, memory, at):
        said = {"name": self.name, "type": self.kind, "shape": self.shape}
        if self.parts is None:
            memory[at:at + self.array.nbytes] = self.array.tobytes() if self.array.nbytes < 4096 else memoryview(self.array).cast("B")
            return dict(said, at=at, size=self.array.nbytes)
        values = at + (self.rows + 1) * 8
        offsets = np.zeros(self.rows + 1, "u8")
        np.cumsum([len(p) for p in self.parts], out=offsets[1:])
        memory[at:values] = offsets.tobytes()
        joined = b"".join(self.parts)
        memory[values:values + len(joined)] = joined
        return dict(said, at=values, size=len(joined), offsets=at)


def count_rows(batch):
    for column in batch.values():
        return len(column)
    return 0


# --- what is done with a batch ---

def load_function(said):
    """A function or class: by name, or as it was sent. Pickles are of the user who runs this."""
    if "pickle" in said:
        try:
            return pickle.loads(base64.b64decode(said["pickle"]))
        except ImportError as e:
            fail(f"a function cannot be loaded here: {e}; install what it needs on the node, or name a container that has it")
    module, _, name = said["name"].partition(":")
    if module.endswith(".py"):
        import runpy
        if not os.path.exists(module):
            fail(f"there is no file {module} on the node, in which --function {name} should be")
        out = types.SimpleNamespace(**runpy.run_path(module))
    else:
        try:
            out = importlib.import_module(module)
        except ModuleNotFoundError as e:
            if e.name != module.partition(".")[0] and e.name != module:
                raise
            fail(f"there is no Python module {module} on the node; a file is named with its ending: {module}.py:{name}")
    for part in name.split("."):
        if not hasattr(out, part):
            fail(f"{module} has no function or class {name}")
        out = getattr(out, part)
    return out


def rows_of(batch):
    names = list(batch)
    for values in zip(*batch.values()):
        yield {name: v.item() if isinstance(v, np.generic) else v for name, v in zip(names, values)}


class Operation:
    """One step: functions are called, classes are made once and then called."""

    def __init__(self, said):
        self.op, self.said = said["op"], said
        if "function" in said:
            f = load_function(said["function"])
            args, kwargs = (), {}
            if "arguments" in said:
                args, kwargs = pickle.loads(base64.b64decode(said["arguments"]))
            self.f = f(*args, **kwargs) if isinstance(f, type) else f

    def run(self, batch):
        op = self.op
        if op == "map_batches":
            out = self.f(batch)
            if not isinstance(out, dict):
                raise TypeError(f"map_batches: the function returned {type(out).__name__}, not a dict of columns")
            return out
        if op == "map":
            return rows_to_columns([self.f(row) for row in rows_of(batch)])
        if op == "flat_map":
            return rows_to_columns([out for row in rows_of(batch) for out in self.f(row)])
        if op == "filter":
            keep = np.array([bool(self.f(row)) for row in rows_of(batch)], dtype=bool)
            return {name: column[keep] for name, column in batch.items()}
        if op == "select":
            missing = [c for c in self.said["columns"] if c not in batch]
            if missing:
                raise KeyError(f"no column {missing[0]}; there are {', '.join(batch)}")
            return {name: batch[name] for name in self.said["columns"]}
        if op == "drop":
            return {name: column for name, column in batch.items() if name not in self.said["columns"]}
        if op == "read_parquet":
            return read_groups(batch, self.said.get("columns"))
        raise ValueError(f"operation {op} is not known to this release")


def parquet_file(address):
    import pyarrow.parquet as parquet
    if address.startswith("s3://"):
        from pyarrow import fs
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        options = {}
        if endpoint:
            scheme, _, host = endpoint.partition("://")
            options = {"endpoint_override": host, "scheme": scheme}
        return parquet.ParquetFile(fs.S3FileSystem(**options).open_input_file(address[5:]))
    return parquet.ParquetFile(address)


def arrow_column(column):
    import pyarrow as pa
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(column.type) and not column.null_count:
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), -1)
    if (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    return as_column(column.to_pylist())


def read_groups(batch, columns):
    import pyarrow as pa
    tables = [parquet_file(path).read_row_group(int(group), columns=columns) for path, group in zip(batch["path"], batch["group"])]
    table = pa.concat_tables(tables)
    return {name: arrow_column(table[name]) for name in table.column_names}


class Python:
    def __init__(self, settings):
        sys.path[:0] = settings.get("path", ["."])
        self.operations = [Operation(said) for said in settings["operations"]]

    def run(self, batch):
        for operation in self.operations:
            batch = operation.run(batch)
            if not count_rows(batch):
                break
        return batch


class Onnx:
    """A model run by ONNX Runtime."""

    def __init__(self, settings):
        try:
            import onnxruntime
        except ImportError:
            fail("Python has no onnxruntime here: pip install onnxruntime (or onnxruntime-gpu)")
        options = onnxruntime.SessionOptions()
        threads = int(os.environ.get("ACEQUIA_DATA_THREADS") or 1)
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        wanted = ["CUDAExecutionProvider"] if settings.get("gpu") else []
        have = onnxruntime.get_available_providers()
        if wanted and wanted[0] not in have:
            fail("this onnxruntime cannot use a GPU: pip install onnxruntime-gpu")
        self.session = onnxruntime.InferenceSession(settings["model"], options, providers=wanted + ["CPUExecutionProvider"])
        self.inputs = self.session.get_inputs()
        self.outputs = settings.get("outputs", "top1")
        self.names = [o.name for o in self.session.get_outputs()]
        self.columns = settings.get("columns") or {}
        self.keep = settings.get("keep")

    def feed(self, batch):
        feed, used = {}, set()
        for i in self.inputs:
            name = self.columns.get(i.name) or (i.name if i.name in batch else None)
            if name is None:
                name = next((n for n, c in batch.items() if isinstance(c, np.ndarray) and c.dtype.kind in "fui" and c.ndim > 1 and n not in used), None)
            if name is None or name not in batch:
                raise KeyError(f"the model's input {i.name} has no column: there are {', '.join(batch)}")
            used.add(name)
            value = batch[name]
            kind = {"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(double)": "f8", "tensor(int64)": "i8", "tensor(int32)": "i4",
                    "tensor(uint8)": "u1"}.get(i.type)
            feed[i.name] = value.astype(kind, copy=False) if kind else value
        return feed, used

    def run(self, batch):
        feed, used = self.feed(batch)
        results = dict(zip(self.names, self.session.run(self.names, feed)))
        kept = self.keep if self.keep is not None else [n for n in batch if n not in used]
        out = {n: batch[n] for n in kept if n in batch}
        first = results[self.names[0]]
        if self.outputs == "top1" and first.ndim == 2 and first.shape[1] > 1:
            best = first.argmax(axis=1)
            out["prediction"] = best.astype(np.int64)
            out["score"] = first[np.arange(len(best)), best]
        else:
            out.update(results)
        return out


class Program:
    """Any program that reads one JSON object per line and answers with one line each."""

    def __init__(self, settings):
        self.child = subprocess.Popen(settings["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, batch):
        rows = list(rows_of(batch))
        # Written beside the reading: neither side waits with a full pipe for the other.
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for row in rows:
                    self.child.stdin.write(to_json(row) + b"\n")
                self.child.stdin.flush()
                code = 0
            finally:
                os._exit(code)
        out = []
        for _ in rows:
            line = self.child.stdout.readline()
            if not line:
                os.waitpid(pid, 0)
                raise RuntimeError(f"the program ended with status {self.child.wait()} after {len(out)} of {len(rows)} rows")
            out.append(json.loads(line))
        os.waitpid(pid, 0)
        return rows_to_columns(out)


# --- the loop ---

def out_of_memory(e):
    return isinstance(e, MemoryError) or type(e).__name__ == "OutOfMemoryError" or "Failed to allocate memory" in str(e) or "out of memory" in str(e).lower()


class Worker:
    def __init__(self):
        self.sock = socket.socket(fileno=3)
        size = os.fstat(5).st_size
        self.settings = json.loads(os.pread(5, size, 0)) if size else {}
        os.close(5)
        self.memory = mmap.mmap(4, self.settings["memory"])
        os.close(4)

    def send(self, message):
        data = json.dumps(message).encode()
        if len(data) > PACKET_MAX:
            data = json.dumps({"error": f"a message of {len(data)} bytes is too long: too many columns", "fatal": True}).encode()
        try:
            self.sock.send(data)
        except (BrokenPipeError, ConnectionResetError):
            raise SystemExit(0) from None  # the run is over

    def receive(self):
        data = self.sock.recv(PACKET_MAX)
        if not data:
            raise SystemExit(0)
        return json.loads(data)

    def room(self, size):
        self.send({"need": max(size, 8)})
        return self.receive()["at"]

    def answer(self, number, batch):
        columns = [Column(name, value) for name, value in batch.items()]
        rows = columns[0].rows if columns else 0
        for c in columns:
            if c.rows != rows:
                raise ValueError(f"column {c.name} has {c.rows} rows, column {columns[0].name} has {rows}: all must have the same")
        at = self.room(sum(c.size() for c in columns))
        said = []
        for c in columns:
            said.append(c.write(self.memory, at))
            at += c.size()
        self.send({"done": number, "rows": rows, "columns": said})

    def write_parquet(self, message):
        import pyarrow as pa
        import pyarrow.parquet as parquet
        tables = []
        for piece in message["pieces"]:
            batch = read_batch(self.memory, piece["columns"], piece["rows"])
            arrays = {}
            for name, column in batch.items():
                if column.dtype != object and column.ndim > 1:
                    flat = pa.array(column.reshape(-1))
                    width = 1
                    for n in column.shape[1:]:
                        width *= n
                    arrays[name] = pa.FixedSizeListArray.from_arrays(flat, width)
                else:
                    arrays[name] = pa.array(column.tolist() if column.dtype == object else column)
            tables.append(pa.table(arrays))
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.concat_tables(tables, promote_options="default"), sink)
        data = sink.getvalue()
        at = self.room(len(data))
        self.memory[at:at + len(data)] = memoryview(data)
        self.send({"written": message["write"], "size": len(data)})

    def loop(self):
        kind = self.settings["kind"]
        if kind == "writer":
            try:
                import pyarrow  # noqa: F401
            except ImportError:
                fail("Python has no pyarrow here: pip install pyarrow, or write .jsonl or .csv")
            run = None
        else:
            run = {"python": Python, "onnx": Onnx, "program": Program}[kind](self.settings["settings"]).run
        self.send({"ready": True})
        while True:
            message = self.receive()
            try:
                if "write" in message:
                    self.write_parquet(message)
                else:
                    batch = read_batch(self.memory, message["columns"], message["rows"])
                    self.answer(message["run"], run(batch))
            except Exception as e:  # whatever the function raises belongs to these rows
                memory = out_of_memory(e)
                text = traceback.format_exc(limit=-8)
                del e
                if memory and "torch" in sys.modules:
                    sys.modules["torch"].cuda.empty_cache()
                last = text.strip().splitlines()[-1]
                self.send({"error": (last + "\n" + text)[:ERROR_MAX], "memory": memory})


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--groups":
        try:
            metadata = parquet_file(sys.argv[2]).metadata
        except ImportError:
            raise SystemExit(3)
        for i in range(metadata.num_row_groups):
            print(i, metadata.row_group(i).num_rows)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the engine ends its workers
    if np is None:
        fail("Python has no numpy here: pip install numpy")
    Worker().loop()


if __name__ == "__main__":
    main()
