"""The ranking of the studio's runs: only rows with the same passport are ranked together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.evals.sample_runs import Line, make_run
from tests.servers.studio.conftest import OpenStudio

pytestmark = pytest.mark.long


def rows(page: str) -> list[list[str]]:
    body = re.findall(r"<tbody>(.*?)</tbody>", page, re.S)[0]
    return [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", body)
    ]


def test_runs_of_one_judge_are_ranked_and_those_of_another_apart_with_the_reason(
    studio: OpenStudio, tmp_path: Path
) -> None:
    for name, score, judge in (("low", 1, "openai:a"), ("high", 4, "openai:a"), ("other", 3, "openai:b")):
        lines = [Line(f"e{n}", score, model=name) for n in range(12)]
        make_run(tmp_path / name, lines, judge=judge)
    client = studio(runs=tuple(tmp_path / name for name in ("low", "high", "other")))
    assert 'href="/ranking"' in client.get("/runs").text
    page = client.get("/ranking").text
    ranks = {row[0].partition(" ")[0]: row[1] for row in rows(page)}
    assert ranks == {"high": "1", "low": "2", "other": "–", "(nothing": "–"}, (
        "what nothing can be compared with has no rank"
    )
    assert "Ranked apart from" in page
    assert "They have different judges" in page
    assert page.count("Passport ") == 2


def test_a_run_that_cannot_be_read_is_named(studio: OpenStudio, tmp_path: Path) -> None:
    make_run(tmp_path / "good", [Line("e1", 4)])
    make_run(tmp_path / "bad", [Line("e1", 4)])
    client = studio(runs=(tmp_path / "good", tmp_path / "bad"))
    for file in (tmp_path / "bad").glob("*.sqlite*"):
        file.unlink()
    (tmp_path / "bad" / "run.sqlite").write_bytes(b"no database")
    page = client.get("/ranking")
    assert page.status_code == 200
    assert "bad" in page.text


def test_a_studio_without_verdicts_says_so(studio: OpenStudio) -> None:
    assert "Nothing has been judged yet." in studio(runs=()).get("/ranking").text


def test_the_charts_of_a_run_have_its_passport(studio: OpenStudio, tmp_path: Path) -> None:
    make_run(tmp_path / "run", [Line(f"e{n}", n % 4 + 1) for n in range(6)])
    assert "Passport " in studio(runs=(tmp_path / "run",)).get("/runs/run/charts").text
