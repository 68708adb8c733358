"""Measure a reward server under load, with many concurrent clients, a slow model and new edits only.

    python -m benchmarks.reward_server [--clients 200] [--requests 2000] [--delay 0.5] [--side 512]

Model, server and clients are three processes. The server takes on half as many edits as there are clients, so that the others
are sent away and come back; printed is whether every edit got its own answer, how long it took, and what memory the
server held, sampled every half second.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
from PIL import Image

from benchmarks.reward_overhead import images
from editloupe.pictures.encode import encode

MODEL = """
import sys
from tests.servers.reward.test_scoring import by_number
from tests.scripted import ScriptedServer
server = ScriptedServer(by_number, log=False, checks=False, delay=float(sys.argv[1])).start()
print(server.openai_url, flush=True)
sys.stdin.read()
"""
MEGABYTE = 2**20


@contextmanager
def start_server(*command: str, stream: str = "stdout") -> Iterator[str]:
    """Run a Python program until the block ends and give the address in the first line that has one."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, stream: subprocess.PIPE}
    with subprocess.Popen([sys.executable, *command], text=True, **pipes) as process:
        try:
            yield next(line.split()[-1] for line in getattr(process, stream) if "http://" in line)
        finally:
            process.kill()


def edit(number: int, source: Image.Image) -> dict[str, Any]:
    """Return an edit whose picture and instruction are its own."""
    edited = np.array(source)
    edited[:4, :4] = number % 256, number // 256, 7
    before, after = (base64.b64encode(encode(np.asarray(picture), "jpeg")).decode() for picture in (source, edited))
    return {"source": before, "edited": after, "instruction": f"Number {number}."}


class Load:
    """Clients that ask one edit after the other, and what they were answered."""

    def __init__(self, url: str, side: int) -> None:
        self._url, self._source = url, images(side, 0, 0)[0]
        self.scores: dict[int, float | None] = {}
        self.busy = 0
        self.memory: list[float] = []

    async def run(self, clients: int, requests: int) -> None:
        """Ask everything, and look at the server's memory meanwhile."""
        numbers = iter(range(requests))
        watching = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._client(numbers) for _ in range(clients)))
        watching.cancel()

    async def _client(self, numbers: Iterator[int]) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as client:
            for number in numbers:
                body = {"edits": [await asyncio.to_thread(edit, number, self._source)]}
                while (answer := await client.post("/v1/judge", json=body)).status_code == 429:
                    self.busy += 1
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                answer.raise_for_status()
                self.scores[number] = answer.json()["results"][0]["score"]

    async def _watch(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as client:
            for _ in itertools.count():
                lines = (await client.get("/metrics")).text.splitlines()
                name = "editloupe_resident_bytes "
                self.memory += [float(line.removeprefix(name)) / MEGABYTE for line in lines if line.startswith(name)]
                await asyncio.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--delay", type=float, default=0.5)
    parser.add_argument("--side", type=int, default=512)
    options = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "none")
    takes = ["--queue", str(options.clients // 2), "--concurrency", str(options.clients // 4), "--port", "0"]
    judge = ["--judge", "openai:gpt-4.1", "--mode", "plain", "--base-url"]
    with (
        start_server("-c", MODEL, str(options.delay)) as model,
        start_server("-m", "editloupe", "serve", *judge, model, *takes, stream="stderr") as url,
    ):
        load = Load(url, options.side)
        start = time.monotonic()
        asyncio.run(load.run(options.clients, options.requests))
        seconds = time.monotonic() - start
    right = sum(load.scores.get(n) == (n % 2 + n // 2 % 2) / 2 for n in range(options.requests))
    tenth = load.memory[len(load.memory) // 10]
    print(
        f"{options.clients} clients, {options.requests} requests of {options.side} × {options.side}, {options.delay:g} s a reply"
    )
    print(f"answered with its own score: {right} of {options.requests}; sent away and come back: {load.busy} times")
    print(f"{seconds:.0f} s, {options.requests / seconds:.1f} edits a second")
    print(
        f"server's memory: {tenth:.0f} MB after a tenth, {max(load.memory):.0f} at most, {load.memory[-1]:.0f} at the end"
    )


if __name__ == "__main__":
    main()
