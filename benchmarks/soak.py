"""Run `serve` and `batch` through a simulated day of failures, and account for every request and verdict.

    python benchmarks/soak.py                    # 200 000 requests
    python benchmarks/soak.py --requests 20000   # a tenth of it

The model is the scripted server of the tests behind TLS, in a process of its own. The simulated hour follows the number of its
requests, so that a slow machine changes nothing: see `DAY`. `serve` runs all day. `batch` is started again and again with the
same command, and every second session is ended with SIGKILL or SIGTERM. Waits and pauses are 100 times shorter than usual.
At the end the batch is completed without failures; what the judge's replies left unjudged stays so.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import mmap
import os
import random
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import batch

DAY = {
    2: "429 with seconds to wait",
    3: "429 without",
    4: "429 with a date",
    5: "500, 502, 503",
    7: "no reply",
    8: "connection cut",
    9: "cut in the reply",
    10: "unreadable answer",
    11: "empty answer",
    12: "body is not JSON",
    13: "body cut short",
    15: "certificate expired",
    17: "clock 1 h ahead",
    18: "clock 2 h behind",
    20: "everything",
}
"""What fails in an hour, for half of its requests. From hour 14 on the model has another version."""
USUAL, BAD = 0.02, 0.5
"""Share of requests that fail in a good and in a bad hour."""
OUTAGE = 4.0
"""Seconds without a valid certificate."""
TIMEOUT = "6"
SHORT = (
    "first_wait=0.005",
    "longest_wait=0.2",
    "longest_retry_after=1.2",
    "limit_pauses=0.05,0.15,0.3",
    "limit_window=1",
)
CLIENTS, CONCURRENCY = 24, 24
NUMBER = "x-soak-number"
"""Header with the number of a request."""
SENT = "sent"
JUMPS = {17: 3600.0, 18: -7200.0, 19: 0.0}


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in ("--model", "--command"):
        {"--model": serve_model, "--command": run_command}[sys.argv[1]](*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200_000, help="requests to the model in the simulated day")
    parser.add_argument("--most-seconds", type=float, default=6 * 3600, help="stop after this time in any case")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Soak(Path(folder), options.requests, options.most_seconds).run())


# The model


def serve_model(folder: str, requests: str) -> None:
    """Serve the model until standard input closes; print the counts so far for every line of it."""
    from tests.scripted import ScriptedServer

    script = Day(Path(folder), int(requests))
    with ScriptedServer(script.answer, checks=False, log=False, tls=script.tls) as server:
        script.server = server
        print(server.openai_url, flush=True)
        for _ in sys.stdin:
            failed = script.handshakes - server.connections
            print(
                json.dumps({"hour": script.hour, "failed": failed, **script.asked, "faults": script.faults}), flush=True
            )


class Day:
    """The script of the model: answers, and the failures of the hour."""

    def __init__(self, folder: Path, requests: int) -> None:
        self.server: Any = None
        self.asked: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.handshakes = 0
        self._arrived = (folder / "arrived").open("w", buffering=1)
        self._folder, self._requests, self._random = folder, requests, random.Random(0)
        self._expires = True
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(folder / "good.pem")
        self.tls.sni_callback = self._note_handshake

    @property
    def hour(self) -> float:
        """The simulated hour."""
        return 24 * self.asked.total() / self._requests

    def _note_handshake(self, *_: object) -> None:
        self.handshakes += 1

    def answer(self, request: Any) -> Any:
        """Return the reply to a request."""
        self.asked[request.model] += 1
        self._arrived.write(request.headers[NUMBER] + "\n")
        if self.hour >= 15 and self._expires:
            self._expires = False
            self.tls.load_cert_chain(self._folder / "expired.pem")
            asyncio.get_running_loop().call_later(OUTAGE, self.tls.load_cert_chain, self._folder / "good.pem")
            asyncio.get_running_loop().call_soon(self.server.cut_connections)
        kind = DAY.get(int(self.hour), "")
        if self.hour >= 24:
            return self._judge(request)
        if self._random.random() >= (BAD if kind in FAULTS or kind == "everything" else USUAL):
            return self._judge(request)
        if kind not in FAULTS:
            kind = self._random.choice(list(FAULTS))
        self.faults[kind] += 1
        return FAULTS[kind](self._judge(request))

    def _judge(self, request: Any) -> Any:
        from tests.scripted import final

        labels = ("Single Anomaly", "Multiple Anomalies")
        if "Scene Collapse" not in str(request.body["messages"][0]):
            labels = ("Wrong Action", "Flawless Execution")
        return final(self._random.choice(labels)).but(served=f"soak-v{1 + (self.hour >= 14)}")


def late(seconds: float) -> str:
    """Return a moment as HTTP writes it."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def make_faults() -> dict[str, Any]:
    """Return what each kind of failure sends in place of an answer."""
    from tests.scripted import Garbage, drop, fault, hang, not_json, wrong_length

    limited = json.dumps(
        {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
    )
    errors = (500, 502, 503)
    return {
        "429 with seconds to wait": lambda _: fault(429, retry_after=0.05),
        "429 without": lambda _: fault(429),
        "429 with a date": lambda _: Garbage(limited.encode(), 429, headers={"retry-after": late(1), "date": late(0)}),
        "500, 502, 503": lambda _: fault(random.choice(errors)),
        "no reply": lambda _: hang(60),
        "connection cut": lambda _: drop(),
        "cut in the reply": lambda _: drop(half=True),
        "unreadable answer": lambda answer: answer.but(text="The pictures are nice."),
        "empty answer": lambda answer: answer.but(text=None),
        "body is not JSON": lambda _: not_json(),
        "body cut short": lambda _: wrong_length(b'{"choices": [', 400),
    }


FAULTS: dict[str, Any] = {}


def make_certificates(folder: Path) -> None:
    """Write an authority, and two certificates of it for this machine: one is valid and one expired yesterday."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, day = datetime.now(UTC), timedelta(days=1)
    authority = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "soak")])

    def sign(name: str, last: datetime, ca: bool) -> Any:
        key = authority if ca else ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) if not ca else own
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(own).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - 9 * day).not_valid_after(last)
        builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = builder.add_extension(address, critical=False).sign(authority, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)

    sign("authority", now + 9 * day, ca=True)
    sign("good", now + 9 * day, ca=False)
    sign("expired", now - day, ca=False)


# Our commands


def number_requests(log: Path) -> None:
    """Number the requests of this process; log when each is sent, and how it ends for the client."""
    from editloupe.agent.chat_client import ModelChat
    from editloupe.agent.transport.http import Gate

    file = log.open("a", buffering=1)
    numbers = iter(range(10**9))
    current: ContextVar[str] = ContextVar("current")
    send, once = Gate.outgoing, ModelChat._once

    async def outgoing(self: Gate, request: Any, *arguments: Any, **options: Any) -> None:
        request.headers[NUMBER] = current.get()
        file.write(f"{current.get()} {SENT}\n")
        await send(self, request, *arguments, **options)

    async def attempt(self: ModelChat, exchange: Any, *arguments: Any) -> Any:
        number, before, end = f"{log.stem}-{os.getpid()}-{next(numbers)}", exchange.attempts, "reply"
        current.set(number)
        try:
            return await once(self, exchange, *arguments)
        except BaseException as error:
            end = type(error.__cause__ or error).__name__
            raise
        finally:
            if exchange.attempts > before:
                file.write(f"{number} {end}\n")

    Gate.outgoing, ModelChat._once = outgoing, attempt  # type: ignore[method-assign]


def run_command(clock: str, *arguments: str) -> None:
    """Run the command line with a wall clock that is off by the seconds in a file, and number its requests."""
    from editloupe.agent.transport import rate_limits
    from editloupe.cli.main import run
    from editloupe.evals.runs import unit_rows

    number_requests(Path(clock).with_name(f"{arguments[0]}.log"))
    with open(clock, "r+b") as file:
        held = mmap.mmap(file.fileno(), 8)
    true_time, true_time_ns = time.time, time.time_ns

    def off() -> float:
        return float(struct.unpack("d", held[:8])[0])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=off())

    time.time = lambda: true_time() + off()
    time.time_ns = lambda: true_time_ns() + int(off() * 1e9)
    unit_rows.datetime = rate_limits.datetime = Clock  # type: ignore[misc]
    sys.exit(run(list(arguments)))


class Soak:
    """A day of both commands, and what was counted in it."""

    def __init__(self, folder: Path, requests: int, most_seconds: float) -> None:
        self._began = time.monotonic()
        self._folder, self._requests, self._deadline = folder, requests, self._began + most_seconds
        self._edits = requests // 5
        self._clock = folder / "clock"
        self._answers: Counter[str] = Counter()
        self._held: dict[int, dict[str, list[float]]] = {}
        """By hour and process: megabytes and open files."""
        self._hour = 0.0
        self._serve: Any = None
        self._batch: Any = None
        self._sessions: Counter[str] = Counter()
        self.counts: dict[str, Any] = {}

    async def run(self) -> None:
        """Let a day pass and print what was counted."""
        make_certificates(self._folder)
        self._clock.write_bytes(struct.pack("d", 0.0))
        manifest = self._folder / "long.jsonl"
        edits = batch.repeat_edits(batch.make_edits(self._folder, 100, (48, 48)), self._edits)
        with manifest.open("w") as out:
            out.writelines(f"{json.dumps(edit)}\n" for edit in edits)
        model = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--model", str(self._folder), str(self._requests), stdin=-1, stdout=-1
        )
        try:
            url = (await model.stdout.readline()).decode().strip()
            watching = asyncio.create_task(self._watch(model))
            serving = asyncio.create_task(self._ask_server(url))
            await self._judge_batches(manifest, url)
            await serving
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._look(model)
        finally:
            for process in (model, self._serve, self._batch):
                if process is not None and process.returncode is None:
                    process.kill()
                    await process.wait()
        self._print(time.monotonic() - self._began)

    def _command(self, url: str, *arguments: str) -> list[str]:
        judge = ["--judge", f"openai:soak-{arguments[0]}", "--base-url", url, "--mode", "plain", "--timeout", TIMEOUT]
        short = [part for setting in SHORT for part in ("--set", f"retry.{setting}")]
        return [sys.executable, __file__, "--command", str(self._clock), *arguments, *judge, *short]

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **batch.KEY, "SSL_CERT_FILE": str(self._folder / "authority.pem")}

    async def _judge_batches(self, manifest: Path, url: str) -> None:
        """Run the same batch until the day is over and every unit has an outcome."""
        arguments = ["batch", str(manifest), "--out", str(self._folder / "batch"), "--quiet", "--keep-going"]
        arguments += ["--concurrency", str(CONCURRENCY)]
        chance = random.Random(1)
        while time.monotonic() < self._deadline:
            over, began = self._hour >= 24, self._hour
            self._batch = await asyncio.create_subprocess_exec(
                *self._command(url, *arguments), env=self._environment, stdout=-3, stderr=-3
            )
            ending = chance.choice((signal.SIGKILL, signal.SIGTERM, None, None))
            if ending and not over:
                until = began + chance.uniform(0.2, 1.5)  # hours
                while self._batch.returncode is None and self._hour < until and time.monotonic() < self._deadline:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._batch.wait(), 0.2)
                with suppress(ProcessLookupError):
                    self._batch.send_signal(ending)
            await self._batch.wait()
            self._sessions[ending.name if ending and not over else "to its end"] += 1
            if over or (self._hour == began and not ending):
                if over:
                    return
                await asyncio.sleep(0.5)  # everything is judged; the day goes on with `serve` alone

    async def _ask_server(self, url: str) -> None:
        """Ask `serve` for scores with several clients until the day is over."""
        import httpx

        arguments = ["serve", "--out", str(self._folder / "serve"), "--port", "0", "--no-token", "--deadline", "20"]
        self._serve = await asyncio.create_subprocess_exec(
            *self._command(url, *arguments), env=self._environment, stderr=subprocess.PIPE
        )
        address = ""
        while "reward server: " not in address:
            address = (await self._serve.stderr.readline()).decode()
            if not address:
                sys.exit("serve has ended before it listened")
        draining = asyncio.create_task(self._serve.stderr.read())
        numbers = iter(range(10**9))
        source, *edits = [
            base64.b64encode((self._folder / f"{name}.jpg").read_bytes()).decode()
            for name in ("s0", *(f"e{n}" for n in range(100)))
        ]

        async def ask(client: Any) -> None:
            while self._hour < 24 and time.monotonic() < self._deadline:
                number = next(numbers)
                edit = {"source": source, "edited": edits[number % 100], "instruction": f"Number {number}."}
                try:
                    answer = await client.post("/v1/judge", json={"edits": [edit]})
                except httpx.HTTPError as error:
                    self._answers[f"no answer: {type(error).__name__}"] += 2
                    continue
                if answer.status_code != 200:
                    self._answers[f"HTTP {answer.status_code}"] += 2
                    continue
                result = answer.json()["results"][0]
                for verdict in result["verdicts"]:
                    self._answers[verdict.get("reason") or "judged"] += 1
                if not result["verdicts"]:
                    self._answers[result["why"]] += 2

        async with httpx.AsyncClient(base_url=address.split()[-1], timeout=60, trust_env=False) as client:
            await asyncio.gather(*(ask(client) for _ in range(CLIENTS)))
            await asyncio.sleep(3)
            self.counts["metrics"] = read_metrics((await client.get("/metrics")).text)
        self._serve.send_signal(signal.SIGTERM)
        await self._serve.wait()
        lines = Counter(line.strip() for line in (await draining).decode().splitlines() if line.strip())
        print("serve printed:", *(f"{count} × {line}" for line, count in lines.most_common(8)), sep="\n  ")

    async def _watch(self, model: Any) -> None:
        while True:
            await self._look(model)
            for name, process in (("serve", self._serve), ("batch", self._batch)):
                if process is not None and process.returncode is None:
                    self._note(name, process.pid)
            await asyncio.sleep(0.5)

    async def _look(self, model: Any) -> None:
        model.stdin.write(b"\n")
        counted = json.loads(await model.stdout.readline())
        if int(counted["hour"]) > int(self._hour):
            seconds = time.monotonic() - self._began
            print(f"hour {int(counted['hour'])} after {seconds:.0f} s", file=sys.stderr, flush=True)
        self.counts["model"], self._hour = counted, counted["hour"]
        jump = [seconds for hour, seconds in JUMPS.items() if hour <= self._hour]
        with self._clock.open("r+b") as file:  # in place: the processes have it mapped
            file.write(struct.pack("d", jump[-1] if jump else 0.0))

    def _note(self, name: str, pid: int) -> None:
        held = self._held.setdefault(min(24, int(self._hour)), {}).setdefault(name, [0.0, 0.0, 0.0])
        with suppress(OSError):
            resident = sum(own for _, own in batch.megabytes(pid).values())
            files = len(os.listdir(f"/proc/{pid}/fd"))
            folder = self._folder / name
            disk = sum(file.stat().st_size for file in folder.glob("run.sqlite*")) / 1e6
            held[:] = [max(old, new) for old, new in zip(held, (resident, files, disk), strict=True)]

    def _print(self, seconds: float) -> None:
        model = self.counts["model"]
        print(
            f"{self._requests} requests, {seconds:.0f} s, load {os.getloadavg()[0]:.1f}; sessions {dict(self._sessions)}"
        )
        print(
            "| hour | what fails | serve MB | files | tables MB | batch MB | files | tables MB |\n" + "|---" * 8 + "|"
        )
        for hour, held in sorted(self._held.items()):
            cells = [f"{value:.0f}" for name in ("serve", "batch") for value in held.get(name, (0.0, 0.0, 0.0))]
            print(f"| {hour} | {DAY.get(hour, '')} | {' | '.join(cells)} |")
        print(f"failures sent: {json.dumps(model['faults'])}; failed handshakes: {model['failed']}")
        for name, asked in (("serve", None), ("batch", 2 * self._edits)):
            self._account(name, asked, model.get(f"soak-{name}", 0))
            self._trace(name)

    def _account(self, name: str, asked: int | None, arrived: int) -> None:
        from editloupe.evals.runs.store import Run

        with Run.open(self._folder / name) as run, run.reader() as reader:
            rows = reader.connection.execute(
                "SELECT coalesce(reason, 'judged'), count(*) FROM units GROUP BY 1 ORDER BY 2 DESC"
            )
            stored = dict(rows.fetchall())
            versions = Counter[str]()
            for configuration in run.configurations():
                for served, count in reader.count_served(configuration.name).items():
                    versions[" and ".join(sorted({own["model"] for own in json.loads(served)}))] += count
            spent = run.read_spending()[0].requests
        units = sum(stored.values())
        size = sum(file.stat().st_size for file in (self._folder / name).glob("run.sqlite*")) / max(1, units)
        print(
            f"\n{name}: {units} units stored{f' of {asked} asked' if asked else ''}: {stored}; {size:.0f} bytes a unit in tables"
        )
        print(f"  requests on the server {arrived}, recorded in the run {spent}; by version {dict(versions)}")
        if name == "serve":
            print(f"  answers to clients {sum(self._answers.values())}: {dict(self._answers.most_common())}")
            print(f"  its metrics: {self.counts['metrics']}")

    def _trace(self, name: str) -> None:
        """Print what became of every request of a command."""
        sent, ends = set(), {}
        for line in (self._folder / f"{name}.log").read_text().splitlines():
            number, end = line.split()
            if end == SENT:
                sent.add(number)
            else:
                ends[number] = end
        arrived = set((self._folder / "arrived").read_text().split())
        print(f"  ended for the client {len(ends)}, in flight at a kill {len(sent - ends.keys())}")
        for words, numbers in (
            ("arrived", sent & arrived),
            ("did not arrive", sent - arrived),
            ("was not sent", ends.keys() - sent),
        ):
            print(f"  {words}: {len(numbers)} {dict(Counter(ends.get(n, 'killed') for n in numbers).most_common())}")


def read_metrics(text: str) -> dict[str, float]:
    """Return the counters of `serve`."""
    lines = (
        line.removeprefix("editloupe_").rsplit(" ", 1)
        for line in text.splitlines()
        if "_total" in line and line[0] != "#"
    )
    return {name: float(value) for name, value in lines}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    FAULTS.update(make_faults())
    main()
