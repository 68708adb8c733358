"""The numbers of GEdit-Bench's public script `calculate_statistics.py`, and of harnesses that average otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from editloupe._util.text import number_of, verb
from editloupe.rubrics import case_pictures as roles
from editloupe.rubrics.gedit import INTERSECTION, LANGUAGE, PQ, SC, TASKS
from editloupe.rubrics.protocol import Protocol, collect_no_facts
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule
from editloupe.rubrics.tables import Cell
from editloupe.types import Edit

AVERAGE, EMPTY, MISSING, FAILED, CHINESE, SIZE = (
    f"gedit.{name}" for name in ("average", "empty_task", "missing", "failed", "language", "edited_size")
)
MEASURES = ("G_SC", "G_PQ", "G_O")
SUBSETS: Mapping[str, tuple[bool, ...]] = {"full set": (True, False), "Intersection subset": (True,)}
"""Values of the column `Intersection_exist` in each subset, by its name."""
LANGUAGES = {"en": "EN", "cn": "CN"}
TITLE = "GEdit-Bench by the rules of its public script"


def keep_size(protocol: Protocol) -> Protocol:
    """Return the protocol so that the edited picture is shown in its own size."""
    return replace(protocol, make_cases=roles.build_cases, case_facts=collect_no_facts, further_roles=())


RULES = (
    Rule(
        AVERAGE,
        published="tasks",
        text="tasks",
        values={
            "tasks": "An average is the plain mean of the 11 task means.",
            "edits": "An average is the mean over all edits, as lmms-eval computes it.",
        },
    ),
    Rule(
        EMPTY,
        published="undefined",
        text="undefined",
        values={
            "undefined": "An average is not defined if a task has no edit.",
            "left_out": "A task without edits is left out of the average.",
        },
    ),
    Rule(
        MISSING,
        published="left_out",
        text="left_out",
        values={
            "left_out": "An edit without an output is left out.",
            "zero": "An edit without an output counts 0 in a language that the model was run on, as in lmms-eval.",
        },
    ),
    Rule(
        FAILED,
        published="random",
        text="left_out",
        values={
            "random": "A reply that is unreadable twice, or a failed request, counts a random whole number from 0 to 10; a reply "
            "in braces that is not JSON is asked for again without end.",
            "left_out": "An edit with an unjudged criterion is left out.",
            "zero": "An edit with an unjudged criterion counts 0, as in lmms-eval.",
        },
    ),
    Rule(
        CHINESE,
        published="cn",
        text="cn",
        values={
            "cn": "Chinese rows are those of the language cn. The script's function counts them if it is called with cn.",
            "zh": "Chinese rows are those of the language zh, which the command takes and no row has.",
        },
    ),
    Rule(
        SIZE,
        published="source",
        text="source",
        values={
            "source": "In plain mode the edited picture is shown in the size of the source.",
            "own": "The edited picture is shown in its own size.",
        },
        asks={"own": keep_size},
    ),
)


def is_in_intersection(edit: Edit) -> bool:
    """Return whether an edit is in the Intersection subset."""
    return str(edit.extra.get(INTERSECTION)).casefold() == "true"


def name_language(language: object) -> str:
    """Return the name of a language in titles."""
    return LANGUAGES.get(str(language), "no language given" if language is None else str(language))


Triple = tuple[float, ...]
"""The three numbers of an edit, 0 to 10, in the order of MEASURES."""


@dataclass
class TaskScores:
    """The scores of the edits of a task."""

    counted: list[Triple] = field(default_factory=list)
    random: bool = False
    """Whether the script fills in a score at random."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield a table per language and subset: the three averages, then each number of every task."""
    columns = (*MEASURES, *(f"{task} {measure}" for task in TASKS for measure in MEASURES))
    languages = dict.fromkeys(
        language for edits in models.values() for edit in edits if (language := _language(edit.edit)) in LANGUAGES
    )
    for language in sorted(languages, key=list(LANGUAGES).index):
        wanted = "zh" if language == "cn" and choices[CHINESE] == "zh" else language
        for subset, flags in SUBSETS.items():
            rows: dict[str, Sequence[Cell]] = {}
            concerned: dict[str, list[str]] = {}
            lost: list[str] = []
            for model, edits in models.items():
                own = [e for e in edits if _language(e.edit) == language and is_in_intersection(e.edit) in flags]
                kept = [edit for edit in own if _language(edit.edit) == wanted]
                tasks = _group_by_task(kept, choices)
                rows[model] = _build_row(tasks, choices)
                lost += _find_random(model, tasks)
                for name, changed in _count_concerned(own, kept, tasks).items():
                    concerned.setdefault(name, []).append(f"{changed} of {model}")
            if any(own for own in rows.values()):
                yield PublishedTable(
                    f"{TITLE}, {LANGUAGES[language]}, {subset}",
                    columns,
                    rows,
                    {name: ", ".join(each) for name, each in concerned.items()},
                    tuple(lost),
                )


def _language(edit: Edit) -> str:
    return str(edit.extra.get(LANGUAGE) or "")


def _group_by_task(edits: Sequence[RawEdit], choices: Choices) -> dict[str, TaskScores]:
    tasks = {task: TaskScores() for task in TASKS}
    for edit in edits:
        if (task := tasks.get(str(edit.edit.instruction_type))) is None:
            continue
        sc, pq = edit.value(SC), edit.value(PQ)
        if edit.missing or _has_failed(edit):
            rule = choices[MISSING] if edit.missing else choices[FAILED]
            task.random |= rule == "random"
            task.counted += [(0.0, 0.0, 0.0)] if rule == "zero" else []
        elif sc is not None and pq is not None:
            task.counted.append((10 * sc, 10 * pq, 10 * (sc * pq) ** 0.5))
    return tasks


def _has_failed(edit: RawEdit) -> bool:
    return any(answer.status == "unjudged" for name, answer in edit.answers.items() if name in (SC, PQ))


def _build_row(tasks: Mapping[str, TaskScores], choices: Choices) -> list[Cell]:
    means = {task: None if own.random else _mean(own.counted) for task, own in tasks.items()}
    average: Triple | None
    if any(own.random for own in tasks.values()):
        average = None
    elif choices[AVERAGE] == "edits":
        average = _mean([triple for own in tasks.values() for triple in own.counted])
    elif choices[EMPTY] == "undefined" and None in means.values():
        average = None
    else:
        average = _mean([mean for mean in means.values() if mean is not None])
    blank: Sequence[Cell] = (None,) * len(MEASURES)
    return [*(average or blank), *(cell for mean in means.values() for cell in (mean or blank))]


def _mean(triples: Sequence[Triple]) -> Triple | None:
    return tuple(map(fmean, zip(*triples, strict=True))) if triples else None


def _find_random(model: str, tasks: Mapping[str, TaskScores]) -> Iterable[str]:
    if names := [task for task, own in tasks.items() if own.random]:
        yield (
            f"{model}: {', '.join(names)} and the averages, because the script fills in random numbers there; "
            "--rule gedit.failed=left_out leaves these edits out."
        )


def _count_concerned(
    edits: Sequence[RawEdit], kept: Sequence[RawEdit], tasks: Mapping[str, TaskScores]
) -> dict[str, str]:
    """Return what each rule concerns, by its name."""
    missing = sum(edit.missing for edit in kept)
    failed = sum(not edit.missing and _has_failed(edit) for edit in kept)
    empty = [task for task, own in tasks.items() if not own.counted and not own.random] if kept else []
    counts = {MISSING: (missing, "edit"), FAILED: (failed, "edit"), CHINESE: (len(edits) - len(kept), "edit")}
    changed = {name: number_of(count, word) for name, (count, word) in counts.items() if count}
    return changed | ({EMPTY: f"{', '.join(empty)} {verb(len(empty), 'has', 'have')} no edit"} if empty else {})


PUBLISHED = Published(
    source="github.com/stepfun-ai/Step1X-Edit at 570eba6: GEdit-Bench/test_gedit_score.py and calculate_statistics.py",
    rules=RULES,
    tables=compute_tables,
)
