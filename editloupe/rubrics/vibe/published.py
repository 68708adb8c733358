"""The numbers of VIBE's public script, from stored answers to checks, and the questions in which it differs from the text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from statistics import fmean, variance

from editloupe._util.text import number_of, verb
from editloupe.rubrics import formula
from editloupe.rubrics.model import ChecksAnswer, Rubric
from editloupe.rubrics.protocol import Protocol, find_or_none
from editloupe.rubrics.published import (
    Choices,
    Models,
    Published,
    PublishedTable,
    RawAnswer,
    RawEdit,
    Rule,
    describe_concerned,
)
from editloupe.rubrics.rubric_files import load_rubrics
from editloupe.rubrics.tables import Cell, mean
from editloupe.rubrics.vibe import LEVELS, NAMES, SEVERAL, VIBE, count_tasks, find_formula, find_task

ORIENTATION, GATES, BILLIARDS, ROUNDING, DRAFT, MARKS, PICTURE = (
    f"vibe.{name}"
    for name in (
        "orientation",
        "gates",
        "billiards",
        "rounding",
        "draft_instantiation",
        "marks_in_addition",
        "reorientation_picture",
    )
)
LEFT_OVER = ", and none of the user's marks is left over"
"""The clause of Table 10 that the script drops for Addition, as the rubric words it."""


def ask_about_sketches(protocol: Protocol) -> Protocol:
    """Return the protocol with the script's Instruction Adherence for Draft Instantiation."""
    draft, _ = _load_questions()
    return _add_variants(protocol, {draft.criterion: draft})


def allow_marks_in_additions(protocol: Protocol) -> Protocol:
    """Return the protocol with a Visual Coherence for Addition that does not mention marks."""
    coherence = protocol.rubric("visual_coherence")
    shorter = coherence.model_copy(update={"ours": (LEFT_OVER,)}).without_ours()
    addition = shorter.model_copy(update={"variant": "addition", "ours": coherence.ours})
    return _add_variants(protocol, {addition.criterion: addition})


def show_annotated_picture(protocol: Protocol) -> Protocol:
    """Return the protocol with the annotated picture in place of the source for what Reorientation must preserve."""
    _, annotated = _load_questions()
    rubrics = tuple(annotated if rubric.name == annotated.name else rubric for rubric in protocol.rubrics)
    return replace(protocol, rubrics=rubrics)


def _load_questions() -> tuple[Rubric, ...]:
    return load_rubrics(files(__package__), ("published",))


def _add_variants(protocol: Protocol, variants: Mapping[str, Rubric]) -> Protocol:
    """Return the protocol with a further variant of some metrics, which `choose_variant` picks for their tasks."""
    rubrics: list[Rubric] = []
    for criterion in protocol.criteria:
        rubrics += [*protocol.variants(criterion), *([variants[criterion]] if criterion in variants else [])]
    return replace(protocol, rubrics=tuple(rubrics))


RULES = (
    Rule(
        ORIENTATION,
        published="axes_to_modify",
        text="three_axes",
        values={
            "three_axes": "Orientation Alignment is the mean of the three axes (Appendix D.1).",
            "axes_to_modify": "Orientation Alignment is the mean of the axes that needed modification, and 0 if none did.",
        },
    ),
    Rule(
        GATES,
        published="as_answered",
        text="enforced",
        values={
            "enforced": "Physical lighting counts only if the direction is 1, placement in the wind only if identity is 1.",
            "as_answered": "Physical lighting and placement in the wind count as answered.",
        },
    ),
    Rule(
        BILLIARDS,
        published="no_root",
        text="root",
        values={
            "root": "Billiards is the square root of context times the mean of path and collision (Equation 7).",
            "no_root": "Billiards is context times the mean of path and collision.",
        },
    ),
    Rule(
        ROUNDING,
        published="steps",
        text="none",
        values={
            "none": "Nothing is rounded.",
            "steps": "Metrics and edits are rounded to 4 digits, the scores of a run to 2, means over runs to 2, variances to 4.",
        },
    ),
    Rule(
        DRAFT,
        published="sketch",
        text="deictic",
        values={
            "deictic": "Draft Instantiation is asked the questions of the Deictic tasks (Appendix D.1).",
            "sketch": "Draft Instantiation is asked for the match with the sketch, 0, 0.5 or 1.",
        },
        asks={"sketch": ask_about_sketches},
    ),
    Rule(
        MARKS,
        published="allowed",
        text="artifact",
        values={
            "artifact": "Marks that are left over are an artifact in every task (Table 10).",
            "allowed": "Marks that are left over are an artifact in every task but Addition.",
        },
        asks={"allowed": allow_marks_in_additions},
    ),
    Rule(
        PICTURE,
        published="annotated",
        text="source",
        values={
            "source": "Identity and Visual Integrity of Reorientation are judged with the picture before editing (Table 28).",
            "annotated": "Identity and Visual Integrity of Reorientation are judged with the annotated picture.",
        },
        asks={"annotated": show_annotated_picture},
    ),
)
KEYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "instruction_adherence": (
        "Instruction_Adherence",
        {
            "localization": "Visual_Instruction_Localization_Correctness",
            "operation": "Visual_Operator_Type_Compliance",
            "action": "Textual_Action_Semantic_Compliance",
        },
    ),
    "contextual_preservation": ("Contextual_Preservation", {}),
    "visual_coherence": (
        "Visual_Coherence",
        {"style": "Style_Consistency", "seams": "Visual_Seamlessness", "artifacts": "Artifact-Free_Generation"},
    ),
    "pose_consistency": ("Pose_Consistency", {}),
    "body_identity_context": (
        "BII_CIC_CP",
        {
            "body": "Body Instance Integrity",
            "identity": "Character Identity Consistency",
            "context": "Context Preservation",
        },
    ),
    "orientation_alignment": ("Orientation_Alignment", {"yaw": "Yaw", "pitch": "Pitch", "roll": "Roll"}),
    "reorientation_preservation": (
        "Reorientation_Contextual_Preservation",
        {"identity": "Identity_Consistency", "integrity": "Visual_Integrity"},
    ),
    "lighting_direction": (
        "Light_Direction_Consistency",
        {"direction": "Direction_Matching_Consistency", "physics": "Physical_Lighting_Consistency"},
    ),
    "wind_direction": ("Wind_Direction_Consistency", {}),
    "wind_preservation": (
        "Wind_Contextual_Preservation",
        {"identity": "Wind-Identity_Preservation", "placement": "Wind-Other_Preservation"},
    ),
    "billiards": (
        "Billiards",
        {"context": "Context_Preservation", "path": "Path_Correctness", "collision": "Collision_Correctness"},
    ),
}
"""Keys of the script's summaries for metrics and, if it prints them, for their checks."""
WORDS: Mapping[str, float | None] = {"MATCH": 1.0, "MISMATCH": 0.0, "N/A": None, "yes": 1.0, "no": 0.0}
"""Values of answers that are not numbers."""
GATED: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    rubric.criterion: {check.key: check.only_if for check in rubric.answer.checks if check.only_if}
    for rubric in VIBE.rubrics
    if isinstance(rubric.answer, ChecksAnswer)
}
"""Conditions of gated checks, by metric and check."""
SCORE = "score"
TITLE = "VIBE by the rules of its public script"
ROUNDS = 1e-12
"""What the script adds before it rounds."""


Runs = Sequence[float | None]
"""The value of each run; None for a run without one."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the scores of tasks and levels, then for every task the summary that the script writes, and its single runs."""
    summaries = {
        model: {task: _summarize(own, choices) for task, own in _group_by_task(edits).items()}
        for model, edits in models.items()
    }
    yield PublishedTable(
        TITLE,
        (*_OVERVIEW, *SEVERAL.values()),
        {model: _build_overview(summary, choices) for model, summary in summaries.items()},
        describe_concerned({model: _count_changed(edits, choices) for model, edits in models.items()}, "edit"),
        tuple(sentence for model, edits in models.items() for sentence in _find_limits(model, edits)),
        ("The script prints neither levels nor an overall score; here they are means as in Table 1.",),
    )
    for task in (*NAMES, *SEVERAL.values()):
        own = {model: summary[task] for model, summary in summaries.items() if task in summary}
        if own:
            yield _build_summary(task, own, choices)


def _build_overview(summary: Mapping[str, Mapping[str, Runs]], choices: Choices) -> list[Cell]:
    means = {task: _average_runs(own[SCORE], choices)[0] for task, own in summary.items()}
    cells: list[Cell] = []
    levels: list[float | None] = []
    for tasks in LEVELS.values():
        values = [means.get(task) for task in tasks]
        levels.append(None if None in values else mean(values))
        cells += [*values, levels[-1]]
    return [*cells, mean(levels), *(means.get(task) for task in SEVERAL.values())]


_OVERVIEW = (*(name for level, tasks in LEVELS.items() for name in (*tasks, f"{level} Avg")), "Overall")
"""Columns of the overview except for several tasks at once."""


def _build_summary(task: str, summaries: Mapping[str, Mapping[str, Runs]], choices: Choices) -> PublishedTable:
    """Return a task's table: every key of the script's summary with mean, variance and single runs."""
    keys = list(dict.fromkeys(key for summary in summaries.values() for key in summary))
    number = max(len(runs) for summary in summaries.values() for runs in summary.values())
    ends = ("", " variance", *(f" run {run}" for run in range(1, number + 1)))
    rows: dict[str, list[Cell]] = {}
    for model, summary in summaries.items():
        rows[model] = []
        for key in keys:
            runs = [*summary[key], *([None] * (number - len(summary[key])))]
            rows[model] += [*_average_runs(runs, choices), *runs]
    title = f"{TITLE}, {NAMES.get(task, task).replace(' ', '_')}"
    return PublishedTable(title, tuple(f"{key}{end}" for key in keys for end in ends), rows)


def _average_runs(runs: Runs, choices: Choices) -> tuple[float | None, float | None]:
    """Return the mean of the runs and their variance (n − 1), which the script gives as 0 for a single run."""
    values = [value for value in runs if value is not None]
    if not values:
        return None, None
    rounds = choices[ROUNDING] == "steps"
    spread = variance(values) if len(values) > 1 else 0.0
    return _round(fmean(values), 2 if rounds else None), _round(spread, 4 if rounds else None)


def _count_changed(edits: Sequence[RawEdit], choices: Choices) -> dict[str, int]:
    """Return how many edits have another score, or another metric, under another value of each rule, by its name."""
    counts: Counter[str] = Counter()
    rules = [rule for rule in RULES if not rule.asks and rule.name != ROUNDING]
    for task, own in _group_by_task(edits).items():
        names = formula.list_names(find_formula(task))
        for rule in rules:
            others = [{**choices, rule.name: value} for value in rule.values if value != choices[rule.name]]
            changed = {
                edit.edit.id
                for edit in own
                if any(_score_edit(edit, names, other) != _score_edit(edit, names, choices) for other in others)
            }
            counts[rule.name] += len(changed)
    return counts


def _find_limits(model: str, edits: Sequence[RawEdit]) -> Iterable[str]:
    """Yield what the script would have made of verdicts that it cannot read."""
    answers = [(name, answer) for edit in edits for name, answer in edit.answers.items()]
    unjudged = sum(answer.status == "unjudged" for _, answer in answers)
    half = sum(name == "lighting_direction" and answer.checks.get("direction") == "0.5" for name, answer in answers)
    flags = [answer.checks.keys() for name, answer in answers if name == "orientation_alignment" and answer.checks]
    if unjudged:
        yield (
            f"{model}: {number_of(unjudged, 'verdict')} {verb(unjudged, 'is', 'are')} unjudged and left out; the script asks "
            "51 times for a reply that it can read and then ends the whole task."
        )
    if half:
        yield (
            f"{model}: {number_of(half, 'verdict')} on the direction of light {verb(half, 'is', 'are')} 0.5, as the text allows; "
            "the script refuses that like an unreadable reply."
        )
    if lacking := sum("yaw_needs_modification" not in keys for keys in flags):
        yield (
            f"{model}: {number_of(lacking, 'verdict')} on Orientation Alignment {verb(lacking, 'does', 'do')} not say which axes "
            "needed modification; an earlier version did not ask."
        )


def _group_by_task(edits: Sequence[RawEdit]) -> dict[str, list[RawEdit]]:
    """Return the edits of each task; edits of several tasks are one task by their number, as in the script's files."""
    groups: dict[str, list[RawEdit]] = {}
    for edit in edits:
        if task := find_or_none(find_task, edit.edit):
            groups.setdefault(SEVERAL.get(str(count_tasks(task)), task), []).append(edit)
    return groups


def _summarize(edits: Sequence[RawEdit], choices: Choices) -> dict[str, list[float | None]]:
    """Return the means of every run, 0 to 100, by the keys of the script's summaries."""
    repeats = sorted({edit.repeat for edit in edits})
    names = formula.list_names(find_formula(find_task(edits[0].edit)))
    keys = [SCORE]
    for name in names:
        title, checks = KEYS[name]
        keys += [title, *(f"{title}/{check}" for check in checks.values())]
    by_run: list[dict[str, list[float]]] = []
    for repeat in repeats:
        values: dict[str, list[float]] = {}
        for edit in edits:
            if edit.repeat == repeat:
                for key, value in _score_edit(edit, names, choices).items():
                    values.setdefault(key, []).append(value)
        by_run.append(values)
    digits = 2 if choices[ROUNDING] == "steps" else None
    return {key: [_round(100 * fmean(run[key]), digits) if run.get(key) else None for run in by_run] for key in keys}


def _score_edit(edit: RawEdit, names: Sequence[str], choices: Choices) -> dict[str, float]:
    """Return the score of an edit in one run, its metrics and their checks, 0 to 1; what is not known is left out."""
    digits = 4 if choices[ROUNDING] == "steps" else None
    scores: dict[str, float] = {}
    metrics: list[float | None] = []
    for name in names:
        title, titles = KEYS[name]
        if name == "visual_coherence" and metrics[0] == 0:  # Section 2.3; the script does not ask then
            metrics.append(0.0)
            scores[title] = 0.0
            continue
        answer = edit.answers.get(name)
        value, checks = _score_metric(name, answer, choices) if answer and answer.status == "judged" else (None, {})
        metrics.append(None if value is None else _round(value, digits))
        if (metric := metrics[-1]) is not None:
            scores[title] = metric
            scores |= {f"{title}/{titles[key]}": number for key, number in checks.items() if key in titles}
    shares = [metric for metric in metrics if metric is not None]
    if len(shares) == len(names):
        geometric = math.exp(fmean(map(math.log, shares))) if all(shares) else 0.0
        scores[SCORE] = _round(geometric, digits)
    return scores


def _score_metric(name: str, answer: RawAnswer, choices: Choices) -> tuple[float | None, dict[str, float]]:
    """Return a metric, 0 to 1, and the values of its checks that apply."""
    if not answer.checks:
        return answer.value, {}
    numbers = {key: _read_number(text) for key, text in answer.checks.items()}
    if choices[GATES] == "enforced":
        for key, conditions in GATED[name].items():
            if any(answer.checks.get(other) != value for other, value in conditions.items()):
                numbers[key] = 0.0
    checks = {key: number for key, number in numbers.items() if number is not None}
    if name == "billiards":
        share = checks["context"] * (checks["path"] + checks["collision"]) / 2
        return (math.sqrt(share) if choices[BILLIARDS] == "root" else share), checks
    if name == "orientation_alignment":
        axes = {key: checks[key] for key in KEYS[name][1]}
        if choices[ORIENTATION] == "three_axes":
            return fmean(axes.values()), checks
        flags = {key: checks.get(f"{key}_needs_modification") for key in axes}
        if None in flags.values():
            return None, checks
        to_modify = [value for key, value in axes.items() if flags[key]]
        return (fmean(to_modify) if to_modify else 0.0), checks
    return (fmean(checks.values()) if checks else 0.0), checks


def _read_number(text: object) -> float | None:
    return WORDS[str(text)] if str(text) in WORDS else float(str(text))


def _round(value: float, digits: int | None) -> float:
    return value if digits is None else round(value + ROUNDS, digits)


PUBLISHED = Published(
    source="github.com/hwanyu112/VIBE-Benchmark at 085957c: pipeline/run_eval.py, evaluator.py and metrics/registry.py",
    rules=RULES,
    tables=compute_tables,
    reads_checks=True,
)
