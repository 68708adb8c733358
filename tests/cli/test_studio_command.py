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
from editloupe.servers.http.server import listen
from editloupe.servers.studio.app import format_address
from editloupe.servers.studio.settings import StudioSettings
from tests.servers.studio.samples import many_edits


@pytest.mark.long
def test_it_serves_a_run_until_interrupted_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = many_edits(tmp_path, 2)
    (tmp_path / "tmp").mkdir()
    token = "a-token-of-my-own-123"
    started = subprocess.Popen(
        [sys.executable, "-m", "editloupe", "studio", str(folder), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(tmp_path / "tmp"),
            "HOME": str(tmp_path),
            "EDITLOUPE_STUDIO_TOKEN": token,
        },
    )
    assert started.stderr is not None
    try:
        where = re.search(r"http://127\.0\.0\.1:\d+/\?token=(\S+)", started.stderr.readline())
        assert where
        assert where[1] == token
        with httpx.Client(follow_redirects=True, trust_env=False) as browser:
            page = browser.get(where[0])
            assert (page.status_code, "Change the color of patch 1" in page.text) == (200, True)
            assert token not in str(page.url)
        plain = where[0].partition("?")[0]
        assert httpx.get(plain, trust_env=False).status_code == 401
        curl = {"authorization": f"Bearer {token}"}
        assert httpx.get(f"{plain}runs/run", headers=curl, trust_env=False).status_code == 200
        started.send_signal(signal.SIGINT)
        assert started.wait(30) == 130
        said = started.stderr.read()
        assert "Traceback" not in said
        assert "the studio was stopped" in said
    finally:
        started.kill()
        started.wait()
        started.stderr.close()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    runs = [str(many_edits(tmp_path / name, 1)) for name in ("a", "b")]
    with listen("127.0.0.1", 0, "the test") as taken:
        for arguments, sentence in (
            (["--token", "too-short"], "at least 16 characters"),
            (["--base-url", "ftp://models/v1"], "--base-url"),
            (["--base-url", "http://127.0.0.1:1/v1", "--base-url", ""], "--base-url"),
            (["--port", str(taken.getsockname()[1])], "--port"),
            ([str(tmp_path / "nowhere")], "no run at"),
            ([str(tmp_path / "empty")], "run.sqlite"),
            ([*runs, "--labels", str(tmp_path / "l.jsonl")], "exactly one run"),
        ):
            assert run(["studio", *arguments]) == 2
            said = capsys.readouterr().err
            assert sentence in said
            assert said.count("\n") == 1


@pytest.mark.long
def test_a_folder_of_runs_shows_all_of_them(tmp_path: Path) -> None:
    from editloupe.servers.studio.run_catalog import RunCatalog

    for name in ("one", "two"):
        many_edits(tmp_path / name, 1).rename(tmp_path / f"run {name}")
    library = RunCatalog(StudioSettings(runs=(tmp_path,)))
    assert [(one.key, one.name) for one in library.runs()] == [("run-one", "run one"), ("run-two", "run two")]
    many_edits(tmp_path / "three", 1).rename(tmp_path / "run three")
    assert library.get("run-three") is not None
    assert library.get("../run one") is None
    library.close()


def test_the_address_to_open_holds_the_token() -> None:
    token = "a&b/c=d-0123456789"
    asked = StudioSettings(host="0.0.0.0", token=token, port=1)
    assert format_address(asked) == "http://127.0.0.1:1/?token=a%26b%2Fc%3Dd-0123456789"
    assert format_address(StudioSettings(host="::1", port=2, token=token)).startswith("http://[::1]:2/?token=")


@pytest.mark.long
def test_the_browser_is_opened_by_a_file_that_only_this_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address would stand among the browser's arguments, which everybody on the machine can list."""
    opened: list[str] = []
    seen: list[tuple[int, int, str]] = []

    def look(where: str) -> bool:
        opened.append(where)
        file = Path(where.removeprefix("file://"))
        seen.append((file.stat().st_mode & 0o077, file.parent.stat().st_mode & 0o077, file.read_text()))
        return True

    monkeypatch.setattr("webbrowser.open", look)
    monkeypatch.setattr("editloupe.servers.studio.app.StoppableServer.run", lambda self, sockets: None)
    token = "a-token-of-my-own-123"
    assert run(["studio", "--port", "0", "--open", "--token", token]) == 0
    assert token not in opened[0]
    assert seen[0][:2] == (0, 0)
    assert f"/?token={token}" in seen[0][2]
    assert not Path(opened[0].removeprefix("file://")).exists()
