"""WiseEdit: metrics by task, wordings by inputs, 1 to 10 to 0 to 100, averages as published."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editloupe.agent.replies.answers import parse_reply
from editloupe.rubrics.model import NumberAnswer
from editloupe.rubrics.wiseedit import METRICS, MISSING, WISEEDIT, find_task, settle_missing
from editloupe.types import Edit

PUBLISHED = """
MagicBrush 27.2 43.4 53.3 27.1 37.8 | 18.0 36.9 44.8 22.3 30.5
Bagel 46.2 71.0 75.8 50.8 61.0 | 62.8 68.5 74.5 40.7 61.6
Nano-Banana 70.6 85.7 86.8 75.2 79.6 | 75.3 73.8 87.3 44.3 70.2
Seedream-4.0 70.8 78.1 86.6 74.6 77.5 | 82.2 77.8 86.9 47.0 73.5
GPT-image-1 78.5 85.8 88.0 81.2 83.3 | 84.4 76.2 89.2 48.4 74.6
Nano-Banana-Pro 85.4 88.6 83.9 91.4 87.3 | 86.6 79.5 88.8 51.5 76.6
"""
"""Table 5, all cases: IF DP VQ KF AVG of Awareness | IF DP VQ CF AVG of Imagination."""


def edit(kind: str | None, inputs: int = 1, **fields: object) -> Edit:
    more = {"inputs": tuple(Path(f"in{n}.png") for n in range(2, inputs + 1))} if inputs > 1 else {}
    values = {"source": Path("s.png"), "edited": Path("e.png"), "instruction": "x", "more_images": more, **fields}
    return Edit(instruction_type=kind, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "letters"),
    [
        ("Awareness", "IF DP VQ KF"),
        ("Interpretation", "IF DP VQ KF"),
        ("Imagination", "IF DP VQ CF"),
        ("WiseEdit-Complex", "IF DP VQ KF CF"),
    ],
)
def test_each_task_is_asked_its_own_metrics(task: str, letters: str) -> None:
    names = {"instruction_following": "IF", "detail_preserving": "DP", "visual_quality": "VQ"}
    names |= {"knowledge_fidelity": "KF", "creative_fusion": "CF"}
    assert [names[r.criterion] for r in WISEEDIT.rubrics_for(edit(task))] == letters.split()


@pytest.mark.parametrize(("inputs", "variant"), [(1, "single"), (2, "multi"), (5, "multi")])
def test_the_wording_follows_the_number_of_input_pictures(inputs: int, variant: str) -> None:
    chosen = {r.criterion: r.variant for r in WISEEDIT.rubrics_for(edit("WiseEdit-Complex", inputs))}
    assert chosen.pop("visual_quality") == ""
    assert set(chosen.values()) == {variant}


def test_a_task_may_be_spelt_loosely_but_must_be_known() -> None:
    assert find_task(edit("complex")) == find_task(edit("WISEEDIT_COMPLEX")) == "WiseEdit-Complex"
    with pytest.raises(Exception, match="which task of WiseEdit"):
        find_task(edit("Painting"))


@pytest.mark.parametrize(("number", "hundred"), [(1, 0), (2, 100 / 9), (5, 400 / 9), (10, 100)])
def test_a_number_from_1_to_10_becomes_0_to_100(number: int, hundred: float) -> None:
    for rubric in WISEEDIT.rubrics:
        assert isinstance(rubric.answer, NumberAnswer)
        given = parse_reply(f'{{"reason": "seen", "score": {number}}}', rubric.answer).answer
        assert given is not None
        assert given.score_100 == pytest.approx(hundred)


def test_the_bands_are_the_papers() -> None:
    for rubric in WISEEDIT.rubrics:
        assert isinstance(rubric.answer, NumberAnswer)
        assert [(b.low, b.high) for b in rubric.answer.bands] == [(9, 10), (7, 8), (5, 6), (3, 4), (1, 2)]


def test_a_cases_average_is_the_mean_of_its_tasks_metrics() -> None:
    scores = {"instruction_following": 100.0, "detail_preserving": 50.0, "visual_quality": 75.0}
    assert WISEEDIT.score_of(
        edit("Awareness"), {**scores, "knowledge_fidelity": 0.0, "creative_fusion": 9.0}
    ) == pytest.approx(56.25)
    assert WISEEDIT.score_of(edit("Imagination"), {**scores, "knowledge_fidelity": 0.0}) is None


@pytest.mark.parametrize("line", PUBLISHED.strip().splitlines())
def test_published_task_averages_come_out(line: str) -> None:
    name, *_ = line.split()
    for task, part in zip(("Awareness", "Imagination"), line.removeprefix(name).split("|"), strict=True):
        *metrics, published = (float(number) for number in re.findall(r"[\d.]+", part))
        mean = WISEEDIT.score_of(edit(task), dict(zip(METRICS[task], metrics, strict=True)))
        assert mean == pytest.approx(published, abs=0.08), (name, task)


@pytest.mark.long
@given(st.lists(st.floats(0, 100), min_size=5, max_size=5), st.sampled_from(list(METRICS)), st.floats(0, 100))
def test_an_average_is_bounded_and_grows_with_every_metric(values: list[float], task: str, more: float) -> None:
    scores = dict(zip(METRICS["WiseEdit-Complex"], values, strict=True))
    mean = WISEEDIT.score_of(edit(task), scores)
    assert mean is not None
    assert 0 <= mean <= 100
    for name in METRICS[task]:
        raised = WISEEDIT.score_of(edit(task), {**scores, name: max(more, scores[name])})
        assert raised is not None
        assert raised >= mean - 1e-9


def test_only_an_edit_marked_missing_is_settled_without_a_judge() -> None:
    rubric = WISEEDIT.rubrics[0]
    assert settle_missing(edit("Awareness"), rubric) is None
    assert settle_missing(edit("Awareness", extra={"output": "present"}), rubric) is None
    verdict = settle_missing(edit("Awareness", extra={"output": "missing"}), rubric)
    assert verdict is not None
    assert (verdict.label, verdict.score_100, verdict.usage.requests) == (MISSING, 0.0, 0)
