"""Check that a long batch stays as fast and as small as a short one, and measure what is done with its run afterwards.

    python benchmarks/growth.py                              # 20 000 edits of 64 × 64 without tools
    python benchmarks/growth.py --scenario tools --edits 2000 --size 1280x960
    python benchmarks/growth.py --edits 2000                 # a tenth of it

Memory is what the process and those it began hold, counted in the second and in the last tenth of the units while they are
judged; the peak is that of the whole command, which reads all verdicts for its summary. The CPU time a unit takes is counted in
the same tenths: other work on the machine disturbs it less than seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import batch

AFTERWARDS = {
    "report": ["report", "RUN"],
    "report --format html": ["report", "RUN", "--format", "html", "--out", "OUT"],
    "export": ["export", "RUN", "--format", "jsonl", "--out", "OUT"],
    "agree": ["agree", "RUN"],
}
STUDIO = """
import sys, time
from pathlib import Path
from starlette.testclient import TestClient
from editloupe.servers.studio.app import create_app
from editloupe.servers.studio.settings import StudioSettings
began, run = time.perf_counter(), Path(sys.argv[1])
settings = StudioSettings(runs=(run,))
app = create_app(settings)
app.state.studio.pages.warm()
opened = time.perf_counter()
with TestClient(app, base_url="http://127.0.0.1:8642") as client:
    client.headers["authorization"] = f"Bearer {settings.token}"
    assert client.get(f"/runs/{run.name}").status_code == 200
    listed = time.perf_counter()
print(f"opened in {opened - began:.2f} s, a page in {listed - opened:.2f} s")
"""
PICTURES = 500
"""Different pairs of pictures; a longer manifest uses them again with other instructions."""


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        manifest = make_edits(Path(folder), options.edits, options.size)
        run = Path(folder) / "run"
        judge(options, manifest, run)
        for name, arguments in AFTERWARDS.items():
            there = {"RUN": str(run), "OUT": str(Path(folder) / "out")}
            command = [sys.executable, "-c", batch.START, *(there.get(part, part) for part in arguments)]
            wall, cpu, memory, _ = batch.run_timed(command)
            print(f"{name:22} {wall:7.1f} s   CPU {cpu:6.1f} s   peak {memory:.0f} MB", flush=True)
        print(f"{'studio, list of edits':22} {studio_list(run)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=20_000)
    parser.add_argument("--size", type=batch.size, default=(64, 64))
    parser.add_argument("--scenario", choices=batch.SCENARIOS, default="plain")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--folder", help="where to put pictures and run; else the system's folder for such things")
    return parser.parse_args()


def make_edits(folder: Path, count: int, size: tuple[int, int]) -> Path:
    """Write a manifest of this many edits, with labels of people beside them."""
    pairs = min(PICTURES, count)
    lines = [json.loads(line) for line in batch.make_edits(folder, pairs, size).read_text().splitlines()]
    labels = ("Flawless Execution", "Wrong Action")
    manifest = folder / "long.jsonl"
    with manifest.open("w") as out:
        for number in range(count):
            human = {"instruction_following": labels[number % 2], "visual_consistency": "Single Anomaly"}
            facts = {"id": f"e{number}", "instruction": f"Paint ball {number} red", "human": human}
            out.write(json.dumps({**lines[number % pairs], **facts, "model": f"m{number % 4}"}) + "\n")
    return manifest


def judge(options: argparse.Namespace, manifest: Path, run: Path) -> None:
    """Judge the manifest, looking at memory and time on the way."""
    units = 2 * options.edits
    print(
        f"{options.edits} edits of {options.size[0]} × {options.size[1]}, {options.scenario}, {units} units", end="; "
    )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    seen: list[tuple[int, float, float]] = []
    started = time.perf_counter()
    with batch.Server(options) as server:
        arguments = [
            server.url if part == "URL" else part for part in batch.ours(options, manifest, run, options.executor)
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", batch.START, *arguments, "--quiet"],
            cwd=batch.ROOT,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OPENAI_API_KEY": "benchmark-key"},
        )
        while process.poll() is None:
            time.sleep(1)
            seen.append((done(run), batch.core_seconds(process.pid), batch.megabytes(process.pid)))
    if process.returncode:
        raise SystemExit(f"the batch ended with {process.returncode}")
    seen = [sample for sample in seen if sample[2]]
    early = [sample for sample in seen if units / 10 <= sample[0] <= units / 5] or seen[:1]
    late = [sample for sample in seen if 0.9 * units <= sample[0] < units] or seen[-1:]
    highest = [max(memory for _, _, memory in part) for part in (early, late, seen)]
    print(
        f"memory at a tenth {highest[0]:.0f} MB, at the last units {highest[1]:.0f} MB: {highest[1] / highest[0]:.2f} ×"
    )
    print(f"peak {highest[2]:.0f} MB, with the means that are told once all is judged")
    paces = [pace(part) for part in (early, late)]
    if all(paces):
        first, last = paces
        print(f"CPU a unit at a tenth {first * 1000:.1f} ms, at the end {last * 1000:.1f} ms: {last / first:.2f} ×")
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    own = sum(file.stat().st_size for file in run.glob("run.sqlite*"))
    seconds = time.perf_counter() - started
    print(f"run folder {size / units:.0f} bytes a unit, the database {own / units:.0f} of them; {seconds:.0f} s in all")


def pace(part: list[tuple[int, float, float]]) -> float:
    """Return the core-seconds a unit took in a part of the run; 0 where too little was seen of it."""
    (first, began, _), (last, ended, _) = part[0], part[-1]
    return (ended - began) / (last - first) if last > first else 0.0


def done(run: Path) -> int:
    """Return how many units a run holds at this moment."""
    try:
        with closing(sqlite3.connect(f"file:{run / 'run.sqlite'}?mode=ro", uri=True, timeout=1)) as opened:
            return int(opened.execute("SELECT count(*) FROM units").fetchone()[0])
    except sqlite3.Error:
        return 0


def studio_list(run: Path) -> str:
    """Say how long the studio takes to open the run and to list its edits, in a process of its own."""
    _, cpu, memory, output = batch.run_timed([sys.executable, "-c", STUDIO, str(run)])
    return f"{output.strip()}   CPU {cpu:.1f} s   peak {memory:.0f} MB"


if __name__ == "__main__":
    main()
