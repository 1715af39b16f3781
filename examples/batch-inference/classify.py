#!/usr/bin/env python3
"""A model over images, by acequia.data; see README.md."""
import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
SIDE, CLASSES = 32, 10


class Model:
    """A fixed random projection and a nonlinearity: small, but every pixel counts."""

    def __init__(self):
        rng = np.random.default_rng(7)
        self.first = rng.standard_normal((SIDE * SIDE * 3, 64)) / 50
        self.second = rng.standard_normal((64, CLASSES))

    def __call__(self, batch):
        hidden = np.maximum((batch["image"].reshape(len(batch["image"]), -1) / 255.0 - 0.5) @ self.first, 0)
        scores = hidden @ self.second
        return {"path": batch["path"], "prediction": scores.argmax(axis=1)}


def make_images(folder, count):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(1)
    for i in range(count):
        Image.fromarray(rng.integers(0, 255, (6, 8, 3), dtype="u1")).resize((160, 120), Image.BICUBIC).save(f"{folder}/i{i:05}.jpg", quality=85)


def pipeline(inputs, model):
    from acequia import data
    if model:
        return data.read_images(inputs, size=224, normalize="imagenet").with_model(model)
    return data.read_images(inputs, size=SIDE).map_batches(Model)


def plain_loop(folder):
    """One image after the other, as anybody would write it."""
    model, out = Model(), {}
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        image = np.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE), Image.BILINEAR))[None]
        out[path] = int(model({"image": image, "path": [path]})["prediction"][0])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", help="a folder or s3://bucket/prefix; default: images that are made here")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--model", help="an ONNX file")
    parser.add_argument("--output", default="predictions")
    o = parser.parse_args()
    inputs = o.input or os.path.abspath("images")
    if not o.input:
        make_images(inputs, o.images)
        # Killed in the middle: what is done by then is not done again.
        code = f"import sys; sys.path.insert(0, {HERE!r}); import classify; classify.pipeline({inputs!r}, {o.model!r}).options(progress=False).write_jsonl({o.output!r})"
        first = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        deadline = time.monotonic() + 30
        while not any(name.startswith("part-") for name in (os.listdir(o.output) if os.path.isdir(o.output) else [])) and first.poll() is None:
            time.sleep(0.01)
            if time.monotonic() > deadline:
                break
        os.killpg(first.pid, 9)
        first.wait()
    result = pipeline(inputs, o.model).options(explain=True).write_jsonl(o.output)
    print(f"{result.rows} predictions in {o.output}, {result.failures} images left out")
    if o.input or o.model:
        return 0
    got = {}
    for part in result.parts:
        with open(part, encoding="utf-8") as f:
            for line in f:
                row = json.loads(line)
                assert row["path"] not in got, f"{row['path']} is there twice"
                got[row["path"]] = row["prediction"]
    same = got == plain_loop(inputs)
    print("every prediction is that of a plain loop" if same else "PREDICTIONS DIFFER from a plain loop")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
