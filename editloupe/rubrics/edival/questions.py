"""Questions to an LMM about instruction types that boxes cannot decide, with their crops and text comparison."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from editloupe._util.text import quote_line
from editloupe.rubrics.case import EDITED, SOURCE
from editloupe.rubrics.edival.rules import DetectorQuery, EdivalSettings, Finding, Hit
from editloupe.rubrics.edival.tasks import CJK, Task, add_article, texts
from editloupe.rubrics.model import PartText, Rubric, TextAnswer
from editloupe.rubrics.rubric_files import load_bundled_rubric
from editloupe.rubrics.wording import fill_in

TEXT_ANYWHERE = "text_change_anywhere"
_WHERE = {"text_change": "on the {object}", TEXT_ANYWHERE: "in the picture"}
_CONFIRMED = {
    "precheck_subject_add": "Is {new_object} to be seen after the edit that was not there before?",
    "precheck_subject_replace": "Is {new_object} to be seen after the edit where the {object} was before?",
}
_FILES = {
    **{name: name for name in ("color_alter", "material_alter", "text_change", "background_change")},
    TEXT_ANYWHERE: "text_change",
    **dict.fromkeys(_CONFIRMED, "precheck"),
}
"""Names of questions, and the files with their texts."""


@cache
def _text(name: str) -> Rubric:
    return load_bundled_rubric(files(__package__) / f"{name}.yaml")


@cache
def build_parts() -> Mapping[str, PartText]:
    """Return the text of every question by name. Names in braces are fields of the task."""
    texts = {name: _text(file) for name, file in _FILES.items()}
    return {
        name: PartText(
            title=rubric.title,
            question=fill_in(rubric.question, where=_WHERE.get(name, ""), asked=_CONFIRMED.get(name, "")),
            notes=rubric.notes,
            ours=rubric.ours,
            setting=rubric.modes["tools"].setting,
            shape=rubric.answer.shape if isinstance(rubric.answer, TextAnswer) else None,
        )
        for name, rubric in texts.items()
    }


def shows_both_crops(task: Task, settings: EdivalSettings) -> bool:
    """Return whether a question is asked with the crops before and after. A text is only read off the picture after."""
    return settings.crops == "both" and task.type != "text_change"


def build_question(task: Task, worded: Rubric | None = None, both: bool = False) -> Rubric:
    """Return the rubric of a task that an LMM decides.

    Args:
        task: The task; its fields are inserted into the question.
        worded: A reworded rubric whose texts replace the usual ones.
        both: Whether the crop before the edit is shown as well.

    Raises:
        ValueError: If boxes decide tasks of this type.
    """
    if task.by_detector:
        raise ValueError(f"{task.type} is decided by boxes")
    name = TEXT_ANYWHERE if task.type == "text_change" and not task.object else task.type
    rubric = _fill_in(name, task, worded)
    if not both:
        return rubric
    words = {"setting": texts()["both_crops"], "images": (SOURCE, EDITED)}
    return rubric.model_copy(update={"modes": {"tools": rubric.modes["tools"].model_copy(update=words)}})


def build_precheck(task: Task, worded: Rubric | None = None) -> Rubric:
    """Return the rubric by which an LMM confirms an addition or a replacement that boxes found.

    Args:
        task: The task; its fields are inserted into the question.
        worded: A reworded rubric whose texts replace the usual ones.

    Raises:
        ValueError: If the type has no pre-check.
    """
    if (name := f"precheck_{task.type}") not in _CONFIRMED:
        raise ValueError(f"{task.type} has no pre-check")
    return _fill_in(name, task, worded)


def _fill_in(name: str, task: Task, worded: Rubric | None) -> Rubric:
    words = worded.parts.get(name, build_parts()[name]) if worded else build_parts()[name]
    values = {key: getattr(task, key) for key in ("object", "color", "material", "background", "new_object")}
    fields = {key: quote_line(str(value)) for key, value in values.items() if value is not None}
    if task.new_object is not None:
        fields["new_object"] = quote_line(add_article(task.new_object))
    rubric = _text(_FILES[name])
    mode = rubric.modes["tools"].model_copy(update={"setting": words.setting})
    tells = rubric.tells if words.tells is None else words.tells
    changes: dict[str, Any] = {
        "title": words.title,
        "question": fill_in(words.question, **fields),
        "notes": tuple(fill_in(note, **fields) for note in words.notes),
        "modes": {"tools": mode},
        # What a question holds back, such as the asked text, stays held back whatever the rubric tells.
        "tells": tuple(name for name in tells if worded is None or name in worded.tells),
        "ours": (),
        **({"wording": worded.wording} if worded else {}),
    }
    if isinstance(rubric.answer, TextAnswer) and words.shape is not None:
        changes["answer"] = rubric.answer.model_copy(update={"shape": words.shape})
    return rubric.model_copy(update=changes)


def list_crop_queries(task: Task, name_after: str | None = None) -> tuple[DetectorQuery, ...]:
    """Return the queries by which the object of a question is located; the first that finds it is used.

    The object is searched after the edit by its old name, then by its expected new name, then before the edit. A question
    about the whole picture has no queries.
    """
    if task.object is None or task.by_detector:
        return ()
    names = [task.object, *([name_after] if name_after and name_after != task.object else [])]
    return (*(DetectorQuery("after", name) for name in names), DetectorQuery("before", task.object))


def enlarge(hit: Hit, settings: EdivalSettings) -> tuple[float, float, float, float]:
    """Return the crop for a box: the box itself, or a larger region if the box is small.

    >>> from editloupe.rubrics.edival.rules import load_published
    >>> [round(v, 3) for v in enlarge(Hit(x1=0.5, y1=0.2, x2=0.52, y2=0.6, score=1), load_published())]
    [0.46, 0.2, 0.56, 0.6]
    """
    x1, x2 = _grow(hit.x1, hit.x2, settings)
    y1, y2 = _grow(hit.y1, hit.y2, settings)
    return x1, y1, x2, y2


def _grow(low: float, high: float, settings: EdivalSettings) -> tuple[float, float]:
    if high - low >= settings.small_box - 1e-9:  # shares of pixels are not exact in binary
        return low, high
    side = max(settings.enlarged_box, high - low)
    start = min(max(0.0, (low + high - side) / 2), 1.0 - side)
    return start, start + side


def compare_text(read: str, task: Task, cropped: bool, settings: EdivalSettings) -> Finding:
    """Compare a text that an LMM read with the requested one.

    With `text_match: auto`, the text must be equal on a crop of the object and contained in that of a whole picture.
    """
    rule = settings.text_match if settings.text_match != "auto" else "equal" if cropped else "contains"
    expected = str(task.text)
    matches = is_same_text(read, expected) if rule == "equal" else occurs_in(expected, read)
    return Finding(matches, f'read "{read}", asked "{expected}"')


def normalize(text: str) -> list[str]:
    """Return the words of a text in lower case without punctuation.

    >>> normalize(" Wild-Path,\\n2nd EDITION! ")
    ['wild', 'path', '2nd', 'edition']
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in folded)
    return words.split()


def is_same_text(a: str, b: str) -> bool:
    """Return whether two texts are equal up to case, punctuation and spaces.

    >>> is_same_text("WILDPATH", "wild path!"), is_same_text("wild", "wild path")
    (True, False)
    """
    return "".join(normalize(a)) == "".join(normalize(b))


def occurs_in(part: str, text: str) -> bool:
    """Return whether a text contains another as complete words, or anywhere in scripts without spaces.

    >>> occurs_in("open", "We are OPEN."), occurs_in("open", "Copenhagen")
    (True, False)
    """
    words, among = normalize(part), normalize(text)
    if CJK.search(part):
        return "".join(words) in "".join(among)
    return any(among[i : i + len(words)] == words for i in range(len(among) - len(words) + 1)) and bool(words)
