"""The same from Python: options of `Judge` in combinations, one run, one record of what came of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe import Edit, JudgeSettings, UserError
from editloupe.evals.ablation import ablate, ablation_table, combinations_of
from editloupe.evals.batch.work_items import StoredReplies
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_unjudged
from editloupe.tools.settings import ToolSettings
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, final, say

pytestmark = pytest.mark.long
IF, VC = "instruction_following", "visual_consistency"


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(id="red", source=before, edited=after, instruction="Change the color of the patch to red")


def test_the_first_combination_has_the_first_values_and_the_last_key_varies_fastest() -> None:
    found = combinations_of({"a": [1, 2], "b": ["x", "y"]})
    assert [tuple(one.values()) for one in found] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]


def test_edits_are_judged_in_every_combination_and_compared(edit: Edit, tmp_path: Path) -> None:
    tools = [ToolSettings(max_regions=count) for count in (3, 5)]
    made = combinations_of({"tools": tools, "mode": ["tools", "plain"]})
    found = ablate([edit], made, tmp_path / "run", spec="rules", names=["a", "b", "c", "d"])
    assert [row.name for row in found.rows] == ["name=a", "name=b", "name=c", "name=d"]
    assert found.complete
    assert found.rows[3].same_as == "name=b", "plain mode has no crops"
    assert found.rows[2].criteria[IF].tool_calls == 2
    assert found.rows[2].criteria[IF].difference is not None
    assert len(found.records()) == 8
    assert ablation_table(found, VC).columns[:4] == ("combination", "judged", "expected", "mean")


def test_one_more_combination_judges_only_that(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(
        lambda request: final("Perfect Consistency" if "Scene Collapse" in request.system else "Wrong Action")
    )
    manifest = write_manifest(tmp_path, 2)
    settings = JudgeSettings(max_turns=3)
    options = {"spec": "openai:gpt-4.1", "base_url": server.openai_url, "settings": settings}
    ablate(manifest, [{"mode": "plain"}], tmp_path / "run", **options)
    assert server.served == 4
    found = ablate(manifest, [{"mode": "plain"}, {"mode": "tools"}], tmp_path / "run", **options)
    assert server.served == 8
    assert [cell.judged for row in found.rows for cell in row.criteria.values()] == [2, 2, 2, 2]


def test_what_is_unjudged_is_counted_and_never_a_low_score(scripted: StartServer, tmp_path: Path) -> None:
    def partly(request: Request) -> Answer:
        if "Do 1" in request.text and "<tools>" not in request.system and not request.tools:
            return say("Who knows?")
        return final("Perfect Consistency" if "Scene Collapse" in request.system else "Flawless Execution")

    server = scripted(partly)
    made = combinations_of({"mode": ["tools", "plain"]})
    options = {"spec": "openai:gpt-4.1", "base_url": server.openai_url}
    found = ablate(write_manifest(tmp_path, 3), made, tmp_path / "run", **options)
    assert not found.complete
    first, second = (row.criteria[IF] for row in found.rows)
    assert (first.judged, second.judged, second.unjudged, second.expected) == (3, 2, 1, 3)
    assert (first.mean, second.mean) == (100, 100)
    assert second.difference is not None
    assert (second.difference.value, second.difference.n) == (0, 2)
    with Run.open(tmp_path / "run") as run:
        assert sum(count for count, _ in count_unjudged(run, str(found.rows[1].configuration)).values()) == 2


def test_a_shared_reply_keeps_the_time_it_took(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(lambda request: final("Wrong Action").after(0.05))
    made = [{"settings": JudgeSettings(max_turns=turns)} for turns in (3, 4)]
    options = {
        "spec": "openai:gpt-4.1",
        "base_url": server.openai_url,
        "criteria": [IF],
        "mode": "tools",
    }
    found = ablate(write_manifest(tmp_path, 1), made, tmp_path / "run", names=("three", "four"), **options)
    assert server.served == 1
    first, second = (row.criteria[IF].seconds for row in found.rows)
    assert first == second
    with Run.open(tmp_path / "run") as run:
        (kept,) = run.replies_of("e0").values()
        assert kept["seconds"] == first
        key = next(iter(run.replies_of("e0")))
        assert StoredReplies(run).get(key) == kept


def test_mistakes_are_told(edit: Edit, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one combination"):
        ablate([edit], [], tmp_path / "run")
    with pytest.raises(UserError, match=r"mode=both: .* has no mode"):
        ablate([edit], [{"mode": "tools"}, {"mode": "both"}], tmp_path / "run", spec="rules")
    with pytest.raises(UserError, match="the combinations use dlebench and wiseedit"):
        ablate([edit], [{"protocol": "dlebench"}, {"protocol": "wiseedit"}], tmp_path / "run", spec="rules")
    with pytest.raises(UserError, match="no edits"):
        ablate([], [{"mode": "tools"}], tmp_path / "run", spec="rules")
    assert not (tmp_path / "run").exists()
