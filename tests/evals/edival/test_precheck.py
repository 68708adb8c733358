"""An LMM that must agree with the boxes about additions and replacements, where that is switched on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.edival.judge import EdivalJudge, estimate_tokens
from editloupe.evals.runs.store import Run
from editloupe.graphs.edival import FOLLOWING
from editloupe.rubrics.edival.pools import KEY
from editloupe.rubrics.edival.questions import build_precheck
from editloupe.rubrics.edival.rules import load_paper_settings, load_published
from editloupe.rubrics.edival.tasks import Task
from editloupe.types import Edit, Reason, Unjudged, Verdict
from tests.conftest import StartServer
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import run as evaluate
from tests.evals.edival.evaluate_once import stand_ins
from tests.scripted import Answer, Request, say

CHECKED = load_published().with_changes({"precheck": ["subject_add"]})


class Place:
    """A chain, the pictures of a model that does all it is asked, and a run."""

    def __init__(self, root: Path) -> None:
        self.chains, self.results, self.out = root / "chains", root / "results", root / "run"
        s.kitchen_chain(self.chains, s.save_base(root / "photos"))
        s.put(self.results, "good", "multi", dict(enumerate(s.GOOD, 1)))

    def added(self) -> Any:
        with Run.open(self.out) as run:
            return next(u.outcome for u in run.units("good/multi/kitchen/2") if u.criterion == FOLLOWING)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def saying(word: str) -> Any:
    def answer(request: Request) -> Answer:
        if sum(len(message.images) for message in request.messages) == 2:
            return say(f'{{"reason": "I looked.", "answer": "{word}"}}')
        return s.seeing(request)

    return answer


@pytest.mark.long
def test_without_it_boxes_decide_an_addition_alone(place: Place, scripted: StartServer) -> None:
    server = scripted(saying("no"))
    evaluate(place.chains, place.results, place.out, server.openai_url)
    assert place.added().label == "yes"
    assert place.added().values["by"] == ["detector"]
    assert server.served == 1


@pytest.mark.long
@pytest.mark.parametrize("word", ["yes", "no"])
def test_with_it_the_lmm_sees_both_pictures_and_must_agree(place: Place, scripted: StartServer, word: str) -> None:
    server = scripted(saying(word))
    evaluate(place.chains, place.results, place.out, server.openai_url, rules=CHECKED)
    found = place.added()
    assert isinstance(found, Verdict)
    assert (found.label, found.values["by"]) == (word, ["detector and lmm"])
    assert found.usage.requests == 1
    both = [request for request in server.requests if len(request.messages[-1].images) == 2]
    assert len(both) == 1
    assert 'Is "a lamp" to be seen after the edit' in both[0].system


@pytest.mark.long
def test_what_the_boxes_turn_down_is_not_asked(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", {2: s.GOOD[0]})
    server = scripted(saying("yes"))
    evaluate(place.chains, place.results, place.out, server.openai_url, rules=CHECKED)
    assert (place.added().label, place.added().values["by"]) == ("no", ["detector"])
    assert server.served == 1, "only the color of the first turn"


@pytest.mark.long
def test_an_answer_that_cannot_be_read_leaves_the_picture_unjudged(place: Place, scripted: StartServer) -> None:
    evaluate(place.chains, place.results, place.out, scripted(saying("perhaps")).openai_url, rules=CHECKED)
    found = place.added()
    assert isinstance(found, Unjudged)
    assert found.reason == Reason.UNREADABLE


def test_a_replacement_is_asked_by_both_names() -> None:
    asked = build_precheck(Task(type="subject_replace", object="stone railing", new_object="oak fence")).question
    assert "an oak fence" in asked
    assert 'the "stone railing"' in asked
    with pytest.raises(ValueError, match="has no pre-check"):
        build_precheck(Task(type="subject_remove", object="cup"))


def test_the_forecast_and_the_unit_know_of_it(scripted: StartServer, tmp_path: Path) -> None:
    url = scripted([]).openai_url
    with_it, without = (
        EdivalJudge("openai:gpt-4.1", stand_ins(), base_url=url, rules=r)
        for r in (load_paper_settings(), load_published())
    )
    task = {"type": "subject_replace", "object": "cup", "new_object": "mug"}
    edit = Edit(source=tmp_path / "a", edited=tmp_path / "b", instruction="x", extra={KEY: {"tasks": [task]}})
    assert estimate_tokens(edit, FOLLOWING, with_it.describe())["requests"] == 1
    assert estimate_tokens(edit, FOLLOWING, without.describe())["requests"] == 0
    texts = str(with_it.further_parameters()["questions"])
    assert 'where the "OBJECT" was before' in texts
    assert "that was not there before" not in texts, "the paper's set-up confirms replacements only"
    for judge in (with_it, without):
        judge.close()
