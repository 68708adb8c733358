"""The example notebook runs from the first cell to the last, as a script."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[3] / "docs" / "examples" / "report.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_prints_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)
    told = capsys.readouterr().out
    assert "Judgement of " in told
    assert "<table>" in names["judgement"]._repr_html_()
    assert "overall " in told
    assert "instruction_following mae " in told
    assert "A - B: " in told
    assert "rule-based baseline" in told
    assert (names["folder"] / "score_per_type.pdf").read_bytes().startswith(b"%PDF")
