"""Which verdicts a filter finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.traces import ExpressionError, find_traces
from editloupe.types import UserError
from tests.evals.sample_runs import IF
from tests.evals.traces.samples import FIND, ZOOM, Told, write_run

TOLD = (
    Told("right", "Flawless Execution", (FIND, ZOOM), "Flawless Execution", 0.9, thought="The cup is red."),
    Told(
        "wrong",
        "Over Modification",
        (FIND,),
        "Flawless Execution",
        0.95,
        model="big",
        seen="Nothing differs.",
        extra={"style": "ärmlich"},
    ),
    Told("broken", None, (ZOOM + "!", ZOOM), human="Wrong Action", repairs=2, model="small"),
    Told("alone", "Wrong Action", (), None, 0.4, extra={"style": "sketch", "level": 3}, instruction="Größe ändern"),
    Told(
        "remembered",
        "Over Modification",
        (FIND + "*",),
        "Over Modification",
        extra={"level": "7"},
        thought="红色的杯子",
    ),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("asked") / "run", TOLD)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("", "right wrong broken alone remembered"),
        ('label = "over modification"', "wrong remembered"),
        ('label ~ "MODIF"', "wrong remembered"),
        ('label in ("Wrong Action", "flawless execution")', "right alone"),
        ("score >= 3 and confidence > 0.9", "wrong"),
        ("human != label", "wrong"),
        ("human = label", "right remembered"),
        ("not (human = label)", "wrong broken alone"),
        ("agrees", "right remembered"),
        ("not agrees", "wrong broken alone"),
        ("agrees = false", "wrong"),
        ("human is null", "alone"),
        ('label != "Wrong Action"', "right wrong remembered"),
        ('not label = "Wrong Action"', "right wrong broken remembered"),
        ('label not in ("Wrong Action")', "right wrong remembered"),
        ('status = "unjudged" and reason = "unreadable_answer"', "broken"),
        ('tool("zoom_in_image") = 0', "wrong alone remembered"),
        ('tool("zoom_in_image")', "right broken"),
        ("tool() = 2", "right broken"),
        ('failed("zoom_in_image") = 1 and failed() = 1', "broken"),
        ("cached() > 0", "remembered"),
        ("repairs > 0", "broken"),
        ("turns = 3", "right broken"),
        ("steps = 5", "broken"),
        ('model = "big" or model is null and turns < 2', "wrong alone"),
        ('style = "sketch"', "alone"),
        ("level > 2", "alone remembered"),
        ('column("level") = "7"', "remembered"),
        ('level = "3"', "alone"),
        ('level in ("3", "7")', "alone remembered"),
        ('instruction ~ "GRÖSSE"', "alone"),
        ('style = "ÄRMLICH"', "wrong"),
        ('style in ("sketch", "Ärmlich")', "wrong alone"),
        ('style != "ÄRMLICH"', "alone"),
        ('edit in ("right", "alone") and protocol = "dlebench" and mode = "tools" and repeat = 0', "right alone"),
        (
            'judge ~ "gpt" and configuration is not null and criterion = "instruction_following" and edit = "alone"',
            "alone",
        ),
        ('rationale ~ "it is so" and input_tokens = 300 and output_tokens < 31 and edit = "right"', "right"),
        ('finished_at > "2020-01-01" and edit = "right"', "right"),
        ('said("cup is red")', "right"),
        ('said("red is cup")', ""),
        ('thought("CUP")', "right"),
        ('observed("nothing differs")', "wrong"),
        ('observed("noth*")', "wrong"),
        ('called("localize_differences")', "right wrong remembered"),
        ('replied("mumbled") or replied("say wrong action")', "broken alone"),
        ('not said("settles")', ""),
        ('thought("杯子")', "remembered"),
    ],
)
def test_a_filter_finds_these(run: Path, where: str, names: str) -> None:
    found = find_traces(run, where)
    assert [hit.name for hit in found] == names.split()
    assert found.total == len(names.split())
    assert found.searched == 5


def test_a_hit_says_everything_that_opens_its_trace(run: Path) -> None:
    (hit,) = find_traces(run, 'edit = "right"')
    assert (hit.run, hit.name, hit.criterion, hit.repeat) == ("run", "right", IF, 0)
    assert (hit.label, hit.human, hit.turns, hit.repairs) == ("Flawless Execution", "Flawless Execution", 3, 0)
    assert hit.tools == {FIND: 1, ZOOM: 1}


def test_the_surest_disagreements_come_first(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        [
            Told(f"e{number}", "Wrong Action", human="Flawless Execution", confidence=number / 10)
            for number in (3, 9, 5)
        ],
    )
    assert [hit.name for hit in find_traces(folder, "human != label", order="confident")] == ["e9", "e5", "e3"]
    with pytest.raises(UserError, match="an order is one of manifest, confident"):
        find_traces(folder, order="beauty")


def test_several_runs_are_one_list_and_a_column_of_one_is_no_mistake_in_the_other(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", [Told("z", extra={"place": "Ulm"})])
    assert [(hit.run, hit.name) for hit in find_traces([run, other], 'place = "Ulm" or style = "sketch"')] == [
        ("run", "alone"),
        ("other", "z"),
    ]
    with pytest.raises(ExpressionError, match="there is no field"):
        find_traces(run, 'place = "Ulm"')


def test_labels_of_a_file_count_by_the_rule_of_agree(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text(f"edit_id,criterion,label,rater\nalone,{IF},Flawless Execution,Ada\n", "utf-8")
    assert [hit.name for hit in find_traces(run, "human != label", human=file)] == ["wrong", "alone"]
    assert [hit.name for hit in find_traces(run, "human != label")] == ["wrong"], "they are that search's alone"


def test_a_label_that_does_not_exist_is_told_and_does_not_count(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [Told("a", human="Marvellous"), Told("b", human="Wrong Action")])
    found = find_traces(folder, "human is not null")
    assert [hit.name for hit in found] == ["b"]
    assert any("Marvellous" in note for note in found.notes)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ('label = "Over Modifcation"', "No verdict has label 'Over Modifcation'; did you mean 'Over Modification'?"),
        ('model != "bigg" or mode = "tools"', "No verdict has model 'bigg'; did you mean 'big'?"),
        ('status in ("judged", "unjuged")', "did you mean 'unjudged'?"),
        ('not human = "Great"', "No verdict has human 'Great'; there is 'Flawless Execution'"),
    ],
)
def test_a_value_that_no_verdict_has_is_told_with_the_nearest(run: Path, where: str, sentence: str) -> None:
    found = find_traces(run, where)
    list(found)
    assert any(sentence in note for note in found.notes)


def test_values_that_are_there_need_no_word(run: Path) -> None:
    found = find_traces(run, 'label = "over modification" and model in ("big", "small") and instruction = "x"')
    list(found)
    assert found.notes == []
