"""Fit the thresholds of the embedded judge on edits with known truth, and report how far they can be trusted.

    python benchmarks/fit_rules.py CALIBRATION_DIR --made MADE_DIR [--check]

Oracle mode is fitted on the first set, whole pictures (tools and plain mode) on the second, which `make_scenes.py` writes.
Each set is kept apart from the other fit. Every check is a ridge-penalised logistic in a few named numbers. Accuracy is
measured on scenes left out of the fit, with an interval from resampling scenes; weights are fitted again on resampled
scenes and their spread is reported.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rules_data import IF_LABELS, VC_LABELS, Measured, load, measure

from editloupe.agent.rules import instruction_following
from editloupe.agent.rules.judge import decide_consistency, decide_following, find_anomalies
from editloupe.agent.rules.thresholds import ConsistencyLimits, FollowingChecks, LogisticCheck, Term, Thresholds

OUT = Path(__file__).parent.parent / "editloupe/agent/rules/thresholds.yaml"
PENALTY = 0.05
RANGES: dict[str, tuple[float, float]] = {
    "from_source": (0, 1.2), "from_reference": (0, 1.2), "structure_source": (0, 1),
    "structure_reference": (0, 1), "old_colours": (0, 1), "new_colours": (0, 1), "around": (0, 0.5), "spill": (0, 0.3),
    "far": (0, 20), "ground_before": (0, 1), "detail": (-1.2, 1.2), "box_reference": (0, 30), "moved": (0, 1), "off": (0, 1),
    "recoloured_share": (0, 1), "read_new": (0.3, 1), "read_old": (0.3, 1), "read_more": (0, 0.6), "fits": (0, 1),
    "any": (0, 1), "collapsed": (0, 1), "structure": (0, 1), "fill": (0.2, 0.9), "size": (-3, -1),
    "chroma": (0, 80), "flat": (0, 1), "significance": (0, 0.8), "also_recoloured": (0, 1), "score": (0, 1),
    "recoloured": (0, 1), "removed": (0, 1), "replaced": (0, 1), "said_colour": (0, 1), "said_place": (0, 1),
}  # fmt: skip
"""The range in which a number says something; values below and above count as its ends."""

Plan = dict[str, dict[str, list[str]]]
ORACLE: Plan = {
    "hit": {
        "": ["from_source", "structure_source", "old_colours"],
        "count": ["moved"],
    },
    "right": {
        "color": ["new_colours", "from_reference"],
        "material": ["new_colours", "detail", "from_reference"],
        "text": ["read_new"],
        "text_unread": ["from_reference", "around", "spill", "box_reference", "detail"],
        "shape": ["structure_reference", "structure_source"],
        "removal": ["detail", "from_reference", "old_colours"],
        "replacement": ["new_colours", "from_reference", "detail", "structure_source"],
        "count": ["off"],
    },
    "kept": {
        "": ["from_reference", "structure_reference", "around", "spill", "far"],
        "text": ["from_reference", "box_reference", "spill", "structure_reference", "read_more"],
        "text_unread": ["from_reference", "box_reference", "spill", "structure_reference"],
        "count": ["recoloured_share"],
    },
}
"""Which numbers a step may use, by kind of request; the empty kind is fitted on all kinds that have no line of their own."""
WHOLE: Plan = {
    "hit": {
        "": ["any", "collapsed", "score"],
        "text": ["read_old"],
        "count": ["moved", "collapsed"],
    },
    "right": {
        "": ["fits", "collapsed", "recoloured"],
        "color": ["fits"],
        "text": ["read_new"],
        "text_unread": ["fits", "collapsed"],
        "removal": ["removed", "replaced"],
        "count": ["off"],
    },
    "kept": {
        "": ["structure", "size"],
        "text": ["read_more", "size"],
        "text_unread": ["size"],
        "shape": ["fill"],
        "removal": ["flat", "size"],
        "count": ["also_recoloured"],
    },
}
"""Chosen among seven plans by left-out made scenes; plans with twice as many numbers did no better there."""
TARGET = ["fits", "significance", "said_colour", "said_place", "size"]
KINDS = ("color", "material", "text", "text_unread", "shape", "removal", "replacement", "count")
SIGNIFICANCE, JOIN, ATTACH, CLAIM = (
    (0.02, 0.05, 0.08, 0.11, 0.15),
    (0.0, 0.01, 0.02),
    (0.05, 0.15, 0.3, 0.5),
    (0.4, 0.5, 0.6, 0.7),
)

Row = tuple[dict[str, float], int]
"""The numbers of one edit and its true label, 0 the worst."""


def logistic(names: Sequence[str], rows: Sequence[Row], passed: Callable[[int], bool]) -> LogisticCheck:
    """Fit one step by Newton's method; the penalty keeps weights small where few edits speak."""
    terms = {name: Term(low=RANGES[name][0], high=RANGES[name][1], weight=1) for name in names}
    x = np.array([[*(terms[name].value(numbers[name]) for name in names), 1.0] for numbers, _ in rows]).reshape(
        -1, len(names) + 1
    )
    y = np.array([float(passed(label)) for _, label in rows])
    ridge = np.diag([*[PENALTY] * len(names), 1e-3])
    weights = np.zeros(len(names) + 1)
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        step = np.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + ridge, x.T @ (p - y) + ridge @ weights)
        weights -= step
        if np.abs(step).max() < 1e-7:
            break
    fitted = {
        name: terms[name].model_copy(update={"weight": round(float(w), 3)})
        for name, w in zip(names, weights, strict=False)
    }
    return LogisticCheck(bias=round(float(weights[-1]), 3), terms=fitted)


def fit_steps(plan: Plan, rows: dict[str, list[Row]]) -> dict[str, FollowingChecks]:
    """Fit the three checks of every kind, each on the edits that reach it in the rubric's order."""
    checks = (("hit", 0), ("right", 1), ("kept", 2))
    fitted: dict[str, dict[str, LogisticCheck]] = {kind: {} for kind in KINDS}
    for check, reached in checks:
        for kind in KINDS:
            own = kind in plan[check]
            sharing = [kind] if own else [k for k in KINDS if k not in plan[check] and k != "text_unread"]
            pool = [row for k in sharing for row in rows[k] if row[1] >= reached]
            fitted[kind][check] = logistic(plan[check][kind if own else ""], pool, lambda label, at=reached: label > at)
    return {kind: FollowingChecks(**steps) for kind, steps in fitted.items()}


def overlaps(box: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two boxes share a third of the smaller one."""
    w, h = (min(box[i + 2], other[i + 2]) - max(box[i], other[i]) for i in (0, 1))
    smaller = min((b[2] - b[0]) * (b[3] - b[1]) for b in (box, other))
    return w > 0 and h > 0 and w * h > smaller / 3


def fit(data: Sequence[Measured], made: Sequence[Measured] | None = None) -> Thresholds:
    """Fit oracle mode on one set and whole pictures on another; without a second set, both on the first."""
    made = data if made is None else made
    near: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for m in data:
        if len(m.crops) == 1:
            for kind in _kinds(m):
                near[kind].append((m.crops[0], m.known.following))
    spots = [
        (dict(r.numbers), int(any(overlaps(r.box, b) for b in m.known.own_boxes))) for m in made for r in m.regions
    ]
    target = logistic(TARGET, spots, bool)
    wide: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for m in made:
        for kind in _kinds(m):
            wide[kind].append((whole(m, target).numbers, m.known.following))
    draft = Thresholds(oracle=fit_steps(ORACLE, near), whole=fit_steps(WHOLE, wide), target=target, consistency={})
    limits = {"oracle": best_limits(data, draft, "oracle"), "whole": best_limits(made, draft, "whole")}
    return draft.model_copy(update={"consistency": limits})


def _kinds(m: Measured) -> tuple[str, ...]:
    """Return the checks that an edit helps to fit; a text edit also those for text that nothing could read."""
    return (m.request.kind, "text_unread") if m.request.kind == "text" else (m.request.kind,)


def whole(m: Measured, target: LogisticCheck) -> instruction_following.WholeEvidence:
    """Choose the target's region as the judge does."""
    return instruction_following.choose_region(m.regions, m.request, bool(m.whole["whole_scene"]), target, m.text)


def best_limits(data: Sequence[Measured], table: Thresholds, mode: str) -> ConsistencyLimits:
    """Search the limits of Visual Consistency on a grid; of equally good settings the middle one is taken."""
    claims = CLAIM if mode == "whole" else (0.5,)
    tried = [
        ConsistencyLimits(significance=s, join=j, attach=a, claim=c)
        for s, j, a, c in itertools.product(SIGNIFICANCE, JOIN, ATTACH, claims)
    ]
    own = [claim(m, table, mode) for m in data]
    hits = [
        sum(consistency(m, limits, mode, *mine) == m.known.consistency for m, mine in zip(data, own, strict=True))
        for limits in tried
    ]
    good = [limits for limits, hit in zip(tried, hits, strict=True) if hit == max(hits)]
    centre = {
        name: float(np.median([getattr(limits, name) for limits in good])) for name in ConsistencyLimits.model_fields
    }
    return min(good, key=lambda g: sum(abs(getattr(g, n) - v) / (abs(v) + 0.01) for n, v in centre.items()))


def following(m: Measured, table: Thresholds, mode: str) -> int:
    """Judge Instruction Following with a table, the worst target counting."""
    steps = instruction_following.find_checks(m.request, m.text, table, target_known=mode == "oracle")
    sets = m.crops if mode == "oracle" else [whole(m, table.target).numbers]
    return min(IF_LABELS.index(decide_following(steps, numbers).label) for numbers in sets)


Boxes = list[tuple[int, ...]]


def claim(m: Measured, table: Thresholds, mode: str) -> tuple[Boxes, float]:
    """Return the boxes that count as the target, and how sure it is that they are."""
    if mode == "oracle":
        return [tuple(box) for box in m.known.edit.target_boxes], 1.0
    chosen = whole(m, table.target)
    steps = instruction_following.find_checks(m.request, m.text, table, target_known=False)
    return [chosen.box] if chosen.box else [], steps.hit.probability(chosen.numbers)


def consistency(m: Measured, limits: ConsistencyLimits, mode: str, boxes: Boxes, sure: float) -> int:
    """Judge Visual Consistency with limits, if the boxes are the target."""
    differences = m.masked if mode == "oracle" else m.whole
    targets = boxes if sure >= limits.claim else []
    own = m.own if mode == "oracle" else ()
    places = find_anomalies(differences, targets, own, limits, m.request.kind == "count" and bool(targets))
    return VC_LABELS.index(decide_consistency(differences, places, limits, "").label)


def interval(hits: dict[str, list[bool]], rounds: int = 2000) -> tuple[float, float, float]:
    """Return the accuracy and a 95 % interval from resampling scenes."""
    draw = np.random.default_rng(0)
    sums = np.array([[sum(h), len(h)] for h in hits.values()])
    picked = sums[draw.integers(0, len(sums), (rounds, len(sums)))].sum(axis=1)
    low, high = np.quantile(picked[:, 0] / picked[:, 1], [0.025, 0.975])
    return float(sums[:, 0].sum() / sums[:, 1].sum()), float(low), float(high)


def judge_consistency(m: Measured, table: Thresholds, mode: str) -> int:
    """Judge Visual Consistency with a table."""
    return consistency(m, table.consistency[mode], mode, *claim(m, table, mode))


def judge(m: Measured, table: Thresholds, mode: str) -> dict[str, bool]:
    """Return for each criterion whether the label is exact."""
    return {
        f"{mode} instruction_following": following(m, table, mode) == m.known.following,
        f"{mode} visual_consistency": judge_consistency(m, table, mode) == m.known.consistency,
    }


def report(data: Sequence[Measured], made: Sequence[Measured], groups: int) -> None:
    """Print how often labels are exact: on scenes left out, on scenes of the fit, and on the set that was kept apart."""
    sets = {"oracle": data, "whole": made}
    scenes = {mode: sorted({m.known.scene for m in some}) for mode, some in sets.items()}
    hits: dict[tuple[str, str], dict[str, list[bool]]] = {}

    def count(how: str, m: Measured, table: Thresholds, mode: str) -> None:
        for name, right in judge(m, table, mode).items():
            hits.setdefault((name, how), {}).setdefault(m.known.scene, []).append(right)

    for number in range(groups):
        out = {mode: set(names[number::groups]) for mode, names in scenes.items()}
        table = fit(*([m for m in some if m.known.scene not in out[mode]] for mode, some in sets.items()))
        for mode, some in sets.items():
            for m in some:
                if m.known.scene in out[mode]:
                    count("left out", m, table, mode)
    table = fit(data, made)
    for mode, some in sets.items():
        for m in some:
            count("in the fit", m, table, mode)
        if data is not made:
            for m in made if mode == "oracle" else data:
                count("the other set", m, table, mode)
    for (name, how), by_scene in sorted(hits.items()):
        exact, low, high = (100 * figure for figure in interval(by_scene))
        print(f"{name:32} {how:14} {exact:5.1f} % exact [{low:.0f}, {high:.0f}]")


def spread(data: Sequence[Measured], made: Sequence[Measured], rounds: int) -> None:
    """Fit on resampled scenes and print how far the weights move."""
    draw = np.random.default_rng(1)
    weights_by_term: dict[str, list[float]] = {}
    for _ in range(rounds):
        table = fit(resampled(data, draw), resampled(made, draw))
        for name, part in (("oracle", table.oracle), ("whole", table.whole)):
            for kind, steps in part.items():
                for check in ("hit", "right", "kept"):
                    for term, value in getattr(steps, check).terms.items():
                        weights_by_term.setdefault(f"{name} {kind} {check} {term}", []).append(value.weight)
    print("weights over resampled scenes: mean ± standard deviation")
    for name, weights in weights_by_term.items():
        print(f"  {name:52} {np.mean(weights):6.2f} ± {np.std(weights):.2f}")


def resampled(data: Sequence[Measured], draw: np.random.Generator) -> list[Measured]:
    """Draw as many scenes as there are, with replacement."""
    scenes: dict[str, list[Measured]] = {}
    for m in data:
        scenes.setdefault(m.known.scene, []).append(m)
    names = sorted(scenes)
    return [m for name in draw.choice(names, len(names)) for m in scenes[str(name)]]


def write(table: Thresholds, path: Path, edits: int, made: int) -> None:
    """Write the table with a line that says how it was made."""
    data: dict[str, Any] = table.model_dump(mode="json")
    head = (
        f"# Fitted by benchmarks/fit_rules.py; not edited by hand. Oracle mode: {edits} calibration edits. "
        f"Whole pictures: {made} made edits.\n"
    )
    path.write_text(head + yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120), "utf-8")


def main() -> None:
    """Measure, check on left-out scenes, fit on all, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--made", nargs="+", type=Path, help="sets for whole pictures; default: the same")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--check", action="store_true", help="report only, write nothing")
    parser.add_argument("--groups", type=int, default=14, help="the scenes are left out in this many groups")
    parser.add_argument(
        "--resamples", type=int, default=20, help="fits on resampled scenes for the spread of the weights"
    )
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers) as pool:
        data = list(pool.map(measure, load(options.folders), chunksize=4))
        made = list(pool.map(measure, load(options.made), chunksize=4)) if options.made else data
    report(data, made, options.groups)
    spread(data, made, options.resamples)
    if not options.check:
        write(fit(data, made), options.out, len(data), len(made))


if __name__ == "__main__":
    main()
