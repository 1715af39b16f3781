"""Batch pipelines: `acequia data run` as a job and acequia.data in place; pixels, formats, failures, kills of everything, a bucket."""
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from tests.lab.cluster import Cluster, find_binary
from tests.lab.helpers import covers
from tests.lab.s3 import Store, real_store

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "python")
sys.path.insert(0, PACKAGE)
np = pytest.importorskip("numpy", reason="numpy is not installed; make test installs it")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed; make test installs it")
pytest.importorskip("cloudpickle", reason="cloudpickle is not installed; make test installs it")
from acequia import data  # noqa: E402

ENGINE = os.path.join(os.path.dirname(os.path.dirname(find_binary())), "data", "acequia-data")
WAIT = 120
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS, "box": Image.BOX, "hamming": Image.HAMMING}


@pytest.fixture(scope="module", name="photos")
def _photos(tmp_path_factory):
    """60 images of several formats, and one that ends too early."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(1)
    for i in range(60):
        pixels = Image.fromarray(rng.integers(0, 255, (9, 12, 3), dtype="u1")).resize((60 + i, 90 - i), Image.BICUBIC)
        pixels.save(folder / f"p{i:03}.{['jpg', 'png', 'webp'][i % 3]}", quality=85)
    Image.fromarray(rng.integers(0, 255, (40, 50), dtype="u1")).save(folder / "grey.png")
    Image.fromarray(rng.integers(0, 255, (40, 50, 4), dtype="u1"), "RGBA").save(folder / "alpha.png")
    whole = (folder / "p000.jpg").read_bytes()
    (folder / "short.jpg").write_bytes(whole[:len(whole) // 2])
    return folder


@pytest.fixture(autouse=True)
def _engine(monkeypatch, tmp_path):
    monkeypatch.setenv("ACEQUIA_DATA", ENGINE)
    monkeypatch.chdir(tmp_path)


def quiet(dataset, **more):
    return dataset.options(progress=False, python=sys.executable, **more)


def rows_of(folder):
    """All rows of a folder of JSON parts, by its manifest."""
    with open(f"{folder}/_manifest.json", encoding="utf-8") as f:
        manifest = json.load(f)
    rows = []
    for part in manifest["parts"]:
        with open(f"{folder}/{part['part']}", encoding="utf-8") as f:
            rows += [json.loads(line) for line in f]
    assert len(rows) == manifest["rows"]
    assert sorted(n for n in os.listdir(folder) if n.startswith("part-")) == [p["part"] for p in manifest["parts"]]
    return rows, manifest


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_pixels_are_those_of_pillow(photos, mode):
    for name, chosen in FILTERS.items():
        rows = quiet(data.read_images(photos, size=(31, 47), filter=name, mode=mode)).take_all()
        assert len(rows) == 62
        for row in rows:
            expected = np.asarray(Image.open(row["path"]).convert(mode).resize((31, 47), chosen)).reshape(row["image"].shape)
            assert (expected == row["image"]).all(), (name, row["path"])
    sizes = {row["image"].shape for row in quiet(data.read_images(photos, mode=mode)).take_all()}
    assert len(sizes) > 30


def test_values_for_a_model(photos):
    row = quiet(data.read_images(photos / "p001.png", size=16, shorter=20, normalize="imagenet")).take(1)[0]
    image = Image.open(photos / "p001.png").convert("RGB")
    w, h = image.size
    image = image.resize((20, 20 * h // w) if w < h else (20 * w // h, 20), Image.BILINEAR)
    left, top = round((image.width - 16) / 2), round((image.height - 16) / 2)
    values = np.asarray(image.crop((left, top, left + 16, top + 16)), dtype="f4") / 255
    expected = ((values - np.array(data.IMAGENET["mean"], "f4")) / np.array(data.IMAGENET["std"], "f4")).transpose(2, 0, 1)
    assert row["image"].shape == (3, 16, 16) and np.allclose(row["image"], expected, atol=1e-5)


def test_steps_and_formats(tmp_path):
    numbers = quiet(data.range(10_000))
    assert numbers.count() == 10_000
    assert numbers.map(lambda r: {"x": r["id"] * 2}).filter(lambda r: r["x"] % 10 == 0).take(3) == [{"x": 0}, {"x": 10}, {"x": 20}]
    assert numbers.limit(1).flat_map(lambda r: [{"a": r["id"]}] * 3).count() == 3 * 4096  # of ranges a chunk is the least
    assert [len(b["id"]) for b in numbers.iter_batches(3000)] == [3000, 3000, 3000, 1000]
    assert numbers.schema() == {"id": "int64"}

    class Add:
        def __init__(self, n):
            self.n = n

        def __call__(self, batch):
            return {"id": batch["id"], "sum": batch["id"] + self.n, "name": [f"n,{i}\n" for i in batch["id"]], "pair": np.stack([batch["id"]] * 2, axis=1)}

    added = numbers.map_batches(Add, args=(5,))
    assert added.write_jsonl("lines").rows == 10_000
    rows, _ = rows_of("lines")
    assert rows[17] == {"id": 17, "sum": 22, "name": "n,17\n", "pair": [17, 17]} and [r["id"] for r in rows] == list(range(10_000))
    assert added.select("sum", "name").write_csv("table.csv", single=True).rows == 10_000
    back = quiet(data.read_csv("table.csv")).take_all()
    assert back[9_999] == {"sum": 10_004, "name": "n,9999\n"} and len(back) == 10_000
    assert quiet(data.read_jsonl("lines")).drop("pair", "name").take(2) == [{"id": 0, "sum": 5}, {"id": 1, "sum": 6}]
    assert quiet(data.read_text("table.csv")).take(1) == [{"text": "sum,name"}]
    program = ["python3", "-uc", "import sys, json\nfor line in sys.stdin: print(json.dumps({'twice': 2 * json.loads(line)['id']}), flush=True)"]
    assert [r["twice"] for r in numbers.through(program).take(100)] == [2 * i for i in range(100)]
    assert numbers.map(lambda r: {"v": float("nan") if r["id"] else None}).write_jsonl("odd").rows == 10_000
    assert rows_of("odd")[0][1] == {"v": None}


def test_archives(photos, tmp_path):
    names = sorted(os.listdir(photos))
    subprocess.run(["tar", "cf", tmp_path / "a.tar", "-C", photos, *names], check=True)
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    shutil.copy(photos / "p000.jpg", deep / ("n" * 90 + ".jpg"))
    subprocess.run(["tar", "rf", "a.tar", deep.name], check=True)
    rows = quiet(data.read_tar("a.tar", size=8)).take_all()
    assert sorted(r["path"] for r in rows) == sorted([n for n in names if n != "short.jpg"] + [f"{'d' * 120}/{'n' * 90}.jpg"])


def test_rows_that_fail_are_left_out_and_listed(photos):
    def picky(batch):
        if any("p007" in p for p in batch["path"]):
            raise ValueError("not this one")
        return {"path": batch["path"]}

    done = quiet(data.read_images(photos, size=8).map_batches(picky)).write_jsonl("out")
    rows, manifest = rows_of("out")
    assert done.failures == manifest["failures"] == 2 and len(rows) == 61
    with open("out/_errors.jsonl", encoding="utf-8") as f:
        errors = {os.path.basename(e["input"]): e["error"] for e in map(json.loads, f)}
    assert set(errors) == {"short.jpg", "p007.png"} and "too early" in errors["short.jpg"] and errors["p007.png"].startswith("ValueError: not this one")
    with pytest.raises(data.DataError, match=r"more than the 1 that may \(--max-errors\)"):
        quiet(data.read_images(photos, size=8).map_batches(picky), max_errors=1).write_jsonl("other")
    with pytest.raises(data.DataError, match="ZeroDivisionError: .*by zero"):
        quiet(data.range(10_000).map(lambda r: 1 // 0)).take_all()
    with pytest.raises(data.DataError, match="holds results of another pipeline: choose another output, or --fresh"):
        quiet(data.range(10)).write_jsonl("out")
    assert quiet(data.range(10), fresh=True).write_jsonl("out").rows == 10
    with pytest.raises(data.DataError, match="input nothere: No such file or directory"):
        quiet(data.read_images("nothere")).take(1)
    with pytest.raises(data.DataError, match="column b has 3 rows, column a has 1"):
        quiet(data.range(4096).map_batches(lambda b: {"a": [1], "b": [1, 2, 3]}), max_errors=0).take(1)


def test_out_of_memory_halves_batches():
    def tight(batch):
        if len(batch["id"]) > 5:
            raise MemoryError("no room for so many")
        return {"id": batch["id"], "size": [len(batch["id"])] * len(batch["id"])}

    rows = quiet(data.range(5_000).map_batches(tight)).take_all()
    assert [r["id"] for r in rows] == list(range(5_000)) and {r["size"] for r in rows[200:]} <= {1, 2, 3, 4, 5}


def test_memory_is_bounded(photos):
    """200 MB of pixels through 32 MiB; a result that can never fit is said."""
    wide = quiet(data.read_images(photos, size=1024).map_batches(lambda b: {"mean": b["image"].mean(axis=(1, 2, 3))}), memory=32 << 20)
    assert wide.count() == 62
    with pytest.raises(data.DataError, match="use smaller batches"):
        quiet(data.range(4096).map_batches(lambda b: {"x": np.zeros((len(b["id"]), 8 << 20), "u1")}, batch_size=8), memory=32 << 20).take(1)


def processes_below(pid):
    """Itself and everything that it has started."""
    found, new = {pid}, True
    while new:
        new = False
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as f:
                    parent = int(f.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent in found and int(entry) not in found:
                found.add(int(entry))
                new = True
    return found


@covers("acequia-data")
def test_kills_of_anything_leave_each_row_once(photos, tmp_path):
    """Engine and workers are killed at random; the same command goes on until it is done."""
    many = tmp_path / "many"
    many.mkdir()
    for i in range(400):
        os.link(photos / f"p{i % 60:03}.{['jpg', 'png', 'webp'][i % 60 % 3]}", many / f"m{i:04}")
    (tmp_path / "slow.py").write_text(textwrap.dedent("""
        import time
        def slow(batch):
            time.sleep(0.02)
            return {"path": batch["path"], "sum": [int(i.sum()) for i in batch["image"].astype("u8")]}
        """))
    plan = {"source": {"kind": "images", "inputs": ["many"], "width": 32, "height": 32}, "python": sys.executable,
            "stages": [{"kind": "python", "name": "slow", "batch": 8, "replicas": 2,
                        "settings": json.dumps({"operations": [{"op": "map_batches", "function": {"name": "slow:slow"}}]})}],
            "output": {"kind": "jsonl", "path": "out"}}
    dice, kills = random.Random(5), 0
    for attempt in range(100):
        engine = subprocess.Popen([ENGINE, "run", "--quiet"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        engine.stdin.write(json.dumps(plan).encode())
        engine.stdin.close()
        deadline = time.monotonic() + (dice.uniform(0.1, 1.2) if attempt < 8 else WAIT)
        while engine.poll() is None and time.monotonic() < deadline:
            below = processes_below(engine.pid) - {engine.pid}
            if below and dice.random() < 0.1 and kills < 6:
                kills += 1
                try:
                    os.kill(dice.choice(sorted(below)), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        if engine.poll() is None:
            engine.send_signal(dice.choice([signal.SIGKILL, signal.SIGTERM]))
        said = engine.stderr.read().decode()
        if engine.wait(WAIT) == 0:
            break
    else:
        pytest.fail(said)
    rows, manifest = rows_of("out")
    assert manifest["complete"] and sorted(r["path"] for r in rows) == [f"many/m{i:04}" for i in range(400)]
    by_image = {}
    for row in rows:
        by_image.setdefault(int(row["path"][-4:]) % 60, set()).add(row["sum"])
    assert all(len(sums) == 1 for sums in by_image.values())
    assert [r["path"] for r in rows] == sorted(r["path"] for r in rows)


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    slow = quiet(data.range(100_000).map_batches(lambda b: time.sleep(0.2) or b, batch_size=4096))
    one = threading.Thread(target=lambda: slow.write_jsonl("both"))
    one.start()
    deadline = time.monotonic() + WAIT
    while not os.path.exists("both/_ledger.jsonl") and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(data.DataError, match="another run writes into"):
        slow.write_jsonl("both")
    one.join(WAIT)
    assert len(rows_of("both")[0]) == 100_000


def test_a_bucket(photos, monkeypatch):
    """Against a small server here; a real one is below."""
    store = Store()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        store.buckets.update(photos={f"in/{n}": (photos / n).read_bytes() for n in os.listdir(photos)}, results={})
        pipeline = quiet(data.read_images("s3://photos/in/", size=8).map_batches(lambda b: {"path": b["path"], "m": b["image"].mean(axis=(1, 2, 3))}))
        done = pipeline.write_jsonl("s3://results/run")
        assert (done.rows, done.failures) == (62, 1)
        lines = [line for part in done.parts for line in store.buckets["results"][part[len("s3://results/"):]].splitlines()]
        assert sorted(json.loads(line)["path"] for line in lines) == sorted(f"s3://photos/in/{n}" for n in os.listdir(photos) if n != "short.jpg")
        reads = sum(path.startswith("/photos/in/") for method, path in store.requests if method == "GET")
        assert pipeline.write_jsonl("s3://results/run").rows == 62
        assert sum(path.startswith("/photos/in/") for method, path in store.requests if method == "GET") == reads
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "theirs")
        with pytest.raises(data.DataError, match="403 .AccessDenied"):
            pipeline.take(1)
    finally:
        store.close()


def files_of(folder):
    return {entry.name: pathlib.Path(entry.path).read_bytes() for entry in os.scandir(folder) if entry.is_file()}


def test_nothing_of_others_is_removed_or_written_over(tmp_path):
    rows = quiet(data.read_csv("rows.csv"))
    (tmp_path / "rows.csv").write_text("id,text\n1,a\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "part-00000.parquet").write_text("of another program")
    for fresh in (False, True):
        with pytest.raises(data.DataError, match="part-00000.parquet, which is not from acequia data run"):
            quiet(data.read_csv("rows.csv"), fresh=fresh).write_jsonl("other")
    assert files_of(other) == {"part-00000.parquet": b"of another program"}
    for name, fresh in (("rows.csv", False), ("./rows.csv", True)):
        with pytest.raises(data.DataError, match="would be inputs, too"):
            quiet(data.read_csv("rows.csv"), fresh=fresh).write_csv(name, single=True)
    assert (tmp_path / "rows.csv").read_text() == "id,text\n1,a\n"
    (tmp_path / "in").mkdir()
    shutil.copy("rows.csv", "in/rows.csv")
    with pytest.raises(data.DataError, match="would be inputs, too"):
        quiet(data.read_csv("in")).write_csv("in/out")
    (tmp_path / "mine.jsonl").write_text("mine")
    with pytest.raises(data.DataError, match="is there already"):
        rows.write_jsonl("mine.jsonl", single=True)
    assert (tmp_path / "mine.jsonl").read_text() == "mine"
    assert quiet(data.read_csv("rows.csv"), fresh=True).write_jsonl("mine.jsonl", single=True).rows == 1 == rows.write_jsonl("mine.jsonl", single=True).rows
    for folder, link in (("linked", "_ledger.jsonl"), (".", "one.jsonl.merging")):  # in folders that others may write to
        (tmp_path / folder).mkdir(exist_ok=True)
        os.symlink(other / "part-00000.parquet", tmp_path / folder / link)
    with pytest.raises(data.DataError, match="is a symbolic link"):
        quiet(data.read_csv("rows.csv"), fresh=True).write_jsonl("linked")
    assert rows.write_jsonl("one.jsonl", single=True).rows == 1
    assert files_of(other) == {"part-00000.parquet": b"of another program"}


def test_lists_of_inputs_and_inputs_that_are_none(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.csv").write_text("id\n1\n2\n")
    (tmp_path / "b.csv").write_text("id\n3\n")
    (tmp_path / "list.txt").write_text("# a remark\ndeep\nb.csv\n\nnothere.csv\n")
    done = quiet(data.read_csv("@list.txt")).write_jsonl("out")
    assert (done.rows, done.failures) == (3, 1) and [r["id"] for r in rows_of("out")[0]] == [1, 2, 3]
    with pytest.raises(data.DataError, match="no file there has a name that fits"):
        quiet(data.read_images("deep")).take(1)
    os.mkfifo("pipe")
    with pytest.raises(data.DataError, match="is no file"):
        quiet(data.read_csv("pipe")).take(1)


def test_progressive_images_without_end(tmp_path):
    image = io.BytesIO()
    Image.fromarray(np.zeros((16, 16), "u1")).save(image, "JPEG", progressive=True)
    whole = image.getvalue()
    scan = whole[whole.rindex(b"\xff\xda"):-2]
    for count, rows in ((100, 1), (1000, 0)):
        (tmp_path / "scans.jpg").write_bytes(whole[:-2] + scan * count + whole[-2:])
        assert quiet(data.read_images("scans.jpg", size=4)).write_jsonl(f"scans{count}").rows == rows
    with open("scans1000/_errors.jsonl", encoding="utf-8") as f:
        assert "more than 500 scans" in f.read()


def test_stores_that_answer_without_end_or_not_in_parts(photos, monkeypatch):
    class Endless(Store):
        def on_bucket(self, to, objects, bucket, query, body):
            return to.answer(200, b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken></ListBucketResult>")

    class Whole(Store):
        def on_object(self, to, objects, key, query, body):
            return to.answer(200, objects[key])

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for kind, source, said in ((Endless, "s3://b/in/", "goes on and names none"), (Whole, "s3://b/a.tar", "sends no parts of files")):
        store = kind()
        try:
            monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
            subprocess.run(["tar", "cf", "a.tar", "-C", photos, "p000.jpg", "p001.png"], check=True)
            with open("a.tar", "rb") as f:
                store.buckets["b"] = {"a.tar": f.read() + b"\0" * 100_000}
            with pytest.raises(data.DataError, match=said):
                quiet(data.read_tar(source)).take(1)
        finally:
            store.close()
    store = Store()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
        store.buckets["b"] = {"run/part-00000": b"of another program"}
        for fresh in (False, True):
            with pytest.raises(data.DataError, match="part-00000, which is not from acequia data run"):
                quiet(data.range(3), fresh=fresh).write_jsonl("s3://b/run")
        assert store.buckets["b"] == {"run/part-00000": b"of another program"}
    finally:
        store.close()
@pytest.mark.long
def test_a_real_server_of_s3(tmp_path, monkeypatch):
    """Lists of several pages, an object that is sent in parts, a key that may only read."""
    pixel = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), 7, "u1")).save(pixel, "PNG")
    (tmp_path / "in" / "deep & odd").mkdir(parents=True)
    for i in range(2300):
        (tmp_path / "in" / ("deep & odd" if i % 10 == 0 else ".") / f"i{i:04}.png").write_bytes(pixel.getvalue())
    with real_store(tmp_path, "photos") as (address, rclone):
        assert rclone("copy", str(tmp_path / "in"), ":s3:photos/in").returncode == 0
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ours")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        done = quiet(data.read_images("s3://photos/in/").map_batches(lambda b: {"path": b["path"], "sum": [int(i.sum()) for i in b["image"]]})).write_jsonl("s3://photos/out")
        assert (done.rows, done.failures) == (2300, 0)
        rows = [json.loads(line) for part in done.parts for line in rclone("cat", ":s3:" + part.removeprefix("s3://")).stdout.splitlines()]
        assert len({r["path"] for r in rows}) == 2300 and {r["sum"] for r in rows} == {4 * 4 * 3 * 7}
        wide = quiet(data.range(100).map_batches(lambda b: {"text": ["x" * 1_000_000] * len(b["id"])}), memory=512 << 20).write_jsonl("s3://photos/wide")
        assert wide.rows == 100 and len(wide.parts) == 1
        assert len(rclone("cat", ":s3:" + wide.parts[0].removeprefix("s3://")).stdout) == 100 * 1_000_012
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        assert quiet(data.read_images("s3://photos/in/")).limit(3).count() >= 3
        with pytest.raises(data.DataError, match="AccessDenied"):
            quiet(data.range(10)).write_jsonl("s3://photos/refused")


def test_as_a_job(photos, tmp_path):
    (tmp_path / "size.py").write_text("def size(batch):\n    return {'path': batch['path'], 'bytes': [int(i.size) for i in batch['image']]}\n")
    with Cluster(config="[node *]\ncpus = 4\nmemory = 4G\n") as cluster:
        done = cluster.cli("data", "run", "--input", str(photos), "--size", "10", "--function", "size:size", "--output", "sizes.csv", "--python", sys.executable,
                           "--explain", "-c", "2", "-m", "1G", cwd=tmp_path)
        assert "61 of" not in done.stderr and "62 rows in" in done.stdout + done.stderr and "batches of" in done.stdout + done.stderr
        rows = quiet(data.read_csv("sizes.csv")).take_all()
        assert len(rows) == 62 and {r["bytes"] for r in rows} == {300}
        refused = cluster.cli("data", "run", "--input", "x", check=False)
        assert refused.returncode == 2 and "--input and --output are needed" in refused.stderr
        for words, said in ((["--size", "0"], "--size 0"), (["--kind", "csv", "--size", "9"], "--size is for images"), (["--max-errors", "-1"], "or unlimited"),
                            (["--function", "size"], "MODULE:NAME"), (["--input", ""], "--input is empty"), (["--output", ""], "--output is empty"), (["--grey", "--normalize", "imagenet"], "three colours")):
            refused = cluster.cli("data", "run", "-i", "x", "-o", "y", *words, check=False)
            assert refused.returncode == 2 and said in refused.stderr, refused.stderr
        lost = cluster.cli("data", "run", "-i", str(tmp_path / "nothere"), "-o", "out", check=False, cwd=tmp_path)
        assert lost.returncode == 1 and "No such file" in lost.stdout + lost.stderr
        detached = cluster.cli("data", "run", "--json", "-i", str(photos), "-o", "later", "--size", "4", "--function", "size:size", "--python", sys.executable, cwd=tmp_path)
        number = json.loads(detached.stdout)["id"]
        cluster.cli("wait", str(number))
        assert len(rows_of("later")[0]) == 62


def test_the_page_about_it(photos, tmp_path):
    """Every example of docs/data.md, one after the other, in a folder that has what they name."""
    with open(os.path.join(os.path.dirname(PACKAGE), "docs", "data.md"), encoding="utf-8") as f:
        text = f.read()
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(f"{i},word{i}\n" for i in range(50)))
    blocks = [(block.partition("\n")[0], block.partition("\n")[2]) for block in text.split("```")[1::2]]
    for name, code in blocks:
        if name.startswith("python "):  # a file that others use
            (tmp_path / name.split()[1]).write_text(code)
    code = "\n".join(code for name, code in blocks if name == "python")
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=PACKAGE), capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    with Cluster(config="[node *]\ncpus = 4\nmemory = 4G\n") as cluster:
        for line in "\n".join(code for name, code in blocks if name == "").splitlines():
            words = line.removeprefix("$ acequia ").split()
            assert cluster.cli(*words, "--python", sys.executable, cwd=tmp_path).returncode == 0


def test_the_example(tmp_path):
    """Predictions of examples/batch-inference are those of a plain loop, after a kill in the middle."""
    program = os.path.join(os.path.dirname(PACKAGE), "examples", "batch-inference", "classify.py")
    done = subprocess.run([sys.executable, program, "--images", "150"], env=dict(os.environ, PYTHONPATH=PACKAGE), capture_output=True, text=True, check=False,
                          timeout=WAIT)
    assert done.returncode == 0 and "every prediction is that of a plain loop" in done.stdout, done


def test_one_image_through_standard_names(tmp_path):
    """Files without an ending, unusual names, links to folders, hidden files."""
    names = ["no-ending", "blank name.jpg", "ünïcode.png", "a\nb.jpg", ".hidden.jpg", "_mark.jpg", "notes.txt"]
    image = io.BytesIO()
    Image.fromarray(np.zeros((3, 3, 3), "u1")).save(image, "PNG")
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(image.getvalue())
    shutil.copy(folder / "no-ending", folder / "sub" / "x.webp")
    os.symlink(folder, folder / "sub" / "circle")
    rows = quiet(data.read_images("in")).take_all()
    assert {r["path"] for r in rows} == {f"in/{n}" for n in names[:4]} | {"in/sub/x.webp"}
