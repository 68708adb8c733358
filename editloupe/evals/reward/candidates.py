"""Choose the best of several candidate pictures for the same source and instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe._util.files import read_text
from editloupe.evals.manifests.readers import PICTURE_SUFFIXES
from editloupe.evals.reward.edit_rewards import find_best
from editloupe.evals.reward.pair_reports import find_rows
from editloupe.evals.stats.comparison.preference_results import NOT_YET, score_pair_members
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.types import Edit, Record, UserError

SOURCE, INSTRUCTION = "source", "instruction.txt"
"""Names in a folder of candidates: the source picture, with any suffix, and the file of its instruction."""


class Candidate(Record):
    """A candidate with its score."""

    picture: str
    score: float | None
    """0 to 1, as every reward."""
    why: str | None = None
    """Why there is no score."""


class BestOfResult(Record):
    """The candidates of one source and instruction, and the best of them."""

    name: str
    source: str
    instruction: str
    index: int | None
    """The index of the best candidate, from 0. None if none could be judged."""
    winner: str | None
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class CandidateSet:
    """A source, an instruction, and the candidate pictures."""

    name: str
    source: Path
    instruction: str
    candidates: tuple[Path, ...]
    task: str | None = None

    def edits(self) -> list[Edit]:
        """Return the candidates as edits, each with its path as id."""
        return [
            Edit(
                id=path.as_posix(),
                source=self.source,
                edited=path,
                instruction=self.instruction,
                instruction_type=self.task,
            )
            for path in self.candidates
        ]

    def best(self, table: RunTable | None, protocol: str) -> BestOfResult:
        """Return the best candidate by the scores in a run. Candidates without a score cannot win; ties go to the first."""
        edits = self.edits()
        rows = find_rows(table, edits) if table else {}
        candidates = []
        for edit in edits:
            members = score_pair_members(protocol, rows[edit.id], table.criteria) if table and edit.id in rows else []
            scores = [member.score for member in members if member.score is not None]
            why = next((member.why for member in members if member.why), NOT_YET)
            score = sum(scores) / len(scores) / 100 if scores else None
            candidates.append(Candidate(picture=edit.id, score=score, why=None if scores else why))
        index = find_best([candidate.score for candidate in candidates])
        return BestOfResult(
            name=self.name,
            source=str(self.source),
            instruction=self.instruction,
            index=index,
            winner=None if index is None else candidates[index].picture,
            candidates=tuple(candidates),
        )


def find_candidate_sets(
    paths: Sequence[Path], source: Path | None = None, instruction: str | None = None, task: str | None = None
) -> list[CandidateSet]:
    """Find the candidate sets of these paths.

    With a source and an instruction, all paths are one set. Otherwise every path is a folder with a picture called
    `source`, an `instruction.txt`, and the candidates.
    """
    if (source is None) != (instruction is None):
        raise UserError("--source and --instruction go together; without both, every folder holds its own")
    if source is not None and instruction is not None:
        pictures = [picture for path in paths for picture in (_list_pictures(path) if path.is_dir() else [path])]
        return [_build_set(", ".join(map(str, paths)), source, instruction, pictures, task)]
    return [_read_folder(path, task) for path in paths]


def _read_folder(folder: Path, task: str | None) -> CandidateSet:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; pictures need --source and --instruction")
    pictures = _list_pictures(folder)
    own = [picture for picture in pictures if picture.stem == SOURCE]
    if len(own) != 1:
        raise UserError(f"{folder} needs one picture called {SOURCE}, or give --source and --instruction")
    try:
        instruction = read_text(folder / INSTRUCTION).strip()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{folder} needs an {INSTRUCTION}, or give --source and --instruction") from None
    return _build_set(str(folder), own[0], instruction, pictures, task)


def _build_set(name: str, source: Path, instruction: str, pictures: Sequence[Path], task: str | None) -> CandidateSet:
    if not instruction.strip():
        raise UserError(f"the instruction of {name} is empty")
    if not source.is_file():
        raise UserError(f"there is no source picture at {source}")
    candidates = tuple(dict.fromkeys(path for path in pictures if path.resolve() != source.resolve()))
    if not candidates:
        raise UserError(f"{name} has no candidates: it needs a picture other than the source")
    lost = next((path for path in candidates if not path.is_file()), None)
    if lost is not None:
        raise UserError(f"there is no candidate at {lost}")
    return CandidateSet(name, source, instruction, candidates, task)


def _list_pictures(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in PICTURE_SUFFIXES)
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror or error}") from None
