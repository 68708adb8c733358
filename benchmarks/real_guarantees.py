"""Check promises on real judges: what `calibrate` keeps, panels of two and three judges, and cascades that end with a person.

The population is the edits of a run. Labels of a random half of the source pictures calibrate, one edit per picture, as
`calibrate` takes them; the other half is held out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.real_data import SUCCESS, Bench, Floats, Ints, import_file
from editloupe.evals.labels import HumanLabels
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.run_units import row_lower_medians
from editloupe.evals.stats.trust.calibrate import fewest_labels, find_thresholds, run_fixed_sequence
from editloupe.evals.stats.trust.confidence import find_confidences
from editloupe.judge.panels import panel_outcome
from editloupe.types import Outcome, Reason, Unjudged, Verdict

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Row = dict[str, Any]
PROMISES = (0.7, 0.8, 0.9)
ERROR = 0.05
PRICES = {"blip2": 0.1, "instructblip": 0.1, "llava": 0.2, "qwenvl": 0.2, "gemini": 1.0, "gpt4o": 5.0, "gpt4v": 15.0}
"""Assumed prices of 1 000 edits in dollars, by the family of a judge."""
PERSON = 250.0
"""Assumed price of 1 000 edits labelled by a person, in dollars."""
CASCADES = (
    (("gemini", "llava"), ("gemini", "gpt4o")),
    (("gemini", "qwenvl"), ("gpt4o", "gpt4v")),
    (("gemini", "gpt4o"), ("gemini", "gpt4o", "gpt4v")),
)
"""Panels of a first and a second stage, by families."""


@dataclass(frozen=True)
class Verdicts:
    """One judge's verdicts: how sure it is, whether the raters' lower median label is the same, and the source picture."""

    confidence: Floats
    same: Bools
    sources: Ints
    names: tuple[str, ...]

    @classmethod
    def read(cls, table: RunTable, people: HumanLabels, confidence: Floats) -> Verdicts:
        """Return the verdicts of a table that have a label and a confidence."""
        mine = row_lower_medians(table.scores(SUCCESS, "score"))
        theirs = row_lower_medians(people.counting_matrix(table.names, SUCCESS))
        usable = np.isfinite(mine) & np.isfinite(theirs) & np.isfinite(confidence)
        names = tuple(name for name, counts in zip(table.names, usable, strict=True) if counts)
        return cls(confidence[usable], mine[usable] == theirs[usable], table.sources[usable], names)


def draw_one_each(sources: Ints, members: Bools, random: np.random.Generator) -> Ints:
    """Return one edit of every source picture, drawn at random from the members."""
    order = random.permutation(np.flatnonzero(members))
    _, first = np.unique(sources[order], return_index=True)
    return np.asarray(order[first], np.int64)


def split_sources(sources: Ints, random: np.random.Generator) -> Bools:
    """Return which edits belong to a random half of the source pictures."""
    pictures = random.permutation(np.unique(sources))
    return np.isin(sources, pictures[: len(pictures) // 2])


def find_threshold(verdicts: Verdicts, used: Ints, promise: float, error: float) -> float:
    """Return the confidence from which verdicts are kept; infinite if none is."""
    tests = run_fixed_sequence(verdicts.confidence[used], verdicts.same[used], promise, error)
    return min((test.threshold for test in tests if test.passed), default=np.inf)


def simulate_calibration(bench: Bench) -> Iterator[Row]:
    """Yield how often the promise holds, with the share of other judges that chose the same label as confidence."""
    run, following = bench.folder / "following", bench.following()
    for judge in following:
        import_file(bench.folder / f"{judge}.csv", judge, bench.folder / f"{SUCCESS}.yaml", run)
    groups: dict[str, Mapping[str, RunTable]] = {"all": bench.labels}
    if len(following) > 1:
        groups["that follow people"] = bench.read("following")
    for group, tables in groups.items():
        for number, (judge, table) in enumerate(tables.items()):
            _, confidences = find_confidences(table, "judges")
            verdicts = Verdicts.read(table, bench.human(table), confidences[SUCCESS])
            for promise in PROMISES:
                random = np.random.default_rng((number, int(100 * promise)))
                yield {
                    "judge": judge,
                    "other judges": group,
                    "promise": f"{promise:.0%}",
                    **try_splits(verdicts, promise, bench.splits, random),
                }


def try_splits(verdicts: Verdicts, promise: float, splits: int, random: np.random.Generator) -> Row:
    """Return how often a calibration on half of the source pictures keeps its promise, and how much it keeps."""
    held, held_out, kept, agreed = 0, 0, [], []
    for _ in range(splits):
        half = split_sources(verdicts.sources, random)
        used = draw_one_each(verdicts.sources, half, random)
        keeps = verdicts.confidence >= find_threshold(verdicts, used, promise, ERROR)
        kept.append(keeps[~half].mean())
        if not keeps.any():
            held, held_out = held + 1, held_out + 1
            continue
        share = verdicts.same[keeps & ~half].mean() if (keeps & ~half).any() else np.nan
        held += verdicts.same[keeps].mean() >= promise
        held_out += not share < promise
        agreed.append(share)
    return {
        "keeps something": len(agreed) / splits,
        "kept": float(np.mean(kept)),
        "agreement held out": f"{np.nanmean(agreed):.3f}" if agreed else "–",
        "promise holds": held / splits,
        "in the held-out half": held_out / splits,
    }


def name_panel(members: Sequence[str]) -> str:
    """Return a panel's name."""
    return " + ".join(members)


def import_panels(bench: Bench, panels: Sequence[Sequence[str]]) -> dict[str, RunTable]:
    """Let panels vote on every edit by the rule of `panel:{…}`, import their verdicts, and return their tables."""
    outcomes = {judge: _read_outcomes(bench.labels[judge]) for panel in panels for judge in panel}
    for members in panels:
        file = bench.folder / f"panel-{'-'.join(members)}.csv"
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["edit", "picture", SUCCESS, f"confidence.{SUCCESS}"])
            for edit in bench.data.people:
                each = [(judge, outcomes[judge].get(edit, _NOT_ASKED)) for judge in members]
                vote = panel_outcome(SUCCESS, each)
                cells = (vote.label, vote.confidence) if isinstance(vote, Verdict) else ("", "")
                writer.writerow([edit, edit.partition("/")[2], *cells])
        import_file(file, name_panel(members), bench.folder / f"{SUCCESS}.yaml", bench.folder / "panels")
    return bench.read("panels")


_NOT_ASKED = Unjudged(criterion=SUCCESS, reason=Reason.UNREADABLE, detail="the judge has no score")


def _read_outcomes(table: RunTable) -> dict[str, Outcome]:
    names = table.labels(SUCCESS)
    outcomes: dict[str, Outcome] = {}
    for row in table.rows:
        score = row.units[SUCCESS][0].score
        if score is not None:
            label = names[round(score)]
            outcomes[row.edit.id] = Verdict(
                criterion=SUCCESS, label=label, score=score, score_100=100 * score / (len(names) - 1)
            )
    return outcomes


def run_panels(bench: Bench) -> Iterator[Row]:
    """Yield the agreement of panels of two and three judges, one of each family, with that of their best member."""
    families = list(bench.first_of_families().values())
    panels = [panel for size in (2, 3) for panel in combinations(families, size)]
    import_panels(bench, panels)
    alone, together = bench.agree("labels"), bench.agree("panels")
    for members in panels:
        record = together[name_panel(members)][SUCCESS]
        best = max(alone[judge][SUCCESS]["accuracy"]["value"] for judge in members)
        correlations = [alone[judge][SUCCESS]["spearman"]["value"] or 0.0 for judge in members]
        yield {
            "panel": name_panel(members),
            "edits": record["n"],
            "same label": record["accuracy"]["value"],
            "best member": best,
            "ρ": record["spearman"]["value"] or 0.0,
            "best member's ρ": max(correlations),
        }


def run_cascades(bench: Bench) -> Iterator[Row]:
    """Yield what cascades of two panels keep before a person is asked, how often people agree, and what it costs."""
    families = bench.first_of_families()
    cascades = [stages for stages in CASCADES if all(name in families for stage in stages for name in stage)]
    named = [tuple(tuple(families[name] for name in stage) for stage in stages) for stages in cascades]
    if not named:
        return
    tables = import_panels(bench, list(dict.fromkeys(stage for stages in named for stage in stages)))
    for stages, members in zip(cascades, named, strict=True):
        first, second = (_read_panel(bench, tables[name_panel(own)]) for own in members)
        shared = sorted(set(first.names) & set(second.names))
        first, second = _take(first, shared), _take(second, shared)
        prices = [sum(PRICES[name] for name in stage) for stage in stages]
        asked_before = [name for name in stages[1] if name in stages[0]]
        prices[1] -= sum(PRICES[name] for name in asked_before)
        for promise in PROMISES:
            random = np.random.default_rng(int(100 * promise))
            yield {
                "first stage": name_panel(stages[0]),
                "second stage": name_panel(stages[1]),
                "promise": f"{promise:.0%}",
                **try_cascade(first, second, promise, prices, bench.splits, random),
            }


def _read_panel(bench: Bench, table: RunTable) -> Verdicts:
    _, confidences = find_confidences(table, "confidence")
    return Verdicts.read(table, bench.human(table), confidences[SUCCESS])


def _take(verdicts: Verdicts, names: Sequence[str]) -> Verdicts:
    positions = {name: position for position, name in enumerate(verdicts.names)}
    at = np.array([positions[name] for name in names])
    return Verdicts(verdicts.confidence[at], verdicts.same[at], verdicts.sources[at], tuple(names))


def try_cascade(
    first: Verdicts,
    second: Verdicts,
    promise: float,
    prices: Sequence[float],
    splits: int,
    random: np.random.Generator,
) -> Row:
    """Return what a cascade keeps in the held-out halves. The stages share the error as `calibrate --append` shares it."""
    held, kept, agreed = 0, np.zeros((splits, 2)), []
    for split in range(splits):
        half = split_sources(first.sources, random)
        used = draw_one_each(first.sources, half, random)
        threshold = find_threshold(first, used, promise, ERROR / 2)
        left = first.confidence < threshold
        endings = 1 + len(find_thresholds(first.confidence[used], fewest_labels(promise, ERROR / 2)))
        used = draw_one_each(first.sources, half & left, random)
        second_threshold = find_threshold(second, used, promise, ERROR / 2 / endings)
        stages = [(~left, first.same), (left & (second.confidence >= second_threshold), second.same)]
        held += all(not keeps.any() or same[keeps].mean() >= promise for keeps, same in stages)
        kept[split] = [keeps[~half].mean() for keeps, _ in stages]
        right = sum(int(same[keeps & ~half].sum()) for keeps, same in stages)
        count = sum(int((keeps & ~half).sum()) for keeps, _ in stages)
        agreed += [right / count] if count else []
    one, two = kept.mean(0)
    person = 1 - one - two
    return {
        "first keeps": one,
        "second keeps": two,
        "person": person,
        "agreement of what is kept": f"{np.mean(agreed):.3f}" if agreed else "–",
        "promise holds": held / splits,
        "dollars per 1 000 edits": prices[0] + (1 - one) * prices[1] + person * PERSON,
        "a person for all": PERSON,
    }
