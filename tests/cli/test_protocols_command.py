"""`editloupe protocols`: every protocol with its metrics, pictures and source; texts and formulas of one."""

from __future__ import annotations

import pytest

from editloupe.cli.main import run
from editloupe.rubrics.registry import PROTOCOLS


def test_all_protocols_are_listed_with_metrics_inputs_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["protocols"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for known in PROTOCOLS:
        assert known.name in said
        assert " ".join(known.source.split()) in said
        for criterion in known.criteria:
            assert criterion in said
    assert "a number from 1 to 10; pictures: source, edited, (references), inputs; wordings: single, multi" in said


@pytest.mark.long
@pytest.mark.parametrize("known", PROTOCOLS, ids=lambda p: p.name)
def test_one_protocol_is_shown_with_its_texts_and_formulas(known, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert run(["protocols", "show", known.name]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for rubric in known.rubrics:
        assert " ".join(rubric.question.split()) in said, rubric.name
    assert known.arithmetic
    assert " ".join(known.arithmetic.split()) in said
    for formula in known.formulas.values():
        assert " ".join(formula.split()) in said
    for part in known.parts.values():
        assert " ".join(part.question.split()) in said


def test_the_checks_formula_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["protocols", "show", "vibe"]) == 0
    assert "billiards: sqrt(mean(path, collision) * context)" in capsys.readouterr().out
