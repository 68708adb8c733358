"""Measure the time and memory of `editloupe report` on a run of many edits by several editing models.

    python benchmarks/report.py                       # 20 000 edits × 5 models, text and JSON
    python benchmarks/report.py --edits 2000 --protocol edit-compass --keep FOLDER

The run is made through the store, with verdicts drawn at random from a seed; making it is not measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from editloupe.evals.runs.store import Run  # noqa: E402
from editloupe.evals.runs.unit_rows import JudgementRecord  # noqa: E402
from editloupe.rubrics.model import LabelAnswer  # noqa: E402
from editloupe.rubrics.protocol import Protocol  # noqa: E402
from editloupe.rubrics.registry import get_protocol as find_protocol  # noqa: E402
from editloupe.types import Edit, Judgement, Reason, Unjudged, Usage, Verdict  # noqa: E402

START = "from editloupe.__main__ import main; main()"
AT_ONCE = 2000
UNJUDGED = 0.01
"""Share of verdicts that are missing."""


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(options.keep or folder) / "run"
        if not run.exists():
            began = time.perf_counter()
            make_run(run, find_protocol(options.protocol), options.edits, options.models)
            size = (run / "run.sqlite").stat().st_size / 1e6
            print(
                f"made {options.edits} edits × {options.models} models in {time.perf_counter() - began:.0f} s, {size:.0f} MB"
            )
        for more in (["--format", "text"], ["--format", "json"], ["--format", "json", "--intervals"]):
            seconds, cpu, peak = measure([str(run), *more], Path(folder) / "out")
            print(f"report {' '.join(more):28} {seconds:5.1f} s ({cpu:.1f} s of CPU), peak {peak:.0f} MB", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=20_000, help="edits of each model")
    parser.add_argument("--models", type=int, default=5)
    parser.add_argument("--protocol", default="dlebench")
    parser.add_argument("--keep", help="a folder to keep the run in, and to find it again")
    return parser.parse_args()


def measure(arguments: list[str], out: Path) -> tuple[float, float, float]:
    """Run the command in a process of its own; return wall-clock seconds, CPU seconds and peak megabytes."""
    began = time.perf_counter()
    child = os.fork()
    if not child:
        with out.open("wb") as target:
            os.dup2(target.fileno(), 1)
        os.execv(sys.executable, [sys.executable, "-c", START, "report", *arguments])
    _, status, usage = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the report ended with exit code {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def make_run(folder: Path, protocol: Protocol, edits: int, models: int) -> None:
    """Write a run in which every model has the same edits, and each edit every verdict its protocol asks for."""
    random = np.random.default_rng(0)
    with Run.write(folder) as run:
        waiting: list[JudgementRecord] = []
        for position, judgement in enumerate(judgements(protocol, edits, models, random)):
            waiting.append(JudgementRecord(judgement, position=position))
            if len(waiting) == AT_ONCE:
                run.save_all(waiting)
                waiting.clear()
        run.save_all(waiting)


def judgements(protocol: Protocol, edits: int, models: int, random: np.random.Generator) -> Iterator[Judgement]:
    """Yield the judgements, the better models first."""
    for model in range(models):
        for number in range(edits):
            edit = Edit(
                id=f"edit-{number}",
                source=Path(f"sources/{number // 3}.png"),
                edited=Path(f"model-{model}/{number}.png"),
                instruction=f"Change object {number} of the picture as described",
                instruction_type=protocol.types[number % len(protocol.types)],
                model=f"model-{model}",
                extra={"language": "en", "style": ("sketch", "real-world")[number % 2]},
            )
            verdicts = tuple(
                verdict(protocol, rubric.criterion, random, model / models) for rubric in protocol.rubrics_for(edit)
            )
            yield Judgement(edit=edit, protocol=protocol.name, mode="plain", judge="openai:gpt-5.1", verdicts=verdicts)


def verdict(protocol: Protocol, criterion: str, random: np.random.Generator, loss: float) -> Verdict | Unjudged:
    """Draw one verdict; the lower the model, the lower its scores."""
    if random.random() < UNJUDGED:
        return Unjudged(criterion=criterion, reason=Reason.UNREADABLE, detail="No label was found.", raw="?")
    share = random.integers(1, 5) / 4 * (1 - loss)
    answer = protocol.rubric(criterion).answer
    label, score = None, round(share * 20) * 5.0
    score_100 = score
    if isinstance(answer, LabelAnswer):
        label = answer.labels[round(share * (len(answer.labels) - 1))].name
        score, score_100 = answer.score(label), answer.score_100(label)
    return Verdict(
        criterion=criterion,
        label=label,
        score=score,
        score_100=score_100,
        rationale="The target is changed as asked and nothing else differs from the source picture.",
        usage=Usage(requests=3, input_tokens=4200, output_tokens=300),
        steps=3,
    )


if __name__ == "__main__":
    main()
