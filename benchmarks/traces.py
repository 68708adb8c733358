"""Measure how long it takes to search the traces of a large run, from the index to filters, words and statistics.

    python benchmarks/traces.py                  # 20 000 edits, two criteria each, three steps a verdict
    python benchmarks/traces.py --edits 2000 --keep FOLDER

The run is made through the store, with words drawn at random from a seed; making it is not measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.report import judgements  # noqa: E402
from editloupe.evals.runs.store import Run  # noqa: E402
from editloupe.evals.runs.unit_rows import JudgementRecord  # noqa: E402
from editloupe.evals.traces.trace_search import search_run  # noqa: E402
from editloupe.rubrics.registry import get_protocol  # noqa: E402
from editloupe.types import Judgement, Observation, Step, ToolCall, Trace, Usage, Verdict  # noqa: E402

AT_ONCE = 500
TOOLS = ("zoom_in_image", "localize_differences", "read_text")
COMMON = 3000
"""Different words; a real judge uses few thousand of them."""
FILTERS = (
    'label = "Over Modification"',
    'label = "Over Modification" and tool("zoom_in_image") = 0 and human != label',
    'model = "model-0" and style = "sketch" and turns > 2 and cost is null',
    'instruction ~ "object 199" or failed() > 0',
    'not (human = label) and criterion in ("instruction_following", "visual_consistency")',
)
SEARCHES = ('said("w7")', 'thought("w17 w3")', 'observed("w290") and not replied("w12")', 'said("rareword")')
PASSES = 5


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        run_folder = Path(options.keep or folder) / "run"
        if not run_folder.exists():
            began = time.perf_counter()
            make_run(run_folder, options.edits)
            print(f"made {options.edits} edits in {time.perf_counter() - began:.0f} s, {_size(run_folder, 'run')} MB")
        with Run.open(run_folder) as run:
            began = time.perf_counter()
            with search_run(run) as opened:
                print(
                    f"index: {time.perf_counter() - began:.1f} s for {opened.count_all()} verdicts, "
                    f"{_size(run_folder, 'trace_index')} MB"
                )
            for where in (*FILTERS, *SEARCHES):
                ask(run, where)


def ask(run: Run, where: str) -> None:
    """Time what a page of the studio asks: open the index, see that nothing is new, count, and read fifty hits."""
    took, counted = [], []
    count = 0
    for _ in range(PASSES):
        began = time.perf_counter()
        with search_run(run, where) as opened:
            count = opened.count()
            list(opened.hits("confident", 50))
            took.append(time.perf_counter() - began)
            opened.statistics()
            counted.append(time.perf_counter() - began - took[-1])
    print(f"{np.median(took) * 1000:6.0f} ms, statistics {np.median(counted) * 1000:5.0f} ms, {count:6} hits: {where}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=20_000)
    parser.add_argument("--keep", help="a folder to keep the run in, and to find it again")
    return parser.parse_args()


def make_run(folder: Path, edits: int) -> None:
    """Write a run whose verdicts have traces of three steps; every third edit has a human label."""
    random = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(COMMON)])
    shares = 1 / np.arange(1, COMMON + 1)
    pool = random.choice(words, 2_000_000, p=shares / shares.sum())
    with Run.write(folder) as run:
        waiting: list[JudgementRecord] = []
        for position, judgement in enumerate(judgements(get_protocol("dlebench"), edits, 1, random)):
            traces = tuple(trace_of(judgement, verdict.criterion, random, pool) for verdict in judgement.verdicts)
            human = {
                verdict.criterion: str(verdict.label)
                for verdict in judgement.verdicts
                if isinstance(verdict, Verdict) and position % 3 == 0
            }
            edit = judgement.edit.model_copy(update={"human": human})
            sure = tuple(
                verdict.model_copy(update={"confidence": float(random.random())})
                if isinstance(verdict, Verdict)
                else verdict
                for verdict in judgement.verdicts
            )
            stored = judgement.model_copy(update={"edit": edit, "traces": traces, "verdicts": sure})
            waiting.append(JudgementRecord(stored, position=position))
            if len(waiting) == AT_ONCE:
                run.save_all(waiting)
                waiting.clear()
        run.save_all(waiting)


def trace_of(judgement: Judgement, criterion: str, random: np.random.Generator, pool: np.ndarray) -> Trace:
    """Return a trace with two tool calls and an answer."""
    steps = []
    for number in range(2):
        tool = TOOLS[int(random.integers(3))]
        call = ToolCall(
            id=f"c{number}", name=tool, parameters={"bbox_2d": [1, 2, 30, 40], "target_image": "Edited Image"}
        )
        seen = Observation(call_id=call.id, tool=tool, text=text(pool, random, 40), failed=random.random() < 0.02)
        thought = text(pool, random, 90) + (" rareword" if random.random() < 0.0005 else "")
        usage = Usage(requests=1, input_tokens=1200, output_tokens=130)
        steps.append(
            Step(
                index=number, thought=thought, calls=(call,), observations=(seen,), raw=thought, usage=usage, seconds=2
            )
        )
    steps.append(Step(index=2, thought=text(pool, random, 60), answer="x", raw=text(pool, random, 60), seconds=1))
    return Trace(
        edit_id=judgement.edit.id,
        criterion=criterion,
        protocol=judgement.protocol,
        mode="tools",
        judge=judgement.judge,
        tools=TOOLS,
        steps=tuple(steps),
        seconds=5,
    )


def text(pool: np.ndarray, random: np.random.Generator, count: int) -> str:
    start = int(random.integers(len(pool) - count))
    return " ".join(pool[start : start + count])


def _size(folder: Path, stem: str) -> int:
    return round((folder / f"{stem}.sqlite").stat().st_size / 1e6)


if __name__ == "__main__":
    main()
