"""The Trace page marks checked claims in the judge's words, with their evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from editloupe.cli.main import run
from editloupe.servers.studio.traces.claim_marks import MarkedClaims
from tests.drawn_pictures import edit_pair
from tests.servers.studio.conftest import OpenStudio

PICTURES = {"source": "a1", "edited": "b2"}


def claim(text: str, start: int | None, state: str = "supported", step: int | None = 0) -> dict[str, Any]:
    evidence = {"why": "they differ", "boxes": [[1, 2, 3, 4]], "numbers": {"contrast": 9.5}}
    return {"text": text, "start": start, "step": step, "state": state, "kind": "region_changed", "evidence": evidence}


def test_a_text_is_split_at_its_claims_and_stays_whole() -> None:
    text = "It is red. It is red. Nothing else."
    claims = [claim("It is red.", 11), claim("It is red.", 11, "contradicted"), claim("Nothing else.", 22, step=1)]
    pieces = MarkedClaims(claims, PICTURES).pieces(text, 0)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.evidence] == ["It is red."]
    assert [evidence.state for evidence in pieces[1].evidence] == ["contradicted", "supported"], "the worst first"
    assert pieces[1].evidence[0].crops == (("/pictures/a1/crop/a1?box=1,2,3,4", "/pictures/b2/crop/a1?box=1,2,3,4"),)
    assert [piece.text for piece in MarkedClaims(claims, PICTURES).pieces(text) if piece.evidence] == [
        "It is red.",
        "Nothing else.",
    ], "a rationale may be the thought of any step"


def test_words_that_are_not_in_a_text_are_not_marked() -> None:
    assert [*MarkedClaims([claim("Elsewhere.", 3)], {}).pieces("Here.", 0)] == [("Here.", ())]


def test_claims_are_marked_once_the_run_is_verified_and_the_report_states_their_share(
    studio: OpenStudio, tmp_path: Path, capsys: Any
) -> None:
    before, after = edit_pair(tmp_path)
    row = {"id": "e", "source": before.name, "edited": after.name, "instruction": "Change the color of the cup to red"}
    (tmp_path / "edits.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    folder = tmp_path / "run"
    assert run(["batch", str(tmp_path / "edits.jsonl"), "--judge", "rules", "--out", str(folder), "--quiet"]) == 0
    address = "/runs/run/trace?edit=e&criterion=visual_consistency"
    with studio(runs=(folder,)) as client:
        assert 'class="claim' not in client.get(address).text
        assert run(["verify", str(folder), "--quiet"]) == 0
        page = client.get(address).text
    assert '<span class="claim supported" tabindex="0">They differ in 1 region.<span class="evidence"' in page
    assert "claims checked against the pixels" in page
    capsys.readouterr()
    assert run(["report", str(folder), "--format", "json"]) == 0
    assert "Checked against the pixels: of 2 verdicts" in capsys.readouterr().out
