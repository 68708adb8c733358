"""A case is judged by the engine it names, and what judges it is no part of its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, UserError
from editloupe.graphs.engines import ENGINES
from editloupe.rubrics import registry
from editloupe.rubrics.case import Case
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.registry import DEFAULT
from tests.drawn_pictures import edit_pair


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


@pytest.fixture
def usual() -> Iterator[Judge]:
    with Judge("rules", mode="plain") as judge:
        yield judge


@pytest.fixture
def odd(usual: Judge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    """A judge whose protocol names an engine that does not exist."""

    def make_cases(*given: Any) -> list[Case]:
        return [case.model_copy(update={"engine": "steam"}) for case in DEFAULT.make_cases(*given)]

    monkeypatch.setattr(registry, "PAPERS", (Paper(replace(DEFAULT, make_cases=make_cases)),))
    with Judge("rules", mode="plain") as judge:
        yield judge


def test_a_case_goes_to_the_loop_unless_it_says_otherwise() -> None:
    assert Case.model_fields["engine"].default == "loop"
    assert set(ENGINES) == {"loop", "objects", "measure"}


def test_an_unknown_engine_is_one_sentence(odd: Judge, edit: Edit) -> None:
    with pytest.raises(UserError, match="there is no engine steam; there are: loop, objects, measure"):
        odd.judge(edit)


def test_the_engine_is_no_part_of_a_units_key(usual: Judge, odd: Judge, edit: Edit) -> None:
    for criterion in usual.criteria:
        assert usual.question_spec(edit, criterion).key == odd.question_spec(edit, criterion).key
