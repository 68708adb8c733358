"""EditReward-Compass's rules: a pair is right if the winner scores strictly higher, or for a tie if the scores are equal."""

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
    """Return the paper's Table 5: IA, VC, VQ and AVG by method."""
    rows = load_bundled_yaml(files(__package__) / "published.yaml")
    return {str(method): tuple(row) for method, row in rows.items()}


PAIRWISE: Mapping[str, str] = {
    "IA": "pair_instruction_awareness",
    "VC": "pair_visual_consistency",
    "VQ": "pair_visual_quality",
}
"""Dimensions and the criteria both candidates are asked at once."""


def find_dimension(edit: Edit) -> str | None:
    """Return the dimension a pair is about; None where the edit names none, which means all of them."""
    said = edit.extra.get("dimension")
    if said is None:
        return None
    if not isinstance(said, str) or said not in PAIRWISE:
        raise MissingInput(f'edit {edit.id}: the dimension must be one of {", ".join(PAIRWISE)}, not "{said}"')
    return str(said)


def is_pair(edit: Edit) -> bool:
    """True where both candidates are to be judged in one question."""
    return bool(edit.more_images.get("candidate_a") and edit.more_images.get("candidate_b"))


def choose_variant(edit: Edit, variants: Sequence[Rubric]) -> Rubric | None:
    """Pick the question of the pair's dimension, or Edit-Compass's questions of that dimension for a single candidate."""
    criterion, dimension = variants[0].criterion, find_dimension(edit)
    if criterion in PAIRWISE.values():
        wanted = [PAIRWISE[dimension]] if dimension else list(PAIRWISE.values())
        return variants[0] if is_pair(edit) and criterion in wanted else None
    if is_pair(edit) or (dimension and criterion not in compass.DIMENSIONS[dimension]):
        return None
    return tasks.choose_variant(edit, variants)


def score_candidate(edit: Edit, scores: Mapping[str, float]) -> float | None:
    """Return a candidate's reward, 0 to 100: its dimension's score, or the overall where no dimension is named."""
    dimension = find_dimension(edit)
    if is_pair(edit):
        given = [scores[name] for name in PAIRWISE.values() if name in scores]
        return sum(given) / len(given) if given else None
    if dimension is None:
        return compass.score_item(edit, scores)
    wanted = [name for name in compass.DIMENSIONS[dimension] if tasks.is_asked(edit, name)]
    if not wanted or not all(name in scores for name in wanted):
        return None
    return sum(scores[name] for name in wanted) / len(wanted)


def find_unknown(edit: Edit) -> str | None:
    """Say which metrics of a candidate's dimension cannot be known; None where all of them can.

    A task that the paper does not have raises MissingInput.
    """
    dimension = find_dimension(edit)
    open_ = tasks.find_undecided(edit, compass.DIMENSIONS[dimension] if dimension else tuple(tasks.FLAGS))
    if not open_:
        return None
    flags = " and ".join(f'"{tasks.FLAGS[name]}"' for name in open_)
    return (
        f'nothing tells which metrics of {dimension} it is asked: give its "task", or {flags} as true or false, '
        "or paths with the task's folder, such as Part3/Chemical/1.png"
    )


def find_assumption(edit: Edit) -> str | None:
    """Say that a candidate is taken not to be asked Identity Consistency where only its task speaks against it.

    The paper names two tasks that are asked it and leaves the others to the items' booleans (Appendix D).
    """
    flag, task = edit.extra.get(tasks.FLAGS[tasks.IC]), tasks.find_task(edit)
    if find_dimension(edit) != "VC" or isinstance(flag, bool) or task in tasks.IDENTITY_TASKS:
        return None
    named = " and ".join(tasks.IDENTITY_TASKS)
    return f'no "IC" is given and {task} is not a task the paper names for it ({named}): identity is not asked'


PAIRS = PairRules(
    PAIRWISE,
    criteria={name: {one: tasks.FLAGS[one] for one in metrics} for name, metrics in compass.DIMENSIONS.items()},
    kept=("edit_type", "sub_type"),
    flags=tuple(tasks.FLAGS.values()),
    same=1e-5,
    table="EditReward-Compass, Table 5: share of pairs put in people's order",
    titles={"IA": "Instruction Awareness", "VC": "Visual Consistency", "VQ": "Visual Quality"},
    published=read_published_rows(),
    task_of=tasks.find_task_of_item,
    unmarked=tasks.find_unmarked_source,
    unknown=find_unknown,
    assumed=find_assumption,
)
"""Scores are equal that differ by less than the public script's 1e-5."""
