"""Judge from Python: one edit, many edits, keys of units, bad input in a batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, JudgeSettings, Reason, Unjudged, UserError, Verdict
from editloupe.images import hash_file
from editloupe.types import Mode
from tests.conftest import StartServer
from tests.pictures import edit_pair, save, textured
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
    for judgement in judge.batch(edits(), concurrency=3):
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
    with pytest.raises(UserError, match="there is no picture"):
        judge(missing)


def test_a_wrong_key_ends_a_batch(edit: Edit, scripted: StartServer) -> None:
    judge = Judge("openai:gpt-4.1", base_url=scripted(lambda _: wrong_key()).openai_url)
    with pytest.raises(UserError, match="key"):
        list(judge.batch([edit]))


def test_oracle_without_boxes_in_a_batch_is_missing_input(edit: Edit, scripted: StartServer) -> None:
    judge = Judge("openai:gpt-4.1", mode="oracle", base_url=scripted(labelled).openai_url)
    (judgement,) = judge.batch([edit])
    assert {v.reason for v in judgement.verdicts if isinstance(v, Unjudged)} == {Reason.MISSING_INPUT}


def test_the_key_of_a_unit_changes_with_what_decides_it_and_with_nothing_else(edit: Edit, tmp_path: Path) -> None:
    judge = Judge("rules")
    key = judge.unit_key(edit, "instruction_following")
    moved = edit.model_copy(update={"source": save(textured(), tmp_path / "elsewhere.png"), "id": "other"})
    assert judge.unit_key(moved, "instruction_following") == key
    others = {
        judge.unit_key(edit, "visual_consistency"),
        judge.unit_key(edit, "instruction_following", repeat=1),
        judge.unit_key(edit.model_copy(update={"instruction": "Remove it"}), "instruction_following"),
        judge.unit_key(
            edit.model_copy(update={"edited": save(textured(seed=5), tmp_path / "x.png")}), "instruction_following"
        ),
        Judge("rules", mode="plain").unit_key(edit, "instruction_following"),
        Judge("rules", settings=JudgeSettings(max_turns=3)).unit_key(edit, "instruction_following"),
    }
    assert key not in others
    assert len(others) == 6
    assert Judge("rules", settings=JudgeSettings(timeout=5)).unit_key(edit, "instruction_following") == key


def test_the_embedded_judge_gives_the_same_verdict_every_time(edit: Edit) -> None:
    first, second = (Judge("rules")(edit) for _ in range(2))
    assert [v.model_dump() for v in first.verdicts] == [v.model_dump() for v in second.verdicts]
    assert all(isinstance(v, Verdict) and v.rationale for v in first.verdicts)


def test_without_a_spec_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Judge().spec == "rules"
    monkeypatch.setenv("EDITLOUPE_JUDGE", "openai:gpt-4.1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secretsecret")
    judge = Judge()
    assert judge.spec == "openai:gpt-4.1"
    assert "secretsecret" not in repr(judge.describe())


OF_0_1 = {
    "family": "OpenAI-compatible",
    "provider": "openai",
    "pattern": "",
    "native_tools": False,
    "per_mille": False,
    "temperature": True,
    "max_image_bytes": 15_000_000,
    "structured_output": False,
}
"""The profile 0.1 had for any name it did not know, as it is part of its keys."""


@pytest.mark.parametrize("name", ["gemini-3-pro", "google/gemini-2.5-flash", "our-gemini-3", "google/gemma-3-27b-it"])
@pytest.mark.parametrize(("mode", "kept"), [("plain", True), ("tools", False)])
def test_units_without_tools_keep_the_key_of_0_1_whatever_has_been_learnt_of_a_name(
    edit: Edit, name: str, mode: Mode, kept: bool
) -> None:
    criterion, url = "instruction_following", "http://127.0.0.1:9/v1"
    with Judge(f"openai:{name}", mode=mode, base_url=url) as judge:
        files = {role: [hash_file(path) for path in paths] for role, paths in edit.files.items()}
        asked = {"instruction", "instruction_type", "target_boxes", "hint", "extra"}
        facts = {
            "pictures": files,
            "edit": edit.model_dump(mode="json", include=asked),
            "rubric": judge.rubric(criterion).model_dump(mode="json"),
            "judge": {**judge.parameters(), **({"profile": OF_0_1} if kept else {})},
            "repeat": 0,
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
        assert judge.unit_key(edit, criterion) == key
        assert judge.parameters()["profile"] != OF_0_1
        assert judge.describe()["profile"] == judge._chat.profile.model_dump(mode="json"), "the run tells what was sent"
