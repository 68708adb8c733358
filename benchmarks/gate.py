"""Simulate `editloupe gate` with a known truth: false passes, false failures, power and the mean number of edits judged.

    python benchmarks/gate.py [--repetitions N] [--seed N] [--fixed] [--edits N …] [--worlds NAME …] [--power] [--json FILE]

Two criteria and their mean are tested with a margin of 5 points; *alone* tests only the criterion that loses. One criterion loses
nothing, the margin or twice the margin. Labels are spread or mostly the best one; edits have a source picture each, or one to
four share one; there is one type, or four of which the smallest has a tenth of the edits. All repetitions of a setting are
computed at once: the moves from which a spread is computed are linear in the differences, so their matrix is read from
`GroupMeans` itself, and the first repetitions are compared with the command's own code. `--fixed` tests once, after all edits.
`--power` checks the sentence of `editloupe gate --power` with normal differences.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trust import LABELS, labels_of, mean_label, share_sources
from editloupe.evals.gate.decisions import (
    compute_power,
    draw_order,
    find_bounds,
    plan_looks,
    raise_spread,
    split_error,
)
from editloupe.evals.stats.comparison.paired_differences import LIMITS, OVERALL, CaseGrid, compute_differences
from editloupe.evals.stats.intervals import GroupMeans, skewed_interval, skewness
from editloupe.evals.stats.scores.score_matrix import PLAIN

Floats = np.ndarray[Any, np.dtype[np.float64]]
DROP, ERROR, TESTS = 5.0, 0.05, 3
AT_A_TIME = 5000
"""Repetitions in memory at once; each such part has source pictures of its own."""
CHECKED = 3
"""Repetitions of every setting that are compared with the command's own code."""
TYPES = (0.5, 0.25, 0.15, 0.1)
"""Shares of four types."""
WORLDS = {
    "none": 0.0,
    "margin": 1.0,
    "twice the margin": 2.0,
    "margin, rare": 1.0,
    "margin, rare, others equal": 1.0,
    "none, most equal": 0.0,
}
"""Names of what one criterion loses, in margins. Rare: a few edits lose everything. Equal: judged exactly as before."""


NUMBERS = ("passed", "failed", "edits judged", "alone passed", "alone failed", "alone edits judged")


class Prefix:
    """The first edits of a setting: what turns their differences into one-sided bounds.

    Args:
        kinds: The type of every edit, by number.
        sources: The source picture of every edit, by number.
    """

    def __init__(self, kinds: np.ndarray[Any, Any], sources: np.ndarray[Any, Any]) -> None:
        self.kinds, self.sources, count, groups = kinds, sources, len(kinds), int(kinds.max()) + 1
        self.weights = 1 / groups / np.bincount(kinds)[kinds]
        self.members = np.eye(groups)[kinds]
        self.holds = (sources[:, None] == np.unique(sources)).astype(np.float32)
        # With the identity as values, the moves of column e are what one point of difference of edit e moves.
        unit, empty = (
            GroupMeans(np.eye(count), kinds, groups, sources),
            GroupMeans(np.zeros((count, 1)), kinds, groups, sources),
        )
        self.moves, self.freedoms = [], []
        for part in join_types(kinds, sources):
            matrix = np.zeros((int(sources.max()) + 1, count))
            own = np.isin(kinds, part)
            for edit in np.flatnonzero(own):
                weights = np.zeros((groups, count))
                weights[part, edit] = 1 / groups
                matrix[np.unique(sources[own]), edit] = unit.spread(weights).moves
            self.moves.append(matrix.T)
            self.freedoms.append(empty.spread(np.isin(np.arange(groups), part)[:, None] / groups).freedom)
        whole = empty.spread(np.full((groups, 1), 1 / groups))
        self.freedom, self.effective, self.count = whole.freedom, whole.effective, whole.sources

    def bounds(self, differences: Floats, errors: tuple[float, float]) -> tuple[Floats, Floats]:
        """Return the lower and the upper bound of repetitions × edits of differences, as `find_bounds` does."""
        value = differences @ self.weights
        changed = ((np.abs(differences) > 0).astype(np.float32) @ self.holds > 0).sum(1)
        parts = [differences @ matrix for matrix in self.moves]
        variances = np.stack([(part**2).sum(1) for part in parts])
        moves = np.sum(parts, 0)
        within = (differences**2).sum(1) - (differences @ self.members) ** 2 @ (1 / self.members.sum(0))
        floor = np.maximum(within, 0) / max(1, len(self.kinds) - self.members.shape[1]) * (self.weights**2).sum()
        own = np.sqrt((moves**2).sum(1))
        se = np.maximum(own, np.sqrt(floor))
        with np.errstate(invalid="ignore", divide="ignore"):
            pooled = variances.sum(0) ** 2 / (variances**2 / np.array(self.freedoms)[:, None]).sum(0)
            freedom = np.fmin(self.freedom, pooled)
            whole = (moves**3).sum(1) / np.where(own > 0, own, 1) ** 3
            kinds = (
                (skewness(moves, self.count), freedom),
                (whole, freedom),
                (np.zeros(len(value)), np.fmin(freedom, np.maximum(1, changed - 1))),
            )
            low, high = (
                np.stack([skewed_interval(value, se, few, skew, 1 - 2 * error)[end] for skew, few in kinds])
                for end, error in enumerate(errors)
            )
        low, high = low.min(0).clip(LIMITS[0]), high.max(0).clip(max=LIMITS[1])
        flat = own <= 1e-9 * np.maximum(1, np.abs(value))
        still = np.abs(value) < 1e-9
        reach = [1 - error ** (1 / self.effective) for error in errors]
        down, up = (
            np.where(still, limit, np.maximum(-100, value + sign * 2 * np.abs(value)))
            for limit, sign in ((-100.0, -1), (100.0, 1))
        )
        low = np.where(flat, value - reach[0] * (value - down), low)
        return low, np.where(flat, value + reach[1] * (np.minimum(up, 100.0) - value), high)

    def check(self, differences: Floats, errors: tuple[float, float]) -> None:
        """Raise if the bounds are not those of the command's own code."""
        grid = CaseGrid(
            PLAIN,
            ("one",),
            tuple(map(str, range(int(self.kinds.max()) + 1))),
            self.kinds,
            np.ones((int(self.kinds.max()) + 1, 1), bool),
            np.ones(1, bool),
            self.sources,
        )
        for row, *ends in zip(differences, *self.bounds(differences, errors), strict=True):
            sides = {"a": row[:, None], "b": np.zeros((len(row), 1))}
            change = compute_differences(grid, sides, [("a", "b")], 0.9, False)["a", "b"][OVERALL]
            assert change.spread is not None
            assert change.difference.value is not None
            changed = len(np.unique(self.sources[row != 0]))
            spread = raise_spread(change.spread, grid, sides["a"], sides["b"], None)
            own = find_bounds(change.difference.value, len(row), spread, *errors, changed)
            np.testing.assert_allclose(ends, np.array(own, float), atol=1e-6)


def join_types(kinds: np.ndarray[Any, Any], sources: np.ndarray[Any, Any]) -> list[list[int]]:
    """Return the types, those with one source picture joined as `GroupMeans` joins them."""
    counts = {kind: len(np.unique(sources[kinds == kind])) for kind in np.unique(kinds).tolist()}
    order = sorted(counts, key=counts.__getitem__)
    single = sum(count == 1 for count in counts.values())
    joined = max(2, single) if single and len(order) > 1 else 1
    return [order[:joined], *([kind] for kind in order[joined:])]


def draw_differences(
    random: np.random.Generator, repetitions: int, sources: np.ndarray[Any, Any], cuts: tuple[float, ...], world: str
) -> Floats:
    """Return repetitions × edits × criteria of differences, new minus baseline."""
    loss = WORLDS[world] * DROP
    shape = (repetitions, len(sources))
    changed = random.random((*shape, 1)) < (0.2 if world == "none, most equal" else 1.1)
    by_source = random.normal(size=(repetitions, len(sources)))[:, sources]
    quality = np.sqrt(0.32) * by_source[..., None] + np.sqrt(0.48) * random.normal(size=(*shape, 1))
    old, new = (
        quality + np.sqrt(0.2) * random.normal(size=(*shape, 1)) + 0.5 * random.normal(size=(*shape, 2))
        for _ in range(2)
    )
    shifts = np.linspace(-2, 0, 4001)
    losses = mean_label(0.0, cuts, 1.25**0.5) - mean_label(shifts, cuts, 1.25**0.5)
    shift = 0.0 if "rare" in world else float(np.interp(loss, losses[::-1], shifts[::-1]))
    before = labels_of(old, cuts)
    after = before if world.endswith("others equal") else labels_of(new + np.array([shift, 0.0]), cuts)
    after = np.where(changed, after, before)
    if "rare" in world:
        lost = random.random(shape) < loss / float(mean_label(0.0, cuts, 1.25**0.5))
        after[lost, 0] = 0.0
    return after - before


def share_by_type(random: np.random.Generator, edits: int, sharing: str, types: int) -> tuple[Any, Any]:
    """Return the types and the source pictures of edits, in the order in which the command would judge them."""
    ends = [0, *np.round(np.cumsum(TYPES) * edits)] if types > 1 else [0, edits]
    kinds = np.repeat(range(types), np.diff(ends).astype(int))
    sources = share_sources(random, np.zeros(edits), sharing)
    cases = [
        (str(kind), str(source), str(edit)) for edit, (kind, source) in enumerate(zip(kinds, sources, strict=True))
    ]
    order = draw_order(cases)
    return kinds[order], np.unique(sources[order], return_inverse=True)[1]


def simulate(repetitions: int, seed: int, fixed: bool, sizes: list[int], worlds: list[str]) -> Iterator[dict[str, Any]]:
    """Yield how often a gate passes and fails, and after how many edits it ends."""
    for labels, cuts in LABELS.items():
        for sharing in ("none", "across"):
            for types in (1, len(TYPES)):
                for edits in sizes:
                    for world in worlds:
                        random = np.random.default_rng((seed, 14, *map(ord, labels + sharing + world), types, edits))
                        answers = [
                            run_part(
                                random,
                                min(AT_A_TIME, repetitions - done),
                                share_by_type(random, edits, sharing, types),
                                cuts,
                                world,
                                fixed,
                            )
                            for done in range(0, repetitions, AT_A_TIME)
                        ]
                        means = [float(np.concatenate(parts).mean()) for parts in zip(*answers, strict=True)]
                        yield {
                            "labels": labels,
                            "sources": sharing,
                            "types": types,
                            "edits": edits,
                            "loss": world,
                            **dict(zip(NUMBERS, means, strict=True)),
                        }


def run_part(
    random: np.random.Generator,
    repetitions: int,
    structure: tuple[Any, Any],
    cuts: tuple[float, ...],
    world: str,
    fixed: bool,
) -> tuple[Floats, ...]:
    """Return which gates pass, fail and after how many edits each ends; then the same for the losing criterion alone."""
    kinds, sources = structure
    criteria = draw_differences(random, repetitions, sources, cuts, world)
    tested = np.concatenate([criteria, criteria.mean(2, keepdims=True)], 2)
    results: list[Floats] = []
    for tests in (TESTS, 1):
        results += test_looks(tested[..., :tests], kinds, sources, fixed, tests, DROP)
    return tuple(results)


def test_looks(
    tested: Floats, kinds: np.ndarray[Any, Any], sources: np.ndarray[Any, Any], fixed: bool, corrected: int, drop: float
) -> tuple[Floats, Floats, Floats]:
    """Return which gates pass, which fail, and after how many edits each ends.

    Args:
        tested: Repetitions × edits × scores of differences.
        kinds: The type of every edit.
        sources: The source picture of every edit.
        fixed: Test once, after all edits.
        corrected: The number of scores for which the upper bounds are corrected.
        drop: The margin.
    """
    repetitions = len(tested)
    looks = [len(kinds)] if fixed else plan_looks(list(map(str, kinds)))
    passed, failed = np.zeros(repetitions, bool), np.zeros(repetitions, bool)
    used = np.full(repetitions, len(kinds))
    errors = zip(split_error(looks, ERROR), split_error(looks, ERROR / corrected), strict=True)
    for look, error in zip(looks, errors, strict=True):
        prefix = open_prefix(tuple(kinds[:look].tolist()), tuple(sources[:look].tolist()))
        prefix.check(tested[:CHECKED, :look, 0], error)
        bounds = [prefix.bounds(tested[:, :look, score], error) for score in range(tested.shape[2])]
        low, high = (np.array(ends) for ends in zip(*bounds, strict=True))
        open_before = ~(passed | failed)
        passed |= open_before & (low > -drop).all(0)
        failed |= open_before & ((high < 0) & (low <= -drop)).any(0)
        used[open_before & (passed | failed)] = look
    return passed, failed, used


@lru_cache(8)
def open_prefix(kinds: tuple[int, ...], sources: tuple[int, ...]) -> Prefix:
    """Return the prefix of edits with these types and source pictures."""
    return Prefix(np.array(kinds), np.unique(sources, return_inverse=True)[1])


def simulate_power(repetitions: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield how often the loss that `--power` names is found, and how often a model without loss passes."""
    for edits, deviation, drop in ((60, 30.0, 5.0), (60, 15.0, 2.0), (200, 30.0, 5.0), (200, 20.0, 2.0)):
        power = compute_power(deviation / np.sqrt(edits), edits - 1, edits, drop, ERROR, TESTS, "")
        random = np.random.default_rng((seed, edits, int(deviation)))
        kinds, sources = np.zeros(edits, int), np.arange(edits)
        answers = [
            test_looks(random.normal(-loss, deviation, (repetitions, edits, 1)), kinds, sources, False, TESTS, drop)
            for loss in (power.loss, 0.0)
        ]
        yield {
            "edits": edits,
            "deviation": deviation,
            "drop": drop,
            "loss": power.loss,
            "found": float(answers[0][1].mean()),
            "unchanged passes, said": power.unchanged_passes,
            "seen": float(answers[1][0].mean()),
        }


def main() -> None:
    """Run the simulation and print a line per setting, then the ranges by world and number of edits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true", help="test once, after all edits")
    parser.add_argument("--edits", type=int, nargs="+", default=[30, 60, 100, 200])
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    parser.add_argument("--power", action="store_true", help="only check what the command's --power says")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.power:
        for row in simulate_power(options.repetitions, options.seed):
            print(" ".join(f"{name} {value:.4g};" for name, value in row.items()), flush=True)
        return
    rows = []
    for row in simulate(options.repetitions, options.seed, options.fixed, options.edits, options.worlds):
        rows.append(row)
        print(
            " ".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()), flush=True
        )
    print(f"\nCPU seconds: {time.process_time():.0f}")
    for world in options.worlds:
        for edits in options.edits:
            own = [row for row in rows if (row["loss"], row["edits"]) == (world, edits)]
            ends = ((name, [row[name] for row in own]) for name in NUMBERS)
            print(world, edits, *(f"{name} {min(values):.4g}-{max(values):.4g};" for name, values in ends))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
