"""A command loads what it needs and nothing else; how long that takes is the machine's affair, what it loads is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

STACK = ("langgraph", "langchain_core", "langsmith", "cv2", "numpy", "PIL", "scipy", "yaml", "httpx", "openai")
CLIENTS = ("openai", "langchain_openai", "google.genai", "langchain_google_genai")
HEAVY = ("torch", "transformers", "ncnn", "rapidocr", "ray", "fastapi", "matplotlib", "scipy", "pyarrow")
RUNS = (
    "editloupe.evals.runs.store",
    "editloupe.evals.stats",
    "editloupe.evals.stats.scores.paper_tables",
    "editloupe.evals.batch",
)

WHAT_IS_LOADED = """
import os, sys
from editloupe.__main__ import main
leave = os._exit
def tell_and_leave(code):
    print("loaded:", *sorted(sys.modules), file=sys.stderr, flush=True)
    leave(code)
os._exit = tell_and_leave
main()
"""


def loaded_by(*arguments: str) -> set[str]:
    """Run the command to its end and return the modules it had loaded by then."""
    command = [sys.executable, "-c", WHAT_IS_LOADED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("loaded: ")]
    return set(line.split()[1:])


@pytest.mark.long
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_neither_records_nor_pictures_nor_a_model_stack(option: str) -> None:
    assert loaded_by(option) & {*STACK, *HEAVY, "pydantic", "editloupe.types", "editloupe.judge"} == set()


@pytest.mark.long
def test_version_draws_nothing() -> None:
    assert loaded_by("--version") & {"rich.console", "typer.rich_utils"} == set()


@pytest.mark.long
def test_the_embedded_judge_loads_no_client_no_run_and_no_model(tmp_path: Path) -> None:
    for name, colour in (("a", "blue"), ("b", "red")):
        Image.new("RGB", (64, 64), colour).save(tmp_path / f"{name}.png")
    pair = (str(tmp_path / "a.png"), str(tmp_path / "b.png"))
    found = loaded_by("judge", *pair, "Change the color of the wall from blue to red", "--judge", "rules")
    assert "langgraph.graph.state" in found, "it walks the graph that every judge walks"
    assert found & {*CLIENTS, *HEAVY, *RUNS, "huggingface_hub.file_download", "sqlite3"} == set()


@pytest.mark.long
def test_doctor_without_timing_says_what_is_ready_without_loading_it() -> None:
    without_gpu = sys.platform == "linux" and not Path("/dev/dri").exists() and not Path("/dev/nvidiactl").exists()
    heavy = set(HEAVY) if without_gpu else set(HEAVY) - {"torch"}
    assert loaded_by("doctor", "--no-timing") & {*CLIENTS, *heavy, "langgraph", "langsmith"} == set()
