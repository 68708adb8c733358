"""The best of several candidates, in Python and on the command line."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, UserError, best_of, reward
from editloupe.cli.main import run
from editloupe.evals.reward.edit_rewards import find_best
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, save, textured
from tests.evals.reward.samples import asked, brightness, fair, open_judge, picture
from tests.scripted import Request, say

PROTOCOL = ("--protocol", "editreward-compass")


def levels(request: Request) -> Any:
    """Give a candidate 1 to 5 by its brightness; pictures that are nearly black are not spoken of."""
    if "List of differences" in request.system:
        return say('{"differences": "none"}')
    level = brightness(request, "Edited Image")
    return say("Hm.") if level < 20 else say(json.dumps({"reason": "x", "score": 1 + min(4, int(level / 50))}))


def candidates(folder: Path, **named: int) -> Path:
    """Write candidates of these levels, their source and instruction."""
    for number, (name, level) in enumerate(named.items()):
        picture(folder / f"{name}.png", number, level)
    save(textured(40, 30, 99), folder / "source.png")
    (folder / "instruction.txt").write_text("Make it brighter\n", "utf-8")
    return folder


def edits(folder: Path) -> list[Edit]:
    source = folder / "source.png"
    pictures = sorted(path for path in folder.glob("*.png") if path != source)
    return [Edit(source=source, edited=path, instruction="Make it brighter") for path in pictures]


@pytest.mark.long
@pytest.mark.parametrize(
    ("named", "best"),
    [
        ({"a": 60, "b": 220, "c": 120}, 1),
        ({"a": 60, "b": 220, "c": 221}, 1),
        ({"a": 0, "b": 60}, 1),
        ({"a": 0, "b": 1}, None),
    ],
)
def test_the_highest_score_wins_of_equal_ones_the_first_and_never_an_unjudged_one(
    tmp_path: Path, scripted: StartServer, named: dict[str, int], best: int | None
) -> None:
    unjudged = 0 in named.values()
    warned = pytest.warns(UserWarning, match="no reward") if unjudged else nullcontext()
    with open_judge(scripted(levels)) as judge, warned:
        assert best_of(edits(candidates(tmp_path, **named)), judge) == best


def test_of_no_edits_there_is_no_best_one() -> None:
    with pytest.raises(UserError, match="at least one edit"):
        best_of([])


def test_a_single_edit_that_is_not_in_a_list_is_one_sentence() -> None:
    edit = Edit(id="e", source=Path("s.png"), edited=Path("e.png"), instruction="Paint it red")
    with pytest.raises(UserError, match="give the edits as a list"):
        reward(edit, "rules")  # type: ignore[arg-type]


@pytest.mark.long
def test_the_command_prints_the_winner_alone_and_the_scores_beside_it(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    first = candidates(tmp_path / "first", a=60, b=220)
    second = candidates(tmp_path / "second", a=160, b=0)
    server = scripted(levels)
    out = ["--out", str(tmp_path / "run"), "-q"]
    command = ["reward", str(first), str(second), "--best-of", *PROTOCOL, *asked(server), *out]
    assert run(command) == 3  # one candidate is unjudged
    told = capsys.readouterr()
    assert told.out.splitlines() == [str(first / "b.png"), str(second / "a.png")]
    assert "first/a.png: 0.2500" in told.err
    assert "second/b.png: unjudged (" in told.err
    served = server.served
    assert run([*command, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)["choices"]
    assert [(one["index"], one["winner"]) for one in found] == [(1, str(first / "b.png")), (0, str(second / "a.png"))]
    assert server.served == served


@pytest.mark.long
def test_candidates_anywhere_share_a_source_and_an_instruction(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = candidates(tmp_path / "all", a=60, b=120)
    further = picture(tmp_path / "further.png", 7, 230)
    shared = ["--source", str(folder / "source.png"), "--instruction", "Make it brighter"]
    assert (
        run(["reward", str(folder), str(further), "--best-of", *shared, *PROTOCOL, *asked(scripted(levels)), "-q"]) == 0
    )
    assert capsys.readouterr().out.strip() == str(further)


@pytest.mark.long
def test_where_nothing_could_be_judged_no_winner_is_printed(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = candidates(tmp_path / "dark", a=0, b=0)
    assert run(["reward", str(folder), "--best-of", *PROTOCOL, *asked(scripted(levels)), "-q"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert "no candidate could be judged, so there is no best one" in told.err


@pytest.mark.long
def test_the_command_judges_by_the_usual_protocol_and_scores_from_0_to_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = edit_pair(tmp_path)
    shared = ["--source", str(before), "--instruction", "Change the color of the patch to red"]
    assert run(["reward", str(after), "--best-of", *shared, "--judge", "rules", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["protocol"] == "dlebench"
    (choice,) = told["choices"]
    assert choice["winner"] == str(after)
    (candidate,) = choice["candidates"]
    assert 0 < candidate["score"] <= 1
    assert run(["reward", str(after), "--best-of", *shared, "--judge", "rules", *PROTOCOL]) == 2
    assert "rules judges DLEBench's two criteria only" in capsys.readouterr().err


def test_scores_that_differ_by_a_rounding_error_are_equal_and_by_more_are_not() -> None:
    assert find_best([0.5, 0.5 + 1e-9]) == 0
    assert find_best([0.5, 0.5 + 1e-6]) == 1


@pytest.mark.long
def test_mistakes_are_one_sentence(tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]) -> None:
    judge = asked(scripted(fair))
    folder = candidates(tmp_path / "some", a=60)
    empty = tmp_path / "empty"
    empty.mkdir()

    def told(*given: str) -> str:
        assert run(["reward", *given, "--best-of", *judge]) == 2
        return capsys.readouterr().err

    assert "needs one picture called source" in told(str(empty))
    assert "--source and --instruction go together" in told(str(folder), "--source", str(folder / "source.png"))
    assert "is not a folder; pictures need --source" in told(str(folder / "a.png"))
    shared = ["--source", str(folder / "source.png"), "--instruction", "x"]
    assert "has no candidates" in told(str(empty), *shared)
    assert "there is no candidate at" in told(str(tmp_path / "no.png"), *shared)
    (folder / "instruction.txt").unlink()
    assert "needs an instruction.txt" in told(str(folder))
