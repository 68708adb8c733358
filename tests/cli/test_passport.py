"""The passport says whether two numbers can be compared."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.sample_runs import Line, make_run
from tests.scripted import Answer, Request, say

IF = "instruction_following"
LINES = [Line(f"e{n}", n % 4 + 1, model="m") for n in range(6)]


def describe(**changes: object) -> dict[str, object]:
    return {
        "spec": "openai:gpt-5.1",
        "settings": {"long_side": 1024, "temperature": 0.0},
        "tools": {"zoom_in_image": {"version": "2"}},
        "versions": {"editloupe": "0.2.0"},
        **changes,
    }


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_run(tmp_path / "base", LINES, description=describe())


def test_equal_runs_can_be_compared_whatever_their_verdicts(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [Line(f"e{n}", 4 if n else None, model="other") for n in range(6)]
    other = make_run(tmp_path / "other", lines, description=describe())
    assert run(["passport", str(base), str(other)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("The two can be compared")
    assert "0 and 1 verdicts are unjudged" in text


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"judge": "openai:other"}, "They have different judges (openai:gpt-5.1 and openai:other)."),
        ({"mode": "plain"}, "They are in different modes (tools and plain)."),
        ({"lines": LINES[:4]}, "They do not have the same cases"),
        (
            {"description": describe(settings={"long_side": 512, "temperature": 0.0})},
            "They send pictures in different forms",
        ),
        (
            {"description": describe(settings={"long_side": 1024, "temperature": 1.0})},
            "They sample with different settings (temperature).",
        ),
        ({"description": describe(tools={})}, "They use different tools or measures (zoom_in_image)."),
        (
            {"description": describe(versions={"editloupe": "0.1.0"})},
            "They ask or read replies with different settings",
        ),
    ],
)
def test_every_difference_that_decides_is_a_sentence(
    base: Path, tmp_path: Path, made: dict[str, object], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"lines": LINES, "description": describe(), **made}
    other = make_run(tmp_path / "other", **settings)  # type: ignore[arg-type]
    assert run(["passport", str(base), str(other), "--format", "json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [text for text in record["reasons"] if reason in text]
    assert len(record["reasons"]) == 1


@pytest.mark.long
def test_the_json_of_a_report_has_the_passport_and_every_table_its_line(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert run(["report", str(base), "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["passport"]["cases"].startswith("6:")
    assert report["tables"]
    assert all(any(note.startswith("Passport ") for note in table["notes"]) for table in report["tables"])
    capsys.readouterr()
    assert run(["passport", str(out), str(base)]) == 0


def test_the_passport_names_size_and_format_of_sent_pictures(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["passport", str(base), str(base), "--format", "json"]) == 0
    pictures = json.loads(capsys.readouterr().out)["passports"][0]["pictures"]
    assert pictures.startswith("pictures up to 1024 px")
    assert "PNG" in pictures
    assert "JPEG 95" in pictures


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"hint": "other"}, "tell the judge different hints"), ({"type": "Change OCR"}, "do not have the same cases")],
)
def test_other_hints_or_types_of_the_same_edits_are_another_revision_of_the_benchmark(
    tmp_path: Path, change: dict[str, str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"source": "s.png", "instruction": f"do {n}", "hint": "as shown", "type": "Change Color"} for n in range(4)]
    for name, changed in (("first", {}), ("second", change)):
        scores = [
            {**row, "id": f"e{n}", "instruction_following": 3, **(changed if n == 2 else {})}
            for n, row in enumerate(rows)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, scores)), "utf-8")
        names = "instruction_type=type"
        command = ["import", str(tmp_path / f"{name}.jsonl"), "--judge", "mine", "--protocol", "edit-compass"]
        assert run([*command, "--columns", names, "--out", str(tmp_path / name)]) == 0
    assert run(["passport", str(tmp_path / "first"), str(tmp_path / "second")]) == 1
    text = capsys.readouterr().out
    assert reason in text


@pytest.mark.long
def test_every_form_of_a_report_has_the_passport_in_one_line_or_as_json(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(base), "--format", "json"]) == 0
    record = json.loads(capsys.readouterr().out)["passport"]
    texts = {}
    for kind in ("text", "md", "html", "latex"):
        assert run(["report", str(base), "--format", kind]) == 0
        texts[kind] = capsys.readouterr().out
    for text in texts.values():
        assert "Passport " in text
    (block,) = [
        part.removeprefix("json").partition("```")[0] for part in texts["md"].split("```") if part.startswith("json")
    ]
    assert json.loads(block) == record
    (page,) = [
        part.partition("</code>")[0] for part in texts["html"].split("<pre><code>")[1:] if "&quot;wording" in part
    ]
    assert json.loads(html.unescape(page)) == record
    (comment,) = [line for line in texts["latex"].splitlines() if line.startswith("% passport ")]
    assert json.loads(comment.removeprefix("% passport ")) == record


def test_tables_of_several_runs_name_the_passports_of_their_rows(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = make_run(tmp_path / "same", [Line(f"e{n}", 2, model="n") for n in range(6)], description=describe())
    other = make_run(tmp_path / "other", LINES, judge="openai:other", description=describe())
    assert run(["report", str(base), str(same), "--format", "json"]) == 0
    board = json.loads(capsys.readouterr().out)
    assert all(sum(note.startswith("Passport ") for note in table["notes"]) == 1 for table in board["tables"])
    assert run(["report", str(base), str(other), "--format", "json"]) == 0
    board = json.loads(capsys.readouterr().out)
    for table in board["tables"]:
        assert "Rows with different passports cannot be compared." in table["notes"]
        assert [note for note in table["notes"] if note.startswith("other: Passport ")]
    assert [entry["rank"] for entry in board["leaderboard"]] == [1, 1]
    assert any(note.startswith("Ranked apart from") for note in board["notes"])


def test_a_comparison_has_the_passports_of_both_sides(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = make_run(tmp_path / "other", LINES, judge="openai:other", description=describe())
    assert run(["compare", str(base), str(other), "--format", "json"]) == 0
    passports = json.loads(capsys.readouterr().out)["passports"]
    assert [passport["judge"] for passport in passports] == ["openai:gpt-5.1", "openai:other"]
    assert run(["compare", str(base), str(other)]) == 0
    assert capsys.readouterr().out.count(": Passport ") == 2


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"passport": {"protocol": 1}}'])
def test_a_file_without_a_passport_is_refused(
    base: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    assert run(["passport", str(file), str(base)]) == 2
    assert str(file) in capsys.readouterr().err


def judge_gedit(folder: Path, url: str, out: Path, *options: str) -> Path:
    """Judge one edit whose output is not as large as its source."""
    row = {"key": "k", "task_type": "ps_human", "instruction": "x", "instruction_language": "en"}
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data/info.jsonl").write_text(json.dumps({**row, "Intersection_exist": True}))
    (folder / "m/fullset/ps_human/en").mkdir(parents=True, exist_ok=True)
    save(textured(30, 20, 1), folder / "data/k_SRCIMG.png")
    save(textured(40, 40, 2), folder / "m/fullset/ps_human/en/k.png")
    layout = ["--layout", "gedit", "--results", f"m={folder / 'm'}"]
    asked = ["--judge", "openai:gpt-4.1", "--base-url", url, "--out", str(out), "--quiet"]
    assert run(["batch", str(folder / "data"), *layout, *asked, *options]) == 0
    return out


@pytest.mark.long
def test_a_rule_that_changes_what_is_asked_and_another_wording_of_any_variant_decide(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(request: Request) -> Answer:
        keys = ("success", "overediting") if '"success"' in request.system else ("naturalness", "artifacts")
        return say(json.dumps({"reason": "seen", **dict.fromkeys(keys, 5)}))

    server = scripted(answer)
    (tmp_path / "own.yaml").write_text("protocol: gedit\nmode: plain\nrules: {edited_size: own}\n")
    usual = judge_gedit(tmp_path, server.openai_url, tmp_path / "usual")
    own_size = judge_gedit(tmp_path, server.openai_url, tmp_path / "own", "--setup", str(tmp_path / "own.yaml"))
    assert run(["passport", str(usual), str(own_size)]) == 1
    assert "They ask or read replies with different settings (gedit.edited_size)." in capsys.readouterr().out
    runs = []
    for number, question in enumerate(("One?", "Another?")):
        rubrics = {IF: {"criterion": IF}, f"{IF}/x": {"criterion": IF, "variant": "x", "question": question}}
        runs.append(
            make_run(tmp_path / f"run{number}", LINES, description=describe(protocol="dlebench", rubrics=rubrics))
        )
    assert run(["passport", *map(str, runs)]) == 1
    assert f"They have different wording of {IF}." in capsys.readouterr().out
