"""How fast a batch is judged against a loopback server whose replies take a fixed time, with the ideal beside it.

    python benchmarks/batch.py                 # 64 edits, 2 criteria, 4 replies each, 32 at once, 0.5 s a reply
    python benchmarks/batch.py --scenario plain --edits 256
    python benchmarks/batch.py --peer PYTHON   # the same work by inspect_ai, installed for that interpreter

The ideal is replies × seconds a reply ÷ replies in flight. The server runs in a process of its own on the same machine,
so its CPU time is part of what two cores have to carry.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

START = "from editloupe.__main__ import main; main()"
SCENARIOS = {
    "tools": ("localize_differences", "zoom_in_image", "zoom_in_image"),
    "zoom": ("zoom_in_image", "zoom_in_image", "zoom_in_image"),
    "plain": (),
}
"""Tools the scripted model asks for, one a reply, before it answers."""


def main() -> None:
    options = parse()
    if options.serve:
        serve(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        manifest = make_edits(Path(folder), options.edits, options.side)
        replies = options.edits * 2 * (len(SCENARIOS[options.scenario]) + 1)
        ideal = replies * options.delay / options.concurrency
        print(
            f"{options.edits} edits × 2 criteria, {replies} replies of {options.delay} s, {options.concurrency} at once"
        )
        print(f"ideal {ideal:.2f} s ({options.scenario}, {options.side}² JPEG, {os.cpu_count()} cores)")
        for number in range(options.runs):
            with Server(options) as server:
                ours = run_ours(server, manifest, Path(folder) / f"run{number}", options)
            show("editloupe", ours, ideal, replies)
            where_time_goes(Path(folder) / f"run{number}", ours)
        if options.peer:
            with Server(options) as server:
                peer = run_peer(server, manifest, options)
            show("inspect_ai", peer, ideal, replies)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds a reply takes")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--side", type=int, default=1024, help="pictures are squares of this side")
    parser.add_argument("--scenario", choices=SCENARIOS, default="tools")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--peer", help="a Python that has inspect_ai and openai")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_edits(folder: Path, count: int, side: int) -> Path:
    """Write edits of photograph-like pictures: smooth shades with grain, one object recoloured in the edit."""
    import cv2
    import numpy as np

    rng = np.random.default_rng(0)
    lines = []
    for number in range(count):
        coarse = rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)
        source = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).astype(np.int16)
        source = np.clip(source + rng.normal(0, 4, source.shape), 0, 255).astype(np.uint8)
        edited = source.copy()
        x, y = (int(v) for v in rng.integers(side // 8, side // 2, 2))
        cv2.circle(edited, (x, y), side // 24, (40, 40, 220), -1)
        for name, pixels in (("s", source), ("e", edited)):
            cv2.imwrite(str(folder / f"{name}{number}.jpg"), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
        files = {"source": f"s{number}.jpg", "edited": f"e{number}.jpg"}
        lines.append(json.dumps({"id": f"e{number}", **files, "instruction": f"Paint ball {number} red"}))
    manifest = folder / "manifest.jsonl"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


class Server:
    """The scripted server in a process of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--serve", "--delay", str(options.delay), "--scenario", options.scenario]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.facts: dict[str, float] = {}

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

    def script(request: Request) -> Answer:
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
        print(json.dumps({"served": server.served, "peak": server.peak, "server_cpu": cpu.ru_utime + cpu.ru_stime}))


def run_ours(server: Server, manifest: Path, out: Path, options: argparse.Namespace) -> dict[str, float]:
    """Judge the manifest with the command line, in a process of its own."""
    command = [sys.executable, "-c", START, "batch", str(manifest), "--out", str(out), "--judge", "openai:bench"]
    command += ["--base-url", server.url, "--concurrency", str(options.concurrency), "--json", "--tool-calls", "native"]
    command += ["--mode", "plain" if options.scenario == "plain" else "tools"]
    wall, cpu, memory, output = timed(command)
    summary = json.loads(output)
    if summary["judged"] != options.edits * 2:
        raise SystemExit(f"not everything was judged: {output}")
    return {"wall": wall, "cpu": cpu, "memory": memory, "judging": summary["seconds"], **server.stop()}


def run_peer(server: Server, manifest: Path, options: argparse.Namespace) -> dict[str, float]:
    """Judge the same edits with inspect_ai: same pictures, same replies, a crop of the same size for every zoom."""
    script = ROOT / "benchmarks" / "peer_inspect.py"
    command = [options.peer, str(script), str(manifest), server.url, str(options.concurrency)]
    wall, cpu, memory, output = timed(command)
    return {"wall": wall, "cpu": cpu, "memory": memory, **json.loads(output.splitlines()[-1]), **server.stop()}


def timed(command: list[str]) -> tuple[float, float, float, str]:
    """Run a command; return wall seconds, CPU seconds, peak megabytes and output."""
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, env={**os.environ, "OPENAI_API_KEY": "benchmark-key"})
        memory = 0.0
        while True:
            memory = max(memory, peak_megabytes(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.05)
        wall = time.perf_counter() - started
        out.seek(0)
        output = out.read()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    return wall, usage.ru_utime + usage.ru_stime, memory, output


def peak_megabytes(pid: int) -> float:
    """Return a process's peak so far, as the kernel counts it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def show(name: str, facts: dict[str, float], ideal: float, replies: int) -> None:
    judging, cpu = facts["judging"], facts["cpu"]
    print(f"{name:10}  judging {judging:6.2f} s = {judging / ideal:.2f} × ideal   process {facts['wall']:6.2f} s")
    print(f"{'':10}  CPU {cpu:5.1f} s = {cpu / replies * 1000:.1f} ms a reply   peak {facts['memory']:.0f} MB")
    served, peak, own = facts["served"], facts["peak"], facts["server_cpu"]
    print(f"{'':10}  server: {served:.0f} requests, {peak:.0f} at once, CPU {own:.1f} s")


def where_time_goes(run: Path, facts: dict[str, float]) -> None:
    """Sum the traces: waiting for the model, tools, and the rest of the loops."""
    from editloupe.evals.runs.store import Run

    waiting, looking, whole = 0.0, Counter[str](), 0.0
    with Run.open(run) as opened:
        for edit, *_ in opened.edits():
            for trace in opened.load_trace(edit.id):
                whole += trace.seconds
                for step in trace.steps:
                    waiting += step.seconds
                    for seen in step.observations:
                        looking[f"{seen.tool}{' (remembered)' if seen.cached else ''}"] += seen.seconds
    rest = whole - waiting - sum(looking.values())
    tools = [f"{name} {seconds:.1f} s" for name, seconds in looking.items()]
    parts = [f"model {waiting:.1f} s", *tools, f"rest {rest:.1f} s"]
    print(f"            inside the loops, summed over units: {', '.join(parts)}")


if __name__ == "__main__":
    main()
