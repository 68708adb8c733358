"""The wording of a rubric that an annotator was shown, and that a judge was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from editloupe._util.hashing import content_key
from editloupe.evals.runs.configurations import list_recorded_rubrics
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.registry import find_protocol
from editloupe.rubrics.rewording import list_words

WORDING = "rubric"
"""Column of a label file with the key of the wording that the annotator was shown."""
_SHOWN = ("question", "steps", "notes", "type_notes", "meanings", "findings")


def build_wording_key(rubric: Rubric) -> str:
    """Return a short hash of the texts that annotators are shown."""
    words = list_words(rubric)
    return content_key({name: words.get(name) for name in _SHOWN})[:12]


def parse_rubric(record: Mapping[str, Any]) -> Rubric | None:
    """Parse a rubric as a run recorded it, without the additions of modes; None if it is not valid."""
    fields = {name: value for name, value in record.items() if name in Rubric.model_fields}
    try:
        return Rubric.model_validate({**fields, "modes": {}})
    except ValidationError:
        return None


def find_wording_keys(about: Mapping[str, Any], protocol: str, configuration: str = "") -> dict[str, set[str]]:
    """Return the keys of the wordings that a configuration asked, by criterion.

    Args:
        about: The contents of run.json.
        protocol: The protocol.
        configuration: Name of the configuration; empty for all of the protocol.

    Returns:
        The keys of the recorded rubrics. For criteria that the run did not record, those of this version.
    """
    keys: dict[str, set[str]] = {}
    for record in list_recorded_rubrics(about, protocol, configuration or None):
        if (rubric := parse_rubric(record)) is not None:
            keys.setdefault(rubric.criterion, set()).add(build_wording_key(rubric))
    current = find_protocol(protocol)
    for criterion in current.criteria if current else ():
        if criterion not in keys:
            own = [rubric for rubric in current.rubrics if rubric.criterion == criterion] if current else []
            keys[criterion] = {build_wording_key(rubric) for rubric in own}
    return keys
