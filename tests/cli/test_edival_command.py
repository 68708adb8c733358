"""`editloupe edival` from pictures to a comparison, with real loading code, tiny weights and a scripted LMM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.evals.edival import stand_ins as s
from tests.evals.edival.test_decompose import FINE
from tests.scripted import Answer, Request, say

pytest.importorskip("torch")
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    from tests.tools.tiny_grounding import save_tiny_grounding_dino
    from tests.tools.tiny_models import save_tiny_dino

    root = tmp_path_factory.mktemp("weights")
    return str(save_tiny_grounding_dino(root / "grounding")), str(save_tiny_dino(root / "dino"))


def answering(request: Request) -> Answer:
    if "inventory of this picture" in request.messages[-1].text:
        return FINE
    return say('{"reason": "As asked.", "answer": "yes", "text": "HELLO"}')


def test_the_whole_way_from_pictures_to_a_comparison(
    tmp_path: Path, weights: tuple[str, str], scripted: StartServer, capsys: Any
) -> None:
    s.save_base(tmp_path / "photos")
    server = scripted(answering)
    model = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--max-output-tokens", "900"]
    look = ["--detector", weights[0], "--device", "cpu"]
    objects, chains, results = (str(tmp_path / name) for name in ("objects", "chains", "results"))
    # Random weights are never sure: with a threshold of 0 and no limit on size everything that is listed is kept.
    loose = tmp_path / "loose.yaml"
    loose.write_text("decompose_threshold: 0.0\ndecompose_max_side: 1.0\ndecompose_max_area: 1.0\n")
    code = run(
        [
            "edival",
            "decompose",
            str(tmp_path / "photos"),
            "--out",
            objects,
            *model,
            *look,
            "--settings",
            str(loose),
            "-q",
        ]
    )
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "1 made" in told.out
    assert (tmp_path / "objects/kitchen.boxes.jpg").is_file()

    making = ["edival", "instruct", objects, "--out", chains, "--proposals", "lists", "--seed", "3", "-q"]
    assert run(making) == 0
    assert run(making) == 0
    assert "1 held before" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "chains/kitchen.json").read_text())["turns"]) == 3

    for name in ("one", "two"):
        s.put(Path(results), name, "multi", dict(enumerate(s.GOOD, 1)))
        s.put(Path(results), name, "complex", dict(enumerate(s.GOOD, 1)))
    judging = [
        "edival",
        "evaluate",
        chains,
        results,
        *model,
        *look,
        "--features",
        weights[1],
        "--quality",
        "none",
        "-q",
    ]
    assert run([*judging, "--out", str(tmp_path / "a"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"] == 0
    assert {request.body["max_completion_tokens"] for request in server.requests} == {900}
    assert sorted(facts["pictures"]) == sorted(
        f"{m}/{mode}: 3 of 3" for m in ("one", "two") for mode in ("multi", "complex")
    )
    strict = tmp_path / "strict.yaml"
    strict.write_text("threshold: 0.9\n")
    assert run([*judging, "--out", str(tmp_path / "b"), "--settings", str(strict)]) == 0
    capsys.readouterr()

    assert run(["edival", "report", str(tmp_path / "a"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {(one["model"], one["mode"]) for one in report["models"]} == {
        (m, mode) for m in ("one", "two") for mode in ("multi", "complex")
    }
    page, figures = tmp_path / "report.html", tmp_path / "figures"
    assert run(["edival", "report", str(tmp_path / "a"), "--out", str(page), "--figures", str(figures)]) == 0
    assert "EdiVal-Agent" in page.read_text()
    assert (figures / "marginal-multi.svg").is_file()
    assert run(["edival", "report", str(tmp_path / "a")]) == 0
    assert "Multi-turn against complex" in capsys.readouterr().out
    assert run(["edival", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "rules.threshold: 0.35 → 0.9" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["decompose", "PHOTOS", "--out", "OUT", "--judge", "openai:gpt-4.1"], "the detector cannot be used"),
        (["instruct", "PHOTOS", "--out", "OUT"], "this needs a model that sees pictures"),
        (["instruct", "PHOTOS", "--out", "OUT", "--proposals", "guess"], "--proposals is lmm or lists"),
        (
            ["instruct", "PHOTOS", "--out", "OUT", "--proposals", "lists", "--types", "style_change"],
            "not an instruction type",
        ),
        (["instruct", "PHOTOS", "--out", "OUT", "--proposals", "lists"], "has no .json file"),
        (["evaluate", "PHOTOS", "PHOTOS", "--out", "OUT", "--judge", "openai:gpt-4.1"], "the detector cannot be used"),
        (["report", "PHOTOS"], "is not a run"),
        (["report", "PHOTOS", "--missing", "some"], "--missing is one of"),
        (["compare", "PHOTOS", "PHOTOS"], "is not a run"),
        (["nonsense"], "No such command"),
    ],
    ids=lambda value: " ".join(value[:1] + value[4:]) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, tmp_path: Path, capsys: Any
) -> None:
    s.save_base(tmp_path / "photos")
    names = {"PHOTOS": str(tmp_path / "photos"), "OUT": str(tmp_path / "out")}
    assert run(["edival", *(names.get(part, part) for part in arguments)]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert "Traceback" not in told
    assert len(told.strip().splitlines()) == 1


def test_a_setting_that_does_not_exist_or_has_no_sense_is_told(tmp_path: Path, capsys: Any) -> None:
    s.save_base(tmp_path / "photos")
    for content, sentence in (
        ("tresholds: 0.3", "Extra inputs"),
        ("threshold: 3", "less than or equal to 1"),
        ("- 1", "must map names"),
        ("a: [", "not valid YAML"),
    ):
        (tmp_path / "s.yaml").write_text(content)
        photos, out = str(tmp_path / "photos"), str(tmp_path / "out")
        assert run(["edival", "decompose", photos, "--out", out, "--settings", str(tmp_path / "s.yaml")]) == 2
        assert sentence in capsys.readouterr().err


def test_without_an_lmm_it_says_what_will_be_left_unjudged(
    tmp_path: Path, weights: tuple[str, str], capsys: Any
) -> None:
    s.kitchen_chain(tmp_path / "chains", s.save_base(tmp_path / "photos"))
    s.put(tmp_path / "results", "one", "multi", dict(enumerate(s.GOOD, 1)))
    folders = [str(tmp_path / name) for name in ("chains", "results")]
    look = ["--detector", weights[0], "--device", "cpu", "--features", "none", "-q"]
    assert run(["edival", "evaluate", *folders, "--out", str(tmp_path / "run"), *look]) == 3
    told = capsys.readouterr()
    assert "will be left unjudged" in told.err
    assert "8 judged, 1 unjudged" in told.out
    assert "not_understood" in told.err


def test_the_commands_are_listed(capsys: Any) -> None:
    assert run(["edival", "--help"]) == 0
    told = capsys.readouterr().out
    for name in ("decompose", "instruct", "evaluate", "report", "compare"):
        assert name in told
    assert run(["--help"]) == 0
    assert "edival" in capsys.readouterr().out
