"""Check the statistics of `editloupe` on trust by simulations with a known truth, 2 000 repetitions each.

    python benchmarks/trust.py [--repetitions N] [--seed N] [--figure FILE] [--json FILE]

Corrected scores: how often the 95 % interval holds the truth, and its width compared with that of the labels alone. Calibration:
how often people agree with what is kept at least as often as promised. Drift: false alarms, and how often a change is seen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from editloupe.evals.stats.trust.calibrate import fewest_labels, find_thresholds, run_fixed_sequence
from editloupe.evals.stats.trust.drift import assess_shift
from editloupe.evals.stats.trust.label_queue import drawing_probabilities, sample_systematically
from editloupe.evals.stats.trust.prediction_powered import correct_mean

Floats = np.ndarray[Any, np.dtype[np.float64]]
CUTS = (-1.1, -0.3, 0.5)
"""Where four labels divide how good an edit is, a standard normal number."""
SKEWED = (-2.05, -1.5, -1.0)
"""The same where most edits are flawless: 84, 9, 5 and 2 % of four labels."""
JUDGES = {"good": (0.0, 0.4), "kind": (0.7, 0.6), "strict": (-0.8, 0.8), "noisy": (0.0, 1.5), "blind": (0.0, None)}
"""Bias and noise of a judge; one without noise answers without looking."""
EDITS = 1000
AT_A_TIME = 250
"""Data sets held in memory at once."""


def labels_of(quality: Floats, cuts: tuple[float, ...] = CUTS) -> Floats:
    """Return four labels as scores from 0 to 100."""
    return np.searchsorted(cuts, quality) * 100 / 3


def truth(cuts: tuple[float, ...] = CUTS) -> float:
    """Return the mean that people's labels have."""
    shares = np.diff([0.0, *stats.norm.cdf(cuts), 1.0])
    return float((shares * np.arange(4)).sum() * 100 / 3)


def simulate(random: np.random.Generator, judge: str, labels: int, design: str, count: int) -> dict[str, Floats]:
    """Return the ends of corrected and plain intervals for many data sets of one kind."""
    size = 4 if design == "shared sources" else 1
    shape = (count, EDITS)
    shared = random.normal(size=(count, EDITS // size)).repeat(size, 1)
    quality = shared if size == 1 else np.sqrt(0.5) * (shared + random.normal(size=shape))
    cuts = SKEWED if design == "skewed labels" else CUTS
    people = labels_of(quality, cuts)
    bias, noise = JUDGES[judge]
    seen = random.normal(size=shape) if noise is None else quality + bias + noise * random.normal(size=shape)
    verdicts = labels_of(seen, cuts)
    shares = np.full(EDITS, 1 / EDITS)
    chances = None
    if design == "queue":
        # A judge is surest far from the borders between labels, and knows that only roughly.
        unsure = np.exp(-2 * np.abs(seen[..., None] - np.array(CUTS)).min(-1)) * random.uniform(0.5, 1, shape)
        chances = np.stack([drawing_probabilities(row_values, labels, 0.5) for row_values in unsure])
        labelled = np.zeros(shape, bool)
        for row, row_values in enumerate(chances):
            labelled[row, sample_systematically(row_values, random)] = True
    else:
        labelled = random.random(shape).argsort(1) < labels
    if design == "types":
        kinds = np.minimum(np.arange(EDITS) % 8, 3)
        shares = 1 / 4 / np.bincount(kinds)[kinds]
    corrected_mean = correct_mean(people, verdicts, labelled, shares, chances, np.arange(EDITS) // size)
    low, high = corrected_mean.interval()
    alone_low, alone_high = corrected_mean.interval_alone()
    naive = verdicts @ shares
    found_labels = np.where(labelled, people, np.nan)
    differ = np.nanmax(found_labels, 1) > np.nanmin(found_labels, 1)  # where all are the same no number is given
    whole = {"low": low, "high": high, "alone_low": alone_low, "alone_high": alone_high, "judge": naive}
    return {name: values[differ] for name, values in whole.items()}


def simulate_corrected(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield coverage and width of corrected intervals, for every judge, number of labels and way to draw them."""
    for kind, design in enumerate(("random", "shared sources", "types", "queue", "skewed labels")):
        true = truth(SKEWED if design == "skewed labels" else CUTS)
        for who, judge in enumerate(JUDGES):
            for labels in (20, 40, 100, 200, 500):
                random = np.random.default_rng((seed, kind, who, labels))  # settings that share no chance
                parts = [
                    simulate(random, judge, labels, design, min(AT_A_TIME, repetitions - done))
                    for done in range(0, repetitions, AT_A_TIME)
                ]
                whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                width, alone = whole["high"] - whole["low"], whole["alone_high"] - whole["alone_low"]
                yield {
                    "labels drawn": design,
                    "judge": judge,
                    "labels": labels,
                    "covers": float(((whole["low"] <= true) & (true <= whole["high"])).mean()),
                    "alone covers": float(((whole["alone_low"] <= true) & (true <= whole["alone_high"])).mean()),
                    "width": float((width / alone).mean()),
                    "widest": float((width / alone).max()),
                    "judge is off by": float((whole["judge"] - true).mean()),
                }


def simulate_calibration(repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield how often the promise of a calibration holds, for judges from good to hopeless."""
    random = np.random.default_rng(1)
    for judge, (floor, ceiling) in {"good": (0.85, 1.0), "bad": (0.4, 0.95), "hopeless": (0.25, 0.6)}.items():
        for labels in (60, 200, 500):
            held, kept = 0, []
            for _ in range(repetitions):
                confidence = random.random(labels)
                agreed = random.random(labels) < floor + (ceiling - floor) * confidence
                passed = [step.threshold for step in run_fixed_sequence(confidence, agreed, 0.9, 0.05) if step.passed]
                # Confidence is uniform, so the agreement above a threshold is that in the middle of what lies above it.
                held += not passed or floor + (ceiling - floor) * (1 + passed[-1]) / 2 >= 0.9
                kept.append(1 - passed[-1] if passed else 0.0)
            yield {"judge": judge, "labels": labels, "promise held": held / repetitions, "kept": float(np.mean(kept))}


def simulate_cascade(repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield how often the promise of a cascade of two judges holds that were calibrated by the same labels, 5 % in all."""
    random = np.random.default_rng(3)

    def judged(count: int, floor: float) -> tuple[Floats, ...]:
        """Return confidence and chance to agree of two judges that find the same edits hard."""
        hard = random.random(count)
        sure = [1 - hard + 0.15 * random.normal(size=count) for _ in range(2)]
        return sure[0], 1 - (1 - floor) * hard**2, sure[1], 1 - (1 - floor) * hard**4

    for name, floor in {"good": 0.7, "bad": 0.3, "hopeless": 0.0}.items():
        c1, p1, c2, p2 = judged(40_000, floor)
        if name == "hopeless":
            p1, p2 = np.full_like(p1, 0.6), np.full_like(p2, 0.6)
        for labels in (100, 300, 1000):
            held, kept = 0, np.zeros(2)
            for _ in range(repetitions):
                some = random.choice(len(c1), labels, replace=False)
                drawn = random.random((2, labels))
                first_stage = run_fixed_sequence(c1[some], drawn[0] < p1[some], 0.9, 0.025)
                first = min((t.threshold for t in first_stage if t.passed), default=np.inf)
                left = some[c1[some] < first]
                error = 0.025 / (1 + len(find_thresholds(c1[some], fewest_labels(0.9, 0.025))))
                two = run_fixed_sequence(c2[left], drawn[1][c1[some] < first] < p2[left], 0.9, error)
                second = min((t.threshold for t in two if t.passed), default=np.inf)
                stages = (c1 >= first, (c1 < first) & (c2 >= second))
                held += all(
                    not keeps.any() or p[keeps].mean() >= 0.9 for keeps, p in zip(stages, (p1, p2), strict=True)
                )
                kept += [keeps.mean() for keeps in stages]
            shares = dict(zip(("first keeps", "second keeps"), (kept / repetitions).tolist(), strict=True))
            yield {"judges": name, "labels": labels, "promise held": held / repetitions, **shares}


def simulate_drift(repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield how often a change and how often sameness is reported, for shifts from zero to large, with a margin of 5 points."""
    random = np.random.default_rng(2)
    for edits in (50, 100, 200, 400):
        for shift in (0.0, 0.1, 0.2, 0.4):
            quality = random.normal(size=(repetitions, edits))
            before, after = (labels_of(quality + 0.3 * random.normal(size=quality.shape) + s) for s in (0.0, shift))
            answers = [assess_shift(change, np.arange(edits), 5.0, 0.05, 0.05)[0] for change in after - before]
            shares = {name: answers.count(name) / repetitions for name in ("same", "changed", "cannot tell")}
            yield {"edits": edits, "mean moved by": float((after - before).mean()), **shares}


def format_table(title: str, rows: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    lines = [f"## {title}", "", "| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += [
        "| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()) + " |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw coverage and width of the corrected intervals."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    colours = dict(zip(JUDGES, ("#0072b2", "#d55e00", "#cc79a7", "#009e73", "#777777"), strict=True))
    marks = {"random": "o", "shared sources": "s", "types": "^", "queue": "D", "skewed labels": "v"}
    left.axhspan(0.94, 0.96, color="#eeeeee")
    for judge, colour in colours.items():
        for design, mark in marks.items():
            own = [row for row in rows if row["judge"] == judge and row["labels drawn"] == design]
            left.plot([row["labels"] for row in own], [row["covers"] for row in own], mark, color=colour, ms=4)
        plain = [row for row in rows if row["judge"] == judge and row["labels drawn"] == "random"]
        right.plot(
            [row["labels"] for row in plain], [row["width"] for row in plain], "o-", color=colour, label=judge, ms=4
        )
    for design, mark in marks.items():
        left.plot([], [], mark, color="black", label=design, ms=4)
    left.set(ylim=(0.9, 1.0), xlabel="human labels", ylabel="intervals that hold the truth", title="95 % is 95 %")
    right.set(ylim=(0, 1.1), xlabel="human labels", ylabel="width, labels alone = 1", title="What the judge adds")
    right.axhline(1, color="black", lw=0.8, ls="--")
    for axes, title in ((left, "labels drawn"), (right, "judge")):
        axes.set_xscale("log")
        axes.set_xticks([20, 40, 100, 200, 500], ["20", "40", "100", "200", "500"])
        axes.minorticks_off()
        axes.legend(title=title, frameon=False, fontsize=8, title_fontsize=8, ncols=2, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run all simulations and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the corrected scores")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tables = {
        "Corrected scores": list(simulate_corrected(options.repetitions, options.seed)),
        "Calibration, 90 % agreement, 5 % error": list(simulate_calibration(options.repetitions)),
        "Cascade of two judges, 90 % agreement, 5 % error in all": list(simulate_cascade(options.repetitions)),
        "Drift, margin 5 points": list(simulate_drift(options.repetitions)),
    }
    for title, rows in tables.items():
        print(format_table(title, rows))
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1) + "\n", "utf-8")
    if options.figure:
        draw(tables["Corrected scores"], options.figure)


if __name__ == "__main__":
    main()
