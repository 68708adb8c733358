"""The numbers of Edit-Compass's public script `summary.py`, from stored verdicts, and the choices in what its judge is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from statistics import fmean
from typing import Any, cast

from editloupe._util.text import number_of
from editloupe.rubrics.editcompass import (
    FLAGS,
    IC,
    IF,
    PART_NAMES,
    PARTS,
    STYLE_TRANSFER,
    TASKS,
    URC,
    WA,
    Gate,
    find_task,
    is_asked,
    score_overall,
)
from editloupe.rubrics.model import Telling
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.rubrics.tables import Cell
from editloupe.types import UserError

GATE, REGION, CATEGORY, OVERALL = (
    f"edit_compass.{name}" for name in ("gate", "unedited_region", "category_average", "overall")
)
LANGUAGES: Mapping[str, str] = {"en": "English instructions", "cn": "Chinese instructions"}


def list_everything(protocol: Protocol) -> Protocol:
    """Return the protocol with our first stage of Unedited Region Consistency, which lists every difference."""
    words: Mapping[str, Any] = load_bundled_yaml(files(__package__) / "first_stage.yaml")
    changes = {"question": words["question"], "notes": tuple(words["notes"])}
    rubrics = tuple(
        rubric.model_copy(update={"stage": rubric.stage.model_copy(update=changes)}) if rubric.stage else rubric
        for rubric in protocol.rubrics
    )
    return replace(protocol, rubrics=rubrics)


def tell_hints(protocol: Protocol, criteria: Sequence[str]) -> Protocol:
    """Return the protocol in which only these criteria get hints, in all wordings that get the instruction."""
    rubrics = []
    for rubric in protocol.rubrics:
        if rubric.criterion in FLAGS:
            texts: list[Telling] = [text for text in rubric.tells if text != "hint"]
            hint: list[Telling] = ["hint"] if rubric.criterion in criteria and texts else []
            rubric = rubric.model_copy(update={"tells": (*texts, *hint)})
        rubrics.append(rubric)
    return replace(protocol, rubrics=tuple(rubrics))


def build_asked_rules(paper: str) -> tuple[Rule, ...]:
    """Return the rules that change what is asked. The metrics are those of Edit-Compass in every paper that uses them.

    Args:
        paper: Name of the paper in the rules' names.
    """
    return (
        Rule(
            f"{paper}.first_stage",
            published="obvious",
            text="obvious",
            values={
                "obvious": "The first stage of Unedited Region Consistency lists the one to three most obvious differences.",
                "every": "The first stage of Unedited Region Consistency lists every difference.",
            },
            asks={"every": list_everything},
        ),
        Rule(
            f"{paper}.hints",
            published="script",
            text="script",
            values={
                "script": "Hints go with Instruction Following, World Knowledge Awareness and Identity Consistency of a "
                "single picture, and with Unedited Region Consistency.",
                "awareness": "Hints go with Instruction Following and World Knowledge Awareness.",
                "none": "Hints are not told, as no box of the paper lists them.",
            },
            asks={
                "awareness": lambda protocol: tell_hints(protocol, (IF, WA)),
                "none": lambda protocol: tell_hints(protocol, ()),
            },
        ),
    )


RULES = (
    Rule(
        GATE,
        published="metrics",
        text="dimensions",
        values={
            "metrics": "A score of 1 on a single metric is the item's score.",
            "dimensions": "A score of 1 on a dimension (IA, VC, VQ) is the item's score (Appendix D).",
        },
    ),
    Rule(
        REGION,
        published="counted",
        text="counted",
        values={
            "counted": "Unedited Region Consistency is part of VC. The script needs one word mended for that.",
            "left_out": "Unedited Region Consistency is left out of VC, as in the script as it is published, which stops at the "
            "first item without Identity Consistency.",
        },
    ),
    Rule(
        CATEGORY,
        published="edits",
        text="edits",
        values={
            "edits": "A category's average is the mean over its items, which fits the printed tables. The script has none.",
            "tasks": "A category's average is the mean over its tasks.",
        },
    ),
    Rule(
        OVERALL,
        published="edits",
        text="edits",
        values={
            "edits": "The overall average is the mean over all items, which fits the printed tables. The script has none.",
            "categories": "The overall average is the mean over the categories.",
        },
    ),
    *build_asked_rules("edit_compass"),
)


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield per language the means and the counts of `summary.json`, one column per task."""
    for language in LANGUAGES:
        items = {
            model: own for model, edits in models.items() if (own := [e for e in edits if _language(e) == language])
        }
        if items:
            yield from _compute_language(LANGUAGES[language], items, choices)


def _compute_language(words: str, models: Models, choices: Choices) -> Iterator[PublishedTable]:
    present = {_task(edit) for edits in models.values() for edit in edits}
    tasks = [task for task in TASKS if task in present]
    parts = [part for part, names in PARTS.items() if present.intersection(names)]
    means: dict[str, Sequence[Cell]] = {}
    counts: dict[str, Sequence[Cell]] = {}
    gated, stopped = [], []
    items = {model: Counter(map(_task, edits)) for model, edits in models.items()}
    largest = {task: max(own[task] for own in items.values()) for task in tasks}
    for model, edits in models.items():
        scores = _score_items(edits, choices)
        if scores is None:
            stopped.append(f"{model}: the script stops at an item without Identity Consistency and prints nothing.")
            continue
        task_means = {task: fmean(values) for task in tasks if (values := scores[task])}
        averages = [_average_part(part, scores, task_means, choices) for part in parts]
        means[model] = (*(task_means.get(task) for task in tasks), *averages, _average_all(scores, averages, choices))
        counts[model] = tuple(
            cell
            for task in tasks
            for cell in (len(scores[task]), sum(scores[task]), items[model][task] or largest[task])
        )
        if changed := _count_gated(edits, choices):
            gated.append(f"{number_of(changed, 'item')} of {model}")
    titles = [f"{PART_NAMES[part]} AVG" for part in parts]
    yield PublishedTable(
        f"Edit-Compass by the rules of its public script, {words}",
        (*tasks, *titles, "Overall AVG"),
        means,
        concerned={GATE: ", ".join(gated)} if gated else {},
        irreproducible=tuple(stopped),
    )
    yield PublishedTable(
        f"Edit-Compass by the rules of its public script, counts, {words}",
        tuple(f"{task} {name}" for task in tasks for name in ("evaluated", "sum", "items")),
        counts,
        notes=(
            "An item is evaluated if every metric that it is asked has a verdict; the others are left out of the mean.",
            "Items are those of the benchmark; of a task without any output of a model, they are counted from the other models.",
        ),
    )


def _score_items(edits: Sequence[RawEdit], choices: Choices) -> dict[str, list[float]] | None:
    """Return the scores of the evaluated items by task, or None if the script stops."""
    scores: dict[str, list[float]] = {task: [] for task in TASKS}
    for edit in edits:
        task, metrics = _task(edit), _read_metrics(edit)
        if task is None or metrics is None:
            continue
        if choices[REGION] == "left_out":
            metrics.pop(URC, None)
            if task != STYLE_TRANSFER and IC not in metrics:
                return None
        value = score_overall(metrics, task, cast(Gate, choices[GATE]))
        if value is not None:
            scores[task].append(value)
    return scores


def _average_part(
    part: str, scores: Mapping[str, Sequence[float]], means: Mapping[str, float], choices: Choices
) -> float | None:
    by_tasks = choices[CATEGORY] == "tasks"
    values = [v for task in PARTS[part] for v in ([means[task]] if by_tasks and task in means else scores[task])]
    return fmean(values) if values else None


def _average_all(
    scores: Mapping[str, Sequence[float]], averages: Sequence[float | None], choices: Choices
) -> float | None:
    items = [value for values in scores.values() for value in values]
    categories = [value for value in averages if value is not None]
    values = categories if choices[OVERALL] == "categories" else items
    return fmean(values) if values else None


def _count_gated(edits: Sequence[RawEdit], choices: Choices) -> int:
    """Return the number of items whose score depends on the gate."""
    changed = 0
    for edit in edits:
        if metrics := _read_metrics(edit):
            if choices[REGION] == "left_out":
                metrics.pop(URC, None)
            task = _task(edit)
            changed += score_overall(metrics, task, "metrics") != score_overall(metrics, task, "dimensions")
    return changed


def _read_metrics(edit: RawEdit) -> dict[str, float] | None:
    """Return the scores of an item's metrics, or None if one that it is asked has no verdict."""
    values = {metric: edit.value(metric) for metric in FLAGS if is_asked(edit.edit, metric)}
    judged = {metric: value for metric, value in values.items() if value is not None}
    return judged if len(judged) == len(values) else None


def _task(edit: RawEdit) -> str | None:
    try:
        return find_task(edit.edit)
    except UserError:
        return None


def _language(edit: RawEdit) -> str:
    return str(edit.edit.extra.get("language") or next(iter(LANGUAGES)))


PUBLISHED = Published(
    source="github.com/bxhsort/Edit-Compass-and-EditReward-Compass at 6ee6caa: Edit-Compass/summary.py with one word mended",
    rules=RULES,
    tables=compute_tables,
)
