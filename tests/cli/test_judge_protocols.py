"""`editloupe judge` with numbers and check lists: further pictures by role, and the edit's own score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run
from editloupe.rubrics.registry import get_protocol as find_protocol
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.rubrics.samples import reply_for
from tests.scripted import Request, say


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    return [str(save(textured(seed=n), tmp_path / f"{n}.png")) for n in range(3)]


@pytest.mark.long
def test_pictures_in_further_roles_come_by_name_and_the_edits_score_is_told(
    pictures: list[str], scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(request: Request) -> object:
        if "Visual Coherence" in request.system:
            return say('{"reason": "x", "style": "1", "seams": "0", "artifacts": "0"}')
        return say(reply_for(find_protocol("vibe"), request.system))

    server = scripted(script)
    command = ["judge", pictures[0], pictures[1], "Add a hat", "--protocol", "vibe", "--type", "Addition"]
    command += ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
    assert run([*command, "--image", f"annotated={pictures[2]}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["score_100"] == pytest.approx(100 * (1 / 3) ** (1 / 3))
    assert shown["edit"]["instruction_type"] == "AD"
    by_name = {verdict["criterion"]: verdict for verdict in shown["verdicts"]}
    assert by_name["visual_coherence"]["values"] == {"style": "1", "seams": "0", "artifacts": "0"}
    assert by_name["visual_coherence"]["score_100"] == pytest.approx(100 / 3)
    assert run([*command, "--image", f"annotated={pictures[2]}"]) == 0
    said = capsys.readouterr().out
    assert "Visual Coherence: style 1, seams 0, artifacts 0" in said
    assert "69.3 of 100" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--type", "Addition"], "--image annotated=FILE"),
        (["--type", "Addition", "--image", "annotated"], "ROLE=FILE"),
        (["--type", "Sculpture"], "which task of VIBE"),
        (["--type", "Addition", "--mode", "oracle"], "no mode"),
        (["--differences", "magic"], "--differences"),
    ],
)
def test_a_mistake_is_one_sentence(
    more: list[str], words: str, pictures: list[str], scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(lambda request: say("never asked"))
    command = ["judge", pictures[0], pictures[1], "Add a hat", "--protocol", "vibe", "--judge", "openai:gpt-4.1"]
    assert run([*command, "--base-url", server.openai_url, *more]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
