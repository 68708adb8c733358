"""A session through batch files that is killed with SIGKILL, at whatever moment, is gone on with: nothing is asked twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.evals.batch.batch_api import FOLDER
from editloupe.evals.runs.store import Run
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, final
from tests.scripted.batch_service import BatchService
from tests.scripted.replies import Reply
from tests.scripted.request import Headers

OPENAI, GEMINI = "openai:gpt-4.1", "google_genai:gemini-2.5-flash"
EDITS = 4
SESSION = """
import os, signal, sys
import editloupe.evals.batch.batch as batch
from editloupe.cli.main import run
from editloupe.evals.batch.batch_api import BatchApiQueue
from editloupe.evals.runs.store import Run

batch.FIRST_POLL = 0.01
place, when, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
if place:
    kind = Run if place == "save_all" else BatchApiQueue
    whole, calls = getattr(kind, place), [0]
    def killed(*given, **named):
        calls[0] += 1
        if calls[0] == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*given, **named)
    setattr(kind, place, killed)
sys.exit(run(command))
"""
"""A command that ends itself the hard way when it comes to some place of the program for the so-manieth time."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed that way here"),
]


class KillingService(BatchService):
    """Kills whoever asks, when a request comes whose path tells the moment; it has done what was asked by then."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        super().__init__(answer, polls_needed=2)
        self.moment = ""
        self.session: subprocess.Popen[str] | None = None

    def serve(self, method: str, path: str, headers: Headers, raw: bytes, url: str) -> Reply | None:
        """Answer, or do what was asked and kill whoever waits for the answer."""
        answer = super().serve(method, path, headers, raw, url)
        if self.moment and self.moment in f"{method} {path}" and self.session is not None:
            self.moment = ""
            os.kill(self.session.pid, signal.SIGKILL)
            return None
        return answer


class Sessions:
    """Commands that judge the same edits into the same run, through the same service."""

    def __init__(self, scripted: StartServer, folder: Path, spec: str) -> None:
        server = scripted(answers)
        self.service = KillingService(answers)
        server.batches = self.service
        self.run = folder / "run"
        url = server.gemini_url if spec.startswith("google") else server.openai_url
        judge = ["--judge", spec, "--base-url", url, "--mode", "plain", "--criterion", "instruction_following"]
        self._command = ["batch", str(write_manifest(folder, EDITS)), "--out", str(self.run), *judge]
        self._command += ["--executor", "batch-api", "-q"]

    def start(self, place: str = "", when: int = 1) -> int:
        """Run one session to its end and return how it ended; killed is -9."""
        session = [sys.executable, "-c", SESSION, place, str(when), *self._command]
        keys = {"OPENAI_API_KEY": "sk-0123456789abcdef", "GOOGLE_API_KEY": "AIza-0123456789abcdef"}
        with subprocess.Popen(session, stderr=subprocess.PIPE, text=True, env={**os.environ, **keys}) as running:
            self.service.session = running
            self.told = running.communicate(timeout=120)[1]
        return running.returncode

    def check_complete(self) -> None:
        """Everything was asked once, is judged once, and nothing lies about."""
        assert self.service.asked == EDITS, self.told
        assert len(self.service.jobs) == 1, self.told
        with Run.open(self.run) as run:
            found = [tuple(row) for row in run.reader().connection.execute("SELECT status, label FROM units")]
        assert found == [("judged", "Wrong Action")] * EDITS
        assert not [path for path in (self.run / FOLDER).iterdir() if not path.name.startswith("requests.sqlite")]


def answers(request: Request) -> Answer:
    return final("Wrong Action")


@pytest.mark.parametrize(
    ("spec", "moment"),
    [
        (OPENAI, "POST /v1/batches"),
        (GEMINI, ":batchGenerateContent"),
        (OPENAI, "/content"),
        pytest.param(OPENAI, "POST /v1/files", marks=pytest.mark.slow),
        pytest.param(OPENAI, "GET /v1/batches/batch_0", marks=pytest.mark.slow),
        pytest.param(GEMINI, "/upload/v1beta/files/put", marks=pytest.mark.slow),
        pytest.param(GEMINI, "GET /v1beta/batches/0", marks=pytest.mark.slow),
        pytest.param(GEMINI, "/download/", marks=pytest.mark.slow),
    ],
)
def test_a_session_killed_while_the_provider_answers_is_gone_on_with(
    scripted: StartServer, tmp_path: Path, spec: str, moment: str
) -> None:
    sessions = Sessions(scripted, tmp_path, spec)
    sessions.service.moment = moment
    assert sessions.start() == -signal.SIGKILL
    assert not sessions.service.moment
    assert sessions.start() == 0, sessions.told
    sessions.check_complete()


@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("_stage", 3),
        ("save_all", 1),
        pytest.param("submit", 1, marks=pytest.mark.slow),
        pytest.param("_sent", 1, marks=pytest.mark.slow),
        pytest.param("collect", 1, marks=pytest.mark.slow),
        pytest.param("_store_results", 1, marks=pytest.mark.slow),
        pytest.param("_file", 3, marks=pytest.mark.slow),  # in `_sent`
    ],
)
def test_a_session_killed_at_any_place_of_the_program_is_gone_on_with(
    scripted: StartServer, tmp_path: Path, place: str, when: int
) -> None:
    sessions = Sessions(scripted, tmp_path, OPENAI)
    assert sessions.start(place, when) == -signal.SIGKILL, sessions.told
    assert sessions.start() == 0, sessions.told
    sessions.check_complete()
