#!/usr/bin/env python3
"""load.py NAME: 1 to 200 clients and back, with an update of the service in the middle. Only Python's own library.

Prints, for each step, clients, requests a second, the 99th percentile and the replicas that the service has. Ends with
status 1 if a single request failed, or if the replicas did not follow."""
import asyncio
import json
import os
import subprocess
import sys
import time
from urllib.parse import urlsplit

STEPS = [int(n) for n in os.environ.get("STEPS", "1 20 200 20 1").split()]
STEP_S = float(os.environ.get("STEP_S", "8"))
HERE = os.path.dirname(os.path.abspath(__file__))
BODY = b'{"text": "not bad, and fast"}'


def acequia(*words):
    return subprocess.run(["acequia", *words], check=True, capture_output=True, text=True).stdout


class Load:
    def __init__(self, name):
        self.name = name
        self.token = json.loads(acequia("serve", "--json", "token", name, "create", "--label", "load"))["token"]
        url = urlsplit(self.get()["url"])
        self.port = url.port
        self.request = (f"POST / HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {self.token}\r\n"
                        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n").encode() + BODY
        self.clients, self.failed, self.times, self.answered = set(), [], [], 0

    def get(self):
        return json.loads(acequia("serve", "--json", "get", self.name))

    async def client(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while asyncio.current_task() in self.clients:
            began = time.monotonic()
            try:
                writer.write(self.request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                if not head.startswith(b"HTTP/1.1 200 "):
                    self.failed.append(head.split(b"\r\n")[0].decode())
                if b"connection: close" in head.lower():
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except (OSError, asyncio.IncompleteReadError) as e:
                self.failed.append(repr(e))
                return
            self.answered += 1
            self.times.append(time.monotonic() - began)
        writer.close()

    def adjust(self, count):
        while len(self.clients) > count:
            self.clients.pop()
        while len(self.clients) < count:
            self.clients.add(asyncio.get_running_loop().create_task(self.client()))

    async def step(self, count):
        self.adjust(count)
        await asyncio.sleep(STEP_S)
        times, self.times = sorted(self.times), []
        service = await asyncio.to_thread(self.get)
        p99 = times[int(len(times) * 0.99)] * 1000 if times else 0
        print(f"{count:4} clients  {len(times) / STEP_S:7.0f} requests/s  99% within {p99:6.0f} ms  "
              f"{service['ready_replicas']} of {service['replicas']} replicas ready  {len(self.failed)} failed", flush=True)
        return service["replicas"]

    async def run(self):
        seen = []
        for i, count in enumerate(STEPS):
            if i == len(STEPS) // 2:
                print("updating while all clients ask", flush=True)
                await asyncio.to_thread(acequia, "serve", "update", self.name, "-o", "/dev/null", f"{HERE}/model.py:Model")
            seen.append(await self.step(count))
        for _ in range(60):
            revisions = (await asyncio.to_thread(self.get))["revisions"]
            if len(revisions) == 1 and revisions[0]["number"] == 2:
                break
            await self.step(STEPS[-1])
        self.adjust(0)
        print(f"{self.answered} answers, {len(self.failed)} failed; replicas {seen}; revision {revisions[0]['number']} serves")
        if self.failed or max(seen) <= seen[0] or revisions[0]["number"] != 2:
            sys.exit(f"not as it should be: {self.failed[:3]}")


async def main():
    await Load(sys.argv[1]).run()


asyncio.run(main())
