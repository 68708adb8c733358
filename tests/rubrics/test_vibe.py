"""VIBE: every formula by hand, gates, left-out limbs, bounds, and the published averages."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from editloupe.pictures.decode import Album
from editloupe.rubrics.model import ChecksAnswer
from editloupe.rubrics.vibe import FORMULAS, LEVELS, VIBE, apply_gates, find_formula, find_task, score_sample
from editloupe.types import Edit
from tests.drawn_pictures import save, textured

PUBLISHED = {
    "Nano Banana Pro": (
        (82.17, 94.07, 88.26, 74.80, 72.33, 36.04, 88.02, 60.34, 59.25, 15.92),
        (84.83, 65.46, 45.17),
        65.15,
    ),
    "Nano Banana": (
        (81.34, 93.50, 79.05, 46.53, 67.71, 33.45, 85.60, 34.75, 52.64, 1.87),
        (75.11, 62.25, 29.75),
        55.70,
    ),
    "GPT-image-1": (
        (55.61, 69.00, 62.63, 47.00, 64.39, 11.09, 77.32, 25.18, 39.48, 4.73),
        (58.56, 50.93, 23.13),
        44.21,
    ),
    "Seedream 4.5": (
        (81.24, 95.82, 81.82, 48.93, 66.79, 20.11, 82.33, 50.50, 45.55, 2.99),
        (76.95, 56.41, 33.01),
        55.46,
    ),
    "Wan 2.6": ((66.01, 92.90, 68.15, 40.95, 59.66, 34.89, 80.23, 44.46, 50.79, 9.08), (67.00, 58.26, 34.78), 53.35),
}
"""Table 1: AD RM RP TR PC RO DI LC FS BI, the three levels, overall."""


def edit(kind: str | None, **fields: object) -> Edit:
    return Edit(source=Path("s.png"), edited=Path("e.png"), instruction="x", instruction_type=kind, **fields)  # type: ignore[arg-type]


def total(criterion: str, variant: str = "", /, **answers: str) -> float | None:
    rubric = next(r for r in VIBE.variants(criterion) if r.variant in (variant, ""))
    assert isinstance(rubric.answer, ChecksAnswer)
    return rubric.answer.total(answers)


def score(kind: str, **metrics: float) -> float | None:
    return score_sample(edit(kind), {name: 100 * value for name, value in metrics.items()})


def test_metrics_are_means_of_their_checks() -> None:
    assert total("instruction_adherence", localization="1", operation="1", action="0") == pytest.approx(2 / 3)
    assert total("contextual_preservation", "marks", preserved="1") == 1
    assert total("visual_coherence", style="1", seams="0", artifacts="0") == pytest.approx(1 / 3)
    axes = {"yaw": "1", "pitch": "1", "roll": "0"}
    for flag in ("yes", "no"):  # which axes needed modification is reported and not scored (Table 26, step 5)
        flags = {f"{axis}_needs_modification": flag for axis in axes}
        assert total("orientation_alignment", **axes, **flags) == pytest.approx(2 / 3)
    assert total("reorientation_preservation", identity="1", integrity="0") == 0.5
    assert total("body_identity_context", body="1", identity="1", context="0") == pytest.approx(2 / 3)


def test_limbs_that_cannot_be_judged_are_left_out_of_the_mean() -> None:
    assert total("pose_consistency", left_arm="MATCH", right_arm="MISMATCH", left_leg="N/A", right_leg="N/A") == 0.5
    assert total("pose_consistency", left_arm="MATCH", right_arm="N/A", left_leg="N/A", right_leg="N/A") == 1.0
    nothing = dict.fromkeys(("left_arm", "right_arm", "left_leg", "right_leg"), "N/A")
    assert total("pose_consistency", **nothing) == 0.0, "a pose that shows nothing is not the one that was asked for"
    assert score("PC", body_identity_context=1.0) is None


def test_a_gated_check_counts_only_behind_its_gate() -> None:
    assert total("lighting_direction", direction="1", physics="1") == 1
    assert total("lighting_direction", direction="0.5", physics="1") == 0.25
    assert total("lighting_direction", direction="0", physics="1") == 0
    assert total("wind_preservation", identity="0", placement="1") == 0
    assert total("wind_preservation", identity="1", placement="1") == 1
    assert total("wind_direction", direction="0.5") == 0.5


def test_coherence_counts_nothing_where_nothing_was_adhered_to() -> None:
    assert apply_gates({"instruction_adherence": 0.0, "visual_coherence": 100.0}) == {
        "instruction_adherence": 0.0,
        "visual_coherence": 0.0,
    }
    assert apply_gates({"instruction_adherence": 33.0, "visual_coherence": 100.0})["visual_coherence"] == 100.0


@pytest.mark.parametrize(
    ("kind", "metrics", "by_hand"),
    [
        ("AD", {"instruction_adherence": 1, "contextual_preservation": 1, "visual_coherence": 1}, 100),
        ("RM", {"instruction_adherence": 2 / 3, "contextual_preservation": 1, "visual_coherence": 1 / 3}, 60.5707),
        ("TR", {"instruction_adherence": 1, "contextual_preservation": 0, "visual_coherence": 1}, 0),
        ("DI", {"instruction_adherence": 1 / 3, "contextual_preservation": 1, "visual_coherence": 1 / 3}, 48.0750),
        ("PC", {"pose_consistency": 0.75, "body_identity_context": 2 / 3}, 70.7107),
        ("RO", {"orientation_alignment": 1 / 3, "reorientation_preservation": 0.5}, 40.8248),
        ("LC", {"lighting_direction": 0.25, "contextual_preservation": 1}, 50),
        ("FS", {"wind_direction": 0.5, "wind_preservation": 0.5}, 50),
        ("BI", {"billiards": math.sqrt(0.5)}, 70.7107),
        ("AD+RM", {"instruction_adherence": 1, "contextual_preservation": 1, "visual_coherence": 1 / 3}, 69.3361),
    ],
)
def test_a_samples_score_by_hand(kind: str, metrics: dict[str, float], by_hand: float) -> None:
    assert score(kind, **metrics) == pytest.approx(by_hand, abs=1e-3)


@pytest.mark.parametrize(
    ("path", "collision", "context", "by_hand"),
    [(1, 1, 1, 1.0), (0, 1, 1, 0.70711), (1, 0, 1, 0.70711), (0, 0, 1, 0.0), (1, 1, 0, 0.0)],
)
def test_billiards_by_hand(path: int, collision: int, context: int, by_hand: float) -> None:
    found = total("billiards", path=str(path), collision=str(collision), context=str(context))
    assert found == pytest.approx(by_hand, abs=1e-5)


def test_every_answer_to_every_rubric_gives_a_score_between_0_and_1_or_none() -> None:
    for rubric in VIBE.rubrics:
        assert isinstance(rubric.answer, ChecksAnswer)
        for answers in itertools.product(*(check.values for check in rubric.answer.checks)):
            found = rubric.answer.total(dict(zip((c.key for c in rubric.answer.checks), answers, strict=True)))
            assert found is None or 0 <= found <= 1


@pytest.mark.long
@given(st.sampled_from(list(FORMULAS)), st.data())
def test_a_samples_score_is_bounded_grows_with_its_metrics_and_is_zero_where_one_is(
    kind: str, data: st.DataObject
) -> None:
    names = [rubric.criterion for rubric in VIBE.rubrics_for(edit(kind))]
    values = {name: data.draw(st.floats(0, 100)) for name in names}
    found = score_sample(edit(kind), values)
    assert found is not None
    assert -1e-9 <= found <= 100 + 1e-9
    for name in names:
        higher = score_sample(edit(kind), {**values, name: data.draw(st.floats(values[name], 100))})
        assert higher is not None
        assert higher >= found - 1e-6
        assert score_sample(edit(kind), {**values, name: 0.0}) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_levels_and_overall_come_out(model: str) -> None:
    tasks, levels, overall = PUBLISHED[model]
    by_task = dict(zip(VIBE.types, tasks, strict=True))
    means = [fmean(by_task[task] for task in names) for names in VIBE.levels]
    assert means == pytest.approx(levels, abs=0.011)
    assert fmean(levels) == pytest.approx(overall, abs=0.011)


def test_tasks_are_known_by_letters_or_by_name_and_deictic_ones_may_be_joined() -> None:
    assert find_task(edit("Pose Control")) == find_task(edit("pc")) == "PC"
    assert find_task(edit("Translation+removal + AD")) == "AD+RM+TR"
    for wrong in ("Painting", "AD+PC", ""):
        with pytest.raises(Exception, match="edit e"):
            find_task(edit(wrong))


def test_each_task_is_asked_the_metrics_of_its_formula() -> None:
    for kind in FORMULAS:
        chosen = VIBE.rubrics_for(edit(kind))
        assert {r.criterion for r in chosen} == {n for n in VIBE.criteria if n in find_formula(kind)}
    light = next(r for r in VIBE.rubrics_for(edit("LC")) if r.criterion == "contextual_preservation")
    assert light.variant == "light"
    assert {len(names) for names in LEVELS.values()} == {4, 3}
    assert VIBE.repeats == 3


def test_marks_that_come_as_a_layer_are_laid_over_the_original(tmp_path: Path) -> None:
    source = textured(80, 60)
    layer = np.zeros((30, 40, 4), np.uint8)
    layer[10:20, 10:20] = (255, 0, 0, 255)
    Image.fromarray(layer, "RGBA").save(tmp_path / "layer.png")
    sample = Edit(
        source=save(source, tmp_path / "s.png"),
        edited=save(source, tmp_path / "e.png"),
        instruction="x",
        instruction_type="AD",
        more_images={"layer": (tmp_path / "layer.png",)},
    )
    album, rubric = Album(), VIBE.rubric("instruction_adherence")
    (case,) = VIBE.make_cases(sample, rubric, "plain", album)
    marked = album[case.pictures["Annotated Image"]].pixels
    assert list(case.pictures) == ["Source Image", "Annotated Image", "Edited Image"]
    assert tuple(marked[30, 30]) == (255, 0, 0)
    assert (marked[5, 60] == source[5, 60]).all()
