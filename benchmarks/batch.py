"""Measure how fast a batch is judged against a loopback server with a fixed reply time, compared with the ideal.

    python benchmarks/batch.py                      # 128 edits of 1280 × 960, 2 criteria × 2 replies of 0.5 s, 32 at once
    python benchmarks/batch.py --runs 5 --bare      # five rounds, with a bare loop of posts and bare LangGraph in each
    python benchmarks/batch.py --peer PYTHON        # also by inspect_ai, installed for that interpreter
    python benchmarks/batch.py --ray                # also by two Ray workers, against this machine's executor
    python benchmarks/batch.py --text               # also edits about text, against the same pictures with other instructions
    python benchmarks/batch.py --rules              # also by the embedded judge, which asks no server
    python benchmarks/batch.py --scenario plain --edits 256      # no tools: one reply a criterion
    python benchmarks/batch.py --profile            # where the core-seconds go

The ideal is replies × seconds a reply ÷ replies in flight. Judging is counted at the server, from the first request to the last
reply; what the process takes before and after is its start and end. The server runs in a process of its own on the same
machine, so its CPU time is part of what the cores have to carry. How many cores other work took meanwhile is printed next to each
measurement: if that is more than a tenth or so, seconds say little. The CPU time of Ray's workers counts as other work's.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

KEY = {"OPENAI_API_KEY": "benchmark-key"}
START = "from editloupe.__main__ import main; main()"
SCENARIOS = {
    "tools": ("localize_differences",),
    "looks": ("localize_differences", "zoom_in_image", "zoom_in_image"),
    "zoom": ("zoom_in_image", "zoom_in_image", "zoom_in_image"),
    "plain": (),
}
"""Tools the scripted model asks for, one per reply, before it answers."""
OURS, RAY, POSTS, GRAPH, PEER = "editloupe", "on Ray", "bare posts", "bare LangGraph", "inspect_ai"
TEXT, SIGNS = "text", "text on signs"
"""Rows of `--text`: the same pictures with instructions about text, and pictures on which a word changes."""
RULES = "rules"
"""Row of `--rules`: the embedded judge. All its wall time counts as judging."""
JUDGED = (OURS, RAY, TEXT, SIGNS, RULES)
WORDS = ("OPEN", "CLOSED", "EXIT", "ENTER", "BAKERY", "MARKET", "HOTEL", "MUSEUM", "TICKETS", "LIBRARY")


def main() -> None:
    options = parse()
    if options.serve:
        serve(options)
        return
    replies = options.edits * 2 * (len(SCENARIOS[options.scenario]) + 1)
    ideal = replies * options.delay / options.concurrency
    width, height = options.size
    print(
        f"{options.edits} edits of {width} × {height} × 2 criteria, {options.scenario}: {replies} replies of {options.delay} s"
    )
    print(
        f"{options.concurrency} at once, ideal {ideal:.2f} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    )
    compileall.compile_dir(ROOT / "editloupe", quiet=2)  # as installing a package does
    with tempfile.TemporaryDirectory() as folder:
        manifest = make_edits(Path(folder), options.edits, options.size)
        if options.text:
            make_text_edits(Path(folder), options.edits, options.size)
        rounds: dict[str, list[dict[str, float]]] = {}
        for number in range(options.runs):
            for name, command in commands(options, manifest, Path(folder) / f"run{number}").items():
                facts = measure(name, command, options)
                rounds.setdefault(name, []).append(facts)
                show(name, facts, ideal, replies)
            if options.profile:
                profile(options, manifest, Path(folder) / f"profile{number}", replies)
        summarise(rounds, ideal)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=128)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds a reply takes")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--size", type=size, default=(1280, 960), help="pictures are WIDTHxHEIGHT")
    parser.add_argument("--scenario", choices=SCENARIOS, default="tools")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument("--ray", action="store_true", help="two Ray workers in each round, and the local executor")
    parser.add_argument("--text", action="store_true", help="edits about text in each round, with and without a sign")
    parser.add_argument("--rules", action="store_true", help="the embedded judge in each round")
    parser.add_argument("--bare", action="store_true", help="a bare loop of posts and bare LangGraph in each round")
    parser.add_argument("--peer", help="a Python that has inspect_ai and openai")
    parser.add_argument("--profile", action="store_true", help="once more with clocks around the parts")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def size(text: str) -> tuple[int, int]:
    width, height = text.split("x")
    return int(width), int(height)


def make_edits(folder: Path, count: int, size: tuple[int, int]) -> Path:
    """Write edits of photograph-like pictures: smooth shades with grain, one object recoloured in the edit."""
    import cv2
    import numpy as np

    rng = np.random.default_rng(0)
    grain = rng.normal(0, 4, (size[1], size[0], 3))
    for number in range(count):
        coarse = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        source = cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC).astype(np.int16)
        source = np.clip(source + np.roll(grain, number, axis=1), 0, 255).astype(np.uint8)
        edited = source.copy()
        x, y = (int(v) for v in rng.integers(min(size) // 8, min(size) // 2, 2))
        cv2.circle(edited, (x, y), max(2, min(size) // 24), (40, 40, 220), -1)
        for name, pixels in (("s", source), ("e", edited)):
            cv2.imwrite(str(folder / f"{name}{number}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
    return write_manifest(folder / "manifest.jsonl", "e", [f"Paint ball {number} red" for number in range(count)])


def make_text_edits(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Write manifests of edits about text: the pictures that exist already, and those with a sign whose word changes."""
    import cv2

    write_manifest(manifest_of(TEXT, folder), "e", [f"Change the word on ball {number}" for number in range(count)])
    scale = min(size) / 960
    instructions = []
    for number in range(count):
        words = WORDS[number % len(WORDS)], WORDS[(3 * number + 1) % len(WORDS)]
        source = cv2.imread(str(folder / f"s{number}.jpg"))
        left, top = (round(scale * v) for v in (100 + 5 * (number % 128), 100 + 4 * (number % 97)))
        for name, word in zip("ab", words, strict=True):
            pixels = source.copy()
            corner = left + round(160 * scale), top + round(44 * scale)
            cv2.rectangle(pixels, (left, top), corner, (235, 235, 235), -1)
            position = left + round(8 * scale), top + round(32 * scale)
            cv2.putText(pixels, word, position, cv2.FONT_HERSHEY_SIMPLEX, 0.9 * scale, (30, 30, 30), 2, cv2.LINE_AA)
            cv2.imwrite(str(folder / f"{name}{number}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
        instructions.append(f'Change the word on sign {number} from "{words[0]}" to "{words[1]}"')
    write_manifest(manifest_of(SIGNS, folder), "b", instructions)


def manifest_of(row: str, folder: Path) -> Path:
    """Return the manifest of a row of the table."""
    return folder / {TEXT: "text.jsonl", SIGNS: "signs.jsonl"}.get(row, "manifest.jsonl")


def write_manifest(file: Path, edited: str, instructions: list[str]) -> Path:
    """Write a manifest whose edited pictures are called so, with one edit per instruction."""
    source = {"e": "s", "b": "a"}[edited]
    lines = [
        {"id": f"e{n}", "source": f"{source}{n}.jpg", "edited": f"{edited}{n}.jpg", "instruction": instruction}
        for n, instruction in enumerate(instructions)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def repeat_edits(manifest: Path, count: int) -> Iterator[dict[str, Any]]:
    """Yield edits that use the pictures of a manifest in turn, each with an id and an instruction of its own."""
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    for number in range(count):
        yield {**lines[number % len(lines)], "id": f"e{number}", "instruction": f"Paint ball {number} red"}


class Server:
    """The scripted server in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--serve", "--delay", str(options.delay), "--scenario", options.scenario]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.facts: dict[str, float] = {}

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> dict[str, float]:
        """End the server; return what it counted."""
        if not self.facts:
            out, _ = self._process.communicate("\n", timeout=30)
            self.facts = json.loads(out)
        return self.facts


def serve(options: argparse.Namespace) -> None:
    from tests.scripted import Answer, Request, ScriptedServer, call, final

    looks = SCENARIOS[options.scenario]
    came: list[float] = []

    def script(request: Request) -> Answer:
        came.append(time.monotonic())
        turn = sum(message["role"] == "assistant" for message in request.body["messages"])
        if turn >= len(looks):
            label = "Single Anomaly" if "Single Anomaly" in str(request.body["messages"][0]) else "Flawless Execution"
            return final(label)
        if looks[turn] == "localize_differences":
            return call(looks[turn], comparison_image_1="Source Image", comparison_image_2="Edited Image")
        box = [100 + 40 * turn, 100, 300 + 40 * turn, 320]
        return call(looks[turn], bbox_2d=box, target_image="Edited Image")

    with ScriptedServer(script, delay=options.delay, checks=False, log=False) as server:
        print(server.openai_url, flush=True)
        sys.stdin.readline()
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        judging = max(came) + options.delay - min(came) if came else 0.0
        facts = {"served": server.served, "peak": server.peak, "judging": judging}
        print(json.dumps({**facts, "server_cpu": cpu.ru_utime + cpu.ru_stime}))


def commands(options: argparse.Namespace, manifest: Path, out: Path) -> dict[str, list[str]]:
    """Return who does the work, and how each is called; URL stands for the server."""
    turns, many = len(SCENARIOS[options.scenario]) + 1, str(options.concurrency)
    commands_by_name = {OURS: [sys.executable, "-c", START, *ours(options, manifest, out, options.executor)]}
    for row in (TEXT, SIGNS) if options.text else ():
        own, beside = manifest_of(row, manifest.parent), out.with_name(f"{out.name}-{row}")
        commands_by_name[row] = [sys.executable, "-c", START, *ours(options, own, beside, options.executor)]
    if options.rules:
        asked = ["--out", str(out.with_name(f"{out.name}-rules")), "--judge", "rules", "--json"]
        commands_by_name[RULES] = [sys.executable, "-c", START, "batch", str(manifest), *asked]
    if options.ray:
        beside = out.with_name(f"{out.name}-ray")
        commands_by_name[RAY] = [sys.executable, "-c", START, *ours(options, manifest, beside, "ray")]
    if options.bare:
        bare = [sys.executable, str(ROOT / "benchmarks" / "bare_loops.py")]
        commands_by_name[POSTS] = [*bare, "posts", str(manifest), "URL", many, str(turns)]
        commands_by_name[GRAPH] = [*bare, "graph", str(manifest), "URL", many, str(turns)]
    if options.peer:
        commands_by_name[PEER] = [
            options.peer,
            str(ROOT / "benchmarks" / "peer_inspect.py"),
            str(manifest),
            "URL",
            many,
        ]
    return commands_by_name


def ours(options: argparse.Namespace, manifest: Path, out: Path, executor: str) -> list[str]:
    """Return the arguments of our command."""
    mode = "plain" if options.scenario == "plain" else "tools"
    asked = ["--judge", "openai:bench", "--base-url", "URL", "--mode", mode, "--tool-calls", "native"]
    ray = ["--executor", "ray", "--ray-workers", "2"] if executor == "ray" else []
    return [
        "batch",
        str(manifest),
        "--out",
        str(out),
        *asked,
        "--concurrency",
        str(options.concurrency),
        "--json",
        *ray,
    ]


def measure(name: str, command: list[str], options: argparse.Namespace) -> dict[str, float]:
    """Run one of them against a fresh server."""
    with Server(options) as server:
        before = all_core_seconds() - time.process_time() - core_seconds(server.pid)
        wall, cpu, watch, output = run_timed([server.url if part == "URL" else part for part in command])
        others = all_core_seconds() - time.process_time() - core_seconds(server.pid) - before - cpu
        counted = server.stop()
    expected = 0 if name == RULES else options.edits * 2 * (len(SCENARIOS[options.scenario]) + 1)
    if counted["served"] != expected:
        raise SystemExit(f"{name} sent {counted['served']} requests, not {expected}: {output[-500:]}")
    if name in JUDGED and json.loads(output)["judged"] != options.edits * 2:
        raise SystemExit(f"not everything was judged: {output}")
    if name == RULES:
        counted["judging"] = wall
    memory = {"memory": watch.peak, "main": watch.main, "largest": watch.largest_child}
    return {"wall": wall, "cpu": cpu, **memory, "others": max(0.0, others) / wall, **counted}


def all_core_seconds() -> float:
    """Return what all processes of the machine have used since it was started, the host's other guests with them."""
    user, nice, system, _, _, irq, softirq, steal = (
        int(field) for field in Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def core_seconds(pid: int) -> float:
    """Return the CPU time of a process so far; that of other processes is not counted."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_timed(command: list[str]) -> tuple[float, float, MemoryWatch, str]:
    """Run a command; return wall seconds, CPU seconds with its processes, its peak memory, and output."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, env={**os.environ, **KEY})
        with MemoryWatch(process.pid) as watch:
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
        out.seek(0)
        output = out.read()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    return wall, usage.ru_utime + usage.ru_stime, watch, output


class MemoryWatch:
    """What a process and those it began hold at most, looked at ten times a second while the caller waits for its end."""

    def __init__(self, pid: int) -> None:
        self.peak = self.main = self.largest_child = 0.0
        """Megabytes: of all processes together (shared pages counted once); resident, of the first and of its largest child."""
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            held = megabytes(self._pid)
            self.peak = max(self.peak, sum(shared for shared, _ in held.values()))
            self.main = max(self.main, held.get(self._pid, (0.0, 0.0))[1])
            children = (resident for pid, (_, resident) in held.items() if pid != self._pid)
            self.largest_child = max(self.largest_child, *children, 0.0)


def megabytes(pid: int) -> dict[int, tuple[float, float]]:
    """Return the proportional and the resident memory of a process and of those it began, at this moment."""
    held: dict[int, tuple[float, float]] = {}
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            lines = Path(f"/proc/{current}/smaps_rollup").read_text().splitlines()
            for thread in Path(f"/proc/{current}/task").iterdir():  # a child is listed by the thread that began it
                waiting += [int(child) for child in (thread / "children").read_text().split()]
        except OSError:
            continue
        kilobytes = {line.split()[0]: int(line.split()[1]) for line in lines[1:]}
        held[current] = kilobytes.get("Pss:", 0) / 1024, kilobytes.get("Rss:", 0) / 1024
    return held


def show(name: str, facts: dict[str, float], ideal: float, replies: int) -> None:
    judging, cpu = facts["judging"], facts["cpu"]
    around = facts["wall"] - judging
    print(f"{name:15} {ideal / judging:5.0%} of ideal: {judging:6.2f} s   start and end {around:4.1f} s", end="   ")
    print(f"CPU {cpu:5.1f} s, {cpu / replies * 1000:.1f} ms a reply   peak {facts['memory']:.0f} MB", end="   ")
    print(f"(resident: main {facts['main']:.0f}, largest child {facts['largest']:.0f})", end="   ")
    print(f"server: {facts['peak']:.0f} at once, CPU {facts['server_cpu']:.1f} s", end="   ")
    print(f"others: {facts['others']:.2f} cores", flush=True)


def profile(options: argparse.Namespace, manifest: Path, out: Path, replies: int) -> None:
    """Judge once more with clocks around the parts, and say where the core-seconds went."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        command = [
            sys.executable,
            str(ROOT / "benchmarks" / "batch_clocks.py"),
            file.name,
            *ours(options, manifest, out, options.executor),
        ]
        measure(OURS, command, options)
        counted: dict[str, Any] = json.load(file)
    print(f"core-seconds with clocks: {counted['all']:.1f}")
    for part, seconds in sorted(counted["parts"].items(), key=lambda item: -item[1]):
        calls = counted["calls"].get(part)
        print(
            f"  {part:15} {seconds:6.2f} s  {seconds / replies * 1000:5.2f} ms a reply",
            f"{calls} calls" if calls else "",
        )


def summarise(rounds: dict[str, list[dict[str, float]]], ideal: float) -> None:
    """Print a table of medians and ranges, ratios first."""
    names = ("", "of ideal", "against editloupe", "judging", "start and end", "CPU", "peak", "cores of others")
    print(f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
    own = statistics.median(facts["judging"] for facts in rounds[OURS])
    for name, facts in rounds.items():
        seconds = [run["judging"] for run in facts]
        middle = statistics.median(seconds)
        arounds = [run["wall"] - run["judging"] for run in facts]
        busy = [run["others"] for run in facts]
        cpu, peak = (statistics.median(run[key] for run in facts) for key in ("cpu", "memory"))
        print(
            f"| {name} | {ideal / middle:.0%} | {middle / own:.2f} × | {spread(seconds)} | {spread(arounds)} "
            f"| {cpu:.1f} s | {peak:.0f} MB | {min(busy):.2f}–{max(busy):.2f} |"
        )


def spread(seconds: list[float]) -> str:
    """Return the median with the range."""
    return f"{statistics.median(seconds):.1f} s ({min(seconds):.1f}–{max(seconds):.1f})"


if __name__ == "__main__":
    main()
