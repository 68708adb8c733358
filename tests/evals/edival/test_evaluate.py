"""Chains judged from end to end with a scripted LMM and a scripted detector, every figure worked out by hand."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.main import run as command
from editloupe.evals.edival.files import write_json
from editloupe.evals.edival.judge import EdivalInstruments, EdivalJudge
from editloupe.evals.edival.metrics import compute_figures
from editloupe.evals.runs.store import Run
from editloupe.graphs.edival import CONSISTENCY, FOLLOWING, QUALITY
from editloupe.rubrics.edival.pools import KEY, build_turn, start_pools
from editloupe.rubrics.edival.rules import load_published
from editloupe.rubrics.edival.tasks import Task
from editloupe.tools.contract import ToolError
from editloupe.types import NOT_APPLICABLE, Edit, Reason, Unjudged, UserError, Verdict
from tests.conftest import StartServer
from tests.drawn_pictures import save
from tests.evals.edival import stand_ins as s
from tests.evals.edival.evaluate_once import run as evaluate
from tests.evals.edival.evaluate_once import stand_ins
from tests.scripted import Answer, Request, say


class Place:
    """Folders of one test."""

    def __init__(self, root: Path) -> None:
        self.chains, self.results, self.out = root / "chains", root / "results", root / "run"
        self.base = s.save_base(root / "photos")
        self.chain = s.kitchen_chain(self.chains, self.base)

    def outcome(self, edit_id: str, criterion: str, out: Path | None = None) -> Any:
        with Run.open(out or self.out) as run:
            return next(unit.outcome for unit in run.units(edit_id) if unit.criterion == criterion)

    def label(self, edit_id: str) -> str | None:
        found = self.outcome(edit_id, FOLLOWING)
        assert isinstance(found, Verdict), found
        return found.label


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def turns(*pictures: Any) -> dict[int, Any]:
    return dict(enumerate(pictures, 1))


@pytest.mark.long
def test_a_chain_of_three_turns_is_judged_by_detector_and_lmm(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    server = scripted(s.seeing)
    done = evaluate(place.chains, place.results, place.out, server.openai_url)
    assert done.complete
    assert [place.label(f"good/multi/kitchen/{n}") for n in (1, 2, 3)] == ["yes", "yes", "yes"]
    assert server.served == 1, "only the color is asked of the LMM"
    for n in (1, 2, 3):
        alike = place.outcome(f"good/multi/kitchen/{n}", CONSISTENCY)
        assert alike.score == pytest.approx(1)
        assert alike.values["object_l1"] == alike.values["background_l1"] == 1
    assert set(place.outcome("good/multi/kitchen/1", CONSISTENCY).values["objects"]) == {"wooden box", "paper red sign"}
    assert set(place.outcome("good/multi/kitchen/3", CONSISTENCY).values["objects"]) == {"paper red sign"}


@pytest.mark.long
def test_a_model_that_does_nothing_fails_every_turn_and_keeps_everything(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "lazy", "multi", turns(s.BASE, s.BASE, s.BASE))
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    assert [place.label(f"lazy/multi/kitchen/{n}") for n in (1, 2, 3)] == ["no", "no", "no"]
    figures = compute_figures(place.out).of("multi")[0]
    assert [t.chain.value for t in figures.turns] == [0, 0, 0]
    assert [t.consistency for t in figures.turns] == pytest.approx([1, 1, 1])
    assert figures.last.overall == 0


@pytest.mark.long
def test_what_drifts_is_measured_against_the_base_picture(place: Place, scripted: StartServer) -> None:
    """The ground turns bluish at turn 2: features of the painted-out pictures differ by a known cosine."""
    drifted = s.scene(
        ("ceramic blue cup", s.CUP),
        ("wooden box", s.BOX),
        ("paper red sign", s.SIGN),
        ("lamp", s.LAMP),
        ground=s.DRIFTED,
    )
    s.put(place.results, "drifting", "multi", {1: s.GOOD[0], 2: drifted})
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    values = place.outcome("drifting/multi/kitchen/2", CONSISTENCY).values
    cosine = (90 * 90 + 90 * 90 + 90 * 150) / (90 * math.sqrt(3) * math.sqrt(90**2 + 90**2 + 150**2))
    assert values["background"] == pytest.approx(cosine)
    assert values["background_l1"] == pytest.approx(1 - 60 / 255 / 3)
    assert values["object"] == pytest.approx(1)
    assert place.outcome("drifting/multi/kitchen/2", CONSISTENCY).score == pytest.approx((1 + cosine) / 2)
    assert place.label("drifting/multi/kitchen/2") == "yes"


@pytest.mark.long
def test_quality_is_reported_with_its_base_and_luminance(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    values = place.outcome("good/multi/kitchen/3", QUALITY).values
    own, base = s.GOOD[2].mean() / 25.5, s.BASE.mean() / 25.5
    assert values["hps"] == pytest.approx(own)
    assert values["hps_change"] == pytest.approx(abs(own - base))
    lamp = (0.2126 * 250 + 0.7152 * 220 + 0.0722 * 40) / 255
    assert values["p99"] == pytest.approx(lamp, abs=1e-6), "the lamp covers more than a hundredth of the picture"


@pytest.mark.long
def test_without_instruments_the_figures_are_left_out_and_said_so(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    bare = EdivalInstruments(s.ColorFinder(), None, None)
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url, bare)
    alike = place.outcome("good/multi/kitchen/1", CONSISTENCY)
    assert alike.score is None
    assert alike.values["background_l1"] == 1
    assert place.outcome("good/multi/kitchen/1", QUALITY).score is None
    figures = compute_figures(place.out)
    assert figures.models[0].last.consistency is None
    assert figures.models[0].last.consistency_l1 == 1
    assert len(figures.notes) == 2


@pytest.mark.long
def test_a_turn_after_a_missing_one_is_not_judged_and_the_picture_does_not_count(
    place: Place, scripted: StartServer
) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    s.put(place.results, "gaps", "multi", {1: s.GOOD[0], 3: s.GOOD[2]})
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    with Run.open(place.out) as run:
        assert {edit.id for edit, *_ in run.edits()} == {
            "gaps/multi/kitchen/1",
            *(f"good/multi/kitchen/{n}" for n in (1, 2, 3)),
        }
    by_model = {one.model: one for one in compute_figures(place.out).models}
    assert (by_model["gaps"].pictures, by_model["gaps"].counted) == (1, 0)
    assert by_model["gaps"].turns[0].chain.value is None
    as_far = {one.model: one for one in compute_figures(place.out, "per_turn").models}
    assert [t.chain.value for t in as_far["gaps"].turns] == [1, None, None]


@pytest.mark.long
def test_complex_pictures_are_judged_for_all_their_instructions_against_the_base(
    place: Place, scripted: StartServer
) -> None:
    half = s.scene(("ceramic blue cup", s.CUP), ("wooden box", s.BOX), ("paper red sign", s.SIGN), ("lamp", s.LAMP))
    s.put(place.results, "good", "complex", {1: s.GOOD[0], 2: s.GOOD[1], 3: half})
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    last = place.outcome("good/complex/kitchen/3", FOLLOWING)
    assert last.label == "no"
    assert last.values["follows"] == [True, True, False], "the box is still there"
    assert last.values["by"] == ["lmm", "detector", "detector"]
    figures = compute_figures(place.out).of("complex")[0]
    assert [t.chain.value for t in figures.turns] == [1, 1, 0]
    assert figures.last.tasks.value == pytest.approx(2 / 3)
    with Run.open(place.out) as run:
        edit, *_ = run.edit("good/complex/kitchen/3")
    assert edit.source == place.base
    assert edit.instruction == place.chain.complex["plain"][2]


@pytest.mark.long
def test_the_lmm_sees_the_enlarged_crop_and_one_question(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", {1: s.GOOD[0]})
    server = scripted(s.seeing)
    evaluate(place.chains, place.results, place.out, server.openai_url)
    request = server.requests[0]
    (shown,) = request.messages[-1].images
    assert shown.pixels == (192, 256), "the cup's 30 × 40 pixels, scaled up to a longer side of 256"
    assert 'whether the "ceramic white cup" is "blue"' in request.system


@pytest.mark.long
def test_the_lmm_sees_both_crops_if_the_setting_follows_equation_2(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))

    def compare(request: Request) -> Answer:
        before, after = (s.decode(image.data, "crop").pixels[8, 8] for image in request.messages[-1].images)
        cups = (s.PAINT["ceramic white cup"], s.PAINT["ceramic blue cup"])
        alike = all(np.abs(seen.astype(int) - cup).max() <= 12 for seen, cup in zip((before, after), cups, strict=True))
        return say(f'{{"reason": "crops", "answer": "{"yes" if alike else "no"}"}}')

    server = scripted(compare)
    rules = load_published().with_changes({"crops": "both"})
    evaluate(place.chains, place.results, place.out, server.openai_url, rules=rules)
    assert place.label("good/multi/kitchen/1") == "yes"
    (request,) = server.requests
    assert "Source Image shows what was there before" in " ".join(request.text.split())


@pytest.mark.long
def test_a_trace_tells_the_looks_of_detector_and_lmm(place: Place, scripted: StartServer, capsys: Any) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    with Run.open(place.out) as run:
        (colored,) = run.load_trace("good/multi/kitchen/1", FOLLOWING)
        (added,) = run.load_trace("good/multi/kitchen/2", FOLLOWING)
        (alike,) = run.load_trace("good/multi/kitchen/1", CONSISTENCY)
        assert all(
            run.pictures.find(sha) for step in added.steps for seen in step.observations for sha in seen.pictures
        )
    looked = [call.parameters["detect_object_name"] for call in colored.steps[0].calls]
    assert looked == ["ceramic white cup", "ceramic blue cup"], "not found by its old name, found by the other"
    assert colored.steps[1].answer is not None
    assert [step.index for step in colored.steps] == [0, 1]
    assert colored.prompt
    assert [seen.tool for seen in added.steps[0].observations] == ["detect_object"] * 3
    assert added.steps[-1].answer == "yes"
    assert alike.steps[-1].observations[0].tool == "compare_regions"
    assert command(["trace", str(place.out), "good/multi/kitchen/2"]) == 0
    told = capsys.readouterr().out
    assert 'No "lamp" was found in Source Image' in " ".join(told.split())


@pytest.mark.long
def test_an_unreadable_lmm_leaves_its_turn_unjudged_and_the_others_judged(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    evaluate(place.chains, place.results, place.out, scripted(lambda _: say("Looks blue to me!")).openai_url)
    first = place.outcome("good/multi/kitchen/1", FOLLOWING)
    assert isinstance(first, Unjudged)
    assert first.reason is Reason.UNREADABLE
    assert place.label("good/multi/kitchen/2") == "yes"
    figures = compute_figures(place.out).models[0]
    assert [t.marginal.value for t in figures.turns] == [None, 1, 1]
    assert [t.chain.unjudged for t in figures.turns] == [1, 1, 1]
    assert figures.last.chain.value is None
    assert figures.last.overall is None


@pytest.mark.long
def test_in_complex_mode_a_certain_failure_decides_what_the_lmm_left_open(place: Place, scripted: StartServer) -> None:
    """The color cannot be read; the lamp is not there at level 2, and at level 1 nothing else is known."""
    s.put(place.results, "good", "complex", {1: s.GOOD[0], 2: s.GOOD[0], 3: s.GOOD[2]})
    evaluate(place.chains, place.results, place.out, scripted(lambda _: say("Looks blue to me!")).openai_url)
    assert isinstance(place.outcome("good/complex/kitchen/1", FOLLOWING), Unjudged)
    second = place.outcome("good/complex/kitchen/2", FOLLOWING)
    assert (second.label, second.values["follows"]) == ("no", [None, False])
    assert isinstance(place.outcome("good/complex/kitchen/3", FOLLOWING), Unjudged), "what is known was followed"
    (model,) = compute_figures(place.out).models
    assert [(t.chain.successes, t.chain.judged, t.chain.unjudged) for t in model.turns] == [
        (0, 0, 1),
        (0, 1, 0),
        (0, 0, 1),
    ]
    assert (model.turns[1].tasks.judged, model.turns[1].tasks.unjudged) == (1, 1)


class Broken(s.ColorFinder):
    """A detector that fails on one phrase."""

    def find(self, pixels: Any, phrase: str) -> Any:
        if phrase == "lamp":
            raise ToolError("out of memory.")
        return super().find(pixels, phrase)


@pytest.mark.long
def test_a_detector_that_fails_leaves_unjudged_what_needed_it_and_is_tried_again(
    place: Place, scripted: StartServer
) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    url = scripted(s.seeing).openai_url
    evaluate(place.chains, place.results, place.out, url, EdivalInstruments(Broken(), s.MeanColor(), None))
    failed = place.outcome("good/multi/kitchen/2", FOLLOWING)
    assert isinstance(failed, Unjudged)
    assert "out of memory" in failed.detail
    assert place.label("good/multi/kitchen/1") == "yes"
    again = evaluate(
        place.chains, place.results, place.out, url, EdivalInstruments(s.ColorFinder(), s.MeanColor(), None)
    )
    assert place.label("good/multi/kitchen/2") == "yes"
    assert again.tally.held == 6, "turns 1 and 3 keep what they have but consistency, which needs the lamp"


@pytest.mark.long
def test_nothing_to_compare_is_not_applicable_and_complete(place: Place, scripted: StartServer, capsys: Any) -> None:
    """After the last turn no unchanged object is left and the background is not compared (Section O.4: None, left out)."""
    last = place.chain.turns[-1]
    empty = last.model_copy(update={"pools": last.pools.model_copy(update={"unchanged": (), "background": False})})
    chain = place.chain.model_copy(update={"turns": (*place.chain.turns[:-1], empty), "pools_given": True})
    write_json(place.chains / "kitchen.json", chain)
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    server = scripted(s.seeing)
    done = evaluate(place.chains, place.results, place.out, server.openai_url)
    found = place.outcome("good/multi/kitchen/3", CONSISTENCY)
    assert isinstance(found, Verdict)
    assert (found.label, found.score, found.score_100) == (NOT_APPLICABLE, None, None)
    assert done.exit_code(unjudged=False) == 0
    assert done.tally.unjudged.total() == 0
    figures = compute_figures(place.out)
    assert figures.not_applicable == {CONSISTENCY: 1}
    assert figures.of("multi")[0].last.consistency is None
    assert command(["report", str(place.out)]) == 0
    assert "1 verdict is not applicable: complete, without a score" in capsys.readouterr().out
    # Runs of earlier versions hold `missing_input` here: the same command judges it again without a request.
    with closing(sqlite3.connect(place.out / "run.sqlite")) as stored, stored:
        old = Unjudged(criterion=CONSISTENCY, reason=Reason.MISSING_INPUT, detail="as version 0.2 wrote it")
        values = (old.model_dump_json(), NOT_APPLICABLE)
        query = (
            "UPDATE units SET status = 'unjudged', reason = 'missing_input', label = NULL, outcome = ? WHERE label = ?"
        )
        assert stored.execute(query, values).rowcount == 1
    again = evaluate(place.chains, place.results, place.out, server.openai_url)
    assert (again.tally.judged, server.served) == (1, 1)
    assert place.outcome("good/multi/kitchen/3", CONSISTENCY).label == NOT_APPLICABLE


@pytest.mark.long
def test_a_broken_picture_is_unjudged_and_says_why(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    (place.results / "good/multi/kitchen/3.png").write_bytes(b"not a picture")
    evaluate(place.chains, place.results, place.out, scripted(s.seeing).openai_url)
    for criterion in (FOLLOWING, CONSISTENCY, QUALITY):
        found = place.outcome("good/multi/kitchen/3", criterion)
        assert found.reason is Reason.BAD_IMAGE


@pytest.mark.long
def test_the_same_call_again_asks_nothing_and_other_settings_ask_anew(place: Place, scripted: StartServer) -> None:
    s.put(place.results, "good", "multi", turns(*s.GOOD))
    server = scripted(s.seeing)
    evaluate(place.chains, place.results, place.out, server.openai_url)
    again = evaluate(place.chains, place.results, place.out, server.openai_url)
    assert (again.tally.held, again.tally.judged, server.served) == (9, 0, 1)
    other = load_published().with_changes({"threshold": 0.95})
    changed = evaluate(place.chains, place.results, place.out, server.openai_url, rules=other)
    assert changed.tally.judged > 0
    with Run.open(place.out) as run:
        units = [u for u in run.units("good/multi/kitchen/2") if u.criterion == FOLLOWING]
    labels = [unit.outcome.label for unit in units if isinstance(unit.outcome, Verdict)]
    assert sorted(map(str, labels)) == ["no", "yes"], "boxes of confidence 0.9 are below the second threshold"


@pytest.mark.long
def test_a_killed_evaluation_goes_on_where_it_was(place: Place, scripted: StartServer) -> None:
    """SIGKILL while the LMM is silent on one model's turn; what was judged before is not asked again."""
    for model in ("a", "b"):
        s.put(place.results, model, "multi", turns(*s.GOOD))
    # A picture of its own for model b, so that its question is another request than model a's.
    odd = s.GOOD[0].copy()
    odd[s.CUP[1], s.CUP[0]] = (21, 41, 221)
    save(odd, place.results / "b/multi/kitchen/1.png")

    def silent_on_b(request: Request) -> Answer:
        shown = s.decode(request.messages[-1].images[0].data, "crop").pixels
        flat = bool((shown == np.array(s.PAINT["ceramic blue cup"], np.uint8)).all())
        return s.seeing(request) if flat else s.seeing(request).after(60)

    server = scripted(silent_on_b)
    arguments = [str(place.chains), str(place.results), str(place.out), server.openai_url]
    process = subprocess.Popen([sys.executable, "-m", "tests.evals.edival.evaluate_once", *arguments])
    try:
        deadline = time.monotonic() + 60
        while _held(place.out) < 15 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    before, asked = _held(place.out), server.served
    assert before == 15, "all three figures of all pictures but the one the LMM is silent on"
    server.play(s.seeing)
    done = evaluate(place.chains, place.results, place.out, server.openai_url)
    assert done.complete
    assert (done.tally.held, done.tally.judged) == (15, 3)
    assert server.served - asked == 1, "nothing that was answered is asked again"
    assert [place.label(f"b/multi/kitchen/{n}") for n in (1, 2, 3)] == ["yes", "yes", "yes"]


def test_a_closed_judge_of_chains_judges_nothing(tmp_path: Path) -> None:
    picture = save(s.scene(("wooden box", s.BOX)), tmp_path / "box.png")
    turn = build_turn(start_pools([]), [Task(type="text_change", text="HELLO")], "multi", "kitchen")
    edit = Edit(source=picture, edited=picture, instruction="…", extra={KEY: turn.model_dump(mode="json")})
    judge = EdivalJudge("rules", stand_ins(), criteria=(CONSISTENCY,))
    judge.close()
    with pytest.raises(UserError, match="closed"):
        asyncio.run(judge.ajudge(edit))


def _held(out: Path) -> int:
    try:
        with Run.open(out) as run:
            return sum(isinstance(unit.outcome, Verdict) for unit in run.units())
    except UserError:
        return 0
