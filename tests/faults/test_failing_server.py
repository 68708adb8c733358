"""A batch against a server that fails every third time in every way: each edit ends judged, or unjudged with its reason."""

from __future__ import annotations

import gzip
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, JudgeSettings
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.batch import Batch, Ending, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.types import Unjudged
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import (
    Garbage,
    Reply,
    Request,
    drip,
    drop,
    fault,
    final,
    hang,
    not_json,
    packed,
    redirect,
    wrong_length,
    wrong_shape,
)

FAILS = 0.3
ATTEMPTS = 4
GOOD = final("Wrong Action")
FAULTS: tuple[Reply, ...] = (
    fault(429, "Resource has been exhausted (e.g. check rate)."),
    fault(429, retry_after=0.05),
    Garbage(b'{"error": {"message": "slow"}}', 429, headers={"llm_provider-retry-after-ms": "30"}),
    fault(500),
    fault(502),
    fault(503, retry_after=0.05),
    drop(),
    drop(half=True),
    hang(60),
    drip(60, GOOD),
    drip(0.2, GOOD),
    wrong_length(b'{"choices": []}', 30),
    wrong_length(b'{"choices": []}', -5),
    not_json(),
    not_json(b"", "text/plain"),
    wrong_shape(),
    Garbage(b'{"error": {"code": 503, "message": "overloaded"}}'),
    redirect("http://127.0.0.1:9/elsewhere", 302),
    redirect("/login", 307),
    packed(b"not packed at all"),
    packed(gzip.compress(b"{}" * 500)[:20]),
)
RATE_LIMITS = 3
"""Faults at the beginning of the list that refuse a request because of the rate."""


class Unreliable:
    """Fails by a seed; keeps count of how often each edit was asked about."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.asked: Counter[str] = Counter()
        self.limited: Counter[str] = Counter()
        self.failed: Counter[int] = Counter()

    def __call__(self, request: Request) -> Reply:
        named = re.search(r"Do (\d+)\b", request.messages[-1].text)
        assert named is not None
        self.asked[named[1]] += 1
        if self._random.random() >= FAILS:
            return GOOD
        which = self._random.randrange(len(FAULTS))
        self.failed[which] += 1
        self.limited[named[1]] += which < RATE_LIMITS
        return FAULTS[which]


class Watch(threading.Thread):
    """Looks at this process's memory and open files while it works."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[int, int]] = []
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.2):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.seen.append((pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))))

    @contextmanager
    def looking(self) -> Iterator[Watch]:
        self.start()
        try:
            yield self
        finally:
            self._done.set()
            self.join()


def judged(folder: Path, spec: str, url: str, concurrency: int, timeout: float) -> Ending:
    settings = JudgeSettings(
        timeout=timeout,
        retry=RetryPolicy(
            max_attempts=ATTEMPTS, timeout_attempts=2, first_wait=0.02, longest_wait=0.2, limit_pauses=(0.1,)
        ),
    )

    def opened(**hooks: Any) -> Judge:
        only = ["instruction_following"]
        return Judge(spec, mode="plain", base_url=url, criteria=only, settings=settings, **hooks)

    def edits() -> Any:
        return load_manifest(folder / "manifest.jsonl")

    return judge_batch(Batch(edits, folder / "run", opened, Limits(concurrency=concurrency)), quiet=True)


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
@pytest.mark.parametrize(
    ("count", "concurrency", "timeout"),
    [(120, 40, 4.0), pytest.param(3000, 200, 20.0, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_every_edit_ends_with_an_outcome_and_nothing_is_asked_too_often(
    scripted: StartServer, tmp_path: Path, spec: str, count: int, concurrency: int, timeout: float
) -> None:
    write_manifest(tmp_path, count, shared_source=True)
    script = Unreliable(seed=13)
    server = scripted(script, log=False)
    url = server.gemini_url if spec.startswith("google") else server.openai_url
    with Watch().looking() as watch:
        ending = judged(tmp_path, spec, url, concurrency, timeout)

    assert ending.why is None
    assert (ending.tally.judged + sum(ending.tally.unjudged.values()), ending.tally.missing) == (count, 0)
    assert set(ending.tally.unjudged) <= {"model_error", "timeout"}
    # On a busy machine good replies come too late as well.
    assert ending.tally.judged > 0.6 * count
    assert len(script.asked) == count
    # A refusal because of the rate is not an attempt: after a pause the request is sent again.
    assert max((script.asked - script.limited).values()) <= ATTEMPTS
    if count >= 1000:
        assert len(script.failed) == len(FAULTS), "every way to fail was met"
    # On a busy machine a request may time out before it has left.
    assert ending.spending.usage.requests >= server.served

    with Run.open(tmp_path / "run") as run:
        units = list(run.units())
        requests = sum(unit.outcome.usage.requests for unit in units)
    assert len({unit.edit_id for unit in units}) == len(units) == count
    assert requests == ending.spending.usage.requests
    assert all(unit.outcome.detail for unit in units if isinstance(unit.outcome, Unjudged))
    if count >= 1000:
        flat(watch.seen)


def flat(seen: list[tuple[int, int]]) -> None:
    """Memory and open files do not grow from the first half to the second."""
    half = len(seen) // 2
    memory = [max(m for m, _ in part) for part in (seen[:half], seen[half:])]
    files = [max(f for _, f in part) for part in (seen[:half], seen[half:])]
    print(f"memory {memory[0] >> 20} MB then {memory[1] >> 20} MB, files {files[0]} then {files[1]}")
    assert memory[1] < memory[0] + 60_000_000
    assert files[1] <= files[0] + 20
