"""One evaluation with the scripted detector: in this process, or in one of its own to be killed by a test.

Arguments: chains, results, run, address of the scripted model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.evals.batch.batch import Batch, Ending, judge_batch
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.edival import judge as edival_judge
from editloupe.evals.edival.judge import EdivalInstruments, EdivalJudge
from editloupe.judge import JudgeSettings
from editloupe.rubrics.edival.rules import EdivalSettings, load_published
from tests.evals.edival.stand_ins import Brightness, ColorFinder, MeanColor

QUICK = JudgeSettings(retry=RetryPolicy(first_wait=0.01, longest_wait=0.02), timeout=20.0)
COMMAND = "from tests.evals.edival.evaluate_once import main; main()"
"""The real command, but for what looks at the pictures."""


def stand_ins(*_: Any) -> EdivalInstruments:
    """Instruments whose every figure can be worked out by hand."""
    return EdivalInstruments(ColorFinder(), MeanColor(), Brightness())


def run(
    chains: Path,
    results: Path,
    out: Path,
    url: str,
    instruments: EdivalInstruments | None = None,
    rules: EdivalSettings | None = None,
    settings: JudgeSettings = QUICK,
    concurrency: int = 2,
) -> Ending:
    """Evaluate with the stand-ins."""

    def open_judge(**hooks: Any) -> EdivalJudge:
        looking = instruments or stand_ins()
        given = {"base_url": url, "rules": rules or load_published(), "settings": settings}
        return EdivalJudge("openai:gpt-4.1", looking, **given, **hooks)

    wanted = edival_judge.find_evaluation(chains, results)
    return judge_batch(Batch(wanted.edits, out, open_judge, Limits(concurrency=concurrency)), quiet=True)


def main() -> None:
    """Run the command with the stand-ins in place of the detector, the feature model and HPSv3."""
    from editloupe.__main__ import main as command

    edival_judge.open_instruments = stand_ins
    command()


if __name__ == "__main__":
    # The test that kills this process keeps one answer back: no time-out may turn it into a stored failure, and no other edit may
    # wait for it.
    patient = QUICK.model_copy(update={"timeout": 600.0})
    run(*(Path(part) for part in sys.argv[1:4]), sys.argv[4], settings=patient, concurrency=16)
