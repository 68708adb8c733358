"""Benchmarks that need other machines run here on tiny weights, so that they work when they are needed."""

from __future__ import annotations

import sys

import pytest


@pytest.mark.models
def test_the_benchmark_of_devices_prints_a_row_per_model_and_concurrency(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    from benchmarks import gpu

    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--seconds", "0.01", "--edits", "1", "3"])
    gpu.main()
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [(row[0].split()[0], row[1]) for row in rows[2:]] == [
        (name, edits) for name in ("detector", "enhancer", "features") for edits in ("1", "3")
    ]
    assert all(float(row[2]) > 0 and int(row[5]) > 0 for row in rows[2:])
    assert rows[2][4].endswith(" %")
