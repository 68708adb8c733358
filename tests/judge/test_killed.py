"""A panel and a cascade whose process is killed: the same command goes on and asks for no reply that was kept."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.batch.test_interruptions import start, wait_for
from tests.evals.samples import write_manifest
from tests.judge.samples import GOOD, IF, LARGE, SMALL, Wavering, two_stages
from tests.scripted import Answer, Request, ScriptedServer, final

EDITS, AT_ONCE = 12, 2


def all_good(request: Request) -> Answer:
    return final(GOOD)


def panel(server: ScriptedServer, folder: Path) -> str:
    return f"panel:{SMALL},{LARGE}"


def cascade(server: ScriptedServer, folder: Path) -> str:
    return f"cascade:{two_stages(server, folder)}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("spec_of", "script", "most"),
    [(panel, all_good, EDITS * 2), (cascade, Wavering(), EDITS * 2 + EDITS // 2 * 2)],
    ids=["panel", "cascade"],
)
def test_a_killed_batch_of_several_judges_goes_on_and_pays_for_nothing_twice(
    scripted: StartServer,
    tmp_path: Path,
    spec_of: Callable[[ScriptedServer, Path], str],
    script: Callable[[Request], Answer],
    most: int,
) -> None:
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["editloupe.cli.batch", "langchain_openai", "tests.evals.batch.test_interruptions"]
    )
    server, kills = scripted(script, delay=0.03), 0
    asked = ["--judge", spec_of(server, tmp_path), "--base-url", server.openai_url, "--mode", "plain"]
    manifest, out = write_manifest(tmp_path, EDITS), tmp_path / "run"
    given = ["batch", str(manifest), "--out", str(out), *asked, "--criterion", IF, "--concurrency", str(AT_ONCE)]
    for goal in (3, 9, 15):
        process = start(processes, [*given, "--quiet"], tmp_path / "log")
        wait_for(lambda goal=goal, process=process: server.served >= goal or process.exitcode is not None)
        kills += process.exitcode is None
        process.kill()
        process.join()
    last = start(processes, [*given, "--quiet"], tmp_path / "log")
    last.join(60)
    assert last.exitcode in (0, 3), (tmp_path / "log").read_text()
    assert kills >= 2
    in_vain = server.served - most
    # What was on its way when the process died never reached the run; everything else was paid for once.
    assert in_vain <= kills * AT_ONCE
    with Run.open(out) as run:
        assert len({unit.edit_id for unit in run.units()}) == len(list(run.units())) == EDITS
    served = server.served
    again = start(processes, [*given, "--quiet"], tmp_path / "log")
    again.join(60)
    assert server.served == served
