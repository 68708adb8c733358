"""The studio's page on how far a run can be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evals.stats.trust.samples import kind_judge, write_labels
from tests.servers.studio.conftest import OpenStudio


@pytest.mark.long
def test_the_page_has_the_sentences_the_figure_and_changes_with_the_labels(studio: OpenStudio, tmp_path: Path) -> None:
    run, people = kind_judge(tmp_path, edits=40)
    client = studio(runs=(run,))
    assert 'href="/runs/run/trust"' in client.get("/runs/run").text
    before = client.get("/runs/run/trust").text
    assert "It is not known how far the judge agrees" in before
    assert "<svg viewBox" not in before
    write_labels(run / "labels.jsonl", people)
    after = client.get("/runs/run/trust").text
    assert "a bias of" in after
    assert 'class="chart-svg"' in after
