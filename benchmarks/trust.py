"""Check the statistics of `editloupe` by simulations with a known truth, 2 000 repetitions each.

    python benchmarks/trust.py [--repetitions N] [--seed N] [--only NAME] [--figure FILE] [--json FILE]

Scores, comparisons, agreement and rankings: how often the 95 % intervals that are printed hold the truth, how many are printed,
and how often a difference is reported without one. Labels are spread or mostly the best one; edits have a source picture each,
or one to four of a type, or of any type, share one.

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

from editloupe.evals.stats.agreement.coefficients import MEASURES, MatchedScores, estimate_alpha
from editloupe.evals.stats.comparison.bradley_terry import PairwiseJudgement, fit_bradley_terry
from editloupe.evals.stats.comparison.paired_differences import OVERALL, CaseGrid, compute_differences
from editloupe.evals.stats.comparison.run_comparison import compare_agreement
from editloupe.evals.stats.intervals import Estimate, build_estimate
from editloupe.evals.stats.scores.score_matrix import PLAIN, ScoreSpreads
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


def simulate_calibration(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield how often the promise of a calibration holds, for judges from good to hopeless."""
    random = np.random.default_rng((seed, 1))
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


def simulate_cascade(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield how often the promise of a cascade of two judges holds that were calibrated by the same labels, 5 % in all."""
    random = np.random.default_rng((seed, 3))

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


def simulate_drift(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield how often a change and how often sameness is reported, for shifts from zero to large, with a margin of 5 points."""
    random = np.random.default_rng((seed, 2))
    for edits in (50, 100, 200, 400):
        for shift in (0.0, 0.1, 0.2, 0.4):
            quality = random.normal(size=(repetitions, edits))
            before, after = (labels_of(quality + 0.3 * random.normal(size=quality.shape) + s) for s in (0.0, shift))
            answers = [assess_shift(change, np.arange(edits), 5.0, 0.05, 0.05)[0] for change in after - before]
            shares = {name: answers.count(name) / repetitions for name in ("same", "changed", "cannot tell")}
            yield {"edits": edits, "mean moved by": float((after - before).mean()), **shares}


TYPES = 7
SHARING = ("none", "within", "across")
"""Whether edits share source pictures, and whether those of one picture are of one type."""
LABELS = {"spread": CUTS, "skewed": SKEWED}
LIMITS = (0.0, 100.0)


class Tally:
    """Counts how many intervals are printed, and how many of them hold the truth."""

    def __init__(self) -> None:
        self.tried = self.printed = self.held = 0

    def add(self, estimate: Estimate, true: float) -> bool:
        """Count one interval; return whether it is printed and misses the truth."""
        self.tried += 1
        if estimate.low is None or estimate.high is None:
            return False
        holds = estimate.low <= true <= estimate.high
        self.printed, self.held = self.printed + 1, self.held + holds
        return not holds

    @property
    def covers(self) -> float | str:
        """The share of printed intervals that hold the truth; a dash if hardly any was printed."""
        return self.held / self.printed if self.printed >= 0.02 * self.tried else "–"


def share_sources(random: np.random.Generator, kinds: np.ndarray[Any, Any], sharing: str) -> np.ndarray[Any, Any]:
    """Return the source picture of each edit by number."""
    count = len(kinds)
    if sharing == "none":
        return np.arange(count)
    order = np.arange(count) if sharing == "within" else random.permutation(count)
    sources = np.zeros(count, np.int64)
    start = source = 0
    while start < count:
        taken = order[start : start + random.integers(1, 5)]
        if sharing == "within":
            taken = taken[kinds[taken] == kinds[taken[0]]]
        sources[taken] = source
        start, source = start + len(taken), source + 1
    return sources


def draw_quality(random: np.random.Generator, sources: np.ndarray[Any, Any]) -> Floats:
    """Return how good edits are: two fifths of the variance come from the source picture."""
    return np.sqrt(0.4) * random.normal(size=len(sources))[sources] + np.sqrt(0.6) * random.normal(size=len(sources))


def mean_label(shift: float | Floats, cuts: tuple[float, ...], spread: float) -> Floats:
    """Return the mean of labels of a normal quality with a mean and a standard deviation."""
    below = stats.norm.cdf((np.array(cuts) - np.asarray(shift, float)[..., None]) / spread)
    return (1 - below).sum(-1) * 100 / 3


def simulate_scores(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the coverage of the scores of one type and of all types, 3 % of the verdicts missing."""
    shifts = np.linspace(-0.5, 0.5, TYPES)
    for labels, cuts in LABELS.items():
        true = mean_label(shifts, cuts, np.sqrt(1.25))
        for sharing in SHARING:
            for each in (2, 3, 5, 10, 30):
                random = np.random.default_rng((seed, 10, *map(ord, labels + sharing), each))
                kinds = np.repeat(np.arange(TYPES), each)
                one, overall = Tally(), Tally()
                for _ in range(repetitions):
                    sources = share_sources(random, kinds, sharing)
                    seen = draw_quality(random, sources) + shifts[kinds] + 0.5 * random.normal(size=len(kinds))
                    scores = labels_of(seen, cuts)
                    scores[random.random(len(kinds)) < 0.03] = np.nan
                    present = np.array([np.isfinite(scores[kinds == kind]).any() for kind in range(TYPES)])
                    means = np.array(
                        [np.nanmean(scores[kinds == kind]) if present[kind] else 0 for kind in range(TYPES)]
                    )
                    spreads = ScoreSpreads(scores[:, None], kinds, [str(kind) for kind in range(TYPES)], sources, False)
                    weights = present / present.sum()
                    spread = spreads.of_sum(weights[:, None])
                    overall.add(
                        build_estimate(float(means @ weights), len(kinds), spread, limits=LIMITS), float(true @ weights)
                    )
                    middle = TYPES // 2
                    if present[middle]:
                        spread = spreads.of_group(middle, np.ones(1))
                        one.add(build_estimate(float(means[middle]), each, spread, limits=LIMITS), float(true[middle]))
                yield {
                    "labels": labels,
                    "shared sources": sharing,
                    "edits per type": each,
                    "one type": one.covers,
                    "printed": one.printed / max(one.tried, 1),
                    "overall": overall.covers,
                    "overall printed": overall.printed / max(overall.tried, 1),
                }


def simulate_comparisons(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the coverage of differences of four models: none, one better, or types that differ in opposite directions."""
    models = "abcd"
    pairs = [(a, b) for number, a in enumerate(models) for b in models[number + 1 :]]
    for world in ("equal", "better", "types", "skewed"):
        cuts = SKEWED if world == "skewed" else CUTS
        for sharing in SHARING:
            for cases in (20, 60, 240):
                random = np.random.default_rng((seed, 11, *map(ord, world + sharing), cases))
                kinds = np.arange(cases) * TYPES // cases
                shifts = {name: np.zeros(cases) for name in models}
                if world == "better":
                    shifts["a"] += 0.3
                if world == "types":
                    # Two of the types move in opposite directions, so that the mean over types does not.
                    shifts["a"][kinds == 0], shifts["a"][kinds == 1] = 0.5, -0.5
                true = {
                    name: np.mean([mean_label(shift[kinds == k], cuts, 1.25**0.5).mean() for k in range(TYPES)])
                    for name, shift in shifts.items()
                }
                one, together, wrong, contradict, power = Tally(), 0, 0, 0, 0
                for _ in range(repetitions):
                    sources = share_sources(random, kinds, sharing)
                    quality = draw_quality(random, sources)
                    sides = {
                        name: labels_of(
                            np.sqrt(0.5) * (quality + draw_quality(random, sources))
                            + shifts[name]
                            + 0.5 * random.normal(size=cases),
                            cuts,
                        )[:, None]
                        for name in models
                    }
                    grid = CaseGrid(
                        PLAIN,
                        ("score",),
                        tuple(map(str, range(TYPES))),
                        kinds,
                        np.ones((TYPES, 1), bool),
                        np.ones(1, bool),
                        sources,
                    )
                    found = compute_differences(grid, sides, pairs, 0.95, criteria=False)
                    missed = False
                    for pair, changes in found.items():
                        change, difference = changes[OVERALL], true[pair[0]] - true[pair[1]]
                        one.add(change.difference, difference)
                        adjusted = change.adjusted(0.95, len(pairs))
                        low, high = adjusted.difference.low, adjusted.difference.high
                        if low is None or high is None or adjusted.p is None or change.p is None:
                            continue
                        missed |= not low <= difference <= high
                        contradict += (adjusted.p < 0.05) != (not low <= 0 <= high)
                        contradict += (change.p < 0.05) != (
                            not (change.difference.low or 0) <= 0 <= (change.difference.high or 0)
                        )
                    together += not missed
                    significant = [pair for pair, changes in found.items() if _is_better(changes[OVERALL], len(pairs))]
                    wrong += any(abs(true[a] - true[b]) < 1e-9 for a, b in significant)
                    power += ("a", "b") in significant
                yield {
                    "models": world,
                    "shared sources": sharing,
                    "cases": cases,
                    "one interval": one.covers,
                    "printed": one.printed / one.tried,
                    "all six": together / repetitions,
                    "any false better": wrong / repetitions,
                    "a better than b": power / repetitions,
                    "interval against p": contradict,
                }


def _is_better(change: Any, tests: int) -> bool:
    p = change.adjusted(0.95, tests).p
    return p is not None and p < 0.05


def draw_labelled(
    random: np.random.Generator, edits: int, raters: int, cuts: tuple[float, ...], sources: np.ndarray[Any, Any]
) -> tuple[Floats, Floats]:
    """Return the labels of two judges (edits × 2) and of people (edits × raters), 0 to 3."""
    quality = draw_quality(random, sources)
    seen = quality[:, None] + 0.5 * random.normal(size=(edits, 2))
    people = quality[:, None] + 0.5 * random.normal(size=(edits, raters))
    return np.searchsorted(cuts, seen).astype(float), np.searchsorted(cuts, people).astype(float)


def match_labels(judge: Floats, people: Floats) -> MatchedScores:
    """Return a judge's labels and people's, as `agree` matches them."""
    middle = np.sort(people, 1)[:, (people.shape[1] - 1) // 2]
    return MatchedScores(judge, people.mean(1), judge, middle, np.arange(4.0))


def simulate_agreement(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the coverage of measures of agreement, and how often one of two equal judges is called closer to people."""
    for labels, cuts in LABELS.items():
        for raters, sharing in ((1, "none"), (3, "across")):
            random = np.random.default_rng((seed, 12, *map(ord, labels), raters))
            judges, people = draw_labelled(random, 400_000, raters, cuts, np.arange(400_000))
            matched = match_labels(judges[:, 0], people)
            true = {name: matched.value(name)[0] for name in MEASURES}
            true["alpha"] = estimate_alpha(np.column_stack([people, judges[:, 0]])[:100_000], range(100_000)).value
            for edits in (30, 60, 240):
                tallies = {name: Tally() for name in true}
                differences = {name: Tally() for name in MEASURES}
                closer = 0
                for _ in range(repetitions):
                    sources = share_sources(random, np.zeros(edits), sharing)
                    judges, people = draw_labelled(random, edits, raters, cuts, sources)
                    pairs = [match_labels(judges[:, number], people) for number in range(2)]
                    compared = compare_agreement(pairs[0], pairs[1], sources, 0.95)
                    for name, measure in compared.items():
                        tallies[name].add(measure.a, true[name] or 0.0)
                        differences[name].add(measure.difference, 0.0)
                        closer += measure.closer is not None
                    alpha = estimate_alpha(np.column_stack([people, judges[:, 0]]), sources)
                    tallies["alpha"].add(alpha, true["alpha"] or 0.0)
                yield {
                    "labels": labels,
                    "raters": raters,
                    "edits": edits,
                    **{name: tally.covers for name, tally in tallies.items()},
                    "printed": sum(tally.printed for tally in tallies.values()) / (len(tallies) * repetitions),
                    "differences": min(t.covers for t in differences.values() if isinstance(t.covers, float)),
                    "false closer": closer / repetitions,
                }


def simulate_rankings(repetitions: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the coverage of Bradley–Terry strengths of four models, by pairs of their own or by shared sources."""
    for world, strengths in {"equal": np.zeros(4), "different": np.array([0.9, 0.3, -0.3, -0.9])}.items():
        for sharing in ("none", "across"):
            for cases in (30, 100):
                random = np.random.default_rng((seed, 13, *map(ord, world + sharing), cases))
                tally, apart = Tally(), 0
                for _ in range(repetitions):
                    judgements = []
                    kinds = np.zeros(cases)
                    sources = share_sources(random, kinds, sharing)
                    favour = random.logistic(size=(cases, 4)) * 0.8 if sharing == "across" else np.zeros((cases, 4))
                    for a in range(4):
                        for b in range(a + 1, 4):
                            ahead = strengths[a] - strengths[b] + (favour[sources, a] - favour[sources, b])
                            wins = random.random(cases) < 1 / (1 + np.exp(-ahead))
                            names = sources if sharing == "across" else np.arange(cases) + 1000 * (4 * a + b)
                            judgements += [
                                PairwiseJudgement("abcd"[a], "abcd"[b], float(won), int(name))
                                for won, name in zip(wins, names, strict=True)
                            ]
                    ranking = fit_bradley_terry(judgements)
                    target = strengths if sharing == "none" else shrink_strengths(strengths)
                    for entry in ranking.models:
                        tally.add(entry.strength, float(target["abcd".index(entry.model)]))
                    told_apart = 3 - sum("cannot be told apart" in note for note in ranking.notes)
                    apart += told_apart > 0
                yield {
                    "models": world,
                    "shared sources": sharing,
                    "cases per pair": cases,
                    "strength": tally.covers,
                    "printed": tally.printed / tally.tried,
                    "some told apart": apart / repetitions,
                }


def shrink_strengths(strengths: Floats) -> Floats:
    """Return the strengths that comparisons have on average if every source picture favours some models."""
    if not strengths.any():
        return strengths
    favour = np.random.default_rng(99).logistic(size=(200_000, 4)) * 0.8
    wins = np.zeros((4, 4))
    for a in range(4):
        for b in range(4):
            if a != b:
                ahead = strengths[a] - strengths[b] + favour[:, a] - favour[:, b]
                wins[a, b] = (1 / (1 + np.exp(-ahead))).mean()
    from choix import ilsr_pairwise_dense

    found = np.asarray(ilsr_pairwise_dense(wins))
    return found - found.mean()


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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="scores, comparisons, agreement, rankings, corrected, …")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    simulations = {
        "scores": ("Scores", simulate_scores),
        "comparisons": ("Differences of four models", simulate_comparisons),
        "agreement": ("Agreement with people", simulate_agreement),
        "rankings": ("Bradley–Terry strengths of four models", simulate_rankings),
        "corrected": ("Corrected scores", simulate_corrected),
        "calibration": ("Calibration, 90 % agreement, 5 % error", simulate_calibration),
        "cascade": ("Cascade of two judges, 90 % agreement, 5 % error in all", simulate_cascade),
        "drift": ("Drift, margin 5 points", simulate_drift),
    }
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in options.only or simulations:
        title, simulation = simulations[name]
        tables[title] = list(simulation(options.repetitions, options.seed))
        print(format_table(title, tables[title]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1) + "\n", "utf-8")
    if options.figure and "Corrected scores" in tables:
        draw(tables["Corrected scores"], options.figure)


if __name__ == "__main__":
    main()
