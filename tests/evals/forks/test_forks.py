"""Forks of kept traces, end to end through the real client: what is asked again, and what is never asked twice."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import Box, JudgeSettings, UserError, fork
from editloupe.cli.main import run as command
from editloupe.evals.forks import forks_of
from editloupe.evals.forks.fork_judge import JudgeChange
from editloupe.evals.forks.fork_store import count_labels, find_parting, group_forks
from editloupe.evals.runs.export.tables import iter_unit_rows
from editloupe.evals.runs.merging import merge_runs
from editloupe.evals.runs.pruning import prune
from editloupe.evals.runs.store import Run
from editloupe.graphs.forking import NO_RESULT
from editloupe.rubrics.registry import get_protocol
from tests.evals.forks.kept_runs import CRITERION, DIFFER, ZOOM, Keep, Kept, script, turns
from tests.rubrics.samples import reply_for
from tests.scripted import Request, calls, final, say, think_and_call_text, wrong_key


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "openai:qwen2.5-vl", "google_genai:gemini-3-pro"])
def test_a_dropped_observation_at_step_one_costs_only_the_requests_after_it(spec: str, keep: Keep) -> None:
    kept = keep(spec)
    assert len(kept.first) == 3
    made = kept.fork(1, drop=[1])
    assert made.label == "Wrong Action"
    assert len(kept.more) == 1 == made.paid.requests
    assert [len(step.calls) for step in made.trace.steps] == [1, 0]
    assert made.trace.steps[0].observations[0].text == NO_RESULT
    assert find_parting(made.parent.trace, made.trace) == 1
    assert made.changes == ("observation 1 dropped",)
    (asked,) = kept.more
    before = kept.first[1].body
    text = json.dumps(asked.body)
    assert NO_RESULT in text
    assert len(text) < len(json.dumps(before))  # the pictures of the observation are gone


@pytest.mark.long
def test_a_step_without_a_change_is_asked_again_with_exactly_what_was_sent_before(keep: Keep) -> None:
    kept = keep()
    made = kept.fork(2)
    assert len(kept.more) == 2
    assert kept.more[0].body == kept.first[1].body
    assert made.label == "Flawless Execution"
    assert find_parting(made.parent.trace, made.trace) is None
    assert made.changes == ("step 2 asked again",)


@pytest.mark.long
def test_a_fork_is_no_verdict_of_the_edit(keep: Keep) -> None:
    kept = keep()
    with Run.open(kept.run) as run:
        rows, spent = list(iter_unit_rows(run)), run.read_spending()
    kept.fork(1, drop=[1])
    with Run.open(kept.run) as run:
        assert list(iter_unit_rows(run)) == rows
        assert run.read_spending() == spent
    (one,) = forks_of(kept.run, "patch")
    assert (one.number, one.label) == (1, "Wrong Action")


@pytest.mark.long
def test_a_fork_whose_record_is_damaged_is_left_out_and_reported(keep: Keep) -> None:
    kept = keep()
    kept.fork(1, drop=[1])
    kept.fork(2)
    with closing(sqlite3.connect(kept.run / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE forks SET record = '{}' WHERE fork = 1")
    with Run.open(kept.run) as run:
        assert [group.numbers for group in group_forks(run)] == [[2]]
        assert run.damage.holds("forks", "1")


@pytest.mark.long
def test_a_fork_is_kept_in_another_run_whole(keep: Keep, tmp_path: Path) -> None:
    kept = keep()
    before = (kept.run / "run.sqlite").read_bytes()
    kept.fork(1, drop=[1], out=tmp_path / "forks")
    assert (kept.run / "run.sqlite").read_bytes() == before
    with Run.open(tmp_path / "forks") as run:
        assert list(iter_unit_rows(run)) == []
        (one,) = forks_of(run)
        shown = {sha for step in one.parent.trace.steps for seen in step.observations for sha in seen.pictures}
        assert shown
        assert all(sha in run.pictures for sha in shown)


@pytest.mark.long
def test_repeats_are_asked_one_by_one_and_their_labels_counted(keep: Keep) -> None:
    answers = iter(["Wrong Action", "Flawless Execution", "Wrong Action"])
    kept = keep(
        replies=lambda request: final(next(answers)) if NO_RESULT in json.dumps(request.body) else script(request)
    )
    made = fork(kept.run, "patch", CRITERION, 1, drop=[1], times=3)
    assert count_labels(made) == {"Wrong Action": 2, "Flawless Execution": 1}
    assert len(kept.more) == 3
    assert [one.number for one in made] == [1, 2, 3]
    assert {one.repeat for one in made} == {0, 1, 2}


@pytest.mark.long
def test_another_thought_and_another_box_go_into_the_conversation(keep: Keep) -> None:
    kept = keep()
    made = kept.fork(2, thought="I doubt the edges.", boxes={1: (10, 10, 90, 90)})
    assert len(kept.more) == 1
    text = json.dumps(kept.more[0].body)
    assert "I doubt the edges." in text
    assert "[10, 10, 90, 90]" in text or "[10,10,90,90]" in text.replace(" ", "")
    assert made.trace.steps[1].observations[0].data["asked"] == [10, 10, 90, 90]
    assert made.trace.steps[1].thought == "I doubt the edges."
    assert find_parting(made.parent.trace, made.trace) == 2


@pytest.mark.long
def test_another_thought_before_the_answer_has_the_answer_given_anew(keep: Keep) -> None:
    kept = keep(replies=lambda request: final("Wrong Action") if turns(request) == 3 else script(request))
    made = kept.fork(3, thought="The patch may be orange.")
    assert made.label == "Wrong Action"
    assert len(kept.more) == 1
    assert made.trace.steps[2].answer is None


@pytest.mark.long
def test_another_picture_is_shown_in_place_of_the_tools(keep: Keep, tmp_path: Path) -> None:
    kept = keep()
    Image.fromarray(np.full((40, 40, 3), 7, np.uint8)).save(tmp_path / "grey.png")
    made = kept.fork(2, pictures={1: tmp_path / "grey.png"})
    with Run.open(kept.run) as run:
        assert made.trace.steps[1].observations[0].pictures[0] in run.pictures
    assert made.trace.steps[1].observations[0].pictures != made.parent.trace.steps[1].observations[0].pictures
    assert made.trace.steps[2].sent[0].sha == made.trace.steps[1].observations[0].pictures[0]


@pytest.mark.long
def test_another_judge_goes_on_from_what_the_first_one_saw(keep: Keep) -> None:
    kept = keep()
    other = JudgeChange(judge="google_genai:gemini-3-pro", base_url=kept.server.gemini_url)
    made = kept.fork(3, other=other)
    assert made.judge == "google_genai:gemini-3-pro"
    assert made.label == "Flawless Execution"
    assert len(kept.more) == 1
    assert any(word.startswith("judge (openai:gpt-4.1, then") for word in made.changes)
    assert "put together from the trace" in made.notes[0]


def test_another_mode_leaves_the_tools_away_and_what_they_showed_in_the_text(keep: Keep) -> None:
    kept = keep()
    made = kept.fork(3, other=JudgeChange(mode="plain", base_url=kept.server.openai_url))
    (asked,) = kept.more
    assert "tools" not in asked.body
    assert "<tool_call>" in json.dumps(asked.body)
    assert made.mode == "plain"
    assert "mode (tools, then plain)" in made.changes


@pytest.mark.long
def test_a_rules_trace_goes_on_by_its_numbers_or_with_a_model(keep: Keep) -> None:
    kept = keep("rules")
    made = kept.fork(1, drop=[1])
    assert made.outcome.status == "judged"
    assert kept.more == []
    with pytest.raises(UserError, match="reads neither thoughts nor tools' pictures; name a model"):
        kept.fork(1, thought="Hm.")
    model = JudgeChange(judge="openai:gpt-4.1", base_url=kept.server.openai_url)
    assert kept.fork(1, drop=[1], other=model).label == "Wrong Action"


@pytest.mark.long
def test_a_fork_can_be_forked(keep: Keep, tmp_path: Path) -> None:
    kept = keep()
    first = kept.fork(2, thought="Closer.", out=tmp_path / "forks")
    (second,) = fork(tmp_path / "forks", "patch", CRITERION, 1, parent=first.number, drop=[1])
    assert second.parent.fork == 1
    assert second.parent.trace == first.trace
    assert second.label == "Wrong Action"
    assert len(kept.more) == 2


@pytest.mark.long
def test_a_fork_that_was_stopped_goes_on_without_paying_twice(keep: Keep) -> None:
    sick = True

    def replies(request: Request) -> Any:
        nonlocal sick
        if sick and turns(request) == 3:
            return wrong_key()
        return (DIFFER, ZOOM, ZOOM, final("Flawless Execution"))[turns(request)]

    sick = False
    kept = keep(replies=replies)
    sick = True
    with pytest.raises(UserError):
        kept.fork(2)
    assert forks_of(kept.run) == []
    asked = len(kept.more)
    sick = False
    made = kept.fork(2)
    assert made.label == "Flawless Execution"
    assert len(kept.more) == asked + 1


@pytest.mark.long
def test_merging_and_pruning_keep_forks_with_their_pictures(keep: Keep, tmp_path: Path) -> None:
    kept = keep()
    Image.fromarray(np.full((40, 40, 3), 9, np.uint8)).save(tmp_path / "grey.png")
    kept.fork(2, pictures={1: tmp_path / "grey.png"})
    kept.fork(1, drop=[1], out=tmp_path / "forks")
    merge_runs([kept.run, tmp_path / "forks"], tmp_path / "both")
    prune(tmp_path / "both")
    found = forks_of(tmp_path / "both")
    assert [one.number for one in found] == [1, 2]
    with Run.open(tmp_path / "both") as run:
        assert found[0].trace.steps[1].observations[0].pictures[0] in run.pictures
        assert len(list(iter_unit_rows(run))) == 1


WORDING = """
extends: dlebench/instruction_following
question: Was the patch painted as asked?
"""


@pytest.mark.long
def test_other_words_for_the_rubric_are_asked_from_the_step_on(keep: Keep, tmp_path: Path) -> None:
    kept = keep()
    (tmp_path / "words.yaml").write_text(WORDING)
    made = kept.fork(2, other=JudgeChange(rubrics=(tmp_path / "words.yaml",)))
    assert "Was the patch painted as asked?" in json.dumps(kept.more[0].body)
    assert "Was the patch painted as asked?" not in json.dumps(kept.first[1].body)
    assert made.changes == ("the wording of instruction_following",)
    assert len(kept.more) == 2


@pytest.mark.long
def test_a_reply_that_was_not_accepted_is_followed_by_the_words_of_the_rubric(keep: Keep, tmp_path: Path) -> None:
    words = tmp_path / "words.yaml"
    words.write_text(f"{WORDING}wording:\n  not_carried_out: Left alone.\n")
    both = calls(DIFFER, text="<Start Final Answer>Wrong Action</Start Final Answer>")
    kept = keep(
        replies=lambda request: (both, ZOOM, final("Wrong Action"))[turns(request)],
        rubrics=(words,),
    )
    kept.fork(3, other=JudgeChange(rubrics=(words,)))
    assert "Left alone." in json.dumps(kept.first[2].body)
    assert kept.more[0].body == kept.first[2].body


@pytest.mark.long
def test_other_tool_settings_hold_for_a_call_that_is_carried_out_again(keep: Keep) -> None:
    kept = keep()
    made = kept.fork(1, again=[1], other=JudgeChange(tools={"overview": True}))
    pictures = made.trace.steps[0].observations[0].pictures
    assert len(pictures) == len(made.parent.trace.steps[0].observations[0].pictures) + 1
    assert "call 1 carried out again" in made.changes


@pytest.mark.long
def test_a_text_call_with_another_box_is_written_anew(keep: Keep) -> None:
    kept = keep(
        replies=lambda request: think_and_call_text("I look.", ZOOM) if turns(request) == 0 else final("Wrong Action"),
        settings=JudgeSettings(tool_calls="text"),
    )
    made = kept.fork(1, boxes={1: (10, 10, 90, 90)})
    said = next(m for m in kept.more[0].messages if m.role == "assistant").text
    assert '"bbox_2d": [10, 10, 90, 90]' in said
    assert "50, 30" not in said
    assert made.trace.steps[0].thought == "I look."


@pytest.mark.long
def test_a_trace_without_kept_replies_is_put_together_from_its_steps(
    keep: Keep, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = keep()
    with sqlite3.connect(kept.run / "run.sqlite") as connection:
        connection.execute("DELETE FROM replies")
    arguments = ["fork", str(kept.run), "patch", "--criterion", CRITERION, "--step", "2", "--json"]
    assert command(arguments) == 0
    assert "replies of step 1 are put together from the trace" in capsys.readouterr().err
    assert kept.more[0].body["messages"] == kept.first[1].body["messages"]


@pytest.mark.long
def test_a_picture_that_the_run_lost_is_a_sentence_and_the_call_can_be_made_again(keep: Keep) -> None:
    kept = keep()
    prune(kept.run, pictures=True)
    with pytest.raises(UserError, match="no longer holds a picture that step 1 showed"):
        kept.fork(2)
    with pytest.raises(UserError, match="--again 1 carries the call out again"):
        kept.fork(1, thought="Hm.")
    assert kept.fork(1, again=[1]).label == "Flawless Execution"
    assert kept.fork(1, drop=[1]).label == "Wrong Action"


@pytest.mark.long
def test_one_target_of_several_is_forked_alone(keep: Keep) -> None:
    boxes = (Box(x1=60, y1=40, x2=100, y2=70), Box(x1=5, y1=5, x2=30, y2=30))
    kept = keep(replies=lambda _: final("Wrong Action"), mode="oracle", boxes=boxes)
    assert len(kept.first) == 2
    with pytest.raises(UserError, match="judged for 2 targets one by one; name one with --target"):
        kept.fork(1)
    made = kept.fork(1, target=2)
    assert made.trace.target == 1
    assert len(kept.more) == 1


class TestTwoQuestions:
    """A rubric that has the differences listed first."""

    CRITERION = "unedited_region_consistency"

    def kept(self, keep: Keep, **options: Any) -> Kept:
        paper = get_protocol("edit-compass")
        return keep(
            replies=lambda request: say(reply_for(paper, request.system)),
            kind="ADD",
            protocol=paper.name,
            criteria=[self.CRITERION],
            **options,
        )

    @pytest.mark.long
    def test_the_second_is_asked_again_without_the_first(self, keep: Keep) -> None:
        kept = self.kept(keep)
        assert len(kept.first) == 2
        (made,) = fork(kept.run, "patch", self.CRITERION, 2)
        assert len(kept.more) == 1
        assert kept.more[0].body == kept.first[1].body
        assert [step.index for step in made.trace.steps] == [0, 1]
        assert made.outcome.status == "judged"

    @pytest.mark.long
    def test_a_fork_of_the_first_asks_the_second_too(self, keep: Keep) -> None:
        kept = self.kept(keep)
        (made,) = fork(kept.run, "patch", self.CRITERION, 1)
        assert len(kept.more) == 2
        assert made.outcome.status == "judged"

    @pytest.mark.long
    def test_a_list_made_by_the_tool_is_taken_as_it_was(self, keep: Keep) -> None:
        kept = self.kept(keep, settings=JudgeSettings(differences="tool"))
        (made,) = fork(kept.run, "patch", self.CRITERION, 2)
        assert len(kept.more) == 1
        assert made.trace.steps[0].observations[0].cached
        with pytest.raises(UserError, match="made before the judge was asked; fork at step 2"):
            fork(kept.run, "patch", self.CRITERION, 1)
