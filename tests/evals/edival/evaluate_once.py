"""One evaluation in a process of its own, with the scripted detector; to be killed by a test.

Arguments: chains, results, run, address of the scripted model.
"""

from __future__ import annotations

import sys
from pathlib import Path

from editloupe.agent.chat import RetryPolicy
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.edival.evaluate import Evaluated, Evaluation, evaluate
from editloupe.evals.edival.judge import Instruments
from editloupe.judge import JudgeSettings
from editloupe.rubrics.edival.settings import EdivalSettings, published
from tests.evals.edival.stand_ins import Brightness, ColorFinder, MeanColor

QUICK = JudgeSettings(retry=RetryPolicy(first_wait=0.01, longest_wait=0.02), timeout=20.0)


def run(
    chains: Path,
    results: Path,
    out: Path,
    url: str,
    instruments: Instruments | None = None,
    rules: EdivalSettings | None = None,
    **more: object,
) -> Evaluated:
    """Evaluate with the stand-ins."""
    own = instruments or Instruments(ColorFinder(), MeanColor(), Brightness())
    wanted = Evaluation(
        chains=chains,
        results=results,
        out=out,
        judge="openai:gpt-4.1",
        base_url=url,
        instruments=own,
        rules=rules or published(),
        settings=QUICK,
        limits=Limits(concurrency=2),
        **more,  # type: ignore[arg-type]
    )
    return evaluate(wanted, quiet=True)


if __name__ == "__main__":
    run(*(Path(part) for part in sys.argv[1:4]), sys.argv[4])
