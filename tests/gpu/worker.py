#!/usr/bin/env python3
"""A PyTorch process that measures what it is told to, line by line on its standard input.

Commands: `run KIND SECONDS` answers {"rate": per second, "series": [rates of quarter seconds]};
`reply SECONDS THINK_MS` answers the median and 99th percentile of small inferences with pauses in
between; `fill` takes memory until refused; `quit`. Kinds: tiny, small, large, graph, train, infer.
"""
import json
import os
import sys
import time

import torch


def make_tiny():
    a = torch.zeros(256, device="cuda")
    return lambda: a.add_(1.0)


def make_product(n):
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def make_graph():
    step = make_product(1024)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            step()
    return graph.replay


def make_train():
    import torchvision
    model = torchvision.models.resnet18().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")
    loss_fn = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
    return step


def make_infer():
    import torchvision
    model = torchvision.models.resnet50().cuda().eval()
    images = torch.randn(128, 3, 224, 224, device="cuda")

    def step():
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            return model(images)[0, 0].item()
    return step


def make_reply():
    import torchvision
    model = torchvision.models.resnet18().cuda().eval()
    images = torch.randn(8, 3, 224, 224, device="cuda")

    def step():
        with torch.inference_mode():
            return model(images)[0, 0].item()
    return step


MAKE = {"tiny": make_tiny, "small": lambda: make_product(2048), "large": lambda: make_product(8192),
        "graph": make_graph, "train": make_train, "infer": make_infer, "reply": make_reply}
READY = {}


def measure(kind, seconds):
    if kind not in READY:
        READY[kind] = MAKE[kind]()
        for _ in range(10):
            READY[kind]()
        torch.cuda.synchronize()
    step, done, series = READY[kind], 0, []
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = mark = time.perf_counter()
    before = 0
    while True:
        step()
        done += 1
        now = time.perf_counter()
        if now - mark >= 0.25:
            series.append([time.monotonic(), (done - before) / (now - mark)])
            mark, before = now, done
        if now - start >= seconds:
            break
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    return {"rate": done / took, "seconds": took, "series": series}


def reply(seconds, think_ms):
    measure("reply", 0.1)
    step, took, start = READY["reply"], [], time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        step()
        took.append((time.perf_counter() - before) * 1e3)
        time.sleep(think_ms / 1e3)
    took.sort()
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "n": len(took)}


def fill():
    free, total = torch.cuda.mem_get_info()
    held, step = [], 256 << 20
    while True:
        try:
            held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
            held[-1].fill_(1)
        except torch.OutOfMemoryError:
            if step <= 2 << 20:
                break
            step //= 4
    torch.cuda.synchronize()
    got = sum(t.numel() for t in held)
    READY["held"] = held
    return {"free": free, "total": total, "got": got}


def main():
    cores = os.environ.get("WORKER_CORES")
    if cores:
        os.sched_setaffinity(0, {int(c) for c in cores.split(",")})
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    print(json.dumps({"ready": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        word = line.split()
        if not word or word[0] == "quit":
            break
        try:
            if word[0] == "run":
                answer = measure(word[1], float(word[2]))
            elif word[0] == "reply":
                answer = reply(float(word[1]), float(word[2]))
            elif word[0] == "drop":
                READY.pop("held", None)
                torch.cuda.empty_cache()
                answer = {}
            else:
                answer = fill()
        except Exception as e:  # reported, and the row fails
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), flush=True)


main()
