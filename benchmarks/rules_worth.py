"""Report the agreement of the embedded judge with known truth as Markdown.

    python benchmarks/rules_worth.py DIR [--left-out] [--mode oracle]…

Judges every edit with the shipped table through `Judge`. With `--left-out`, on the set the table was fitted on, every scene is
judged by a table fitted without it instead: the honest figure. Intervals are 95 %, from resampling scenes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fit_rules import fit, following, judge_consistency
from rules_data import IF_LABELS, VC_LABELS, Known, load, measure

from editloupe.judge import Judge
from editloupe.types import Mode

CRITERIA = (
    ("instruction_following", "Instruction Following", IF_LABELS),
    ("visual_consistency", "Visual Consistency", VC_LABELS),
)
ROUNDS = 2000


@dataclass(frozen=True)
class Outcome:
    """One edit's true and given label, 0 the worst; None where it was left unjudged."""

    known: Known
    mode: str
    criterion: str
    given: int | None

    @property
    def true(self) -> int:
        """The true label."""
        return self.known.following if self.criterion == CRITERIA[0][0] else self.known.consistency


def judge_shipped(known: Sequence[Known], modes: Iterable[Mode], workers: int) -> list[Outcome]:
    """Judge with the table that comes with the package."""
    with ProcessPoolExecutor(workers) as pool:
        return [o for mode in modes for some in pool.map(_judge, known, [mode] * len(known), chunksize=4) for o in some]


def _judge(known: Known, mode: Mode) -> list[Outcome]:
    verdicts = Judge("rules", mode=mode).judge(known.edit).verdicts
    labels = {criterion: names for criterion, _, names in CRITERIA}
    labels_by_criterion = {
        v.criterion: labels[v.criterion].index(str(v.label)) if v.status == "judged" else None for v in verdicts
    }
    return [Outcome(known, mode, criterion, label) for criterion, label in labels_by_criterion.items()]


def left_out(known: Sequence[Known], modes: Iterable[Mode], workers: int, groups: int = 14) -> list[Outcome]:
    """Judge every scene with a table fitted on the others."""
    with ProcessPoolExecutor(workers) as pool:
        data = list(pool.map(measure, known, chunksize=4))
    scenes = sorted({k.scene for k in known})
    outcomes = []
    for number in range(groups):
        out = set(scenes[number::groups])
        table = fit([m for m in data if m.known.scene not in out])
        for m in (m for m in data if m.known.scene in out):
            for mode in modes:
                part = "oracle" if mode == "oracle" else "whole"
                outcomes.append(Outcome(m.known, mode, CRITERIA[0][0], following(m, table, part)))
                outcomes.append(Outcome(m.known, mode, CRITERIA[1][0], judge_consistency(m, table, part)))
    return outcomes


def accuracy(outcomes: Sequence[Outcome]) -> float:
    """Return the share of exact labels among the judged ones, in percent."""
    judged = [o for o in outcomes if o.given is not None]
    return 100 * float(np.mean([o.given == o.true for o in judged])) if judged else float("nan")


def spearman(outcomes: Sequence[Outcome]) -> float:
    """Return the rank correlation of given and true labels, ties sharing their mean rank."""
    pairs = [(o.given, o.true) for o in outcomes if o.given is not None]
    if len(pairs) < 3:
        return float("nan")
    ranks = [_ranks(np.array(side)) for side in zip(*pairs, strict=True)]
    return float(np.corrcoef(*ranks)[0, 1]) if all(r.std() > 0 for r in ranks) else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[place]


def interval(outcomes: Sequence[Outcome], figure: Callable[[Sequence[Outcome]], float]) -> tuple[float, float]:
    """Return a 95 % interval of a figure from resampling scenes."""
    scenes: dict[str, list[Outcome]] = {}
    for o in outcomes:
        scenes.setdefault(o.known.scene, []).append(o)
    groups, draw = list(scenes.values()), np.random.default_rng(0)
    rounds = ROUNDS if figure is accuracy else ROUNDS // 4
    drawn = [figure([o for i in draw.integers(0, len(groups), len(groups)) for o in groups[i]]) for _ in range(rounds)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def with_interval(outcomes: Sequence[Outcome], figure: Callable[[Sequence[Outcome]], float], form: str) -> str:
    """Write a figure with its interval."""
    low, high = interval(outcomes, figure)
    return f"{figure(outcomes):{form}} [{low:{form}}, {high:{form}}]"


def summary(outcomes: Sequence[Outcome], modes: Sequence[str]) -> list[str]:
    """One line a mode and criterion."""
    lines = ["| mode | criterion | edits | unjudged | exact labels, % | Spearman ρ |", "|---|---|---|---|---|---|"]
    for mode in modes:
        for criterion, title, _ in CRITERIA:
            some = [o for o in outcomes if o.mode == mode and o.criterion == criterion]
            unjudged = sum(o.given is None for o in some)
            lines.append(
                f"| {mode} | {title} | {len(some)} | {unjudged} | {with_interval(some, accuracy, '.0f')} "
                f"| {with_interval(some, spearman, '.2f')} |"
            )
    return lines


def confusion(outcomes: Sequence[Outcome], mode: str) -> list[str]:
    """Both confusion matrices of a mode: true labels down, given labels across."""
    lines = []
    for criterion, title, names in CRITERIA:
        some = [o for o in outcomes if o.mode == mode and o.criterion == criterion]
        lines += [
            "",
            f"{title}, {mode} mode (rows: truth)",
            "",
            f"| | {' | '.join(names)} | unjudged |",
            "|---" * (len(names) + 2) + "|",
        ]
        for i, name in enumerate(names):
            row = [o.given for o in some if o.true == i]
            lines.append(f"| {name} | {' | '.join(str(row.count(j)) for j in range(len(names)))} | {row.count(None)} |")
    return lines


def by(outcomes: Sequence[Outcome], modes: Sequence[str], what: str, value: Callable[[Known], str]) -> list[str]:
    """Exact labels by type of instruction or by noise."""
    columns = [(mode, criterion, title) for mode in modes for criterion, title, _ in CRITERIA]
    heads = " | ".join(f"{mode} {'IF' if criterion == CRITERIA[0][0] else 'VC'}" for mode, criterion, _ in columns)
    lines = ["", f"| {what} | edits | {heads} |", "|---" * (len(columns) + 2) + "|"]
    for name in sorted({value(o.known) for o in outcomes}):
        cells, size = [], 0
        for mode, criterion, _ in columns:
            some = [o for o in outcomes if (o.mode, o.criterion, value(o.known)) == (mode, criterion, name)]
            size = len(some)
            cells.append(with_interval(some, accuracy, ".0f"))
        lines.append(f"| {name} | {size} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Judge, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--left-out", action="store_true", help="judge every scene with a table fitted on the others")
    parser.add_argument(
        "--mode", action="append", choices=["oracle", "tools", "plain"], help="default: oracle and tools"
    )
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    modes = options.mode or ["oracle", "tools"]
    known = list(load(options.folders))
    outcomes = (left_out if options.left_out else judge_shipped)(known, modes, options.workers)
    lines = summary(outcomes, modes)
    for mode in modes:
        lines += confusion(outcomes, mode)
    lines += by(outcomes, modes, "instruction type", lambda k: str(k.edit.instruction_type))
    lines += by(outcomes, modes, "noise", lambda k: k.noise)
    lines += by(outcomes, modes, "part of the set", lambda k: k.part)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
