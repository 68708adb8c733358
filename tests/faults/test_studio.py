"""The studio as a program: stopped at any moment with streams open, and fed with pictures larger than its memory."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from editloupe.servers.studio.app import STOPPED
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, huge_png
from tests.scripted import Request, say
from tests.servers.studio.samples import many_edits

LIMIT = 3.0
"""Two seconds are promised; a machine whose cores are all busy may take a little to notice."""
KEY = "sk-a-key-that-must-not-show-12345"


@dataclass
class Started:
    """A studio in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    token: str
    temporary: Path

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.address, timeout=60, trust_env=False, headers={"authorization": f"Bearer {self.token}"}
        )

    def status(self, name: str) -> int:
        """Return a number of the process as the system gives it, such as VmHWM in kB or Threads."""
        found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text(), re.MULTILINE)
        assert found
        return int(found[1])

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[Started]:
    """Start the real command and wait for its address."""
    temporary = folder / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "editloupe", "studio", "--port", "0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(temporary),
            "HOME": str(folder),
            "OPENAI_API_KEY": KEY,
        },
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"EditLoupe studio: (http://127\.0\.0\.1:\d+)/\?token=(\S+)\n", line)
        assert found, line + process.stderr.read()
        yield Started(process, found[1], found[2], temporary)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def begin_judging(client: httpx.Client, folder: Path, base_url: str) -> str:
    shas = [client.post("/uploads", content=path.read_bytes()).json()["sha"] for path in edit_pair(folder)]
    asked = {"source": shas[0], "edited": shas[1], "instruction": "x", "judge": "openai:m", "base_url": base_url}
    answer = client.post("/judge", json=asked)
    assert answer.status_code == 200, answer.text
    job: str = answer.json()["job"]
    return job


@pytest.fixture
def silent(scripted: StartServer) -> Iterator[str]:
    """A model that never answers while the test runs."""
    release = threading.Event()

    def never(request: Request) -> Any:
        release.wait(60)
        return say("late")

    yield scripted(never).openai_url
    release.set()


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("times", [1, 2])
def test_a_stop_ends_open_streams_and_the_process_within_two_seconds(
    silent: str, tmp_path: Path, number: signal.Signals, code: int, times: int
) -> None:
    with started(tmp_path, str(many_edits(tmp_path / "run", 2)), "--base-url", silent) as studio:
        with studio.client() as client, client.stream("GET", "/jobs/x/events") as unknown:
            assert unknown.status_code == 404
            job = begin_judging(client, tmp_path, silent)
            with client.stream("GET", f"/jobs/{job}/events") as stream:
                lines = stream.iter_lines()
                assert "event: begun" in [next(lines), next(lines)]
                begun = time.monotonic()
                for _ in range(times):
                    studio.process.send_signal(number)
                    time.sleep(0.05)
                rest = list(lines)
            assert "event: stopped" in rest
            assert "event: end" in rest
        assert studio.process.wait(10) == code
        assert time.monotonic() - begun < LIMIT
        assert studio.process.stderr is not None
        assert studio.process.stderr.read() == f"Press Ctrl+C to stop.\n{STOPPED}\n"
        assert list(studio.temporary.iterdir()) == []


@pytest.mark.long
def test_a_stop_does_not_wait_for_a_worker_thread_that_is_busy(tmp_path: Path) -> None:
    run = many_edits(tmp_path / "run", 3000)
    with started(tmp_path, str(run)) as studio:
        with studio.client() as client, ThreadPoolExecutor() as pool:
            client.get("/runs/run")
            drawing = pool.submit(httpx.Client.get, client, "/runs/run/charts")
            time.sleep(0.7)
            assert not drawing.done(), "the charts must still be drawn for this test to say anything"
            begun = time.monotonic()
            studio.process.send_signal(signal.SIGTERM)
            assert studio.process.wait(10) == 143
            assert time.monotonic() - begun < LIMIT
        assert studio.process.stderr is not None
        assert studio.process.stderr.read() == f"Press Ctrl+C to stop.\n{STOPPED}\n"
        assert list(studio.temporary.iterdir()) == []


@pytest.mark.long
def test_a_studio_that_was_restarted_asks_the_browser_for_its_own_token(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with started(tmp_path / "one") as first:
        port = first.address.rpartition(":")[2]
        with httpx.Client(base_url=first.address, trust_env=False, follow_redirects=True) as browser:
            assert browser.get(f"/?token={first.token}").status_code == 200
            first.process.send_signal(signal.SIGINT)
            first.process.wait(10)
            with started(tmp_path / "two", "--port", port) as second:
                assert (second.address, second.token != first.token) == (first.address, True)
                told = browser.get("/judge", headers={"accept": "text/html"})
                assert (told.status_code, "an earlier start" in told.text) == (401, True)
                assert browser.get(f"/?token={first.token}").status_code == 401
                assert browser.get(f"/?token={second.token}").status_code == 200


@pytest.mark.long
def test_uploads_side_by_side_take_the_memory_of_one_picture(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8000, 6000), "red").save(file, "PNG", compress_level=1)
    large = [file.getvalue() + bytes([number]) for number in range(3)]
    with started(tmp_path) as studio, studio.client() as client, ThreadPoolExecutor(6) as pool:
        before = studio.status("VmHWM")
        refused = list(pool.map(lambda data: client.post("/uploads", content=data), [huge_png(12_200, 12_200)] * 6))
        assert [answer.status_code for answer in refused] == [413] * 6
        assert "50 megapixels" in refused[0].json()["sentence"]
        assert studio.status("VmHWM") - before < 100_000
        taken = list(pool.map(lambda data: client.post("/uploads", content=data), large))
        assert [answer.status_code for answer in taken] == [200] * 3
        shas = {answer.json()["sha"] for answer in taken}
        small = list(pool.map(client.get, [f"/pictures/{sha}/small" for sha in shas]))
        assert [answer.status_code for answer in small] == [200] * 3
        # One of them is 144 MB, and as much again twice while it is decoded; three together are 1.4 GB.
        assert studio.status("VmHWM") - before < 800_000
        assert studio.status("VmRSS") - before < 400_000
        assert list(studio.temporary.rglob(".*")) == []


@pytest.mark.long
@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_judging_again_and_again_leaves_nothing_behind(tmp_path: Path, times: int) -> None:
    with started(tmp_path, "--base-url", "http://127.0.0.1:9/v1") as studio, studio.client() as client:
        seen = []
        for _ in range(times):
            job = begin_judging(client, tmp_path, "http://127.0.0.1:9/v1")
            if len(seen) % 2:
                client.post(f"/jobs/{job}/stop", json={})
            with client.stream("GET", f"/jobs/{job}/events") as stream:
                next(stream.iter_lines())  # and leave
            client.post(f"/jobs/{job}/stop", json={})
            with client.stream("GET", f"/jobs/{job}/events") as stream:
                assert "event: end" in list(stream.iter_lines())
            seen.append((studio.status("Threads"), studio.descriptors()))
        early, late = seen[len(seen) // 2], seen[-1]
        assert late[0] <= early[0] + 2
        assert late[1] <= early[1] + 2
