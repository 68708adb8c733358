"""Thresholds and rules of EdiVal-Agent's checks, read from a YAML table that states the source of each value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from editloupe._util.errors import describe_error
from editloupe.rubrics.edival.tasks import TaskType
from editloupe.rubrics.rubric_files import load_bundled_yaml, read_yaml
from editloupe.types import Record, UserError

Share = Annotated[float, Field(ge=0, le=1)]
PAPER = "paper"
"""Name by which `load_settings` returns the paper's own matching."""
PRECHECKED: tuple[TaskType, ...] = ("subject_add", "subject_replace")
"""Types whose outcome an LMM may be asked to confirm."""


class EdivalSettings(Record):
    """Thresholds and rules of the checks. `thresholds.yaml` states the source of each."""

    decompose_threshold: Share
    decompose_side: Annotated[int, Field(ge=32)]
    decompose_max_side: Share
    decompose_max_area: Share
    threshold: Share
    threshold_subject_remove: Share
    threshold_position_change: Share
    large_box: Share
    margin_subject_add: Share
    margin_position_change: Share
    contained: Literal["counts", "fails"]
    duplicate_iou: Share
    small_box: Share
    enlarged_box: Share
    least_crop: Annotated[int, Field(ge=1)]
    crops: Literal["current", "both"] = Field(default="current", exclude_if=lambda value: value == "current")
    replace_rule: Literal["overlap", "absent"]
    precheck: tuple[TaskType, ...]
    background_features: Literal["patches", "painted"]
    background_patch_share: Annotated[float, Field(gt=0, le=1)]
    text_match: Literal["auto", "equal", "contains"]
    max_turns: Annotated[int, Field(ge=1)]
    max_count: Annotated[int, Field(ge=2)]

    @field_validator("precheck")
    @classmethod
    def _check_types(cls, types: tuple[TaskType, ...]) -> tuple[TaskType, ...]:
        for kind in types:
            if kind not in PRECHECKED:
                raise ValueError(f"{kind} has no pre-check; {' and '.join(PRECHECKED)} have one")
        return tuple(kind for kind in PRECHECKED if kind in types)

    def threshold_of(self, kind: TaskType) -> float:
        """Return the detector threshold of an instruction type."""
        own = {
            "subject_remove": self.threshold_subject_remove,
            "position_change": self.threshold_position_change,
        }
        return own.get(kind, self.threshold)

    @property
    def lowest_threshold(self) -> float:
        """The confidence below which no check uses a box."""
        return min(
            self.decompose_threshold, self.threshold, self.threshold_subject_remove, self.threshold_position_change
        )

    def with_changes(self, changes: Mapping[str, Any]) -> EdivalSettings:
        """Return the settings with some values changed.

        Raises:
            UserError: If a name is unknown or a value is invalid.
        """
        try:
            return EdivalSettings.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            raise UserError(f"setting {describe_error(error)}") from None


@cache
def load_published() -> EdivalSettings:
    """Return the paper's settings, with our values for those that it does not state."""
    return EdivalSettings(**_values(load_sources()))


@cache
def load_paper_settings() -> EdivalSettings:
    """Return the settings with all that is known of the paper's own matching. `paper.yaml` states the sources."""
    return load_published().with_changes(_values(load_sources(PAPER)))


@cache
def load_sources(table: str = "thresholds") -> dict[str, dict[str, Any]]:
    """Return a table of values with their sources: `thresholds`, or `paper` for the changes of `load_paper_settings`."""
    content: dict[str, dict[str, Any]] = load_bundled_yaml(files(__package__) / f"{table}.yaml")
    return content


def _values(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: entry["value"] for name, entry in table.items()}


def load_settings(file: Path | None) -> EdivalSettings:
    """Return the published settings, with changes if a file is named.

    Args:
        file: A YAML file with values to change, `paper` for the paper's own matching, or None for no changes.

    Raises:
        UserError: If the file cannot be read, or a name or value in it is invalid.
    """
    if file is None:
        return load_published()
    if str(file) == PAPER:
        return load_paper_settings()
    content = read_yaml(file)
    if not isinstance(content, dict):
        raise UserError(f"{file} must map names of settings to values")
    return load_published().with_changes(content)
