"""Criteria that are measured: no judge is asked, the numbers are in the run, and other criteria are not affected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import Edit, Judge
from editloupe.cli.main import run as command
from editloupe.types import NOT_APPLICABLE, Reason, Unjudged, UserError, Verdict
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.scripted import say

MEASURED = """name: distance
question: How far is the output from the target?
pictures: [edited, reference]
answer: {kind: measured, measure: l1, worst: 1, best: 0}
"""
ASKED = "name: sharp\nquestion: Is Edited Image sharp?\npictures: [edited]\nanswer: {kind: yes_no}\n"
CAPTION = """name: caption
question: Does the caption fit?
pictures: [edited]
answer: {kind: measured, measure: clip_text, texts: [caption], worst: -1}
"""
OUTSIDE = """name: outside
question: What changed outside the mask?
pictures: [edited, source, mask]
answer: {kind: measured, measure: outside_mask, worst: 1, best: 0}
"""


@pytest.fixture
def rubrics(tmp_path: Path) -> dict[str, Path]:
    texts = {"distance": MEASURED, "sharp": ASKED, "caption": CAPTION, "outside": OUTSIDE}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: tmp_path / f"{name}.yaml" for name in texts}


def edit(**fields: Any) -> Edit:
    usual: dict[str, Any] = {
        "source": textured(32, 24),
        "edited": textured(32, 24, 1),
        "reference": textured(32, 24, 2),
    }
    return Edit(id="cup", instruction="Make the cup red", **{**usual, **fields})


@pytest.mark.parametrize("mode", ["plain", "tools"])
def test_a_measured_criterion_asks_no_judge_and_has_a_trace_with_its_value(
    rubrics: dict[str, Path], scripted: StartServer, mode: Any
) -> None:
    server = scripted(say("nobody asks"))
    with Judge("openai:m", base_url=server.openai_url, rubrics=[rubrics["distance"]], mode=mode) as judge:
        found = judge(edit())
    (verdict,), (trace,) = found.verdicts, found.traces
    expected = np.abs(textured(32, 24, 1).astype(float) - textured(32, 24, 2)).mean() / 255
    assert isinstance(verdict, Verdict)
    assert verdict.score == pytest.approx(expected, abs=1e-12)
    assert verdict.score_100 == pytest.approx(100 * (1 - expected))
    assert verdict.values == {"l1": verdict.score}
    assert verdict.usage.requests == 0
    assert trace.steps[0].observations[0].data == {"l1": verdict.score}
    assert not server.requests


def test_a_judge_is_asked_its_own_criteria_and_a_panel_measures_once(
    rubrics: dict[str, Path], scripted: StartServer
) -> None:
    server = scripted(lambda request: say('{"reason": "edges", "answer": "yes"}'))
    with Judge(
        "panel:openai:a,openai:b,openai:c", base_url=server.openai_url, rubrics=[rubrics["distance"], rubrics["sharp"]]
    ) as judge:
        found = judge(edit())
    assert {verdict.criterion: verdict.status for verdict in found.verdicts} == {
        "distance": "judged",
        "sharp": "judged",
    }
    assert len(server.requests) == 3
    assert sum(trace.criterion == "distance" for trace in found.traces) == 1
    (measured,) = (verdict for verdict in found.verdicts if verdict.criterion == "distance")
    assert not measured.opinions


@pytest.mark.parametrize(
    ("name", "fields", "reason", "words"),
    [
        ("distance", {"reference": None}, Reason.MISSING_INPUT, 'no picture in the role "reference"'),
        ("caption", {}, Reason.MISSING_INPUT, 'edit cup has no text "caption", which clip_text compares'),
        ("outside", {}, Reason.MISSING_INPUT, 'no picture in the role "mask"'),
        ("outside", {"more_images": {"mask": (textured(9, 9),)}}, Reason.BAD_IMAGE, "Mask Image is 9 × 9 pixels"),
    ],
)
def test_what_is_missing_leaves_the_criterion_unjudged_with_a_sentence(
    rubrics: dict[str, Path], name: str, fields: dict[str, Any], reason: Reason, words: str
) -> None:
    with Judge("rules", rubrics=[rubrics[name]]) as judge:
        (verdict,) = judge(edit(**fields)).verdicts
    assert isinstance(verdict, Unjudged)
    assert verdict.reason is reason
    assert words in verdict.detail


def test_absent_weights_are_announced_and_leave_the_criterion_unjudged(rubrics: dict[str, Path]) -> None:
    from editloupe.tools.settings import ToolSettings

    with Judge("rules", rubrics=[rubrics["caption"]], tools=ToolSettings(clip="no/such-model")) as judge:
        (note,) = (note for note in judge.notes if "clip_text" in note)
        (verdict,) = judge(edit(extra={"caption": "a red cup"})).verdicts
    assert "clip_text is not measured:" in note
    assert isinstance(verdict, Unjudged)
    assert verdict.reason is Reason.MISSING_INPUT


def test_a_mask_over_the_whole_picture_leaves_nothing_to_measure(rubrics: dict[str, Path]) -> None:
    whole = np.full((24, 32, 3), 255, np.uint8)
    with Judge("rules", rubrics=[rubrics["outside"]]) as judge:
        (verdict,) = judge(edit(more_images={"mask": (whole,)})).verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.label, verdict.score, verdict.score_100) == (NOT_APPLICABLE, None, None)


def test_in_a_transparent_mask_white_is_part_of_the_picture(rubrics: dict[str, Path], tmp_path: Path) -> None:
    from PIL import Image

    layer = np.full((24, 32, 4), 255, np.uint8)
    layer[:12, :, 3] = 0
    Image.fromarray(layer, "RGBA").save(tmp_path / "mask.png")
    output = textured(32, 24)
    output[20, 20] = 255 - output[20, 20]
    with Judge("rules", rubrics=[rubrics["outside"]]) as judge:
        (verdict,) = judge(edit(edited=output, more_images={"mask": (tmp_path / "mask.png",)})).verdicts
    assert isinstance(verdict, Verdict)
    assert verdict.score is not None
    assert verdict.score > 0


def write_edits(folder: Path) -> dict[str, str]:
    for seed, name in enumerate(("source", "edited", "target")):
        save(textured(32, 24, seed), folder / f"{name}.png")
    line = {"source": "source.png", "edited": "edited.png", "reference": "target.png", "instruction": "Make it red"}
    (folder / "edits.jsonl").write_text(json.dumps(line) + "\n")
    return line


def test_a_batch_measures_again_only_if_a_picture_changes(
    rubrics: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def count_measured(line: dict[str, str]) -> str:
        (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
        options = ["--rubric", str(rubrics["distance"]), "--judge", "rules", "--out", str(tmp_path / "run")]
        assert command(["batch", str(tmp_path / "edits.jsonl"), *options]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    line = write_edits(tmp_path)
    assert count_measured(line).startswith("1 judged")
    assert "1 held before" in count_measured({**line, "instruction": "Make it blue"}), "the order does not affect it"
    save(textured(32, 24, 9), tmp_path / "other.png")
    assert count_measured({**line, "reference": "other.png"}).startswith("1 judged")


def test_an_estimate_counts_no_tokens_for_a_measure(
    rubrics: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    write_edits(tmp_path)
    options = ["--judge", "openai:gpt-4.1", "--out", str(tmp_path / "run"), "--dry-run"]

    def estimate(*names: str) -> str:
        chosen = [part for name in names for part in ("--rubric", str(rubrics[name]))]
        assert command(["batch", str(tmp_path / "edits.jsonl"), *chosen, *options]) == 0
        return capsys.readouterr().out

    assert estimate("sharp", "distance").replace("2 units", "1 unit") == estimate("sharp").replace("1 units", "1 unit")


def test_a_measure_cannot_be_forked(
    rubrics: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_edits(tmp_path)
    out = str(tmp_path / "run")
    options = ["--rubric", str(rubrics["distance"]), "--judge", "rules", "--out", out]
    assert command(["batch", str(tmp_path / "edits.jsonl"), *options]) == 0
    capsys.readouterr()
    forking = ["fork", out, "edited", "--criterion", "distance", "--step", "1", "--rubric", str(rubrics["distance"])]
    assert command(forking) == 2
    assert "no steps to fork" in capsys.readouterr().err


def test_a_measure_with_an_unknown_name_or_an_empty_scale_is_refused(rubrics: dict[str, Path]) -> None:
    for old, new, sentence in (
        ("measure: l1", "measure: psnr", "answer"),
        (
            "worst: 1, best: 0",
            "worst: 1, best: 1",
            "the best value of a measure must differ from the worst; both are 1",
        ),
    ):
        rubrics["distance"].write_text(MEASURED.replace(old, new))
        with pytest.raises(UserError, match=sentence):
            Judge("rules", rubrics=[rubrics["distance"]])


def test_tables_measured_with_other_weights_have_other_passports(rubrics: dict[str, Path], tmp_path: Path) -> None:
    from editloupe.evals.stats import compute_scores, read_run_table
    from editloupe.evals.stats.scores.passport import build_passport

    def passport(clip: str) -> Any:
        out = tmp_path / clip
        line = {**write_edits(tmp_path), "caption": "a cup"}
        (tmp_path / "edits.jsonl").write_text(json.dumps(line) + "\n")
        options = [
            "--rubric",
            str(rubrics["caption"]),
            "--judge",
            "rules",
            "--set",
            f"tools.clip={clip}",
            "--out",
            str(out),
        ]
        assert command(["batch", str(tmp_path / "edits.jsonl"), *options, "--quiet"]) == 3
        table = read_run_table(out)
        return build_passport(table, compute_scores(table).coverage)

    first, same, other = passport("no/model"), passport("no/model"), passport("no/other-model")
    assert first.key == same.key != other.key
    assert first.tools["clip_text"]["model"] == "no/model"


def test_the_description_of_a_protocol_says_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    from editloupe.rubrics.registry import PROTOCOLS

    for protocol in PROTOCOLS:
        assert command(["protocols", "show", protocol.name]) == 0
        printed = capsys.readouterr().out
        assert ("no judge is asked." in printed) == any(rubric.measured for rubric in protocol.rubrics)


def test_a_report_of_measures_alone_names_no_judge(
    rubrics: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_edits(tmp_path)
    out = str(tmp_path / "run")
    options = ["--rubric", str(rubrics["distance"]), "--judge", "rules", "--out", out]
    assert command(["batch", str(tmp_path / "edits.jsonl"), *options]) == 0
    capsys.readouterr()
    assert command(["report", out, "--format", "md"]) == 0
    printed = capsys.readouterr().out
    assert "We measured 1 edit on Distance" in printed
    assert "without a judge" in printed
    assert "rule-based baseline" not in printed
