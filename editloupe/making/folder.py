"""Store a benchmark in the making in a folder of stage files, and derive the state of every sample.

Stage files are JSONL and only grow. The last line about a sample counts, and an incomplete last line is ignored. A file
of costs records every paid request.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from editloupe._util.errors import describe_error, first_error
from editloupe._util.files import make_folder, open_file, read_text, write_text
from editloupe._util.text import for_json
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.manifests.jsonl_log import append_line
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.records import (
    METADATA_KEYS,
    REGENERATIONS,
    Boxes,
    LeftOutSample,
    Metadata,
    PictureQuestion,
    ReferenceImage,
    Review,
    SampleRecord,
    content_key,
)
from editloupe.types import Record, Usage, UserError

FILE = "settings.json"


class QuestionSetFacts(Record):
    """Source and licence of a question set."""

    source: str | None = None
    """Its name on the data card. Default: the file's name."""
    licence: str | None = None
    """The licence of the pictures, if the rows have none."""


class MakingSettings(Record):
    """The settings of a benchmark, each written as KEY=VALUE."""

    wrong_option: Literal["model", "drawn"] = "model"
    """Who picks the wrong option: the model, as in the paper, or chance by `seed` and the question's id."""
    ocr_operation: Literal["text_flip", "alter_text"] = "text_flip"
    """The operation of a text question. The published prompt names both."""
    count_operation: Literal["add_object", "by_number"] = "add_object"
    """The operation of a count question: always add_object, as in the prompt, or remove_object if the number falls."""
    repairs: int = Field(default=2, ge=0)
    """How often unusable metadata are sent back to the model."""
    seed: int = 0
    reviewers: int = Field(default=1, ge=1)
    """How many people must accept a sample. All who decided must agree."""
    sets: Mapping[str, QuestionSetFacts] = Field(default_factory=dict)
    """Facts per question set; set by their own options."""

    def about(self, question_set: str) -> QuestionSetFacts:
        """Return the facts of a question set."""
        return self.sets.get(question_set, QuestionSetFacts())


SETTABLE = tuple(name for name in MakingSettings.model_fields if name != "sets")
_USUAL = MakingSettings()


def load_settings(folder: Path) -> MakingSettings:
    """Return the stored settings of a folder, or the defaults."""
    path = folder / FILE
    if not path.exists():
        return MakingSettings()
    try:
        return MakingSettings.model_validate_json(read_text(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())[:160]}") from None


def update_settings(
    folder: Path, texts: Sequence[str], question_set: str = "", source: str | None = None, licence: str | None = None
) -> MakingSettings:
    """Apply KEY=VALUE settings to the settings of a folder, store and return them.

    Source and licence apply to one question set; others keep theirs.
    """
    existing = load_settings(folder)
    chosen = parse_settings(texts, existing)
    if source is not None or licence is not None:
        before = existing.about(question_set)
        about = QuestionSetFacts(source=source or before.source, licence=licence or before.licence)
        chosen = chosen.model_copy(update={"sets": {**existing.sets, question_set: about}})
    if chosen != existing or not (folder / FILE).exists():
        write_text(folder / FILE, chosen.model_dump_json(indent=2) + "\n")
    return chosen


def parse_settings(texts: Sequence[str], before: MakingSettings = _USUAL) -> MakingSettings:
    """Read KEY=VALUE settings.

    Raises:
        UserError: If a setting is unknown or a value is not valid.
    """
    values: dict[str, Any] = before.model_dump()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name.strip() not in SETTABLE:
            raise UserError(f'"{text}" is not a setting; the settings are: {", ".join(SETTABLE)}, as KEY=VALUE')
        values[name.strip()] = value.strip()
    try:
        return MakingSettings.model_validate(values)
    except ValidationError as error:
        raise UserError(f"--set {describe_error(error)}") from None


T = TypeVar("T", bound=SampleRecord)


class StageFile(Generic[T]):
    """The records of one stage. A record is on disk when `add` returns.

    Other processes may append too; `refresh` reads only the new lines.
    """

    def __init__(self, path: Path, kind: TypeAdapter[T]) -> None:
        self.path = path
        self._kind = kind
        self._latest: dict[str, T] = {}
        self._read = 0
        self._lines = 0
        self._lock = threading.Lock()
        self._without_secrets = Secrets()
        self.refresh()

    def add(self, record: T) -> None:
        """Append a record. It replaces earlier records about the same sample."""
        line = self._without_secrets(for_json(record.model_dump(mode="json"))).encode()
        with self._lock:
            try:
                append_line(self.path, line)
            except OSError as error:
                raise UserError(f"{self.path} cannot be written: {error.strerror or error}") from None
        self.refresh()

    def refresh(self) -> None:
        """Read the lines that were added since the last call."""
        with self._lock:
            for record in self._new():
                self.take(record)

    def take(self, record: T) -> None:
        """Register a record that was read."""
        self._latest[record.id] = record

    def latest(self) -> dict[str, T]:
        """Return the last record per sample."""
        return dict(self._latest)

    def get(self, sample_id: str) -> T | None:
        """Return the last record of a sample."""
        return self._latest.get(sample_id)

    def all(self) -> Iterator[T]:
        """Read every record, also replaced ones."""
        if self.path.exists():
            yield from StageLog(self.path, self._kind).records()

    def _new(self) -> Iterator[T]:
        log = StageLog(self.path, self._kind, self._read, self._lines)
        yield from log.records()
        self._read, self._lines = log.place, log.lines


class StageLog(Generic[T]):
    """The lines of a stage file from an offset on."""

    def __init__(self, path: Path, kind: TypeAdapter[T], offset: int = 0, lines: int = 0) -> None:
        self._path, self._kind = path, kind
        self.place, self.lines = offset, lines

    def records(self) -> Iterator[T]:
        """Yield the records of complete lines. A last line without a newline was cut off and is skipped."""
        if not self._path.exists():
            return
        try:
            with open_file(self._path) as file:
                file.seek(self.place)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    self.place += len(line)
                    self.lines += 1
                    if line.strip():
                        yield self._record(line)
        except OSError as error:
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}") from None

    def _record(self, line: bytes) -> T:
        try:
            return self._kind.validate_json(line)
        except ValidationError as error:
            why = first_error(error).message
            raise UserError(
                f"{self._path.name}, line {self.lines}: not a valid record of this stage ({why}); fix or remove the line"
            ) from None


QUESTIONS, METADATA, BOXES = "questions.jsonl", "metadata.jsonl", "boxes.jsonl"
REFERENCES, REVIEWS = "references.jsonl", "reviews.jsonl"
QUESTION_SET = "the question set"
"""The author of boxes that came with the questions."""
Step = Literal[
    "metadata",
    "boxes",
    "confirm boxes",
    "reference",
    "review",
    "regenerate",
    "accepted",
    "discarded",
    "disputed",
    "left out",
]
"""The next step of a sample, or how it ended."""


def question_key(question: PictureQuestion) -> str:
    """Return the key of metadata: the question's text, without its picture."""
    return content_key(question.question, question.options, question.answer)


def boxes_key(question: PictureQuestion, metadata: Metadata) -> str:
    """Return the key of boxes: the picture and the target's phrase."""
    return content_key(question.sha, metadata.modified_object)


def reference_key(question: PictureQuestion, metadata: Metadata, boxes: Boxes) -> str:
    """Return the key of a reference: the picture, the boxes and the instruction."""
    return content_key(question.sha, [list(box) for box in boxes.boxes], metadata.edit_instruction)


def review_key(metadata: Metadata, boxes: Boxes, reference: ReferenceImage) -> str:
    """Return the key of a review: everything a reviewer sees."""
    facts = [getattr(metadata, name) for name in METADATA_KEYS]
    return content_key(facts, [list(box) for box in boxes.boxes], reference.sha)


class ReviewFile(StageFile[Review]):
    """The reviews. The last one per reviewer counts."""

    def __init__(self, path: Path) -> None:
        self.by_sample: dict[str, dict[str, Review]] = {}
        super().__init__(path, TypeAdapter(Review))

    def take(self, record: Review) -> None:
        """Register a review."""
        super().take(record)
        self.by_sample.setdefault(record.id, {})[record.reviewer] = record


@dataclass(frozen=True)
class Sample:
    """The current state of a sample. Outdated records are None."""

    question: PictureQuestion
    step: Step
    metadata: Metadata | None = None
    boxes: Boxes | None = None
    reference: ReferenceImage | None = None
    key: str = ""
    """The key of a review, once there is something to review."""
    reviews: Mapping[str, Review] | None = None
    """The reviews of the current state, by reviewer."""
    why: str = ""
    """Why it was left out or discarded."""

    @property
    def id(self) -> str:
        """The sample's name."""
        return self.question.id


class MakingFolder:
    """The files of a benchmark in the making, for the command and the studio.

    Args:
        path: The folder.
        create: Create the folder if it does not exist.

    Raises:
        UserError: If the folder does not hold a benchmark in the making and `create` is False.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        if create:
            make_folder(path)
        elif not is_making_folder(path):
            raise UserError(f"{path} does not hold a benchmark in the making: it has no {QUESTIONS}")
        self.path, self.reviewers = path, load_settings(path).reviewers
        self.questions: StageFile[PictureQuestion | LeftOutSample] = StageFile(
            path / QUESTIONS, TypeAdapter(PictureQuestion | LeftOutSample)
        )
        self.metadata: StageFile[Metadata | LeftOutSample] = StageFile(
            path / METADATA, TypeAdapter(Metadata | LeftOutSample)
        )
        self.boxes: StageFile[Boxes | LeftOutSample] = StageFile(path / BOXES, TypeAdapter(Boxes | LeftOutSample))
        self.references: StageFile[ReferenceImage | LeftOutSample] = StageFile(
            path / REFERENCES, TypeAdapter(ReferenceImage | LeftOutSample)
        )
        self.reviews = ReviewFile(path / REVIEWS)

    def refresh(self) -> None:
        """Read what other processes have added."""
        for file in (self.questions, self.metadata, self.boxes, self.references, self.reviews):
            file.refresh()

    def samples(self) -> Iterator[Sample]:
        """Yield every sample in the order of the questions."""
        for question in self.questions.latest().values():
            if isinstance(question, PictureQuestion):
                yield self._sample(question)

    def sample(self, sample_id: str) -> Sample:
        """Return one sample.

        Raises:
            UserError: If there is no sample with this id.
        """
        question = self.questions.get(sample_id)
        if not isinstance(question, PictureQuestion):
            raise UserError(f"there is no sample {sample_id!r} in {self.path}")
        return self._sample(question)

    def steps(self) -> Counter[str]:
        """Count the samples per step."""
        return Counter(sample.step for sample in self.samples())

    def people(self) -> set[str]:
        """Return the names of the people who reviewed or drew something."""
        drew = {record.by for record in self.boxes.latest().values() if isinstance(record, Boxes) and not record.scores}
        return {name for reviews in self.reviews.by_sample.values() for name in reviews} | (drew - {QUESTION_SET, ""})

    def left_out(self) -> dict[str, str]:
        """Return why samples and questions were left out, by id."""
        early = {
            record.id: record.left_out
            for record in self.questions.latest().values()
            if isinstance(record, LeftOutSample)
        }
        return early | {record.id: record.why for record in self.samples() if record.step in ("left out", "discarded")}

    def _sample(self, question: PictureQuestion) -> Sample:
        metadata = _if_current(self.metadata.get(question.id), question_key(question))
        if not isinstance(metadata, Metadata):
            return _mark_left_out(Sample(question, "metadata"), metadata)
        boxes = _if_current(self.boxes.get(question.id), boxes_key(question, metadata))
        if not isinstance(boxes, Boxes):
            return _mark_left_out(Sample(question, "boxes", metadata), boxes)
        reference = _if_current(self.references.get(question.id), reference_key(question, metadata, boxes))
        if not isinstance(reference, ReferenceImage):
            waits: Step = "reference" if boxes.confirmed else "confirm boxes"
            return _mark_left_out(Sample(question, waits, metadata, boxes), reference)
        key = review_key(metadata, boxes, reference)
        all_reviews = self.reviews.by_sample.get(question.id, {})
        reviews = {name: review for name, review in all_reviews.items() if review.key == key}
        step, why = decide_step(reviews, reference.made_anew, self.reviewers)
        return Sample(question, step, metadata, boxes, reference, key, reviews, why)


def decide_step(reviews: Mapping[str, Review], made_anew: int, needed: int) -> tuple[Step, str]:
    """Return the step that the reviews of a sample lead to, and the reason if it is discarded.

    As many reviewers as needed must accept it. If some discard it, the majority decides; two who disagree leave it
    disputed until another person decides. A reference that is refused after its last regeneration means that the edit
    cannot be done (DLEBench, Section 3.1).
    """
    decisions = Counter(review.decision for review in reviews.values())
    if decisions["regenerate"]:
        if made_anew >= REGENERATIONS:
            return "discarded", f"the reference was refused after {REGENERATIONS} regenerations"
        return "regenerate", ""
    if decisions["discard"]:
        accepted, discarded = decisions["accept"], decisions["discard"]
        if accepted > discarded and accepted >= max(2, needed):
            return "accepted", ""
        if accepted and not discarded > max(1, accepted):
            return "disputed", ""
        notes = [review.note for review in reviews.values() if review.decision == "discard" and review.note]
        return "discarded", notes[0] if notes else "discarded in the review"
    return ("accepted" if decisions["accept"] >= needed else "review"), ""


def is_making_folder(path: Path) -> bool:
    """Return whether a folder holds a benchmark in the making."""
    return (path / QUESTIONS).is_file()


def _if_current(record: T | None, key: str) -> T | None:
    """Return a record if it was made from the current inputs."""
    return record if record is not None and getattr(record, "key", None) == key else None


def _mark_left_out(sample: Sample, record: SampleRecord | None) -> Sample:
    if isinstance(record, LeftOutSample):
        return Sample(sample.question, "left out", sample.metadata, sample.boxes, why=record.left_out)
    return sample


COSTS = "costs.jsonl"


class Cost(SampleRecord):
    """A paid request, in `costs.jsonl`. The id is that of its sample, or empty."""

    stage: str
    model: str
    usage: Usage = Usage()
    dollars: float | None = None
    """None if the price is unknown."""
    at: str


class Ledger:
    """The costs of a folder over all sessions, with an optional cap."""

    def __init__(self, folder: Path, cap: float | None = None) -> None:
        self.cap = cap
        self._file = folder / COSTS
        self._kind = TypeAdapter(Cost)
        self._lock = threading.Lock()
        self.spent = 0.0
        self.requests = 0
        self.unpriced = 0
        """Requests with an unknown price."""
        self._reserved = 0.0
        for line in StageLog(self._file, self._kind).records():
            self._count(line)

    def pay(self, sample_id: str, stage: str, model: str, usage: Usage, dollars: float | None) -> None:
        """Record a paid request. It is on disk when this returns."""
        line = Cost(id=sample_id, stage=stage, model=model, usage=usage, dollars=dollars, at=timestamp())
        with self._lock:
            try:
                append_line(self._file, for_json(line.model_dump(mode="json")).encode())
            except OSError as error:
                raise UserError(f"{self._file} cannot be written: {error.strerror or error}") from None
            self._count(line)

    def reserve(self, dollars: float) -> None:
        """Reserve money for a request about to be sent.

        Raises:
            OverBudget: If the cap does not allow it.
        """
        with self._lock:
            if self.cap is not None and self.spent + self._reserved + dollars > self.cap:
                spent = f"${self.spent:.4f} spent"
                under_way = f", ${self._reserved:.4f} under way" if self._reserved else ""
                raise OverBudget(
                    f"the cap of ${self.cap:g} is reached ({spent}{under_way}, the next request about ${dollars:.4f})"
                )
            self._reserved += dollars

    def release(self, dollars: float) -> None:
        """Release a reservation after the request was paid or failed."""
        with self._lock:
            self._reserved = max(0.0, self._reserved - dollars)

    def _count(self, line: Cost) -> None:
        self.requests += 1
        self.spent += line.dollars or 0.0
        self.unpriced += line.dollars is None
