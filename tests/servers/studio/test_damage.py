"""A damaged or deleted run is a row that says so; the other runs and all pages go on working."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from editloupe.servers.studio.run_catalog import ClosedRun, OpenRun, RunCatalog
from editloupe.servers.studio.settings import StudioSettings
from editloupe.types import UserError
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import long_trace, many_edits

HTML = {"accept": "text/html"}
EDIT = "the-edit/../x"
WHERE = {"edit": EDIT, "criterion": "instruction_following", "repeat": 0}
Damage = Callable[[Path], None]


def sql(*statements: str) -> Damage:
    def do(run: Path) -> None:
        with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return do


def overwritten(name: str, content: bytes) -> Damage:
    return lambda run: (run / name).write_bytes(content) and None


def cut(share: float) -> Damage:
    def do(run: Path) -> None:
        data = (run / "run.sqlite").read_bytes()
        (run / "run.sqlite").write_bytes(data[: int(len(data) * share)])

    return do


def scrambled(run: Path) -> None:
    data = bytearray((run / "run.sqlite").read_bytes())
    for place in range(5000, len(data), 997):
        data[place] ^= 0xFF
    (run / "run.sqlite").write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "empty file": overwritten("run.sqlite", b""),
    "no database": overwritten("run.sqlite", b"not a database " * 400),
    "cut in half": cut(0.5),
    "cut after the header": cut(0.02),
    "scrambled": scrambled,
    "later schema": sql("PRAGMA user_version = 99"),
    "another program's": sql("PRAGMA application_id = 7"),
    "no units": sql("DROP TABLE units"),
    "no edits": sql("DROP TABLE edits"),
    "no steps": sql("DROP TABLE steps"),
    "no texts": sql("DELETE FROM texts"),
    "edit is no JSON": sql("UPDATE edits SET facts = '{'"),
    "edit is a list": sql("UPDATE edits SET facts = '[1]'"),
    "edit is binary": sql("UPDATE edits SET facts = x'ff00fe'"),
    "edit is nested deep": sql("UPDATE edits SET facts = '" + "[" * 100_000 + "'"),
    "instruction is a number": sql("""UPDATE edits SET facts = json_set(facts, '$.instruction', 5)"""),
    "half an emoji": sql("""UPDATE edits SET facts = replace(facts, 'Change', 'Change \\ud83d \u001b[31m')"""),
    "pictures are no JSON": sql("UPDATE edits SET pictures = 'x'"),
    "pictures are numbers": sql("""UPDATE edits SET pictures = '{"source": [1], "edited": 2}'"""),
    "pictures lead elsewhere": sql(
        """UPDATE edits SET pictures = '{"source": ["../../etc/passwd"], "edited": [{}]}'"""
    ),
    "human is a number": sql("""UPDATE edits SET facts = json_set(facts, '$.human', 7)"""),
    "outcome is no JSON": sql("UPDATE units SET outcome = 'nothing'"),
    "outcome is another record": sql("UPDATE units SET outcome = '{}'"),
    "score is a word": sql("UPDATE units SET score = 'high', score_100 = 'very'"),
    "unknown mode": sql("UPDATE units SET mode = 'dreaming'"),
    "unknown protocol": sql("UPDATE units SET protocol = 'nobody', criterion = 'nothing'"),
    "step is no JSON": sql("UPDATE steps SET step = 'x'"),
    "head is no JSON": sql("UPDATE traces SET head = 'x'"),
    "reply is no JSON": sql("INSERT INTO replies VALUES ('k', 'the-edit/../x', 'x', '')"),
    "run.json is gone": lambda run: (run / "run.json").unlink(),
    "run.json is no JSON": overwritten("run.json", b"{"),
    "run.json is a list": overwritten("run.json", b"[]"),
    "run.json is binary": overwritten("run.json", b"\xff\xfe\x00"),
    "pictures are gone": lambda run: shutil.rmtree(run / "pictures"),
    "pictures are damaged": lambda run: [p.write_bytes(b"x") for p in (run / "pictures").rglob("*.png")] and None,  # type: ignore[func-returns-value]
    "labels are torn": overwritten("labels.jsonl", b'{"edit_id": "the-edit/../x", "criter'),
    "labels are binary": overwritten("labels.jsonl", b"\xff\xfe\x00\n"),
    "labels are a folder": lambda run: (run / "labels.jsonl").mkdir(),
    "file is gone": lambda run: (run / "run.sqlite").unlink(),
    "folder is gone": shutil.rmtree,
}


CHARTED = ("cut in half", "no units", "edit is no JSON", "outcome is no JSON", "score is a word", "folder is gone")
"""Damages under which the charts are asked for as well, which take a while to draw."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that are only ever copied: one that stays whole, one to be damaged."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "watched").mkdir()
    for name in ("good", "bad"):
        long_trace(folder / name, steps=4).rename(folder / "watched" / name)
    return folder / "watched"


@pytest.fixture
def watched(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "watched")


def pages_of(client: TestClient, key: str, edit: str, charts: bool = False) -> dict[str, int]:
    """Ask for every page of a run; each is a page or a sentence."""
    addresses = {
        "": {},
        "/trace": {"edit": edit},
        "/raw": {**WHERE, "edit": edit, "step": 0},
        "/annotate": {"annotator": "Ana"},
        "/annotators": {},
        **({"/charts": {}} if charts else {}),
    }
    found = {}
    for name, params in addresses.items():
        answer = client.get(f"/runs/{key}{name}", params=params, headers=HTML)
        found[name] = answer.status_code
        assert answer.status_code in (200, 400, 404, 503), (name, answer.text)
        assert "Traceback" not in answer.text
        assert "root:" not in answer.text
        if answer.status_code != 200:
            assert "<h1>That did not work</h1>" in answer.text
            assert client.get(f"/runs/{key}{name}", params=params).json()["sentence"].strip()
    return found


def check_the_others(client: TestClient, runs: int) -> None:
    for path in ("/", "/judge", "/runs", "/annotate"):
        assert client.get(path, headers=HTML).status_code in (200, 307), path
    assert set(pages_of(client, "good", EDIT).values()) == {200}
    assert client.get("/runs").text.count(" data-run=") == runs


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("when", ["before", "while open"])
def test_every_page_works_or_says_what_is_wrong(studio: OpenStudio, watched: Path, name: str, when: str) -> None:
    bad = watched / "bad"
    if when == "before":
        DAMAGES[name](bad)
    client = studio(runs=(watched,))
    if when == "while open":
        assert client.get("/runs/bad").status_code == 200
        DAMAGES[name](bad)
    pages_of(client, "bad", EDIT, charts=when == "while open" and name in CHARTED)
    assert client.post("/runs/bad/labels", json={"annotator": "a", "edit": EDIT, "undo": True}).status_code < 504
    check_the_others(client, 1 if when == "before" and name in ("file is gone", "folder is gone") else 2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["empty file", "no database", "cut in half", "no units", "file is gone"])
def test_the_list_of_runs_says_what_is_wrong_with_one(studio: OpenStudio, watched: Path, name: str) -> None:
    client = studio(runs=(watched,))
    client.get("/runs")
    DAMAGES[name](watched / "bad")
    page = client.get("/runs").text
    assert page.count(' data-run="') == 2
    assert page.count('<tr class="damaged"') == 1
    told = client.get("/runs/bad", headers=HTML)
    assert told.status_code == 503
    assert "That did not work" in told.text


@pytest.mark.long
def test_a_run_that_is_whole_again_is_shown_again(studio: OpenStudio, watched: Path, tmp_path: Path) -> None:
    bad = watched / "bad"
    shutil.copytree(bad, tmp_path / "spare")
    client = studio(runs=(watched,))
    for damage in (shutil.rmtree, DAMAGES["no database"], shutil.rmtree):
        damage(bad)
        assert client.get("/runs/bad").status_code == 503
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(tmp_path / "spare", bad)
        assert client.get("/runs/bad").status_code == 200
        assert client.get("/runs/bad/trace", params={"edit": EDIT}).status_code == 200
    assert "damaged" not in client.get("/runs").text


@pytest.mark.long
def test_a_run_that_was_made_anew_at_the_same_place_is_the_new_one(
    studio: OpenStudio, watched: Path, tmp_path: Path
) -> None:
    bad = watched / "bad"
    client = studio(runs=(watched,))
    assert "Change the color of the patch to red" in client.get("/runs/bad").text
    shutil.rmtree(bad)
    many_edits(tmp_path / "other", 2).rename(bad)
    assert "Change the color of patch 1 to red" in client.get("/runs/bad").text


@pytest.mark.long
def test_the_whole_folder_may_go_and_come_back(studio: OpenStudio, watched: Path, tmp_path: Path) -> None:
    client = studio(runs=(watched,))
    watched.rename(tmp_path / "away")
    assert client.get("/runs").text.count('<tr class="damaged"') == 2
    assert client.get("/judge").status_code == 200
    (tmp_path / "away").rename(watched)
    assert set(pages_of(client, "bad", EDIT).values()) == {200}


def test_a_studio_of_damaged_runs_only_does_not_start_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    run = many_edits(tmp_path, 1)
    DAMAGES["no database"](run)
    for runs in ((run,), (tmp_path / "nowhere",), (tmp_path / "pictures",)):
        with pytest.raises(UserError):
            RunCatalog(StudioSettings(runs=runs))
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
def test_runs_are_closed_while_others_read_them_without_a_crash(watched: Path, tmp_path: Path) -> None:
    """A connection closed under a reading thread would end the process."""
    bad = watched / "bad"
    shutil.copytree(bad, tmp_path / "spare")
    library = RunCatalog(StudioSettings(runs=(watched,)))
    wrong: list[BaseException] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            try:
                one = library.get("bad")
                assert one is not None
                with one.index.reading() as rows:
                    rows.execute("SELECT count(*) FROM cells").fetchone()
                for unit in one.units(EDIT):
                    one.traces(unit)
            except (UserError, sqlite3.ProgrammingError):
                pass
            except BaseException as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(6)]
    for reader in readers:
        reader.start()
    for _ in range(15):
        while bad.exists():  # its index may be written at this moment
            shutil.rmtree(bad, ignore_errors=True)
        library.all()
        shutil.copytree(tmp_path / "spare", bad)
        library.all()
    kinds = {one.key: type(one) for one in library.all()}
    library.close()
    library.close()
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert kinds == {"good": OpenRun, "bad": OpenRun}
    assert ClosedRun not in kinds.values()


@pytest.mark.long
@pytest.mark.parametrize(
    "given", ["\x1b]0;owned\x07", "a\x00b", "\u202eevil", "\ud800", "x" * 900, "../../etc/passwd", "é🎉"]
)
def test_ids_and_names_of_any_kind_are_shown_and_led_to(studio: OpenStudio, tmp_path: Path, given: str) -> None:
    run = long_trace(tmp_path, steps=2)
    plain = given.encode("utf-8", "replace").decode()
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as connection:
        row = json.loads(connection.execute("SELECT facts FROM edits").fetchone()[0])
        edit = json.dumps({**row, "id": given, "instruction": given, "model": given, "human": {given: given}})
        connection.execute("UPDATE edits SET name = ?, edit_id = ?, model = ?, facts = ?", (plain, plain, plain, edit))
    client = studio(runs=(run,))
    found = pages_of(client, "run", plain)
    assert found[""] == 200
    table = client.get("/runs/run").text
    link = table.split('class="row-link" href="')[1].split('"')[0].replace("&amp;", "&")
    assert client.get(link).status_code == found["/trace"]
    body = {"annotator": "Ana", "edit": plain, "criterion": "instruction_following", "label": "Wrong Action"}
    assert client.post("/runs/run/labels", json=body).status_code in (200, 400, 503)
