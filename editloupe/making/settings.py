"""Settings of making a benchmark. The folder stores them, so that the next session uses the same."""

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
