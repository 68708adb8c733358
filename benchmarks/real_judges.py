"""Measure real judges against real people: VIEScore's verdicts on ImagenHub's edits, which three people rated each.

    EDITLOUPE_CONFORMANCE=FOLDER python -m benchmarks.real_judges [--only NAME …] [--draws N] [--splits N] [--figure FILE]

FOLDER/replies holds ratings.csv and replies.jsonl; docs/inside/evidence.md names the repositories they come from.
All verdicts enter through `editloupe import`. Rows in which the original drew a random number are unjudged.

agreement: each judge against people, and one rater against the others. corrected: how often the 95 % intervals of corrected
means contain people's mean. calibration: how often the promise of `calibrate` holds. panels, cascades: judges together. replies:
what the answer grammar makes of the replies that the original could not read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.real_data import (
    IN_FIGURE,
    OVERALL,
    SUCCESS,
    VARIABLE,
    Bench,
    Floats,
    JudgeArrays,
    find_data,
    read_guessed_replies,
    read_ratings,
    run_editloupe,
    write_people,
)
from benchmarks.real_guarantees import run_cascades, run_panels, simulate_calibration
from benchmarks.trust import format_table
from editloupe.agent.replies.answers import parse_reply
from editloupe.evals.stats.trust import Correction, correct_mean, correct_scores, draw_queue
from editloupe.evals.stats.trust.confidence import find_confidences
from editloupe.evals.stats.trust.corrected_scores import MIN_SOURCES, bound_equal_labels
from editloupe.evals.stats.trust.label_queue import drawing_probabilities, sample_systematically
from editloupe.evals.stats.trust.yes_no import MIN_LABELS
from editloupe.rubrics.model import NumberAnswer
from editloupe.rubrics.registry import get_protocol

Bools = np.ndarray[Any, np.dtype[np.bool_]]
Row = dict[str, Any]
LABELS = (20, 30, 60, 120)
DESIGNS = ("random", "queue", "whole pictures")
AT_A_TIME = 250
"""Draws held in memory at once."""


def measure_agreement(bench: Bench) -> Iterator[Row]:
    """Yield the agreement of each judge with people, and of one rater with the others, by `editloupe agree`."""
    labels = bench.agree("labels")
    for judge in bench.judges:
        record, own = bench.records[judge][OVERALL], labels[judge][SUCCESS]
        arrays = bench.arrays[judge]
        everything, whole = np.ones(len(arrays.judge), bool), np.full(len(arrays.judge), 1 / len(arrays.judge))
        bias = correct_mean(arrays.judge - arrays.people, arrays.judge * 0, everything, whole, None, arrays.clusters)
        low, high = (float(end) for end in bias.interval_alone())
        yield {
            "judge": judge,
            "edits": len(arrays.judge),
            "ρ": format_estimate(record["spearman"]),
            "r": format_estimate(record["pearson"]),
            "MAE": format_estimate(record["mae"], 1),
            "same label": format_estimate(own["accuracy"]),
            "judge's mean": f"{arrays.judge.mean():.1f}",
            "people's mean": f"{arrays.people.mean():.1f}",
            "bias": f"{float(bias.alone):+.1f} [{low:+.1f}, {high:+.1f}]",
        }
    ceiling, own_ceiling = (
        bench.records[bench.judges[0]][OVERALL]["ceiling"],
        labels[bench.judges[0]][SUCCESS]["ceiling"],
    )
    yield {
        "judge": "one rater against the others",
        "edits": len(bench.data.people),
        "ρ": format_estimate(ceiling["spearman"]),
        "r": format_estimate(ceiling["pearson"]),
        "MAE": format_estimate(ceiling["mae"], 1),
        "same label": format_estimate(own_ceiling["accuracy"]),
        **dict.fromkeys(("judge's mean", "people's mean", "bias"), "–"),
    }


def format_estimate(estimate: Mapping[str, Any], digits: int = 2) -> str:
    """Write an estimate of a JSON record with its interval."""
    if estimate["value"] is None:
        return "–"
    if estimate["low"] is None:
        return f"{estimate['value']:.{digits}f}"
    return f"{estimate['value']:.{digits}f} [{estimate['low']:.{digits}f}, {estimate['high']:.{digits}f}]"


def simulate_corrected(bench: Bench) -> Iterator[Row]:
    """Yield how often corrected intervals contain people's mean, for every judge, way to draw labels and number of labels."""
    for number, judge in enumerate(bench.judges):
        arrays = bench.arrays[judge]
        truth = float(arrays.people.mean())
        _, confidences = find_confidences(bench.labels[judge], "judges")
        by_name = dict(zip(bench.labels[judge].names, confidences[SUCCESS], strict=True))
        unsure = 1 - np.array([by_name[name] for name in arrays.names])
        unsure[np.isnan(unsure)] = np.nanmean(unsure)
        for kind, design in enumerate(DESIGNS):
            for labels in LABELS:
                if labels > len(arrays.judge) // 2:
                    continue
                random = np.random.default_rng((number, kind, labels))
                parts = []
                for start in range(0, bench.draws, AT_A_TIME):
                    count = min(AT_A_TIME, bench.draws - start)
                    parts.append(correct_draws(arrays, *draw_labels(arrays, unsure, design, labels, count, random)))
                whole = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                if not len(whole["low"]):
                    continue
                width = whole["high"] - whole["low"]
                yield {
                    "judge": judge,
                    "labels drawn": design,
                    "labels": labels,
                    "draws with a number": len(width),
                    "covers": share((whole["low"] <= truth) & (truth <= whole["high"])),
                    "alone covers": share((whole["alone_low"] <= truth) & (truth <= whole["alone_high"])),
                    "mean of corrected": float(whole["value"].mean()),
                    "people": truth,
                    "width": float(width.mean()),
                    "alone width": float((whole["alone_high"] - whole["alone_low"]).mean()),
                    "worth": float(np.median(whole["worth"])) * labels,
                }


def draw_labels(
    arrays: JudgeArrays, unsure: Floats, design: str, labels: int, count: int, random: np.random.Generator
) -> tuple[Bools, Floats | None]:
    """Return which edits are labelled in each of several draws, and with which probabilities if they are not alike."""
    shape = (count, len(arrays.judge))
    if design == "random":
        return random.random(shape).argsort(1).argsort(1) < labels, None
    labelled = np.zeros(shape, bool)
    if design == "queue":
        chances = drawing_probabilities(unsure, labels, 0.5)
        for row in labelled:
            row[sample_systematically(chances, random)] = True
        return labelled, chances
    for row in labelled:
        pictures = random.permutation(np.unique(arrays.clusters))
        enough = np.cumsum(np.bincount(arrays.clusters)[pictures]) <= labels
        row[np.isin(arrays.clusters, pictures[enough])] = True
    return labelled, None


def correct_draws(arrays: JudgeArrays, labelled: Bools, chances: Floats | None) -> dict[str, Floats]:
    """Return the corrected means of several draws with their intervals, by the rules of `correct_scores`."""
    sources = np.array([len(np.unique(arrays.clusters[row])) for row in labelled])
    labelled = labelled[(sources >= MIN_SOURCES) & (labelled.sum(1) >= MIN_LABELS)]
    if not len(labelled):
        return {name: np.zeros(0) for name in ("value", "low", "high", "alone_low", "alone_high", "worth")}
    shares = np.full(len(arrays.judge), 1 / len(arrays.judge))
    people = np.broadcast_to(arrays.people, labelled.shape)
    found: Correction = correct_mean(people, arrays.judge, labelled, shares, chances, arrays.clusters)
    seen = np.where(labelled, people, np.nan)
    equal = np.nanmax(seen, 1) == np.nanmin(seen, 1)
    bounds = bound_equal_labels(found.alone, found.alone_freedom + 1, 0.95)
    intervals = (*found.interval(), *found.interval_alone())
    ends = [np.where(equal, bound, end) for bound, end in zip(bounds * 2, intervals, strict=True)]
    names = ("low", "high", "alone_low", "alone_high")
    clipped = {name: np.clip(end, 0, 100) for name, end in zip(names, ends, strict=True)}
    with np.errstate(invalid="ignore", divide="ignore"):
        worth = np.where(found.se > 0, (found.alone_se / found.se) ** 2, 1.0)
    return {**clipped, "value": found.value, "worth": worth}


def check_against_runs(bench: Bench, judge: str, labels: int = 60) -> float:
    """Return the largest difference between the simulation and `correct_scores` with a queue that `draw_queue` drew."""
    arrays, table = bench.arrays[judge], bench.scores[judge]
    farthest = 0.0
    for seed in range(3):
        for tau in (1.0, 0.5):
            queue, _ = draw_queue(bench.labels[judge], labels, tau, seed, "judges")
            names = {edit.name for edit in queue.drawn}
            part = correct_scores(table, bench.human(table).of_edits(names), queue).parts
            (own,) = (slice_.overall for slice_ in part.values())
            chances = np.array([queue.chances.get(name, 1.0) for name in arrays.names])
            mine = correct_draws(arrays, np.array([[name in names for name in arrays.names]]), chances)
            pairs = ((own.corrected, "value"), (own.low, "low"), (own.high, "high"))
            farthest = max(farthest, *(abs(float(value or 0) - float(mine[name][0])) for value, name in pairs))
    return farthest


def share(hits: Bools) -> float:
    """Return the share of hits."""
    return float(hits.mean())


def test_replacement(bench: Bench) -> Iterator[Row]:
    """Yield the alternative annotator test of every judge, by `editloupe agree --replace-annotators`."""
    for epsilon in (0.1, 0.2):
        labels = bench.agree("labels", "--replace-annotators", "--epsilon", str(epsilon))
        scores = bench.agree("scores", "--replace-annotators", "--epsilon", str(epsilon))
        for judge in bench.judges:
            for criterion, records in ((SUCCESS, labels), (OVERALL, scores)):
                test = records[judge]["replace_annotators"][criterion]
                yield {
                    "judge": judge,
                    "on": criterion,
                    "ε": epsilon,
                    "judge as close": test["advantage"],
                    "rater as close": float(np.mean([own["annotator_wins"] for own in test["annotators"].values()])),
                    "passes for": test["winning_rate"],
                    "may replace": "yes" if test["may_replace"] else "no",
                }


def read_replies(path: Path) -> Iterator[Row]:
    """Yield what the answer grammar makes of the replies that the original answered with random numbers."""
    replies = list(read_guessed_replies(path))
    protocol = get_protocol("dlebench")
    forms = {
        "a number from 0 to 10": NumberAnswer(low=0, high=10),
        "a label": protocol.rubric(protocol.criteria[0]).answer,
    }
    counts = Counter(row["judge"] for row in replies)
    for judge, count in (*counts.items(), ("all", len(replies))):
        own = [row["reply"] or "" for row in replies if judge in ("all", row["judge"])]
        verdicts = {name: [text for text in own if parse_reply(text, form).answer] for name, form in forms.items()}
        yield {
            "judge": judge,
            "random scores of the original": count,
            "blank": sum(not text.strip() for text in own),
            "without a digit": sum(not any(c.isdigit() for c in text) for text in own if text.strip()),
            **{f"verdicts, {name}": len(texts) for name, texts in verdicts.items()},
        }


def correct_once(bench: Bench, labels: int = 60, seed: int = 0) -> Iterator[Row]:
    """Yield the judge's mean and the mean that `report --corrected` gives with a random queue of labels."""
    for judge in bench.judges:
        arrays = bench.arrays[judge]
        if len(arrays.judge) < IN_FIGURE:
            continue
        queue, people = bench.folder / f"{judge}.queue.jsonl", bench.folder / f"{judge}.people.csv"
        run, chosen = bench.folder / "scores", ("--configuration", judge)
        drawing = ("--budget", labels, "--tau", 1, "--seed", seed, "--out", queue)
        run_editloupe("label-queue", run, *chosen, *drawing)
        edits = [json.loads(line)["edit_id"] for line in queue.read_text("utf-8").splitlines()]
        write_people(bench.data, people, edits)
        options = ("--human", people, "--corrected", "--queue", queue, "--format", "json")
        record = json.loads(run_editloupe("report", run, *chosen, *options))["overall"]["corrected"]
        names = ("judge", "corrected", "low", "high", "worth", "labels")
        whole = {"judge": judge, "mean": record["judge"], **{name: record[name] for name in names[1:]}}
        yield {**whole, "people": float(arrays.people.mean())}


def draw(rows: list[Row], path: Path) -> None:
    """Draw each judge's mean, the corrected mean with its interval, and people's mean."""
    from editloupe.evals.report.figures import save
    from editloupe.evals.report.figures.style import BLUE, INK, MUTED, ORANGE, new_figure, use_style

    rows = sorted(rows, key=lambda row: abs(row["mean"] - row["people"]), reverse=True)
    with use_style():
        figure, (axes,) = new_figure(0.9 + 0.3 * len(rows))
        places = np.arange(len(rows))
        people = [row["people"] for row in rows]
        for place, row in zip(places, rows, strict=True):
            axes.annotate(
                "",
                (row["corrected"], place),
                (row["mean"], place),
                arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.8, "ls": ":"},
            )
        below = [row["corrected"] - row["low"] for row in rows]
        above = [row["high"] - row["corrected"] for row in rows]
        axes.plot(people, places, "|", color=INK, ms=15, mew=1.6, label="people's mean, all edits")
        axes.plot([row["mean"] for row in rows], places, "s", color=ORANGE, ms=6, label="judge's mean")
        axes.errorbar(
            [row["corrected"] for row in rows],
            places,
            xerr=[below, above],
            fmt="o",
            color=BLUE,
            ms=5,
            capsize=2.5,
            lw=1.3,
            label="corrected with 60 labels, 95 % interval",
        )
        axes.set_yticks(places, [name_judge(row["judge"]) for row in rows])
        axes.set(xlim=(0, 80), ylim=(-0.7, len(rows) - 0.3), xlabel="mean score of all edits, 0 to 100")
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.legend(loc="upper right", fontsize=8)
        save(figure, path)


NAMES = {
    "gpt4o": "GPT-4o",
    "gpt4v": "GPT-4V",
    "gemini": "Gemini",
    "llava": "LLaVA",
    "qwenvl": "Qwen-VL",
    "blip2": "BLIP-2",
}


def name_judge(judge: str) -> str:
    """Write a judge's name for people: `gpt4o_0shot` is GPT-4o, 0 examples."""
    family, _, shots = judge.partition("_")
    number = shots.removesuffix("shot")
    name = NAMES.get(family, family)
    return f"{name}, {number} example{'' if number == '1' else 's'}" if number.isdigit() else name


def check_simulation(bench: Bench) -> Iterator[Row]:
    """Yield how far the simulated corrections are from those of `correct_scores` on the imported runs."""
    for judge in bench.judges:
        if len(bench.arrays[judge].judge) >= IN_FIGURE:
            yield {"judge": judge, "largest difference": f"{check_against_runs(bench, judge):.1g}"}


TABLES: Mapping[str, tuple[str, Callable[[Bench], Iterator[Row]]]] = {
    "agreement": ("Agreement with people", measure_agreement),
    "once": ("Corrected once, with 60 labels", correct_once),
    "corrected": ("Corrected means", simulate_corrected),
    "check": ("The simulation against `correct_scores`", check_simulation),
    "replacement": ("May the judge replace raters?", test_replacement),
    "calibration": ("The promise of `calibrate`, error 5 %", simulate_calibration),
    "panels": ("Panels", run_panels),
    "cascades": ("Cascades of two stages and a person, error 5 % in all", run_cascades),
}


def main() -> None:
    """Run the measurements and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*TABLES, "replies"])
    parser.add_argument("--draws", type=int, default=2000, help="draws of labels per setting")
    parser.add_argument("--splits", type=int, default=1000, help="splits of the source pictures per setting")
    parser.add_argument("--keep", type=Path, help="keep the imported runs in this new folder")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    folder = find_data()
    if folder is None:
        print(f"skipped: {VARIABLE} names no folder with replies/ratings.csv")
        return
    tables: dict[str, list[Row]] = {}
    chosen = options.only or [*TABLES, "replies"]
    with tempfile.TemporaryDirectory() as temporary:
        if set(chosen) - {"replies"}:
            runs = options.keep or Path(temporary) / "runs"
            bench = Bench(read_ratings(folder / "ratings.csv"), runs, options.draws, options.splits)
            for name in chosen:
                if name in TABLES:
                    title, measure = TABLES[name]
                    tables[name] = list(measure(bench))
                    print(format_table(title, tables[name]), flush=True)
    if "replies" in chosen:
        tables["replies"] = list(read_replies(folder / "replies.jsonl"))
        print(format_table("Replies that the original could not read", tables["replies"]))
    if options.json:
        options.json.write_text(json.dumps(tables, indent=1, default=float) + "\n", "utf-8")
    if options.figure and "once" in tables:
        draw(tables["once"], options.figure)


if __name__ == "__main__":
    main()
