"""Records and files of preference pairs.

`pairs.jsonl` holds the decided pairs. Next to it, `pairs.open.jsonl` holds every pair that was drawn, with facts that annotators
must not see, and `pairs.answers.jsonl` is the log of people's answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from editloupe._util.files import atomic_text_file, make_folder
from editloupe._util.hashing import content_key
from editloupe.evals.manifests.readers import read_jsonl
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Box, Record, UserError

PairKind = Literal["outputs", "rationales"]
DecisionRule = Literal["third", "unanimous"]
RULES: tuple[DecisionRule, ...] = ("third", "unanimous")
TIE, UNCLEAR = "tie", "unclear"


class PairSide(Record):
    """One of the two sides of a pair.

    Args:
        key: Hash of the content.
        name: The editing model, or the judge.
        picture: The edited picture's file, relative to the file of pairs.
        rationale: The judge's rationale.
        label: The label the judge gave with the rationale.
        score: Score from 0 to 100 by the run's judge.
    """

    key: str
    """Hash of the content. Answers refer to it, so they stay valid if the order or the draw changes."""
    name: str
    """The editing model, or the judge; annotators do not see it."""
    picture: str | None = None
    """The edited picture's file, relative to the file of pairs."""
    rationale: str | None = None
    label: str | None = None
    """The label the judge gave with the rationale."""
    score: float | None = None
    """0 to 100, by the run's judge."""


class OpenPair(Record):
    """Two outputs for one source and instruction, or two rationales about one edit, with one question about them.

    Args:
        id: Identifies the pair.
        kind: `outputs` or `rationales`.
        dimension: The dimension or, for rationales, the criterion.
        title: Title of the dimension.
        question: The question to people.
        prompt: The edit's instruction.
        source: Identifies the source picture.
        source_image: The source picture's file.
        edited: For rationales: the edited picture's file.
        a: The first side.
        b: The second side.
        by_scores: The key of the better side, `tie` or `unclear`; None if the pair was not scored.
        target_boxes: The edit's target boxes, in pixels of the source picture.
        people: Number of people to ask.
        rule: How their answers decide.
        fields: Further fields of the line in `pairs.jsonl`.
    """

    id: str
    kind: PairKind
    dimension: str
    """The dimension, or for rationales the criterion."""
    title: str
    question: str
    prompt: str
    source: str
    """Identifies the source picture."""
    source_image: str
    edited: str | None = None
    """With rationales: the picture they are about."""
    a: PairSide
    b: PairSide
    by_scores: str | None = None
    """The key of the better one, `tie` or `unclear`; None if the pair was not scored."""
    target_boxes: tuple[Box, ...] = ()
    people: Annotated[int, Field(ge=1)] = 2
    rule: DecisionRule = "third"
    fields: Mapping[str, Any] = {}
    """Further fields of the line in `pairs.jsonl`: task, flags, hints."""

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys, in an order that does not depend on which side is shown first."""
        first, second = sorted((self.a.key, self.b.key))
        return first, second

    @property
    def references(self) -> tuple[str, ...]:
        """Further input pictures, relative to the file of pairs."""
        paths = self.fields.get("reference_image_path") or ()
        return tuple(paths) if isinstance(paths, (list, tuple)) else (paths,)

    def side(self, key: str) -> PairSide:
        """Return the side of a key."""
        return self.a if self.a.key == key else self.b


def open_pairs_file(pairs: Path) -> Path:
    """Return the path of the file with all drawn pairs."""
    return pairs.with_name(f"{pairs.stem}.open.jsonl")


def answers_file(pairs: Path) -> Path:
    """Return the path of the file with people's answers."""
    return pairs.with_name(f"{pairs.stem}.answers.jsonl")


def content_id(*facts: Any) -> str:
    """Return a short hash of some facts."""
    return content_key(facts)[:16]


def shuffle_pairs(seed: int, pairs: Iterable[OpenPair]) -> list[OpenPair]:
    """Return pairs in an order, and each with its sides in an order, that the seed decides alone."""
    ordered = []
    for pair in pairs:
        turned = int(content_id(seed, pair.id), 16) % 2
        ordered.append(pair.model_copy(update={"a": pair.b, "b": pair.a}) if turned else pair)
    return sorted(ordered, key=lambda pair: content_id("order", seed, pair.id))


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a JSONL file atomically and return the number of its lines."""
    make_folder(path.parent)
    count = 0
    with atomic_text_file(path) as out:
        for record in records:
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_open_pairs(pairs: Path) -> list[OpenPair]:
    """Read all pairs that belong to a file of pairs.

    Args:
        pairs: The file of pairs.

    Raises:
        UserError: The file with all drawn pairs is missing, or was not written by `editloupe make pairs`.
    """
    path = open_pairs_file(pairs)
    if not path.is_file():
        raise UserError(
            f"there is no {path.name} next to {pairs}: make the pairs with `editloupe make pairs RUN --out {pairs}`"
        )
    records = []
    for row in read_jsonl(path):
        try:
            records.append(OpenPair.model_validate(row.values))
        except ValidationError as error:
            raise row.error(describe_validation_error(error)) from None
    return records
