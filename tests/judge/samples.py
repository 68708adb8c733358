"""Panels and cascades for tests: calibrations made for a judge as it is really asked, and a server that plays several models."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.batch import Batch, Ending, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.judge import Judge, JudgeSettings
from editloupe.judge.calibration import (
    Calibration,
    CriterionTrust,
    ThresholdTest,
    count_earlier_thresholds,
    lower_bound,
)
from editloupe.judge.plans import write_stages
from tests.scripted import Answer, Request, ScriptedServer, final

IF, VC = "instruction_following", "visual_consistency"
GOOD, BAD = "Flawless Execution", "Wrong Action"
QUICK = JudgeSettings(retry=RetryPolicy(first_wait=0.01, longest_wait=0.05, max_attempts=2), timeout=10)
SMALL, LARGE = "openai:gpt-4.1-small", "openai:gpt-4.1-large"


def edit_number(request: Request) -> int:
    found = re.search(r"Do (\d+)", request.messages[0].text)
    assert found
    return int(found[1])


class Wavering:
    """A script: the small model contradicts itself on odd edits, the large one on every fourth."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, int]] = Counter()

    def __call__(self, request: Request) -> Answer:
        number = edit_number(request)
        turn = self.asked[request.model, number]
        self.asked[request.model, number] += 1
        every = 2 if "small" in request.model else 4
        wavers = number % every == every - 1
        return final(BAD if wavers and turn % 2 else GOOD)


def calibration(
    server: ScriptedServer, spec: str, threshold: float | None, after: tuple[Calibration, ...] = (), **more: Any
) -> Calibration:
    """Return a calibration for a judge as it is asked in plain mode about instructions."""
    url = None if spec == "rules" else server.openai_url
    with Judge(spec, mode="plain", base_url=url, criteria=[IF], settings=QUICK) as judge:
        asked = {one.criterion: (one.key,) for one in judge.question_specs()}
    lower = lower_bound(100, 100, 0.025 / count_earlier_thresholds(IF, after))
    tested = (
        ()
        if threshold is None
        else (ThresholdTest(threshold=threshold, labels=100, agreed=100, lower=lower, passed=True),)
    )
    trust = CriterionTrust(threshold=threshold, kept=0.5, labels=100, tested=tested, candidates=len(tested))
    return Calibration(
        **{
            "judge": spec,
            "protocol": "dlebench",
            "mode": "plain",
            "confidence": "repeats",
            "repeats": 2,
            "agreement": 0.9,
            "error": 0.025,
            "asked": asked,
            "criteria": {IF: trust},
            "after": tuple(one.key for one in after),
            **more,
        }
    )


def cascade_file(path: Path, *calibrations: Calibration) -> Path:
    write_stages(path, [{"calibration": one.model_dump(mode="json")} for one in calibrations])
    return path


def two_stages(server: ScriptedServer, folder: Path) -> Path:
    small = calibration(server, SMALL, 1.0)
    return cascade_file(folder / "trust.yaml", small, calibration(server, LARGE, 1.0, (small,)))


def batch(server: ScriptedServer, spec: str, manifest: Path, out: Path, **changes: Any) -> Batch:
    def open_judge(**hooks: Any) -> Judge:
        return Judge(spec, mode="plain", base_url=server.openai_url, criteria=[IF], settings=QUICK, **hooks)

    return Batch(lambda: load_manifest(manifest), out, open_judge, **{"limits": Limits(concurrency=4), **changes})


def run(wanted: Batch) -> Ending:
    return judge_batch(wanted, quiet=True)
