"""The 60 real cases of KRIS-Bench from end to end, with outputs of three made-up models and a scripted judge."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image

from editloupe.cli.main import run as command
from editloupe.rubrics.kris import CATEGORIES, DUAL, IF, KRIS, TEMPORAL, VC, VQ, WITH_KNOWLEDGE
from tests.conftest import StartServer
from tests.evals.stats.scores.paper_tables.conformance import ROOT, judge, report
from tests.scripted import Request, say

SUBSET = ROOT / "kris-subset"
pytestmark = [
    pytest.mark.skipif(not SUBSET.is_dir(), reason="the cases are not here"),
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]
SIDE = 96
KEYS = {VC: "consistency_score", VQ: "quality_score", IF: "instruction_score"}


def grade(name: str, criterion: str, model: int) -> int:
    """Return a made-up score, 1 to 5, that differs by case, criterion and model."""
    return 1 + (sum(map(ord, name + criterion)) + model) % 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with outputs of three models, each with a size of its own: one gray, one without frames, one lacking an output."""
    folder = tmp_path_factory.mktemp("subset")
    for model in range(3):
        for category in CATEGORIES:
            cases = json.loads((SUBSET / "KRIS_Bench" / category / "annotation.json").read_text("utf-8"))
            for number in cases if (model, category) != (1, TEMPORAL) else ():
                path = folder / f"results/model-{model}/{category}/{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                size = (SIDE + model, SIDE + list_cases().index(f"{category}/{number}"))
                Image.new("RGB", size, (40 * model, 90, 120)).save(path)
    (folder / f"results/model-2/{list_cases()[0]}.jpg").unlink()
    return folder


def list_cases() -> list[str]:
    return [
        f"{category}/{number}"
        for category in CATEGORIES
        for number in json.loads((SUBSET / "KRIS_Bench" / category / "annotation.json").read_text("utf-8"))
    ]


def answer(request: Request) -> Any:
    """Give the made-up scores of the output, which is recognized by its size."""
    (asked,) = {rubric.criterion for rubric in KRIS.rubrics if rubric.question in request.system}
    names = list_cases()
    sizes = [image.pixels for message in request.messages for image in message.images]
    width, height = next(size for size in reversed(sizes) if SIDE <= size[0] < SIDE + 3 and size[1] < SIDE + len(names))
    name, model = names[height - SIDE], width - SIDE
    if asked == DUAL:
        scores = {"instruction_score": grade(name, IF, model), "knowledge_score": grade(name, "KP", model)}
    else:
        scores = {KEYS[asked]: grade(name, asked, model)}
    return say(json.dumps({"reasoning": "seen", **scores}))


def expected_scores(model: int, name: str) -> list[int]:
    knowledge = ["KP"] if name.split("/")[0] in WITH_KNOWLEDGE else []
    return [(grade(name, criterion, model) - 1) * 25 for criterion in (VC, VQ, IF, *knowledge)]


@pytest.mark.parametrize("mode", ["plain", "tools"])
def test_three_models_are_judged_on_the_real_pictures_and_reported_by_the_rule(
    place: Path, scripted: StartServer, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answer)
    out = place / f"run-{mode}"
    judge(SUBSET, place / "results", out, "kris", server.openai_url, "--mode", mode)
    names = list_cases()
    assert len(names) == 60
    printed, published = report(capsys, out), report(capsys, out, "--as-published")
    for model in range(3):
        judged = [name for name in names if (model, name.split("/")[0]) != (1, TEMPORAL)]
        judged = judged[1:] if model == 2 else judged
        cases = [expected_scores(model, name) for name in judged]
        row = printed["KRIS-Bench, by knowledge type"][f"model-{model}"]
        assert row["Overall"] == pytest.approx(fmean(fmean(scores) for scores in cases))
        script = published["KRIS-Bench by the rules of its public scripts"][f"model-{model}"]
        assert script["Overall AVG"] == pytest.approx(fmean(score for scores in cases for score in scores))
        assert row["Temporal Prediction"] is None if model == 1 else row["Temporal Prediction"] is not None
    frames = [request for request in server.requests if "frames of a sequence" in request.system]
    assert frames
    for request in frames:
        assert len(request.images) == 4
        text = " ".join(message.text for message in request.messages)
        assert [text.index(f"Frame {n}") for n in range(1, 5)] == sorted(text.index(f"Frame {n}") for n in range(1, 5))
        assert text.count("(generated)") == 1
    asked = server.served
    judge(SUBSET, place / "results", out, "kris", server.openai_url, "--mode", mode)
    assert server.served == asked, "a second run asks nothing again"


def test_what_is_assumed_about_missing_outputs_is_said_before_judging(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = ["batch", str(SUBSET), "--layout", "kris", "--results", str(place / "results"), "--judge", "openai:x"]
    assert command([*layout, "--out", str(place / "dry"), "--base-url", "http://127.0.0.1:9/v1", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "model model-1: no outputs for temporal_prediction (3 cases): absent, not counted" in said
    assert "model model-2: 1 of 60 outputs missing" in said
