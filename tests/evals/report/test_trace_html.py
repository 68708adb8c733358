"""A trace as one file: everything inside, nothing active, whatever a model said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from tests.evals.samples import judgement

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    whole, album = judgement(tmp_path, thought=HOSTILE)
    human = whole.edit.model_copy(update={"human": {"instruction_following": "Flawless Execution"}})
    with Run.write(tmp_path / "run") as opened:
        opened.save(whole.model_copy(update={"edit": human}), album=album)
    return tmp_path / "run"


def test_one_file_holds_pictures_steps_and_what_people_said(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "sent" / "e0.html"
    assert command(["trace", str(run), "e0", "--format", "html", "--out", str(out)]) == 0
    page = out.read_text("utf-8")
    assert page.count("data:image/png;base64,") == 4, "source, edited, what was shown, and the crop"
    for part in (
        "Paint the [bold]cup[/bold] red",
        "Wrong Action",
        "Step 1",
        "zoom_in_image",
        "The cup.",
        "It is green.",
    ):
        assert part in page
    assert '<p class="apart">People: <strong>Flawless Execution</strong>' in page
    assert '<span class="chip level-2"><svg class="meter level-2"' in page
    assert '<span class="chip unjudged">Unjudged</span> <span class="soft">unreadable answer' in page
    assert 'id="trace-1-step-2"' in page


def test_the_page_loads_nothing_and_runs_nothing(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "e0.html"
    assert command(["trace", str(run), "e0", "--out", str(out)]) == 0, "the suffix says the format"
    page = out.read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert "default-src 'none'" in page


def test_a_picture_that_is_gone_is_named_as_missing(run: Path, tmp_path: Path) -> None:
    for path in (run / "pictures").rglob("*.*"):
        path.unlink()
    out = tmp_path / "e0.html"
    assert command(["trace", str(run), "e0", "--out", str(out)]) == 0
    assert "Source: missing from the run, or damaged." in out.read_text("utf-8")


def test_a_format_without_a_place_or_a_name_is_one_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["trace", str(run), "e0", "--format", "html"]) == 2
    assert "--format html needs --out FILE" in capsys.readouterr().err
    assert command(["trace", str(run), "e0", "--format", "xml"]) == 2
    assert '--format is one of text, json, html, not "xml"' in capsys.readouterr().err
