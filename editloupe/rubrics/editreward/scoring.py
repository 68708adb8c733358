"""EditReward-Compass's dimensions, rewards of candidates and rules for pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from editloupe.rubrics.editcompass import scoring as compass
from editloupe.rubrics.editcompass import tasks
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.rubric_files import load_bundled_yaml
from editloupe.types import Edit


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


def is_pair(edit: Edit) -> bool:
    """Return whether an edit has two candidates that are compared in one question."""
    return bool(edit.more_images.get("candidate_a") and edit.more_images.get("candidate_b"))


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Return the question of the pair's dimension, or Edit-Compass's question if the edit is a single candidate."""
    criterion, dimension = variants[0].criterion, find_dimension(edit)
    if criterion in PAIRWISE.values():
        wanted = [PAIRWISE[dimension]] if dimension else list(PAIRWISE.values())
        return variants[0] if is_pair(edit) and criterion in wanted else None
    if is_pair(edit) or criterion not in list_metrics(edit, dimension):
        return None
    return tasks.find_variant(variants, "other" if find_lacking(edit) else tasks.find_family(edit))


def list_metrics(edit: Edit, dimension: str | None) -> list[str]:
    """Return the metrics of a candidate in a dimension, or in all if none is named.

    People compared the candidates of a pair in its dimension. If none of its metrics applies to the task, such as those of VC
    to style transfer, the first is asked, unless the pair's boolean rules it out.
    """
    names = compass.DIMENSIONS[dimension] if dimension else tuple(tasks.FLAGS)
    metrics = [name for name in names if tasks.is_asked(edit, name)]
    return metrics or [name for name in names[:1] if edit.extra.get(tasks.FLAGS[name]) is not False]


PICTURES: Mapping[str, str] = {"complex_paint": "annotated", "multi_image": "references"}
"""Families of wordings that show further pictures, and the role of these."""


def find_lacking(edit: Edit) -> str | None:
    """Return the role of pictures that a candidate's wordings show and its pair does not have, or None.

    The public script shows source and candidate alone (EditReward-Compass/eval.py), so its files need not have others.
    """
    role = PICTURES.get(tasks.find_family(edit))
    return role if role and not edit.more_images.get(role) and not (role == "references" and edit.reference) else None


def score_candidate(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a candidate's reward, 0 to 100: the score of its dimension, or the overall score if none is named."""
    dimension = find_dimension(edit)
    if is_pair(edit):
        judged = [scores[name] for name in PAIRWISE.values() if name in scores]
        return sum(judged) / len(judged) if judged else None
    if dimension is None:
        return compass.score_item(edit, scores)
    wanted = list_metrics(edit, dimension)
    if not wanted or not all(name in scores for name in wanted):
        return None
    return sum(scores[name] for name in wanted) / len(wanted)


def find_unknown(edit: Edit) -> str | None:
    """Return a sentence on metrics that may or may not apply to a candidate, or None if that is decided for all.

    Raises:
        MissingInput: If the paper does not have the candidate's task.
    """
    dimension = find_dimension(edit)
    open_ = tasks.find_undecided(edit, compass.DIMENSIONS[dimension] if dimension else tuple(tasks.FLAGS))
    if not open_:
        return None
    flags = " and ".join(f'"{tasks.FLAGS[name]}"' for name in open_)
    return (
        f'it is unknown which metrics of {dimension} apply: add its "task", or {flags} as true or false, '
        "or use paths with the task's folder, such as Part3/Chemical/1.png; --task and --flags hold for all pairs that lack it"
    )


def find_assumption(edit: Edit) -> str | None:
    """Return a sentence on metrics and wordings that are assumed for a candidate, or None if nothing is.

    Identity Consistency is assumed not to apply: the paper names two tasks that it applies to and leaves the others to a
    boolean per item (Appendix D). Without the further pictures of its task, a candidate is judged by source and instruction.
    """
    flag, task, sentences = edit.extra.get(tasks.FLAGS[tasks.IC]), tasks.find_task(edit), []
    dimension = find_dimension(edit)
    if dimension == "VC" and not isinstance(flag, bool) and task not in tasks.IDENTITY_TASKS:
        named = " and ".join(tasks.IDENTITY_TASKS)
        sentences.append(
            f'identity is not judged: "IC" is missing and the task is not one that the paper names for it ({named})'
        )
    if dimension and (metrics := list_metrics(edit, dimension)) and not tasks.is_asked(edit, metrics[0]):
        sentences.append(f"{dimension} of {task} is judged by {metrics[0]}, which is not asked of that task elsewhere")
    if dimension != "VQ" and (role := find_lacking(edit)):
        sentences.append(f"{task} without {role} pictures is judged by source and instruction, as in the public script")
    return "; ".join(sentences) or None


PAIRS = PairRules(
    PAIRWISE,
    criteria={
        name: {metric: tasks.FLAGS[metric] for metric in metrics} for name, metrics in compass.DIMENSIONS.items()
    },
    kept=("edit_type", "sub_type"),
    flags=tuple(tasks.FLAGS.values()),
    tasks=tasks.TASKS,
    same=1e-5,
    table="EditReward-Compass, Table 5: share of pairs put in people's order",
    titles={"IA": "Instruction Awareness", "VC": "Visual Consistency", "VQ": "Visual Quality"},
    published=read_published_rows(),
    task_of=tasks.find_task_of_item,
    unmarked=tasks.find_unmarked_source,
    unknown=find_unknown,
    assumed=find_assumption,
)
"""Scores that differ by less than 1e-5 are equal, as in the public script."""
