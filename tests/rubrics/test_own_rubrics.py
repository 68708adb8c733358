"""Rubrics of the user's own: the documented examples work as they stand, and every mistake is one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from editloupe import Judge, UserError, Verdict
from editloupe.cli.main import run
from editloupe.rubrics.user_rubrics import with_files
from editloupe.rubrics.wiseedit.paper import OUTPUT
from editloupe.types import Box
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.rubrics.samples import edit_for, good_reply
from tests.scripted import Request, final, say

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "rubric.md"
_ALL = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
EXAMPLES = [text for text in _ALL if "kind: measured" not in text]
MEASURED = [text for text in _ALL if "kind: measured" in text]


def files(folder: Path, *texts: str) -> list[Path]:
    written = []
    for number, text in enumerate(texts):
        path = folder / f"rubric{number}.yaml"
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def test_the_page_has_three_rubrics_and_one_rewording() -> None:
    read = [yaml.safe_load(text) for text in EXAMPLES]
    assert [example.get("name") for example in read] == ["shadow_agreement", "readable_text", "masked_edit", None]
    assert read[3]["extends"] == "dlebench/visual_consistency"


def test_the_pages_measure_asks_no_judge(tmp_path: Path, scripted: StartServer) -> None:
    paths, server = files(tmp_path, *MEASURED), scripted()
    same = edit_for(tmp_path)
    edit = same.model_copy(update={"reference": same.edited})
    (verdict,) = Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=paths).judge(edit).verdicts
    assert isinstance(verdict, Verdict)
    assert verdict.score_100 == 100
    assert server.requests == []


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("mode", ["plain", "tools"])
def test_an_example_of_the_page_works_as_it_is_printed(
    number: int, mode: Any, tmp_path: Path, scripted: StartServer
) -> None:
    paths = files(tmp_path, EXAMPLES[number])
    (rubric,) = with_files(None, paths).rubrics
    server = scripted(lambda request: say(good_reply(rubric.answer)))
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=paths, mode=mode)
    (verdict,) = judge.judge(edit_for(tmp_path, roles=("mask",))).verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.criterion, verdict.score_100) == (rubric.criterion, 100)
    (request,) = server.requests
    assert rubric.question.strip() in request.system
    assert len(request.images) == (3 if number == 2 else 2)


def test_the_quality_question_of_edivals_appendix_n_sees_the_edited_picture_alone(
    tmp_path: Path, scripted: StartServer
) -> None:
    server = scripted(say('{"reason": "over-exposed", "score": 40}'))
    rubric = Path(__file__).parents[2] / "examples" / "vlm_visual_quality.yaml"
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=[rubric], mode="plain")
    (verdict,) = judge.judge(edit_for(tmp_path)).verdicts
    assert isinstance(verdict, Verdict)
    assert (verdict.score, verdict.score_100) == (40, 40)
    (request,) = server.requests
    assert len(request.images) == 1
    assert "Editing instruction:" not in request.text


def test_bands_labels_and_gates_come_through_in_full(tmp_path: Path) -> None:
    number, labels, checks = (with_files(None, [f]).rubrics[0].answer for f in files(tmp_path, *EXAMPLES[:3]))
    assert [(b.low, b.high) for b in number.bands] == [(5, 5), (3, 4), (1, 2)]  # type: ignore[union-attr]
    assert [(x.name, x.score) for x in labels.labels] == [("Unreadable", 1), ("Misspelt", 2), ("Readable", 3)]  # type: ignore[union-attr]
    assert labels.score_100("Misspelt") == 50  # type: ignore[union-attr]
    assert checks.total({"done": "0", "inside": "1", "quality": "1"}) == 0  # type: ignore[union-attr]
    assert checks.total({"done": "1", "inside": "1", "quality": "0.5"}) == pytest.approx(0.75**0.5)  # type: ignore[union-attr]


def test_several_own_rubrics_are_judged_together(tmp_path: Path, scripted: StartServer) -> None:
    paths = files(tmp_path, *EXAMPLES[:2])

    def script(request: Request) -> Any:
        return final("Readable") if "lettering" in request.system else say('{"reason": "fits", "score": 3}')

    server = scripted(script)
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=paths)
    scores = {v.criterion: v.score_100 for v in judge.judge(edit_for(tmp_path)).verdicts if isinstance(v, Verdict)}
    assert scores == {"shadow_agreement": 50, "readable_text": 100}
    assert judge.protocol == "own"
    assert set(judge.describe()["rubrics"]) == {"shadow_agreement", "readable_text"}


def test_a_bundled_rubric_can_be_reworded_and_keeps_its_labels(tmp_path: Path, scripted: StartServer) -> None:
    paths = files(tmp_path, EXAMPLES[3])
    server = scripted(lambda request: final("Single Anomaly"))
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=paths, criteria=["visual_consistency"])
    (verdict,) = judge.judge(edit_for(tmp_path)).verdicts
    assert isinstance(verdict, Verdict)
    assert (judge.protocol, verdict.label, verdict.score) == ("dlebench", "Single Anomaly", 3)
    system = server.requests[0].system
    assert "would an archivist file" in system
    assert "- Single Anomaly: exactly one thing outside the target differs, however small" in system
    plain = Judge("openai:gpt-4.1", base_url=server.openai_url)
    edit = edit_for(tmp_path)
    assert judge.question_spec(edit, "visual_consistency").key != plain.question_spec(edit, "visual_consistency").key


@pytest.mark.long
def test_the_command_line_takes_a_rubric_file(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: say('{"reason": "one is off", "score": 4}'))
    before, after = (str(save(textured(seed=n), tmp_path / f"{n}.png")) for n in (1, 2))
    (path,) = files(tmp_path, EXAMPLES[0])
    command = ["judge", before, after, "Move it", "--rubric", str(path), "--base-url", server.openai_url]
    assert run([*command, "--judge", "openai:gpt-4.1", "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert (verdict["criterion"], verdict["score"], verdict["score_100"]) == ("shadow_agreement", 4, 75)
    assert run([*command, "--judge", "openai:gpt-4.1"]) == 0
    assert "Agreement of shadows: 4 on a scale of 1 to 5" in capsys.readouterr().out


NUMBER = "name: x\nquestion: y\nanswer: {kind: number, low: 1, high: 5}\n"
MISTAKES = {
    "no question": ("name: x\nanswer: {kind: yes_no}\n", "question is missing"),
    "no answer": ("name: x\nquestion: y\n", "answer is missing"),
    "empty": ("", "must contain fields"),
    "a list": ("- a\n", "must contain fields"),
    "not yaml": ("a: [", "not valid YAML"),
    "unknown field": (NUMBER + "colour: red\n", "colour is not a field"),
    "bad name": (NUMBER.replace("name: x", "name: My Rubric"), "name"),
    "unknown kind": (NUMBER.replace("number", "stars"), "answer"),
    "no room": (NUMBER.replace("high: 5", "high: 1"), "must exceed the lowest"),
    "gap in the bands": (NUMBER.replace("high: 5", "high: 5, bands: {5: a, 1-3: b}"), "must cover every number"),
    "odd band": (NUMBER.replace("high: 5", "high: 5, bands: {best: a}"), "is not a band"),
    "one label": ("name: x\nquestion: y\nanswer: {kind: label, labels: {A: a}}\n", "labels"),
    "unknown gate": (
        "name: x\nquestion: y\nanswer: {kind: checks, checks: [{key: a, question: b, only_if: {c: '1'}}]}\n",
        "depends on c",
    ),
    "formula on nothing": (
        "name: x\nquestion: y\nanswer: {kind: checks, checks: {a: b}, score: a * z}\n",
        "unknown name z",
    ),
    "odd role": (NUMBER + "pictures: [Source Image]\n", "is not a role"),
    "picture twice": (NUMBER + "pictures: [edited, edited]\n", "is listed twice"),
    "unknown protocol": ("extends: nobench/x\n", "no protocol"),
    "unknown criterion": ("extends: dlebench/beauty\n", "is not one rubric"),
    "several wordings": (
        "extends: wiseedit/creative_fusion\n",
        "wiseedit/creative_fusion/single, wiseedit/creative_fusion/multi",
    ),
    "unknown label": ("extends: dlebench/visual_consistency\nmeanings: {Fine: x}\n", 'no "Fine"'),
    "unknown mode": ("extends: wiseedit/visual_quality\nsettings: {oracle: x}\n", "no oracle mode"),
    "other scale": ("extends: dlebench/visual_consistency\nanswer: {kind: yes_no}\n", "answer is not a field"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_in_a_file_is_one_sentence(name: str, tmp_path: Path) -> None:
    text, words = MISTAKES[name]
    with pytest.raises(UserError) as told:
        with_files(None, files(tmp_path, text))
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    own, words, other, taken = files(
        tmp_path, EXAMPLES[0], EXAMPLES[3], EXAMPLES[0], EXAMPLES[0].replace("shadow_agreement", "visual_consistency")
    )
    with pytest.raises(
        UserError, match=r"rubric3.yaml: DLEBench already has a criterion visual_consistency; .* with extends:"
    ):
        with_files("dlebench", [taken])
    with pytest.raises(UserError, match='no protocol "nobench"'):
        with_files("nobench", [own])
    with pytest.raises(UserError, match="one protocol"):
        with_files("vibe", [words])
    with pytest.raises(UserError, match='the name "shadow_agreement"'):
        with_files(None, [own, other])
    with pytest.raises(UserError, match="cannot be read"):
        with_files(None, [tmp_path / "none.yaml"])


@pytest.mark.parametrize("mode", ["tools", "plain", "oracle"])
def test_own_criteria_are_asked_beside_a_papers_in_each_of_its_modes(
    mode: Any, tmp_path: Path, scripted: StartServer
) -> None:
    def reply(request: Request) -> Any:
        if "Do the shadows" in request.system:
            return say('{"reason": "They fit.", "score": 4}')
        label = "Perfect Consistency" if "Perfect Consistency" in request.system else "Wrong Action"
        return final(label)

    server = scripted(reply)
    with Judge(
        "openai:gpt-4.1",
        base_url=server.openai_url,
        protocol="dlebench",
        rubrics=files(tmp_path, EXAMPLES[0], EXAMPLES[3]),
        mode=mode,
    ) as judge:
        edit = edit_for(tmp_path)
        edit = edit.model_copy(update={"target_boxes": (Box(x1=4, y1=4, x2=20, y2=20),), "reference": edit.edited})
        judged = judge.judge(edit)
    assert judged.protocol == "dlebench"
    assert {v.criterion: getattr(v, "score_100", v) for v in judged.verdicts} == {
        "instruction_following": pytest.approx(100 / 3),
        "visual_consistency": 100,
        "shadow_agreement": 75,
    }
    assert judge.score(edit, judged.verdicts) == pytest.approx((100 + 100 / 3) / 2)
    own = next(request for request in server.requests if "Do the shadows" in request.system)
    assert len(own.images) == 2
    assert any("an archivist" in request.system for request in server.requests)


def test_a_missing_output_that_a_paper_counts_is_no_verdict_on_an_own_criterion(tmp_path: Path) -> None:
    found = with_files("wiseedit", files(tmp_path, EXAMPLES[0]))
    rubric = found.rubric("shadow_agreement")
    edit = edit_for(tmp_path).model_copy(update={"extra": {OUTPUT: "missing"}})
    assert found.settle(edit, found.rubric("visual_quality"))
    assert found.settle(edit, rubric) is None
    assert found.rubrics_for(edit, ["shadow_agreement"]) == (rubric,)


@pytest.mark.long
def test_a_report_tells_an_own_criterion_and_leaves_the_papers_scores_as_they_are(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(request: Request) -> Any:
        if "Do the shadows" in request.system:
            return say('{"reason": "They fit.", "score": 1}')
        return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")

    server, (own,) = scripted(reply), files(tmp_path, EXAMPLES[0])
    rows = []
    for number in range(3):
        save(textured(64, 64, seed=number), tmp_path / f"s{number}.png")
        save(textured(64, 64, seed=9 - number), tmp_path / f"e{number}.png")
        row = {"id": f"e{number}", "source": f"s{number}.png", "edited": f"e{number}.png", "instruction": "Do it"}
        rows.append({**row, "instruction_type": "Change Color", "human": {"shadow_agreement": "2"}})
    (tmp_path / "edits.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    judging = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--mode", "plain"]
    out = ["--out", str(tmp_path / "run")]
    assert run(["batch", str(tmp_path / "edits.jsonl"), *judging, *out]) == 0
    before = len(server.requests)
    assert (
        run(["batch", str(tmp_path / "edits.jsonl"), *judging, *out, "--protocol", "dlebench", "--rubric", str(own)])
        == 0
    )
    assert len(server.requests) - before == 3
    capsys.readouterr()
    assert run(["report", str(tmp_path / "run"), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["overall"]["value"] == told["by_type"]["Change Color"]["value"] == 100
    assert (told["overall"]["judged"], told["coverage"]["units"]) == (6, 9)
    assert told["own"] == ["shadow_agreement"]
    assert told["by_criterion"]["shadow_agreement"]["value"] == 0
    assert told["titles"]["shadow_agreement"] == "Agreement of shadows (own)"
    assert any("not part of any score: Agreement of shadows" in note for note in told["notes"])
    assert run(["agree", str(tmp_path / "run"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["shadow_agreement"]["mae"]["value"] == 1


def test_a_whole_prompt_can_be_given_word_for_word(tmp_path: Path, scripted: StartServer) -> None:
    text = "extends: dlebench/instruction_following\nwording:\n  whole: |-\n    My prompt.\n    {how_to_answer}\n"
    text += "  picture: ''\n  instruction: 'Editing Instruction: {quoted}'\n  judge: ''\n"
    server = scripted(final("Wrong Action"))
    with Judge(
        "openai:gpt-4.1",
        base_url=server.openai_url,
        rubrics=files(tmp_path, text),
        mode="plain",
        criteria=["instruction_following"],
    ) as judge:
        (verdict,) = judge.judge(edit_for(tmp_path)).verdicts
    assert isinstance(verdict, Verdict)
    assert server.requests[0].system.startswith("My prompt.\n# How to answer\n")
    (message,) = server.requests[0].messages
    (told,) = message.texts
    assert told.splitlines()[0] == 'Editing Instruction: "Put the hat on the taller person."'
    assert len(message.images) == 2


def test_an_unknown_sentence_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='there is no sentence "rolle"'):
        with_files("dlebench", files(tmp_path, "extends: dlebench/visual_consistency\nwording: {rolle: x}\n"))


def test_other_words_around_a_rubric_are_another_question(tmp_path: Path) -> None:
    edit = edit_for(tmp_path)
    text = "extends: dlebench/visual_consistency\nwording: {instruction: 'Order: {quoted}'}\n"
    keys = {
        Judge("openai:gpt-4.1", base_url="http://127.0.0.1:9/v1", protocol="dlebench", rubrics=rubrics)
        .question_spec(edit, "visual_consistency")
        .key
        for rubrics in ([], files(tmp_path, text))
    }
    assert len(keys) == 2


ORACLE = """
name: target_kept
question: Is the target still there?
answer: {kind: yes_no}
oracle:
  targets: %s
  setting: You see the source, then the result.
"""


@pytest.mark.parametrize(("targets", "requests", "size"), [("crops", 2, (70, 70)), ("white", 1, (320, 240))])
def test_a_rubric_of_one_s_own_can_have_an_oracle_mode(
    targets: str, requests: int, size: tuple[int, int], tmp_path: Path, scripted: StartServer
) -> None:
    replies = iter(["yes", "no"])
    server = scripted(lambda _: say(json.dumps({"reason": "seen", "answer": next(replies)})))
    picture = save(textured(320, 240), tmp_path / "s.png")
    boxes = (Box(x1=100, y1=100, x2=110, y2=110), Box(x1=200, y1=100, x2=210, y2=110))
    edit = edit_for(tmp_path, source=picture, edited=picture, target_boxes=boxes)
    with Judge(
        "openai:gpt-4.1", base_url=server.openai_url, rubrics=files(tmp_path, ORACLE % targets), mode="oracle"
    ) as judge:
        (verdict,) = judge.judge(edit).verdicts
    assert len(server.requests) == requests
    assert verdict.label == ("no" if requests == 2 else "yes"), "the worst of the targets stands"
    assert {image.pixels for image in server.requests[0].images} == {size}


WORDED = """
name: target_kept
question: Is the target still there?
answer: {kind: yes_no}
tools:
  setting: Two pictures and a lens.
  notes: [Use the lens once.]
wording:
  whole: |-
    Printed prompt, word for word.
    {tools}{how_to_answer}
"""


def test_a_rubric_of_one_s_own_says_every_word_itself(tmp_path: Path, scripted: StartServer) -> None:
    paths = files(tmp_path, WORDED, WORDED.split("wording:")[0].replace("target_kept", "second"))
    server = scripted(lambda _: say('{"reason": "seen", "answer": "yes"}'))
    with Judge("openai:gpt-4.1", base_url=server.openai_url, rubrics=paths, mode="tools") as judge:
        assert {verdict.label for verdict in judge.judge(edit_for(tmp_path)).verdicts} == {"yes"}
    whole, parts = sorted((request.system for request in server.requests), key=len)
    assert whole.startswith("Printed prompt, word for word.\n# How to answer\n")
    assert "Two pictures and a lens." in parts
    assert "- Use the lens once." in parts
    assert "You can look closer" not in parts
    with pytest.raises(UserError, match='there is no sentence "rolle"'):
        with_files(None, files(tmp_path, WORDED.replace("whole:", "rolle:")))
