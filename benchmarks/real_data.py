"""Read verdicts of real judges and ratings of people, and bring both into runs through `editloupe import`."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from editloupe.evals.labels import HumanLabels, load_human_labels
from editloupe.evals.stats.intervals import number_keys
from editloupe.evals.stats.scores.run_table import RunTable, read_run_tables
from editloupe.evals.stats.scores.run_units import row_means

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
VARIABLE = "EDITLOUPE_CONFORMANCE"
"""Environment variable that names the folder with `replies/ratings.csv` and `replies/replies.jsonl`."""
RATERS = (1, 2, 3)
ENOUGH = 100
"""Readable edits from which a judge is measured."""
IN_FIGURE = 300
"""Readable edits from which a judge is in the figure and in panels."""
FOLLOWS = 0.2
"""Spearman ρ with people from which a judge's word counts as a confidence."""
OVERALL, SUCCESS = "overall", "success"
STEPS = ("No", "Partly", "Yes")
"""Labels of the ratings 0, 0.5 and 1."""
OVERALL_RUBRIC = """\
name: overall
title: Overall
question: How good is the edit as a whole?
answer: {kind: number, low: 0, high: 100}
"""
SUCCESS_RUBRIC = """\
name: success
title: Success
question: Was the instruction carried out, and nothing else?
answer:
  kind: label
  labels:
    - {name: No, score: 0, meaning: "the instruction was not carried out"}
    - {name: Partly, score: 1, meaning: "carried out in part, or more was changed"}
    - {name: Yes, score: 2, meaning: "carried out, and nothing else was changed"}
"""


@dataclass(frozen=True)
class Opinion:
    """The two scores that a judge or a rater gave an edit, each from 0 to 1: consistency with the instruction, and quality."""

    consistency: float
    quality: float

    @property
    def overall(self) -> float:
        """The geometric mean of both, from 0 to 100."""
        return round(100 * (self.consistency * self.quality) ** 0.5, 4)

    @property
    def success(self) -> str:
        """The label that is nearest to the consistency."""
        return STEPS[int(2 * self.consistency + 0.5)]


@dataclass
class RealData:
    """Opinions of judges and raters on the outputs of editing models. An edit is named `MODEL/PICTURE`."""

    judges: dict[str, dict[str, Opinion | None]] = field(default_factory=dict)
    """Judge to edit to opinion; None if the original could not read the reply and drew a random number."""
    people: dict[str, list[Opinion]] = field(default_factory=dict)
    """Edit to the opinions of the raters."""

    def readable(self, judge: str) -> int:
        """Return the number of edits with a score that the judge gave."""
        return sum(opinion is not None for opinion in self.judges[judge].values())


def find_data() -> Path | None:
    """Return the folder with the ratings, or None if the environment variable names none."""
    root = os.environ.get(VARIABLE)
    folder = Path(root) / "replies" if root else None
    return folder if folder and (folder / "ratings.csv").is_file() else None


def read_ratings(path: Path) -> RealData:
    """Read `ratings.csv`: a row per judge, editing model and picture, with the raters' scores."""
    data = RealData()
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            edit = f"{row['model']}/{row['uid']}"
            raters = [(row[f"h{rater}_sc"], row[f"h{rater}_pq"]) for rater in RATERS]
            if not all(value for pair in raters for value in pair):
                continue
            data.people[edit] = [Opinion(float(consistency), float(quality)) for consistency, quality in raters]
            guessed = row["sc_guessed"] == "1" or row["pq_guessed"] == "1" or not row["judge_sc"] or not row["judge_pq"]
            opinion = None if guessed else Opinion(float(row["judge_sc"]), float(row["judge_pq"]))
            data.judges.setdefault(row["judge"], {})[edit] = opinion
    return data


def read_guessed_replies(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the replies that the original could not read and answered with random numbers."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["score_is_a_random_guess"]:
                yield row


def run_editloupe(*arguments: object) -> str:
    """Run a command of `editloupe` and return its output."""
    command = [sys.executable, "-m", "editloupe", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def write_people(data: RealData, path: Path, edits: Sequence[str] | None = None) -> Path:
    """Write the ratings as a file of labels, of all edits or of some."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["edit_id", "rater", OVERALL, SUCCESS])
        for edit in data.people if edits is None else edits:
            for rater, opinion in zip(RATERS, data.people[edit], strict=True):
                writer.writerow([edit, f"rater {rater}", opinion.overall, opinion.success])
    return path


def write_scores(opinions: dict[str, Opinion | None], path: Path) -> Path:
    """Write a judge's scores as a file for `editloupe import`; a reply that was not read has empty cells."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["edit", "picture", "editor", OVERALL, SUCCESS])
        for edit, opinion in opinions.items():
            editor, _, picture = edit.partition("/")
            cells = ("", "") if opinion is None else (opinion.overall, opinion.success)
            writer.writerow([edit, picture, editor, *cells])
    return path


def import_judges(data: RealData, judges: Sequence[str], folder: Path) -> None:
    """Import all judges into two runs, `scores` (0 to 100) and `labels`. Edits that share a source picture share `source`.

    The editing model is a column `editor` and not the field `model`, because the mean over all models is corrected here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((OVERALL, OVERALL_RUBRIC), (SUCCESS, SUCCESS_RUBRIC)):
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    for judge in judges:
        file = write_scores(data.judges[judge], folder / f"{judge}.csv")
        for run, criterion in (("scores", OVERALL), ("labels", SUCCESS)):
            import_file(file, judge, folder / f"{criterion}.yaml", folder / run)


def import_file(file: Path, judge: str, rubric: Path, out: Path) -> None:
    """Import the column of one rubric into a run."""
    columns = f"id=edit,source=picture,{rubric.stem}={rubric.stem}"
    run_editloupe(
        "import", file, "--judge", judge, "--protocol", "own", "--rubric", rubric, "--columns", columns, "--out", out
    )


@dataclass(frozen=True)
class JudgeArrays:
    """The scores of one judge and of people on the edits that both have, from 0 to 100."""

    names: tuple[str, ...]
    judge: Floats
    people: Floats
    """Means of the raters."""
    clusters: Ints
    """The source picture of each edit."""


class Bench:
    """The imported runs, and what all measurements read from them.

    Args:
        data: The opinions.
        folder: Where the runs are made.
        draws: Number of draws of labels per setting.
        splits: Number of splits of the source pictures per setting.
    """

    def __init__(self, data: RealData, folder: Path, draws: int, splits: int) -> None:
        self.data, self.folder, self.draws, self.splits = data, folder, draws, splits
        self.judges = [judge for judge in data.judges if data.readable(judge) >= ENOUGH]
        import_judges(data, self.judges, folder)
        self.people = write_people(data, folder / "people.csv")
        self.scores, self.labels = self.read("scores"), self.read("labels")
        self.arrays = {judge: self._build_arrays(table) for judge, table in self.scores.items()}
        self.records = self.agree("scores")

    def read(self, run: str) -> dict[str, RunTable]:
        """Return the table of every judge of a run."""
        return {table.judges[0]: table for table in read_run_tables(self.folder / run, configuration="all")}

    def human(self, table: RunTable) -> HumanLabels:
        """Return the raters' labels of a run."""
        return load_human_labels(table, self.people)

    def agree(self, run: str, *options: str) -> dict[str, Any]:
        """Return what `editloupe agree` says of every judge of a run."""
        arguments = ("--human", self.people, "--configuration", "all", "--format", "json", *options)
        record = json.loads(run_editloupe("agree", self.folder / run, *arguments))
        return {own["judge"]: own for own in record.get("configurations", {"": record}).values()}

    def _build_arrays(self, table: RunTable) -> JudgeArrays:
        judge = row_means(table.scores(OVERALL))
        people = row_means(self.human(table).counting_matrix(table.names, OVERALL))
        both = np.isfinite(judge) & np.isfinite(people)
        clusters = number_keys([row.source for row in table.rows])
        names = tuple(name for name, counts in zip(table.names, both, strict=True) if counts)
        return JudgeArrays(names, judge[both], people[both], clusters[both])

    def following(self) -> list[str]:
        """Return the judges that follow people at all."""
        return [judge for judge in self.judges if (self.records[judge][OVERALL]["spearman"]["value"] or 0) >= FOLLOWS]

    def first_of_families(self) -> dict[str, str]:
        """Return the first judge of every family of models that has enough readable edits."""
        enough = [judge for judge in self.judges if self.data.readable(judge) >= IN_FIGURE]
        return {judge.partition("_")[0]: judge for judge in reversed(enough)}
