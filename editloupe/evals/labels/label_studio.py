"""Exchange edits and labels with Label Studio: tasks and labelling configurations out, its JSON export in.

A configuration has one control per criterion, named as the criterion: choices for labels, yes or no and short scales, a number
for long scales, and one choice per item of a check list, named `CRITERION.ITEM`. Boxes are drawn on the source as
`target_boxes`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from xml.etree import ElementTree as Xml

from editloupe._util.files import atomic_folder, read_bytes
from editloupe._util.json_safe import finite_number, sanitize, sanitize_text
from editloupe._util.text import for_json, number_of, verb
from editloupe.evals.labels.label_form import AnswerChoice, RubricForm, build_forms, list_recorded_wordings
from editloupe.evals.labels.merge import format_score_label
from editloupe.evals.manifests.readers import Row
from editloupe.evals.runs.damage import UNREADABLE
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.pictures.decode import declared_size
from editloupe.types import UserError, Verdict

Json = dict[str, Any]
SOURCE, EDITED, BOXES = "source", "edited", "target_boxes"
FIELDS = {SOURCE: "source_image", EDITED: "edited_image"}
"""Fields of a task with the pictures. Label Studio has fields of its own that are called `source`."""
LARGEST = 1_000_000_000
"""Largest export that is read, in bytes."""


@dataclass
class _TaskSet:
    """The tasks that share a labelling configuration."""

    file: TextIO
    count: int = 0

    def add(self, task: Json) -> None:
        self.file.write(("," if self.count else "[") + "\n" + for_json(task))
        self.count += 1


class WrittenTasks(NamedTuple):
    """How much was written for Label Studio."""

    tasks: int
    configurations: int
    without_pictures: int
    """Tasks that lack a picture, because the run does not have it."""


def to_label_studio(run: Run, folder: Path, configuration: str | None = None, images: bool = False) -> WrittenTasks:
    """Write tasks with the judge's verdicts as predictions, and their labelling configurations, to a new folder.

    Edits that were asked the same rubrics share `tasks.json` and `config.xml`; further sets are numbered.

    Args:
        run: The run.
        folder: The folder, which must not exist or must be empty.
        configuration: Name of the only configuration whose verdicts are predictions; None for all.
        images: Write pictures into the tasks. If False, tasks name the files of the run for Label Studio's local files, with
            the run's parent folder as the root.

    Raises:
        UserError: The folder is not empty or cannot be written, or the run has nothing that people can label.
    """
    wordings = list_recorded_wordings(run.about())

    def find_recorded(criterion: str, variant: str | None) -> Any:
        return next((own for own in wordings.get(criterion, ()) if variant in (None, own.variant)), None)

    titles = {own.name: own.title for own in run.configurations()}
    sets: dict[str, _TaskSet] = {}
    without_pictures = 0
    has_boxes = any(stored.edit.target_boxes for stored in run.edits())
    with atomic_folder(folder) as part, ExitStack() as files:
        for stored in run.edits():
            units = [unit for unit in run.units(stored.name, configuration) if not unit.repeat]
            forms = [form for form in build_forms(units, stored.edit, find_recorded) if form.usable]
            if not forms:
                continue
            config = build_config(forms, has_boxes)
            if config not in sets:
                number = f"-{len(sets) + 1}" if sets else ""
                (part / f"config{number}.xml").write_text(sanitize_text(config), "utf-8", newline="")
                file = files.enter_context((part / f"tasks{number}.json").open("w", encoding="utf-8", newline=""))
                sets[config] = _TaskSet(file)
            task = _build_task(run, stored, units, forms, titles, images)
            without_pictures += not all(task["data"][name] for name in FIELDS.values())
            sets[config].add(task)
        for tasks in sets.values():
            tasks.file.write("\n]\n")
        if not sets:
            raise UserError(f"{run.folder} has no edit that people can label")
    return WrittenTasks(sum(tasks.count for tasks in sets.values()), len(sets), without_pictures)


def build_config(forms: Sequence[RubricForm], boxes: bool = False) -> str:
    """Return the labelling configuration of some rubrics.

    Args:
        forms: The rubrics.
        boxes: Add a control for boxes on the source.
    """
    view = Xml.Element("View")
    Xml.SubElement(view, "Header", value="$instruction")
    pictures = Xml.SubElement(view, "View", style="display: flex; gap: 12px")
    for role, field in FIELDS.items():
        Xml.SubElement(
            Xml.SubElement(pictures, "View", style="flex: 1"), "Image", name=role, value=f"${field}", zoom="true"
        )
    if boxes:
        control = Xml.SubElement(view, "RectangleLabels", name=BOXES, toName=SOURCE)
        Xml.SubElement(control, "Label", value="target")
    for form in forms:
        rubric = form.rubric
        Xml.SubElement(view, "Header", value=rubric.title, size="4")
        Xml.SubElement(view, "Header", value=rubric.question, size="6")
        if form.scale is not None:
            low, high = str(form.scale.low), str(form.scale.high)
            Xml.SubElement(view, "Number", name=rubric.criterion, toName=EDITED, min=low, max=high, step="1")
        elif form.checks:
            for check in form.checks:
                condition = f" (if {check.gate})" if check.gate else ""
                Xml.SubElement(view, "Header", value=f"{check.question}{condition}", size="6")
                _add_choices(view, f"{rubric.criterion}.{check.key}", check.choices)
        else:
            _add_choices(view, rubric.criterion, form.choices)
    Xml.indent(view)
    return Xml.tostring(view, encoding="unicode") + "\n"


def _add_choices(view: Xml.Element, name: str, choices: Iterable[AnswerChoice]) -> None:
    control = Xml.SubElement(view, "Choices", name=name, toName=EDITED, choice="single-radio", showInline="true")
    for choice in choices:
        Xml.SubElement(
            control, "Choice", {"value": choice.value, **({"hint": choice.meaning} if choice.meaning else {})}
        )


def _build_task(
    run: Run,
    stored: StoredEdit,
    units: Iterable[Unit],
    forms: Sequence[RubricForm],
    titles: Mapping[str, str],
    images: bool,
) -> Json:
    edit = stored.edit
    data: Json = {
        "edit_id": edit.id,
        "name": stored.name,
        **({"model": edit.model} if edit.model else {}),
        "instruction": edit.instruction,
        **{FIELDS[role]: _locate_picture(run, stored, role, images) for role in FIELDS},
    }
    controls = {form.rubric.criterion: form for form in forms}
    boxes = _build_boxes(run, stored)
    predictions, unjudged = [], []
    by_judge = sorted(units, key=lambda unit: str(unit.configuration))
    for name, own in itertools.groupby(by_judge, key=lambda unit: unit.configuration):
        results, confidence, title = list[Json](), list[float](), titles.get(str(name), "")
        for unit in own:
            title = title or f"{unit.judge}/{unit.mode}"
            if not isinstance(unit.outcome, Verdict):
                unjudged.append(f"{unit.criterion}: {unit.outcome.reason.value}")
            elif unit.criterion in controls:
                results += _build_results(controls[unit.criterion], unit.outcome)
                if (sure := finite_number(unit.outcome.confidence)) is not None:
                    confidence.append(sure)
        if results:
            score = {"score": min(confidence)} if confidence else {}
            predictions.append({"model_version": title, **score, "result": [*results, *boxes]})
    if unjudged:
        data["unjudged"] = unjudged
    return dict(sanitize({"data": data, "predictions": predictions}))


def _locate_picture(run: Run, stored: StoredEdit, role: str, images: bool) -> str:
    """Return a picture as a data URL or as an address of Label Studio's local files; empty if the run has lost it."""
    shas = stored.pictures.get(role)
    if not shas:  # as in a run of imported verdicts
        return ""
    if images:
        return picture.data_url if (picture := run.read_picture(shas[0])) else ""
    if (path := run.find_picture(shas[0])) is None:
        return ""
    return f"/data/local-files/?d={path.resolve().relative_to(run.folder.resolve().parent).as_posix()}"


def _build_boxes(run: Run, stored: StoredEdit) -> list[Json]:
    """Return the edit's target boxes as regions of the source."""
    path = run.pictures.find((stored.pictures.get(SOURCE) or [""])[0]) if stored.edit.target_boxes else None
    if path is None:
        return []
    width, height = declared_size(path)
    return [
        {
            "id": f"target{number}",
            "from_name": BOXES,
            "to_name": SOURCE,
            "type": "rectanglelabels",
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {
                "x": 100 * box.x1 / width,
                "y": 100 * box.y1 / height,
                "width": 100 * (box.x2 - box.x1) / width,
                "height": 100 * (box.y2 - box.y1) / height,
                "rotation": 0,
                "rectanglelabels": ["target"],
            },
        }
        for number, box in enumerate(stored.edit.target_boxes, start=1)
    ]


def _build_results(form: RubricForm, verdict: Verdict) -> list[Json]:
    """Return a verdict as the answers of a form's controls."""
    name, score = form.rubric.criterion, finite_number(verdict.score)
    if form.scale is not None:
        value = {"number": score}
        return [] if score is None else [{"from_name": name, "to_name": EDITED, "type": "number", "value": value}]
    if form.checks:
        answers = {f"{name}.{check.key}": verdict.values.get(check.key) for check in form.checks}
    else:
        label = None if score is None else format_score_label(form.rubric.answer, score)
        answers = {name: verdict.label or label}
    return [
        {"from_name": control, "to_name": EDITED, "type": "choices", "value": {"choices": [str(answer)]}}
        for control, answer in answers.items()
        if answer is not None
    ]


def read_label_studio(path: Path, notes: list[str]) -> Iterator[Row]:
    """Yield the labels of a JSON export of Label Studio: one row per annotation, with a column per control.

    Skipped annotations and predictions are no labels. An annotation marked as ground truth is adjudicated. The objects of any
    other JSON list, such as an export of the kind JSON-MIN, are rows as they are.

    Args:
        path: The file.
        notes: Gets a sentence on annotations that began with a prediction.

    Raises:
        UserError: The file is not such an export.
    """
    try:
        tasks = json.loads(read_bytes(path, LARGEST))
    except OSError as error:
        raise UserError(f"{path.name} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path.name} is not JSON") from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise UserError(f"{path.name} must be a JSON list of objects, as Label Studio exports it")
    prefilled = 0
    for number, task in enumerate(tasks, start=1):
        where, data = f"{path.name}, task {task.get('id', number)}", task.get("data")
        if "annotations" not in task or not isinstance(data, dict):
            yield Row(where, task)
            continue
        annotations = task["annotations"] or []
        if not isinstance(annotations, list):
            raise UserError(f"{where}: annotations must be a list, as Label Studio exports it")
        finished = [item for item in annotations if isinstance(item, dict) and not item.get("was_cancelled")]
        for annotation in sorted(finished, key=lambda item: str(item.get("created_at") or "")):
            prefilled += annotation.get("parent_prediction") is not None
            try:
                answers = _read_answers(annotation.get("result") or [])
            except UNREADABLE:
                raise UserError(f"{where}: this annotation is not of the form that Label Studio exports") from None
            person = annotation.get("completed_by")
            name = person.get("email") or person.get("id") if isinstance(person, dict) else person
            settles = {"adjudicated": True} if annotation.get("ground_truth") else {}
            yield Row(where, {**data, "rater": None if name is None else str(name), **settles, **answers})
    if prefilled:
        notes.append(
            f"{number_of(prefilled, 'annotation')} of {path.name} began with a prediction, so the annotator had seen the "
            f"judge's {verb(prefilled, 'answer', 'answers')}."
        )


def _read_answers(results: Iterable[Mapping[str, Any]]) -> Json:
    """Return the answers of an annotation by control. Boxes are in pixels; `None` means a control without an answer."""
    answers: Json = {}
    for result in results:
        kind, value = str(result.get("type")), result.get("value") or {}
        if kind == "rectanglelabels":
            width, height = (float(result[side]) / 100 for side in ("original_width", "original_height"))
            x1, y1 = float(value["x"]) * width, float(value["y"]) * height
            box = [x1, y1, x1 + float(value["width"]) * width, y1 + float(value["height"]) * height]
            answers.setdefault(str(result["from_name"]), []).append([round(side, 2) for side in box])
        elif kind in ("choices", "number", "rating"):
            answer = value[kind]
            answers[str(result["from_name"])] = ", ".join(map(str, answer)) if isinstance(answer, list) else answer
    return answers
