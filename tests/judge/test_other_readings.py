"""Where a paper contradicts itself, the reading that is not the default can be chosen, as docs/reference/protocols.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe import Edit, Judge, JudgeSettings, Verdict
from editloupe.cli.main import run
from editloupe.graphs import edival
from editloupe.judge.settings import find_setup
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, save
from tests.evals.edival import stand_ins
from tests.scripted import Request, ScriptedServer, final

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent.parent
ANNOTATORS = ROOT / "examples" / "annotators_rule.yaml"
PROTOCOLS = (ROOT / "docs" / "reference" / "protocols.md").read_text("utf-8")
ELSEWHERE = "affects something outside the target"
NOT_ELSEWHERE = "Damage elsewhere and the general quality of the picture belong to other criteria"
IF, VC = "instruction_following", "visual_consistency"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(
        source=before,
        edited=after,
        reference=after,
        instruction="Change the color of the patch to red",
        target_boxes=((60, 40, 100, 70),),
    )


def answers(request: Request) -> object:
    return final("Perfect Consistency" if "Scene Collapse" in request.system else "Wrong Action")


def systems(server: ScriptedServer, edit: Edit, **more: object) -> dict[str, str]:
    """The system texts of both criteria."""
    with Judge("openai:gpt-4.1", base_url=server.openai_url, **more) as judge:  # type: ignore[arg-type]
        assert judge.judge(edit).judged
    asked = [request.system for request in server.requests[-2:]]
    return {VC if "Scene Collapse" in system else IF: system for system in asked}


def test_a_change_elsewhere_is_no_matter_by_the_prompts_and_decides_by_the_annotators_rule(
    edit: Edit, scripted: StartServer
) -> None:
    server = scripted(answers)
    for mode in ("tools", "oracle", "plain"):
        prompts = systems(server, edit, mode=mode)[IF]
        assert NOT_ELSEWHERE in prompts
        assert ELSEWHERE not in prompts
        annotators = systems(server, edit, mode=mode, rubrics=[ANNOTATORS])[IF]
        assert NOT_ELSEWHERE not in annotators
        assert ELSEWHERE in annotators
        assert "are not judged" not in annotators
        assert "clearly recognisable as what was asked for; one that is not is Over Modification" in annotators
    assert str(ANNOTATORS.relative_to(ROOT)) in PROTOCOLS


def test_another_time_of_day_is_a_global_change_by_the_prompts_and_a_collapse_by_the_annotators_rule(
    edit: Edit, scripted: StartServer
) -> None:
    server = scripted(answers)
    for mode in ("tools", "oracle", "plain"):
        prompts = systems(server, edit, mode=mode)[VC]
        assert "time of day" not in prompts
        assert "brightness have no say in this check" in prompts
        annotators = systems(server, edit, mode=mode, rubrics=[ANNOTATORS])[VC]
        assert "the time of day turned into another" in annotators
        assert "brightness have no say" not in annotators


def test_the_users_words_go_before_the_set_ups_and_leave_the_rest_of_it(edit: Edit, scripted: StartServer) -> None:
    quick = find_setup("dlebench-paper").with_settings(judging={}, tools={"enhancer": "none"})
    found = systems(scripted(answers), edit, setup=quick, rubrics=[ANNOTATORS])
    assert "A plainly visible one off the target counts" in found[IF]
    assert "compares the whole pictures strictly pixel by pixel" in found[VC], "the set-up's notes"
    assert "already discounted" not in found[VC]


@pytest.mark.parametrize(("crop", "size"), [(None, (160, 120)), ("box", (40, 30))])
def test_the_oracles_crops_go_by_equation_1_or_are_the_annotated_boxes(
    crop: str | None, size: tuple[int, int], edit: Edit, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    pictures = [str(edit.source), str(edit.edited), edit.instruction, "--reference", str(edit.reference)]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "oracle", "--criterion", IF]
    given = ["--target-crop", crop] if crop else []
    assert run(["judge", *pictures, "--target", "60,40,100,70", *asked, *given]) == 0
    assert {image.pixels for image in server.requests[0].images} == {size}
    assert run(["judge", *pictures, "--target", "60,40,100,70", *asked, "--target-crop", "tight"]) == 2
    assert '--target-crop is one of adaptive, each_end, box, not "tight"' in capsys.readouterr().err
    assert "`--target-crop box`" in PROTOCOLS


def test_another_crop_is_another_question_where_there_are_crops_and_the_same_elsewhere() -> None:
    usual = Judge("rules", mode="oracle").question_specs()
    same = Judge("rules", mode="oracle", settings=JudgeSettings(target_crop="adaptive")).question_specs()
    other = Judge("rules", mode="oracle", settings=JudgeSettings(target_crop="box")).question_specs()
    assert [one.key for one in usual] == [one.key for one in same]
    assert {one.criterion for one, two in zip(usual, other, strict=True) if one.key != two.key} == {IF}
    plain = [
        Judge("rules", mode="plain", settings=JudgeSettings(target_crop=crop)).question_specs()
        for crop in (None, "box")
    ]
    assert [one.key for one in plain[0]] == [one.key for one in plain[1]]


def test_a_replacement_overlaps_the_old_object_or_the_old_one_must_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edival, "find_detector", lambda toolbox, rules: stand_ins.ColorFinder())
    left = stand_ins.scene(
        ("ceramic white cup", stand_ins.CUP), ("wooden box", stand_ins.BOX), ("lamp", (90, 50, 110, 70))
    )
    gone = stand_ins.scene(("ceramic white cup", stand_ins.CUP), ("lamp", (90, 50, 110, 70)))
    absent = tmp_path / "absent.yaml"
    absent.write_text("protocol: edival\nrules: {replace_rule: absent}\n")
    labels = {}
    for name, after in (("left", left), ("gone", gone)):
        edit = Edit(
            source=save(stand_ins.BASE, tmp_path / "before.png"),
            edited=save(after, tmp_path / f"{name}.png"),
            instruction="Replace the wooden box with a lamp.",
        )
        for rule, options in (("overlap", {"protocol": "edival"}), ("absent", {"setup": absent})):
            with Judge("rules", **options) as judge:  # type: ignore[arg-type]
                (verdict,) = judge.judge(edit).verdicts
            assert isinstance(verdict, Verdict), verdict
            labels[name, rule] = verdict.label
    assert labels == {
        ("left", "overlap"): "yes",
        ("left", "absent"): "no",
        ("gone", "overlap"): "yes",
        ("gone", "absent"): "yes",
    }
    assert "`replace_rule: absent`" in PROTOCOLS
