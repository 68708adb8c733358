"""What can be set about making a benchmark; a folder keeps it, so that a second session goes on with the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from editloupe._util.errors import describe_error
from editloupe._util.files import read_text, write_text
from editloupe.types import Record, UserError

FILE = "settings.json"


class QuestionSetFacts(Record):
    """What is said of one question set."""

    source: str | None = None
    """What the data card calls it; else its file's name."""
    licence: str | None = None
    """Of the pictures, where the rows do not say it."""


class MakingSettings(Record):
    """The choices of a benchmark; each is given as KEY=VALUE."""

    wrong_option: Literal["model", "drawn"] = "model"
    """Who picks the wrong option: the model, as in the paper, or chance by `seed` and the question's id."""
    ocr_operation: Literal["text_flip", "alter_text"] = "text_flip"
    """The operation of a text question: the published prompt names both."""
    count_operation: Literal["add_object", "by_number"] = "add_object"
    """The operation of a count question: always add_object as the prompt says, or remove_object where the number falls."""
    repairs: int = Field(default=2, ge=0)
    """How often metadata that cannot be used is sent back."""
    seed: int = 0
    reviewers: int = Field(default=1, ge=1)
    """How many people must accept a sample; all who decided must agree."""
    sets: Mapping[str, QuestionSetFacts] = Field(default_factory=dict)
    """What was said of each question set, by its name; given as options of their own."""

    def about(self, question_set: str) -> QuestionSetFacts:
        """Return what was said of a question set."""
        return self.sets.get(question_set, QuestionSetFacts())


SETTABLE = tuple(name for name in MakingSettings.model_fields if name != "sets")
_USUAL = MakingSettings()


def load_settings(folder: Path) -> MakingSettings:
    """Return what a folder was last made with; the defaults where it says nothing."""
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
    """Return the folder's settings with those given as KEY=VALUE in their places, kept for the next time.

    Source and licence are said of one question set; others keep theirs.
    """
    kept = load_settings(folder)
    chosen = parse_settings(texts, kept)
    if source is not None or licence is not None:
        before = kept.about(question_set)
        about = QuestionSetFacts(source=source or before.source, licence=licence or before.licence)
        chosen = chosen.model_copy(update={"sets": {**kept.sets, question_set: about}})
    if chosen != kept or not (folder / FILE).exists():
        write_text(folder / FILE, chosen.model_dump_json(indent=2) + "\n")
    return chosen


def parse_settings(texts: Sequence[str], before: MakingSettings = _USUAL) -> MakingSettings:
    """Read KEY=VALUE settings; an unknown one is the user's mistake."""
    values: dict[str, Any] = before.model_dump()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name.strip() not in SETTABLE:
            raise UserError(f'"{text}" is no setting; there are: {", ".join(SETTABLE)}, as KEY=VALUE')
        values[name.strip()] = value.strip()
    try:
        return MakingSettings.model_validate(values)
    except ValidationError as error:
        raise UserError(f"--set {describe_error(error)}") from None
