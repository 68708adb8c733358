"""Agreement of people on a manifest that no judge has seen."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.stats.agreement.coefficients import alpha
from tests.evals.sample_runs import IF, VC, VC_LABELS
from tests.evals.samples import write_picture

TYPES = ("Change OCR", "Change Color")


def labelled_manifest(folder: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """Write a manifest with three annotators' labels, and return their scores on instruction following."""
    scores = np.random.default_rng(3).integers(1, 5, (24, 3))
    scores[:, 1] = scores[:, 0]
    source = write_picture(folder / "source.png", 1, (40, 30))
    lines = [
        {
            "id": f"e{n}",
            "source": source.name,
            "edited": source.name,
            "instruction": "Paint it red",
            "instruction_type": TYPES[n % 2],
            "style": "photo" if n < 6 else "sketch",
            "human": {IF: [int(score) for score in row], VC: VC_LABELS[3]},
        }
        for n, row in enumerate(scores)
    ]
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, scores.astype(float)


@pytest.mark.long
def test_people_on_a_manifest_without_a_run_are_compared_by_type_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, scores = labelled_manifest(tmp_path)
    assert command(["agree", str(path), "--by", "style", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    people = found[IF]["people"]
    assert people["krippendorff_alpha"]["value"] == pytest.approx(alpha(scores)[0])
    assert list(people["by_type"]) == ["Change Color", "Change OCR"], "in the protocol's order"
    assert people["by_type"]["Change OCR"]["krippendorff_alpha"]["value"] == pytest.approx(alpha(scores[::2])[0])
    assert found[IF]["by"]["style"]["photo"]["n"] == 6
    assert len(people["pairs"]) == 3
    assert found[VC]["people"] is None, "one label per edit"
    assert command(["agree", str(path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["type"], row["measure"]) for row in rows} == {
        (kind, measure) for kind in ("all", *TYPES) for measure in ("people_krippendorff_alpha", "people_exact")
    }
    assert command(["agree", str(path)]) == 0
    assert "Krippendorff α" in capsys.readouterr().out
    assert command(["agree", str(path), "--format", "latex"]) == 0
    assert r"\caption{Krippendorff $\alpha$}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--protocol", "wiseedit"], "no label on a criterion of wiseedit"),
        (["--by", "stile"], 'has a column "stile"'),
        (["--figures", "f"], "need a run"),
        (["--human", "none.csv"], "a file of human labels was not found at none.csv\n"),
    ],
)
def test_what_a_manifest_cannot_give_is_refused(
    tmp_path: Path, options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = labelled_manifest(tmp_path)
    if "wiseedit" in options:
        path.write_text(path.read_text().replace(IF, "style_of_it"))
    assert command(["agree", str(path), *options]) == 2
    assert sentence in capsys.readouterr().err
