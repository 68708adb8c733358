"""`editloupe studio`: says where it is, serves, ends quietly; mistakes are one sentence."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from editloupe.cli.main import run
from editloupe.studio.serve import address, listening
from editloupe.studio.settings import StudioSettings
from tests.studio.samples import many_edits


def test_it_serves_a_run_until_interrupted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 2)
    (tmp_path / "tmp").mkdir()
    started = subprocess.Popen(
        [sys.executable, "-m", "editloupe", "studio", str(folder), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path)},
    )
    assert started.stderr is not None
    try:
        where = re.search(r"http://127\.0\.0\.1:\d+/", started.stderr.readline())
        assert where
        page = httpx.get(where[0], follow_redirects=True, trust_env=False)
        assert (page.status_code, "Change the color of patch 1" in page.text) == (200, True)
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 0
        assert "Traceback" not in started.stderr.read()
    finally:
        started.kill()
        started.wait()
        started.stderr.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    runs = [str(many_edits(tmp_path / name, 1)) for name in ("a", "b")]
    with listening(StudioSettings(port=0)) as taken:
        for arguments, sentence in (
            (["--host", "0.0.0.0"], "--token"),
            (["--port", str(taken.getsockname()[1])], "--port"),
            ([str(tmp_path / "nowhere")], "no run at"),
            ([str(tmp_path / "empty")], "run.sqlite"),
            ([*runs, "--labels", str(tmp_path / "l.jsonl")], "exactly one run"),
        ):
            assert run(["studio", *arguments]) == 2
            said = capsys.readouterr().err
            assert sentence in said
            assert said.count("\n") == 1


def test_a_folder_of_runs_shows_all_of_them(tmp_path: Path) -> None:
    from editloupe.studio.library import Library

    for name in ("one", "two"):
        many_edits(tmp_path / name, 1).rename(tmp_path / f"run {name}")
    library = Library(StudioSettings(runs=(tmp_path,)))
    assert [(one.key, one.name) for one in library.runs()] == [("run-one", "run one"), ("run-two", "run two")]
    many_edits(tmp_path / "three", 1).rename(tmp_path / "run three")
    assert library.get("run-three") is not None
    assert library.get("../run one") is None
    library.close()


def test_the_address_to_open_holds_the_token() -> None:
    given = StudioSettings(host="0.0.0.0", token="a&b c", port=1)
    assert address(given) == "http://127.0.0.1:1/?token=a%26b%20c"
    assert address(StudioSettings(host="::1", port=2)) == "http://[::1]:2/"
