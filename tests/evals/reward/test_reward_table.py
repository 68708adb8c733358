"""EditReward-Compass's Table 5 with judges as rows, cell by cell, from runs, kept results and `report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.reward import Accuracy
from editloupe.evals.stats.scores.paper_tables import JudgeAccuracy, build_pair_table
from editloupe.rubrics.editreward import PAIRS, read_published_rows
from tests.conftest import StartServer
from tests.evals.reward.samples import asked, brightness, fair, write_pairs
from tests.scripted import Request, say

EIGHT = (
    *(("IA", "preference"),) * 3,
    ("IA", "tie"),
    *(("VC", "preference"),) * 2,
    ("VQ", "preference"),
    ("VQ", "tie"),
)


def generous(request: Request) -> Any:
    """Give everything the same: every tie is right and no preference."""
    if "List of differences" in request.system:
        return say('{"differences": "none"}')
    return say('{"reason": "nice", "score": 4}')


def backwards(request: Request) -> Any:
    """Prefer dark pictures, ties stay ties."""
    if "List of differences" in request.system:
        return say('{"differences": "none"}')
    if "Candidate A" in request.text:
        return say('{"reason": "first", "better": "A"}')
    return say(json.dumps({"reason": "dark", "score": 2 if brightness(request, "Edited Image") > 120 else 5}))


def cells(text: str) -> list[list[str]]:
    """The rows of a printed table, behind its title and header."""
    return [line.split() for line in text.splitlines()[2:]]


@pytest.mark.long
def test_three_judges_are_three_rows_and_every_cell_is_the_share_of_right_pairs(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ties are one of four on IA, none of two on VC, one of two on VQ: two of eight."""
    pairs = write_pairs(tmp_path / "data", EIGHT)
    for name, script in (("fair", fair), ("generous", generous), ("backwards", backwards)):
        assert run(["reward", str(pairs), *asked(scripted(script)), "--out", str(tmp_path / name), "-q"]) == 0
    assert (
        run(["reward", str(pairs), *asked(scripted(backwards)), "--out", str(tmp_path / "fair"), "-q", "--pairwise"])
        == 0
    )
    capsys.readouterr()
    assert run(["reward", *(str(tmp_path / name) for name in ("fair", "generous", "backwards")), "--table"]) == 0
    whole = ["8", "of", "8"]
    assert cells(capsys.readouterr().out) == [
        ["openai:gpt-4.1", "·", "fair", "1.0000", "1.0000", "1.0000", "1.0000", *whole],
        ["openai:gpt-4.1", "(pair-wise)", "0.0000", "0.0000", "0.0000", "0.0000", *whole],
        ["openai:gpt-4.1", "·", "generous", "0.2500", "0.0000", "0.5000", "0.2500", *whole],
        ["openai:gpt-4.1", "·", "backwards", "0.2500", "0.0000", "0.5000", "0.2500", *whole],
    ]
    assert run(["report", str(tmp_path / "fair"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "the table has the share in people's order" in report["answer"]
    (printed,) = report["tables"]
    assert printed["columns"][1:5] == ["Instruction Awareness", "Visual Consistency", "Visual Quality", "AVG"]
    assert [row[:5] for row in printed["rows"]] == [["point-wise", *["1.0000"] * 4], ["pair-wise", *["0.0000"] * 4]]


@pytest.mark.long
def test_kept_results_are_rows_beside_runs(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = write_pairs(tmp_path / "data")
    assert run(["reward", str(pairs), *asked(scripted(fair)), "--out", str(tmp_path / "run"), "-q"]) == 0
    numbers = tmp_path / "Ours.jsonl"
    numbers.write_text('{"pair": 1, "winner": 1, "loser": 2}\n{"pair": 3, "winner": 2, "loser": 1}\n', "utf-8")
    capsys.readouterr()
    assert run(["reward", str(pairs), "--scores", str(numbers), "--json"]) == 3
    kept = tmp_path / "ours.json"
    kept.write_text(capsys.readouterr().out, "utf-8")
    assert run(["reward", str(tmp_path / "run"), str(kept), "--table", "--json"]) == 0
    judge, ours = json.loads(capsys.readouterr().out)["rows"]
    assert judge == {"method": "openai:gpt-4.1", "IA": 1, "VC": 1, "VQ": 1, "AVG": 1, "judged": 4, "pairs": 4}
    assert ours == {"method": "Ours", "IA": 0, "VC": None, "VQ": 1, "AVG": 0.5, "judged": 2, "pairs": 4}
    assert run(["reward", str(kept), "--table", "--published"]) == 0
    rows = cells(capsys.readouterr().out)
    assert len(rows) == 1 + len(read_published_rows())
    assert rows[-6][:4] == ["Gemini", "3", "Flash", "(paper)"]
    assert rows[-6][4:] == ["0.8042", "0.5981", "0.4865", "0.7268"]


@pytest.mark.long
def test_rows_of_one_judge_are_named_by_the_settings_in_which_they_differ(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, server = write_pairs(tmp_path / "data", [("IA", "preference")]), scripted(fair)
    thinking = ["--extra-body", '{"chat_template_kwargs": {"enable_thinking": true}}']
    for out, options in (("one", []), ("one", thinking), ("two", ["--max-output-tokens", "900"]), ("three", [])):
        assert run(["reward", str(pairs), *asked(server), "--out", str(tmp_path / out), "-q", *options]) == 0
    capsys.readouterr()
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    assert run(["reward", *paths, "--table", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["method"] for row in rows] == [
        "openai:gpt-4.1 · one",
        "openai:gpt-4.1 · enable_thinking=true",
        "openai:gpt-4.1 · max_tokens=900",
        "openai:gpt-4.1 · three",
    ]


@pytest.mark.long
def test_the_table_is_written_for_papers_and_spreadsheets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs, numbers = write_pairs(tmp_path / "data"), tmp_path / "a_b.jsonl"
    numbers.write_text('{"pair": 1, "winner": 1, "loser": 2}\n{"pair": 3, "winner": 2, "loser": 1}\n', "utf-8")
    command = ["reward", str(pairs), "--scores", str(numbers), "--scores", f"Ours={numbers}"]
    assert run([*command, "--format", "csv"]) == 3
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a_b,0.0000,,1.0000,0.5000,2 of 4",
        "Ours,0.0000,,1.0000,0.5000,2 of 4",
    ]
    assert run([*command, "--format", "latex"]) == 3
    assert r"a\_b & 0.0000 & -- & 1.0000 & 0.5000 & 2 of 4 \\" in capsys.readouterr().out
    assert run([*command, "--format", "pdf"]) == 2
    assert '--format is one of text, latex, csv, md, json, not "pdf"' in capsys.readouterr().err
    assert run([*command[:4], "--format", "csv"]) == 2
    assert "--format is for the table of several judges" in capsys.readouterr().err


def test_the_published_averages_lie_between_their_dimensions() -> None:
    """An average over all pairs cannot leave the range of its parts: guards the numbers against slips of typing."""
    assert len(read_published_rows()) == 28
    for name, (*parts, average) in read_published_rows().items():
        known = [part for part in parts if part is not None]
        assert average is not None
        assert min(known) <= average <= max(known), name


def test_the_published_average_is_the_share_over_all_pairs() -> None:
    """About 1 485, 618 and 148 pairs give the AVG of Gemini 3.1 Pro; the mean of the dimensions is 0.6262."""
    *shares, average = read_published_rows()["Gemini 3.1 Pro"]
    pairs = (1485, 618, 148)
    right = sum(share * count for share, count in zip(shares, pairs, strict=True) if share is not None)
    assert right / sum(pairs) == pytest.approx(average, abs=2e-4)


def test_a_dimension_without_pairs_is_absent_and_not_zero() -> None:
    found = Accuracy(pairs=3, judged=3, correct=2)
    (row,) = build_pair_table([JudgeAccuracy("one", {"IA": found}, found)], PAIRS).rows
    assert row == ("one", "0.6667", None, None, "0.6667", "3 of 3")


@pytest.mark.long
def test_what_holds_no_pairs_is_one_sentence(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"judge": "x"}', "utf-8")
    assert run(["reward", str(other), "--table"]) == 2
    assert "is neither a run nor what `editloupe reward --json` printed" in capsys.readouterr().err
    assert run(["reward", str(tmp_path / "no"), "--table"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert run(["reward", str(other), "--table", "--best-of"]) == 2
    assert "--table and --best-of do not go together" in capsys.readouterr().err
    assert run(["reward", str(other), "--published"]) == 2
    assert "--published goes with --table" in capsys.readouterr().err
