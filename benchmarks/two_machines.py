"""Judge a batch on a Ray cluster of two machines, kill one of them and the driver, and count what was asked twice.

    sudo python benchmarks/two_machines.py              # 40 edits for each row of the table
    sudo python benchmarks/two_machines.py --edits 200

A machine is a network namespace with a file system of its own: Ray's folder and the run of the first machine do not exist on
the second, and only the pictures are shared. Their one connection is a pair of virtual interfaces. The first machine has the
driver, the model and one worker; the second has two workers. Storage is made slow by a wait before every write to the run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import batch

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
PORT = 6379
AGENTS = ("metrics-export", "dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent")
CONCURRENCY, WORKERS = 6, 3
SCENARIOS = {
    "nothing": (0.0, ""),
    "second machine, half-way": (0.0, "machine"),
    "driver, half-way": (0.0, "driver"),
    "both, slow storage": (0.05, "both"),
}
"""What is killed: seconds that every write takes longer, and which."""
MOST = 600
"""Seconds for each row of the table."""


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in ("--model", "--driver"):
        {"--model": serve_model, "--driver": run_driver}[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=40)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the machines are removed
    with tempfile.TemporaryDirectory(prefix="el") as folder, ExitStack() as stack:
        Machines(Path(folder), stack, options.edits).compare()


def serve_model(host: str) -> None:
    """Serve a model that looks twice and answers; print counts by model for every line of standard input."""
    from tests.evals.batch.test_interruptions import looks_then_answers
    from tests.scripted import Request, ScriptedServer

    asked: dict[str, Counter[str]] = {}

    def answer(request: Request) -> Any:
        body = json.dumps(request.body, sort_keys=True).encode()
        asked.setdefault(request.model, Counter())[hashlib.sha256(body).hexdigest()] += 1
        return looks_then_answers(request)

    with ScriptedServer(answer, delay=0.1, checks=False, log=False, host=host) as server:
        print(server.openai_url, flush=True)
        for line in sys.stdin:
            counts = asked.get(line.strip(), Counter())
            print(json.dumps({"asked": counts.total(), "different": len(counts)}), flush=True)


def run_driver(delay: str, *arguments: str) -> None:
    """Run the command line; every write to the run takes longer."""
    from editloupe.cli.main import run
    from editloupe.evals.runs.store import Run

    def slow(write: Any) -> Any:
        def wait(*values: Any, **options: Any) -> Any:
            time.sleep(float(delay))
            return write(*values, **options)

        return wait

    if float(delay):
        for name in ("keep_reply", "add_spending", "save_all", "upsert_edits", "checkpoint"):
            setattr(Run, name, slow(getattr(Run, name)))
    sys.exit(run(list(arguments)))


class Machines:
    """Two machines, and what is run on them."""

    def __init__(self, folder: Path, stack: ExitStack, edits: int) -> None:
        self._folder, self._edits = folder, edits
        self._names = [f"el{os.getpid()}{letter}" for letter in "ab"]
        self._environment = {
            **os.environ,
            **batch.KEY,
            "PYTHONPATH": str(batch.ROOT),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "NO_PROXY": f"127.0.0.1,{FIRST},{SECOND}",
            "no_proxy": f"127.0.0.1,{FIRST},{SECOND}",
        }
        for part in ("first", "second", "pictures", "ray"):
            (folder / part).mkdir()
        self._connect(stack)
        self._manifest = batch.make_edits(folder / "pictures", edits, (96, 96))
        self._model = self._start(0, sys.executable, __file__, "--model", FIRST, stdin=-1, stdout=-1)
        self._url = self._model.stdout.readline().strip()
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        for number, name in enumerate(AGENTS):  # with ports that are known, Ray does not wait for its agents
            ray += [f"--{name}-port", str(PORT + 1 + number)]
        head = ["--head", "--port", str(PORT), "--node-ip-address", FIRST, "--num-cpus", "1", "--temp-dir"]
        self._start_ray(0, ":", *ray, *head, str(folder / "ray"), "--include-dashboard=false")
        self._second = [*ray, "--address", f"{FIRST}:{PORT}", "--node-ip-address", SECOND, "--num-cpus", "2"]
        while not list(folder.glob("ray/session_latest/dashboard_agent_listen_port*")):
            time.sleep(1)
        time.sleep(5)
        self._start_second()

    def _connect(self, stack: ExitStack) -> None:
        first, second = self._names
        stack.callback(self._end)
        for name in self._names:
            ip("netns", "add", name)
        ip("link", "add", "el0", "netns", first, "type", "veth", "peer", "name", "el0", "netns", second)
        for name, address in ((first, FIRST), (second, SECOND)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "el0")
            for device in ("lo", "el0"):
                ip("-n", name, "link", "set", device, "up")

    def _end(self) -> None:
        for number, name in enumerate(self._names):
            self.kill(number)
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _start(self, machine: int, *command: str, **options: Any) -> Any:
        return subprocess.Popen(
            ["ip", "netns", "exec", self._names[machine], *command],
            cwd=self._folder / ("first", "second")[machine],
            env=self._environment,
            text=True,
            start_new_session=True,
            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options},
        )

    def _start_ray(self, machine: int, prepare: str, *command: str) -> None:
        """Start Ray on a machine, again if it ends: on a busy machine it gives up on its own agents."""
        self._start(machine, "unshare", "-m", "sh", "-c", f'{prepare}; while :; do "$@"; sleep 1; done', "sh", *command)

    def _start_second(self) -> None:
        """Start the second machine; the first one's folders are empty on it."""
        hidden = " && ".join(f"mount -t tmpfs none {self._folder / part}" for part in ("ray", "first"))
        self._start_ray(1, hidden, *self._second)

    def kill(self, machine: int) -> None:
        """Kill every process of a machine at once."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._names[machine]], capture_output=True, text=True, check=False
        )
        for pid in map(int, listed.stdout.split()):
            os.kill(pid, signal.SIGKILL)

    def count(self, model: str) -> dict[str, int]:
        """Return how many requests the model has had, and how many different ones."""
        self._model.stdin.write(f"{model}\n")
        self._model.stdin.flush()
        counts: dict[str, int] = json.loads(self._model.stdout.readline())
        return counts

    def compare(self) -> None:
        """Print the table."""
        needed = self._edits * 6
        print(f"{self._edits} edits, {needed} requests needed, {CONCURRENCY} in flight; load {os.getloadavg()[0]:.1f}")
        expected = self._verdicts(self._judge("local", 0.0, "", executor="local"))
        print(
            "| killed | verdicts as locally | requests | asked twice | recorded in the run | seconds |\n"
            + "|---" * 6
            + "|"
        )
        for number, (name, (delay, killed)) in enumerate(SCENARIOS.items()):
            began = time.monotonic()
            run = self._judge(f"row{number}", delay, killed)
            verdicts = self._verdicts(run)
            same = sum(verdict in expected for verdict in verdicts)
            counts, spent = self.count(f"row{number}"), self._spent(run)
            twice = counts["asked"] - counts["different"]
            print(
                f"| {name} | {same} of {2 * self._edits} | {counts['asked']} | {twice} | {spent} "
                f"| {time.monotonic() - began:.0f} |",
                flush=True,
            )

    def _judge(self, model: str, delay: float, killed: str, executor: str = "ray") -> Path:
        """Judge all edits and kill on the way; a killed driver is started again with the same command."""
        run = self._folder / "first" / model
        ray = ["--executor", "ray", "--ray-address", f"{FIRST}:{PORT}", "--ray-workers", str(WORKERS)]
        judge = ["--judge", f"openai:{model}", "--base-url", self._url, "--mode", "tools", "--tool-calls", "native"]
        arguments = ["batch", str(self._manifest), "--out", str(run), *judge, "--concurrency", str(CONCURRENCY)]
        command = [sys.executable, __file__, "--driver", str(delay), *arguments, "--quiet"]
        command += ray if executor == "ray" else []
        deadline = time.monotonic() + MOST
        driver = self._start(0, *command, stderr=None)
        while killed and driver.poll() is None and time.monotonic() < deadline:
            if self.count(model)["asked"] >= self._edits * 3:
                if killed in ("machine", "both"):
                    self.kill(1)
                    self._start_second()
                if killed in ("driver", "both"):
                    driver.kill()
                    driver.wait()
                    driver = self._start(0, *command, stderr=None)
                killed = ""
            time.sleep(0.05)
        try:
            driver.wait(max(1.0, deadline - time.monotonic()))
        finally:
            driver.kill()
        return run

    def _verdicts(self, folder: Path) -> list[tuple[Any, ...]]:
        from editloupe.evals.runs.store import Run

        with Run.open(folder) as run:
            return [
                (unit.name, unit.criterion, unit.shown, getattr(unit.outcome, "label", unit.outcome.status))
                for unit in run.units()
            ]

    def _spent(self, folder: Path) -> int:
        from editloupe.evals.runs.store import Run

        with Run.open(folder) as run:
            return run.read_spending()[0].requests


def ip(*arguments: str) -> None:
    """Run the command `ip`."""
    subprocess.run(["ip", *arguments], check=True)


if __name__ == "__main__":
    sys.path.insert(0, str(batch.ROOT))
    main()
