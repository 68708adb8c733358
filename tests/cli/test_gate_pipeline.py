"""The GitHub action and the pipelines of the guide, as far as they run without the services."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.evals.model_runs import model_run

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "guides" / "gate.md").read_text("utf-8"), re.DOTALL)
WORKFLOW, GITLAB = map(yaml.safe_load, BLOCKS)


ADDRESS = "https://example.org/artifact"


def run_step(folder: Path, which: str = "gate", **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the shell of one of the action's steps as the service would."""
    (step,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == which]
    values = {f"inputs.{name}": each.get("default", "") for name, each in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in inputs.items()}
    values["steps.result.outputs.artifact-url"] = ADDRESS
    named = {name: values[re.fullmatch(r"\${{ ([\w.-]+) }}", text)[1]] for name, text in step["env"].items()}  # type: ignore[index]
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    service = {"GITHUB_STEP_SUMMARY": str(folder / "summary"), "GITHUB_OUTPUT": str(folder / "output")}
    environment = {**os.environ, **python, **service, **named}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
    )


@pytest.mark.long
@pytest.mark.parametrize(("new", "code", "verdict"), [([(4, 4)] * 10, 0, "passed"), ([(1, 4)] * 10, 4, "failed")])
def test_the_step_of_the_action_ends_with_the_code_of_the_gate(
    tmp_path: Path, new: list[tuple[int, int]], code: int, verdict: str
) -> None:
    old = model_run(tmp_path / "old", {"old": [(4, 4)] * 10})
    done = run_step(
        tmp_path,
        new=str(model_run(tmp_path / "new", {"new": new})),
        against=str(old),
        arguments="--drop 60 --criterion instruction_following",
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\n"
    assert run_step(tmp_path, "summary").returncode == 0
    summary = (tmp_path / "summary").read_text("utf-8")
    assert f"**{verdict.capitalize()}" in summary
    assert summary.count(ADDRESS) == (0 if verdict == "passed" else 5 * 3 + 1), "pictures are in the artifact"
    assert "gate-pictures" not in summary
    assert {"gate.json", "gate.xml", "gate.md"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.long
def test_the_step_of_the_action_fails_in_a_sentence_if_there_is_nothing_to_compare(tmp_path: Path) -> None:
    done = run_step(tmp_path, new="nowhere", against="nowhere either", drop="2; touch injected")
    assert done.returncode == 2
    assert not (tmp_path / "injected").exists()
    assert not (tmp_path / "output").exists()


def test_the_workflow_of_the_guide_uses_inputs_that_the_action_has() -> None:
    (use,) = [step for step in WORKFLOW["jobs"]["gate"]["steps"] if "editloupe" in step.get("uses", "")]
    assert use["with"].keys() <= ACTION["inputs"].keys()
    assert {name for name, each in ACTION["inputs"].items() if each.get("required")} <= use["with"].keys()


def test_the_options_of_the_gitlab_job_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from editloupe.cli.main import run

    (line,) = GITLAB["gate"]["script"]
    program, *arguments = shlex.split(line)
    assert program == "editloupe"
    assert run(arguments) == 2
    assert "there is no run, manifest or folder of outputs at outputs/new" in capsys.readouterr().err
