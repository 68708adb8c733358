"""Judge from Python: one edit, many edits, keys of units, bad input in a batch."""

from __future__ import annotations

import asyncio
import io
import re
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings, Reason, Unjudged, UserError, Verdict
from editloupe.judge.edit_batches import BUFFER, EditProgress
from editloupe.pictures.decode import hash_file
from editloupe.tools.settings import ToolSettings
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, save, textured
from tests.scripted import Request, final, wrong_key


def labelled(request: Request) -> Any:
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


async def test_judge_works_inside_and_outside_a_running_loop(edit: Edit, scripted: StartServer) -> None:
    async with Judge("google_genai:gemini-2.5-pro", base_url=scripted(labelled).gemini_url) as judge:
        inside = await judge.ajudge(edit)
        outside = await asyncio.to_thread(judge, edit)
    assert inside.judged
    assert [v.criterion for v in outside.verdicts] == ["instruction_following", "visual_consistency"]


def numbered(edit: Edit, count: int) -> list[Edit]:
    """The same pictures under other ids and instructions; the instruction names the number."""
    return [edit.model_copy(update={"id": str(n), "instruction": f"Paint patch {n}."}) for n in range(count)]


def slow_first(request: Request) -> Any:
    return labelled(request).after(1.5 if "Paint patch 0." in request.text else 0.0)


@pytest.mark.long
def test_a_batch_keeps_the_order_of_its_edits_and_another_yields_them_as_they_finish(
    edit: Edit, scripted: StartServer
) -> None:
    server = scripted(slow_first)
    with Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain") as judge:
        in_order = [judgement.edit.id for judgement in judge.batch(numbered(edit, 4), concurrency=8)]
        finished = [judgement.edit.id for judgement in judge.batch_as_completed(numbered(edit, 4), concurrency=8)]
    assert in_order == ["0", "1", "2", "3"]
    assert sorted(finished) == in_order
    assert finished[0] != "0"


@pytest.mark.long
async def test_asynchronous_batches_keep_the_order_or_yield_as_they_finish(edit: Edit, scripted: StartServer) -> None:
    server = scripted(slow_first)
    async with Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain") as judge:
        in_order = [judgement.edit.id async for judgement in judge.abatch(numbered(edit, 4), 8)]
        finished = [judgement.edit.id async for judgement in judge.abatch_as_completed(numbered(edit, 4), 8)]
    assert in_order == sorted(finished) == ["0", "1", "2", "3"]
    assert finished[0] != "0"


@pytest.mark.long
def test_a_slow_first_edit_holds_back_a_bounded_number_of_others(edit: Edit, scripted: StartServer) -> None:
    taken = []

    def edits() -> Iterator[Edit]:
        for each in numbered(edit, 60):
            taken.append(each.id)
            yield each

    server = scripted(lambda request: labelled(request).after(0.6 if "Paint patch 0." in request.text else 0.0))
    with Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain") as judge:
        judgements = judge.batch(edits(), concurrency=4)
        assert next(judgements).edit.id == "0"
        assert 4 < len(taken) <= BUFFER * 4
        judgements.close()


def test_progress_goes_to_standard_error_and_counts_what_is_unjudged(
    edit: Edit, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = edit.model_copy(update={"edited": tmp_path / "none.png"})
    with Judge("openai:gpt-4.1", base_url=scripted(labelled).openai_url, mode="plain") as judge:
        list(judge.batch([edit, missing], progress=True))
        list(judge.batch([edit]))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"editloupe: 2 of 2 edits finished, 1 with something unjudged in \d+ s\n", printed.err)


def test_progress_on_a_terminal_rewrites_one_line(edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editloupe.judge.edit_batches.REFRESH_EVERY", 0.0)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    progress = EditProgress(3, terminal)
    with Judge("rules", mode="plain") as judge:
        for _ in range(2):
            progress.add(judge(edit))
    progress.end()
    states = terminal.getvalue().split("\r")[1:]
    assert [state.split(" finished")[0] for state in states] == [f"editloupe: {n} of 3 edits" for n in (1, 2, 2)]
    assert " left" in states[0]
    assert terminal.getvalue().count("\n") == 1


@pytest.mark.long
def test_many_edits_come_as_they_finish_and_are_taken_lazily(edit: Edit, scripted: StartServer) -> None:
    taken = []

    def edits() -> Iterator[Edit]:
        for number in range(12):
            taken.append(number)
            yield edit.model_copy(update={"id": str(number)})

    server = scripted(lambda request: labelled(request).after(0.05))
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain")
    seen = []
    for judgement in judge.batch_as_completed(edits(), concurrency=3):
        seen.append(judgement.edit.id)
        assert len(taken) <= len(seen) + 2 * 3 + 1
    assert sorted(seen, key=int) == [str(n) for n in range(12)]
    assert server.peak == 3


def test_a_batch_without_any_requests_under_way_is_a_mistake(edit: Edit) -> None:
    with pytest.raises(UserError, match="at least 1, not 0"):
        list(Judge("rules").batch([edit], concurrency=0))


def test_a_batch_can_be_left_early(edit: Edit, scripted: StartServer) -> None:
    server = scripted(labelled)
    judge = Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain")
    for _ in judge.batch((edit.model_copy(update={"id": str(n)}) for n in range(200)), concurrency=2):
        break
    assert server.served < 100


def test_bad_input_in_a_batch_is_unjudged_and_the_others_are_judged(
    edit: Edit, tmp_path: Path, scripted: StartServer
) -> None:
    missing = edit.model_copy(update={"id": "missing", "edited": tmp_path / "none.png"})
    judge = Judge("openai:gpt-4.1", base_url=scripted(labelled).openai_url)
    found = {j.edit.id: j for j in judge.batch([missing, edit])}
    assert found["after"].judged
    assert {v.reason for v in found["missing"].verdicts if isinstance(v, Unjudged)} == {Reason.BAD_IMAGE}


async def test_a_missing_or_broken_picture_is_unjudged_alone_as_in_a_batch(edit: Edit, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and nothing more")
    edits = [edit.model_copy(update={"edited": path}) for path in (tmp_path / "none.png", broken)]
    with Judge("rules") as judge:
        batch = {judgement.edit.edited: judgement.verdicts for judgement in judge.batch(edits)}
        for bad in edits:
            assert judge(bad).verdicts == judge.judge(bad).verdicts == batch[bad.edited]
            assert (await judge.ajudge(bad)).verdicts == batch[bad.edited]
            assert [v.reason for v in batch[bad.edited] if isinstance(v, Unjudged)] == [Reason.BAD_IMAGE] * 2


def test_a_strict_judge_raises_one_sentence_for_a_missing_picture_without_frames_of_the_graph(
    edit: Edit, tmp_path: Path
) -> None:
    missing = edit.model_copy(update={"source": tmp_path / "none.png"})
    with Judge("rules") as judge, pytest.raises(UserError, match=r"^there is no picture at \S*none.png$") as raised:
        judge(missing, strict=True)
    told = "".join(traceback.format_exception(raised.value))
    assert "langgraph" not in told
    assert "During" not in told
    assert raised.value.__cause__ is None
    assert len(traceback.extract_tb(raised.value.__traceback__)) < 10


def test_a_wrong_key_raises_one_sentence_without_frames_of_the_graph(edit: Edit, scripted: StartServer) -> None:
    judge = Judge("openai:gpt-4.1", base_url=scripted(lambda _: wrong_key()).openai_url)
    with pytest.raises(UserError, match="key") as raised:
        judge(edit)
    assert "langgraph" not in "".join(traceback.format_exception(raised.value))


def test_a_wrong_key_ends_a_batch(edit: Edit, scripted: StartServer) -> None:
    judge = Judge("openai:gpt-4.1", base_url=scripted(lambda _: wrong_key()).openai_url)
    with pytest.raises(UserError, match="key"):
        list(judge.batch([edit]))


def test_oracle_without_boxes_in_a_batch_is_missing_input(edit: Edit, scripted: StartServer) -> None:
    judge = Judge("openai:gpt-4.1", mode="oracle", base_url=scripted(labelled).openai_url)
    (judgement,) = judge.batch([edit])
    assert {v.reason for v in judgement.verdicts if isinstance(v, Unjudged)} == {Reason.MISSING_INPUT}


CRITERION = "instruction_following"


@pytest.fixture
def with_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")


def key(judge: Judge, edit: Edit, criterion: str = CRITERION) -> tuple[str, str | None]:
    """What is asked, and what of the edit is shown."""
    hashes = {path: hash_file(path) for path in edit.paths}
    return judge.question_spec(edit, criterion).key, judge.inputs_key(edit, criterion, hashes)


@pytest.mark.usefixtures("with_key")
def test_the_key_of_a_unit_changes_with_what_decides_it(edit: Edit, tmp_path: Path) -> None:
    judge = Judge("openai:gpt-4.1")
    other_picture = save(textured(seed=5), tmp_path / "x.png")
    others = {
        key(judge, edit, "visual_consistency"),
        key(judge, edit.model_copy(update={"instruction": "Remove it"})),
        key(judge, edit.model_copy(update={"edited": other_picture})),
        key(judge, edit.model_copy(update={"hint": "it is blue"})),
        key(Judge("openai:gpt-4.1", mode="plain"), edit),
        key(Judge("openai:gpt-4o"), edit),
        key(Judge("openai:gpt-4.1", settings=JudgeSettings(max_turns=3)), edit),
        key(Judge("openai:gpt-4.1", settings=JudgeSettings(temperature=0.5)), edit),
        key(Judge("openai:gpt-4.1", settings=JudgeSettings(our_notes=False)), edit),
        key(Judge("openai:gpt-4.1", tools=ToolSettings(max_regions=2)), edit),
    }
    assert key(judge, edit) not in others
    assert len(others) == 10


@pytest.mark.usefixtures("with_key")
def test_the_key_of_a_unit_knows_nothing_that_cannot_change_the_answer(edit: Edit, tmp_path: Path) -> None:
    judge = Judge("openai:gpt-4.1")
    facts = {
        "id": "other",
        "source": save(textured(), tmp_path / "elsewhere.png"),
        "model": "someone's",
        "instruction_type": "Change Color",
        "human": {CRITERION: "Wrong Action"},
        "extra": {"column": 3},
        "reference": save(textured(seed=9), tmp_path / "reference.png"),
    }
    assert key(judge, edit.model_copy(update=facts)) == key(judge, edit)
    for other in (
        Judge("openai:gpt-4.1", base_url="http://127.0.0.1:9/v1"),
        Judge("openai:gpt-4.1", settings=JudgeSettings(timeout=5)),
        Judge("openai:gpt-4.1", criteria=[CRITERION]),
    ):
        assert key(other, edit) == key(judge, edit)


@pytest.mark.usefixtures("with_key")
def test_what_a_mode_without_tools_is_asked_does_not_depend_on_tools(edit: Edit) -> None:
    with (
        Judge("openai:gpt-4.1", mode="plain") as one,
        Judge("openai:gpt-4.1", mode="plain", tools=ToolSettings(max_regions=2)) as other,
    ):
        assert key(one, edit) == key(other, edit)


@pytest.mark.usefixtures("with_key")
def test_the_embedded_judge_is_not_asked_anew_for_words_it_does_not_read(edit: Edit, tmp_path: Path) -> None:
    rewording = tmp_path / "words.yaml"
    rewording.write_text("extends: dlebench/instruction_following\nquestion: Was it done?\n")
    assert key(Judge("rules", rubrics=[rewording]), edit) == key(Judge("rules"), edit)
    changed = key(Judge("openai:gpt-4.1", rubrics=[rewording]), edit)
    assert changed != key(Judge("openai:gpt-4.1"), edit)


@pytest.mark.long
def test_the_type_of_an_instruction_is_told_only_where_that_is_asked_for(edit: Edit, scripted: StartServer) -> None:
    server = scripted(labelled)
    typed = edit.model_copy(update={"instruction_type": "Change Material"})
    for tells in (None, ("instruction", "type")):
        settings = JudgeSettings(tells=tells)
        with Judge("openai:gpt-4.1", mode="plain", base_url=server.openai_url, settings=settings) as judge:
            assert judge.judge(typed).verdicts
    told = ['Type of instruction: "Change Material"' in request.text for request in server.requests]
    assert sorted(told) == [False, False, True, True]


@pytest.mark.long
def test_the_embedded_judge_gives_the_same_verdict_every_time(edit: Edit) -> None:
    first, second = (Judge("rules")(edit) for _ in range(2))
    assert [v.model_dump() for v in first.verdicts] == [v.model_dump() for v in second.verdicts]
    assert all(isinstance(v, Verdict) and v.rationale for v in first.verdicts)


def test_one_criterion_may_be_named_by_a_text_alone(edit: Edit) -> None:
    with Judge("rules", mode="plain", criteria="visual_consistency") as judge:
        assert judge.criteria == ("visual_consistency",)
    with Judge("rules", mode="plain") as judge:
        assert [one.criterion for one in judge(edit, criteria="visual_consistency").verdicts] == ["visual_consistency"]


def test_without_a_spec_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Judge().spec == "rules"
    monkeypatch.setenv("EDITLOUPE_JUDGE", "openai:gpt-4.1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secretsecret")
    judge = Judge()
    assert judge.spec == "openai:gpt-4.1"
    assert "secretsecret" not in repr(judge.describe())


@pytest.mark.parametrize("as_completed", [False, True])
def test_every_edit_is_judged_if_the_results_are_read_slowly(as_completed: bool) -> None:
    edits = [Edit(id=str(n), source="gone.png", edited="gone.png", instruction="Make it red") for n in range(30)]
    ids = []
    with Judge("rules", mode="plain") as judge:
        judgements = judge.batch_as_completed if as_completed else judge.batch
        for judgement in judgements(edits, concurrency=2):
            ids.append(judgement.edit.id)
            time.sleep(0.005)  # the edits in flight finish meanwhile
    assert sorted(ids, key=int) == [edit.id for edit in edits]


def test_what_was_begun_is_yielded_before_the_error_of_the_iterable() -> None:
    def edits() -> Iterator[Edit]:
        for n in range(20):
            yield Edit(id=str(n), source="gone.png", edited="gone.png", instruction="Make it red")
        raise RuntimeError("row 21 of the table is damaged")

    ids: list[str] = []
    with Judge("rules", mode="plain") as judge, pytest.raises(RuntimeError, match="row 21"):
        ids.extend(judgement.edit.id for judgement in judge.batch(edits(), concurrency=8))
    assert ids == [str(n) for n in range(20)]


def test_something_else_than_an_edit_is_a_sentence() -> None:
    edit = Edit(id="0", source="gone.png", edited="gone.png", instruction="Make it red")
    with Judge("rules", mode="plain") as judge:
        with pytest.raises(UserError, match="a judge takes an Edit, not a dict"):
            judge({"source": "a.png"})  # type: ignore[arg-type]
        judgements = judge.batch([edit, None, edit])  # type: ignore[list-item]
        assert next(judgements).edit.id == "0"
        with pytest.raises(UserError, match="a judge takes an Edit, not a NoneType"):
            next(judgements)
