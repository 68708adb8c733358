"""Records that the stages of a benchmark in the making write, one per line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from editloupe.making.paste import PasteFacts
from editloupe.types import Box, Record, Usage

MOST_TARGETS = 8
"""The most targets of a sample (DLEBench, Section 3.2)."""
REGENERATIONS = 3
"""How often a reference that a reviewer refuses is made again (DLEBench, Section 3.1)."""
ReviewDecision = Literal["accept", "correct", "regenerate", "discard"]
CHECKS = ("box", "metadata", "reference")
"""What a reviewer confirms: the boxes enclose the target, the metadata fit the question, the reference follows the
instruction."""


NOT_SHOWN = re.compile(
    r"(?i)\b(image|picture|photo(graph)?) (does not|doesn't) (feature|show|contain|have)\b"
    r"|\ball (of )?the above answers are wrong\b"
)
"""Answers that no edit can lead to or start from, such as the fifth option of every question of MME-RealWorld."""


class SampleRecord(Record):
    """A record about one sample."""

    id: str


class PictureQuestion(SampleRecord):
    """A question about a picture, as it was read, in `questions.jsonl`."""

    picture: str
    """The file in the folder, named by its content hash."""
    sha: str
    size: tuple[int, int]
    question: str
    options: tuple[str, ...] = ()
    answer: str
    """The text of the right option, if it is one of them."""
    boxes: tuple[Box, ...] = ()
    """Targets that came with the question."""
    box_names: tuple[str, ...] = ()
    """The object of each box, if the data name it."""
    source: str | None = None
    licence: str | None = None
    origin: str = ""
    """The question set and the position in it."""
    question_set: str = ""
    """The unique name of the file or folder it was read from."""


class Metadata(SampleRecord):
    """The edit that is made of a question, in `metadata.jsonl`."""

    key: str
    """The key of the question it was made of."""
    q_type: str
    prompt_clean: str
    prompt_adv: str
    edit_ops: str
    edit_instruction: str
    modified_object: str
    instruction_type: str
    wrong_option: str | None = None
    """The option that the edit leads to, if it is one of them."""
    by: str
    """The model, or a person's name."""
    at: str
    usage: Usage = Usage()

    @property
    def facts(self) -> dict[str, str]:
        """The six keys of the metadata (DLEBench, Table 15)."""
        return {name: getattr(self, name) for name in METADATA_KEYS}


METADATA_KEYS = ("q_type", "prompt_clean", "prompt_adv", "edit_ops", "edit_instruction", "modified_object")


class Boxes(SampleRecord):
    """The target boxes of a sample, in `boxes.jsonl`."""

    key: str
    """The picture and the target they were drawn for."""
    boxes: tuple[Box, ...] = Field(max_length=MOST_TARGETS)
    confirmed: bool
    """Whether a person drew or confirmed them, or they came with the data. Proposed boxes wait for confirmation."""
    scores: tuple[float, ...] = ()
    by: str
    at: str


class ReferenceImage(SampleRecord):
    """A reference made by an editor, in `references.jsonl`."""

    key: str
    """The picture, the boxes and the instruction it was made for."""
    attempt: int
    """The number of the editor's picture, from 1."""
    made_anew: int = 0
    """How often reviewers had it made again."""
    crop: Box
    edited_crop: str
    reference: str
    sha: str
    by: str
    """The editor."""
    at: str
    facts: PasteFacts
    usage: Usage = Usage()
    cost: float | None = None


class LeftOutSample(SampleRecord):
    """A sample that is left out, with the reason, in the file of the stage where it ended."""

    key: str
    left_out: str
    """The reason in one sentence."""
    by: str = ""
    at: str
    question_set: str = ""
    """The file or folder, if a question was left out."""
    attempts: int = 0
    """Pictures of an editor that could not be used."""


class Review(SampleRecord):
    """The decision of a reviewer about the state of a sample, in `reviews.jsonl`."""

    key: str
    """Everything the reviewer saw."""
    reviewer: str = Field(min_length=1, max_length=80)
    at: str
    decision: ReviewDecision
    checks: Mapping[str, bool] = Field(default_factory=dict)
    note: str = Field(default="", max_length=2000)


def content_key(*facts: Any) -> str:
    """Return a hash of everything a record depends on."""
    plain = json.dumps(facts, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]
