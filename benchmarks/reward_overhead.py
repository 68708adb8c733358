"""Measure the CPU time of a reward beyond the model's own time, for edits in memory and a warm judge.

    python -m benchmarks.reward_overhead [--edits 200] [--side 512] [--group 8]

The model is a server in a process of its own that answers at once, so the CPU time measured here is all overhead: taking the
pictures in, hashing, encoding, the graph, the client, reading the answer.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

import numpy as np
from PIL import Image

from editloupe import Edit, Judge, reward

SERVER = """
import sys, threading
from tests.servers.reward.running import labelled
from tests.scripted import ScriptedServer
server = ScriptedServer(labelled, log=False, checks=False).start()
print(server.openai_url, flush=True)
sys.stdin.read()
"""


def images(side: int, count: int, seed: int) -> tuple[Image.Image, list[Image.Image]]:
    """Return a source and candidates that look like photographs to an encoder."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 255, (side // 16, side // 16, 3), dtype=np.uint8))
    source = coarse.resize((side, side), Image.Resampling.BICUBIC)
    candidates = []
    for _ in range(count):
        pixels = np.asarray(source).copy()
        x, y = rng.integers(0, side * 3 // 4, 2)
        pixels[y : y + side // 8, x : x + side // 8] = rng.integers(0, 255, 3)
        candidates.append(Image.fromarray(pixels))
    return source, candidates


def measure(judge: Judge, side: int, edits: int, group: int) -> float:
    """Return CPU milliseconds per edit. Making the pictures is not counted; reading them is."""
    spent = 0.0
    for seed in range(edits // group):
        source, candidates = images(side, group, seed)
        start = time.process_time()
        group_edits = [Edit(source=source, edited=candidate, instruction="Make it red") for candidate in candidates]
        scores = reward(group_edits, judge, concurrency=2 * group)
        spent += time.process_time() - start
        assert all(score is not None for score in scores)
    return spent / (edits // group * group) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--side", type=int, nargs="*", default=[512, 1024])
    parser.add_argument("--group", type=int, default=8)
    options = parser.parse_args()
    server: Any = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().strip()
        with Judge("openai:gpt-4.1", base_url=url, mode="plain") as judge:
            for side in options.side:
                measure(judge, side, 3 * options.group, options.group)
                each = measure(judge, side, options.edits, options.group)
                print(f"{side} × {side}, two criteria, groups of {options.group}: {each:.1f} ms CPU an edit")
    finally:
        server.kill()


if __name__ == "__main__":
    main()
