"""EditReward-Compass, whose preference pairs evaluate reward models, and the numbers of its public script `eval.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from statistics import fmean

from editloupe.rubrics import editcompass as compass
from editloupe.rubrics.case_pictures import build_cases
from editloupe.rubrics.editcompass.paper import build_asked_rules
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.pairs import PairRules, is_pair, is_right
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.protocol import MissingInput, Protocol, average_of, find_variant
from editloupe.rubrics.published import Choices, Models, Published, PublishedTable, RawEdit, Rule, describe_concerned
from editloupe.rubrics.rubric_files import load_bundled_yaml, load_rubrics
from editloupe.rubrics.tables import Cell
from editloupe.types import Edit

__all__ = ["EDITREWARD_COMPASS", "PAPER"]


def read_published_rows() -> Mapping[str, tuple[float | None, ...]]:
    """Return the paper's Table 5, which has IA, VC, VQ and AVG per method."""
    rows = load_bundled_yaml(files(__package__) / "published.yaml")
    return {str(method): tuple(row) for method, row in rows.items()}


PAIRWISE: Mapping[str, str] = {
    "IA": "pair_instruction_awareness",
    "VC": "pair_visual_consistency",
    "VQ": "pair_visual_quality",
}
"""Criterion per dimension that compares both candidates in one question."""


def find_dimension(edit: Edit) -> str | None:
    """Return the dimension of a pair, or None for all dimensions if the edit does not name one."""
    dimension = edit.extra.get("dimension")
    if dimension is None:
        return None
    if not isinstance(dimension, str) or dimension not in PAIRWISE:
        raise MissingInput(f'edit {edit.id}: the dimension must be one of {", ".join(PAIRWISE)}, not "{dimension}"')
    return str(dimension)


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the question of the pair's dimension, or Edit-Compass's question if the edit is a single candidate."""
    criterion, dimension = variants[0].criterion, find_dimension(edit)
    if criterion in PAIRWISE.values():
        criteria = [PAIRWISE[dimension]] if dimension else list(PAIRWISE.values())
        return variants[0] if is_pair(edit) and criterion in criteria else None
    if is_pair(edit) or criterion not in list_metrics(edit, dimension):
        return None
    return find_variant(variants, "other" if find_lacking(edit) else compass.find_family(edit), "other")


def list_metrics(edit: Edit, dimension: str | None) -> list[str]:
    """Return the metrics of a candidate in a dimension, or in all if none is named.

    People compared the candidates of a pair in its dimension. If none of its metrics applies to the task, such as those of VC
    to style transfer, the first is asked, unless the pair's boolean rules it out.
    """
    names = compass.DIMENSIONS[dimension] if dimension else tuple(compass.FLAGS)
    metrics = [name for name in names if compass.is_asked(edit, name)]
    return metrics or [name for name in names[:1] if edit.extra.get(compass.FLAGS[name]) is not False]


PICTURES: Mapping[str, str] = {"complex_paint": "annotated", "multi_image": "references"}
"""Families of wordings that show further pictures, and the role of these."""


def find_lacking(edit: Edit) -> str | None:
    """Return the role of pictures that a candidate's wordings show and its pair does not have, or None.

    The public script shows source and candidate alone (EditReward-Compass/eval.py), so its files need not have others.
    """
    role = PICTURES.get(compass.find_family(edit))
    return role if role and not edit.more_images.get(role) and not (role == "references" and edit.reference) else None


def score_candidate(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a candidate's reward, 0 to 100: the score of its dimension, or the overall score if none is named."""
    dimension = find_dimension(edit)
    if is_pair(edit):
        judged = [scores[name] for name in PAIRWISE.values() if name in scores]
        return sum(judged) / len(judged) if judged else None
    if dimension is None:
        return compass.score_item(edit, scores)
    return average_of(list_metrics(edit, dimension))(edit, scores)


def find_unknown(edit: Edit) -> str | None:
    """Return a sentence on metrics that may or may not apply to a candidate, or None if that is decided for all.

    Raises:
        MissingInput: If the paper does not have the candidate's task.
    """
    dimension = find_dimension(edit)
    open_ = compass.find_undecided(edit, compass.DIMENSIONS[dimension] if dimension else tuple(compass.FLAGS))
    if not open_:
        return None
    flags = " and ".join(f'"{compass.FLAGS[name]}"' for name in open_)
    return (
        f'it is unknown which metrics of {dimension} apply: add its "task", or {flags} as true or false, '
        "or use paths with the task's folder, such as Part3/Chemical/1.png; --task and --flags hold for all pairs that lack it"
    )


def find_assumption(edit: Edit) -> str | None:
    """Return a sentence on metrics and wordings that are assumed for a candidate, or None if nothing is.

    Identity Consistency is assumed not to apply: the paper names two tasks that it applies to and leaves the others to a
    boolean per item (Appendix D). Without the further pictures of its task, a candidate is judged by source and instruction.
    """
    flag, task, sentences = edit.extra.get(compass.FLAGS[compass.IC]), compass.find_task(edit), []
    dimension = find_dimension(edit)
    if dimension == "VC" and not isinstance(flag, bool) and task not in compass.IDENTITY_TASKS:
        tasks = " and ".join(compass.IDENTITY_TASKS)
        sentences.append(
            f'identity is not judged: "IC" is missing and the task is not one that the paper names for it ({tasks})'
        )
    if dimension and (metrics := list_metrics(edit, dimension)) and not compass.is_asked(edit, metrics[0]):
        sentences.append(f"{dimension} of {task} is judged by {metrics[0]}, which is not asked of that task elsewhere")
    if dimension != "VQ" and (role := find_lacking(edit)):
        sentences.append(f"{task} without {role} pictures is judged by source and instruction, as in the public script")
    return "; ".join(sentences) or None


PAIRS = PairRules(
    PAIRWISE,
    criteria={
        name: {metric: compass.FLAGS[metric] for metric in metrics} for name, metrics in compass.DIMENSIONS.items()
    },
    kept=("edit_type", "sub_type"),
    flags=tuple(compass.FLAGS.values()),
    tasks=compass.TASKS,
    same=1e-5,
    table="EditReward-Compass, Table 5: share of pairs put in people's order",
    titles={"IA": "Instruction Awareness", "VC": "Visual Consistency", "VQ": "Visual Quality"},
    published=read_published_rows(),
    task_of=compass.find_task_of_item,
    unmarked=compass.find_unmarked_source,
    unknown=find_unknown,
    assumed=find_assumption,
)
"""Scores that differ by less than 1e-5 are equal, as in the public script."""


NAME = "editreward-compass"

EDITREWARD_COMPASS = Protocol(
    name=NAME,
    title="EditReward-Compass",
    source=compass.EDIT_COMPASS.source,
    rubrics=(
        *(rubric.model_copy(update={"protocol": NAME}) for rubric in compass.EDIT_COMPASS.rubrics),
        *load_rubrics(files(__package__), ("pairs",)),
    ),
    default_mode="plain",
    make_cases=build_cases,
    types=compass.TASKS,
    type_of=compass.find_task,
    choose=choose_variant,
    edit_score=score_candidate,
    weighting="edits",
    arithmetic=(
        "A candidate's reward is the mean of its dimension's metrics; a pair is right if the winner's reward is strictly higher, "
        "a tie if the rewards are equal; accuracy is the share of right pairs, by dimension and overall. Asked in pairs, both "
        "orders are asked; orders that contradict each other make a pair wrong."
    ),
    formulas={
        "IA": "mean(instruction_following, world_awareness), those that apply",
        "VC": "mean(unedited_region_consistency, identity_consistency), those that apply",
        "VQ": "visual_quality",
        "preference": "right if reward(winner) > reward(loser)",
        "tie": "right if reward(winner) = reward(loser)",
        "overall": "right pairs / judged pairs, over all dimensions",
    },
    pairs=PAIRS,
)

AVERAGE, MISSING = (f"editreward.{name}" for name in ("average", "missing_score"))
RULES = (
    Rule(
        AVERAGE,
        published="none",
        text="pairs",
        values={
            "none": "The script prints no average.",
            "pairs": "AVG is the share of right pairs over all judged pairs, which fits Table 5.",
            "dimensions": "AVG is the mean over the dimensions.",
        },
    ),
    Rule(
        MISSING,
        published="crash",
        text="leave_out",
        values={
            "crash": "A pair without both scores stops the script, which then prints nothing.",
            "leave_out": "A pair without both scores is left out.",
        },
    ),
    *build_asked_rules("editreward"),
)
PairOf = tuple[str, str, str]
"""File, id and dimension of a pair."""


def compute_tables(models: Models, choices: Choices) -> Iterable[PublishedTable]:
    """Yield the table of `eval.py`: accuracy, right pairs and pairs by dimension."""
    columns = tuple(f"{name}{suffix}" for name in compass.DIMENSIONS for suffix in ("", " correct", " total"))
    rows: dict[str, Sequence[Cell]] = {}
    incomplete: dict[str, Mapping[str, int]] = {}
    stopped, notes = [], []
    for model, edits in models.items():
        results = _decide(edits)
        empty = [name for name, own in results.items() if own and all(result is None for result in own)]
        if any(own for name, own in results.items() if name not in empty):
            results |= {name: [] for name in empty}
            notes += [
                f"{model}: no pair of {name} has both scores; the script is then run without --dim {name}."
                for name in empty
            ]
        unjudged = sum(result is None for own in results.values() for result in own)
        incomplete[model] = {MISSING: unjudged}
        if unjudged and choices[MISSING] == "crash":
            stopped.append(f"{model}: the script stops at a pair without both scores and prints nothing.")
        elif any(results.values()):
            rows[model] = _build_row(results, choices)
    if rows or stopped:
        yield PublishedTable(
            "EditReward-Compass by the rules of its public script",
            columns if choices[AVERAGE] == "none" else (*columns, "AVG"),
            rows,
            concerned=describe_concerned(incomplete, "pair"),
            irreproducible=tuple(stopped),
            notes=tuple(notes),
        )


def _build_row(results: dict[str, list[bool | None]], choices: Choices) -> Sequence[Cell]:
    cells: list[Cell] = []
    shares, judged = [], []
    for own in results.values():
        right = [result for result in own if result is not None]
        judged += right
        if right:
            shares.append(fmean(right))
        cells += [shares[-1], sum(right), len(right)] if right else [None, None, None]
    if choices[AVERAGE] != "none":
        cells.append(fmean(judged if choices[AVERAGE] == "pairs" else shares) if judged else None)
    return cells


def _decide(edits: Sequence[RawEdit]) -> dict[str, list[bool | None]]:
    """Return by dimension whether each pair of candidates is right; None if a score is missing."""
    scores: dict[PairOf, dict[str, float | None]] = {}
    labels: dict[PairOf, str] = {}
    for edit in edits:
        for member in edit.edit.extra.get("pairs", ()) if not is_pair(edit.edit) else ():
            dimension = str(member["dimension"])
            pair = (str(member.get("file")), str(member["id"]), dimension)
            scores.setdefault(pair, {})[str(member["role"])] = _score(edit, dimension)
            labels[pair] = str(member["label"])
    results: dict[str, list[bool | None]] = {name: [] for name in compass.DIMENSIONS}
    for pair, sides in scores.items():
        winner, loser = sides.get("winner"), sides.get("loser")
        if winner is None or loser is None:
            results[pair[2]].append(None)
        else:
            results[pair[2]].append(is_right(PAIRS.by_scores(winner, loser), labels[pair]))
    return results


def _score(edit: RawEdit, dimension: str) -> float | None:
    """Return a candidate's score of a dimension, or None if a metric that applies has no verdict."""
    scores = edit.values(list_metrics(edit.edit, dimension))
    return compass.score_dimension(dimension, scores) if scores else None


PUBLISHED = Published(
    source="github.com/bxhsort/Edit-Compass-and-EditReward-Compass at 6ee6caa: EditReward-Compass/eval.py",
    rules=RULES,
    tables=compute_tables,
)


PAPER = Paper(EDITREWARD_COMPASS, published=PUBLISHED)
"""Pairs are judged by `editloupe reward`. Table 5 has one row of accuracies per judge."""
