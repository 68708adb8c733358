"""A damaged run ends in a sentence or is read as far as it is whole; a traceback is never the answer."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from tests.evals.samples import judgement, write_manifest

Damage = Callable[[Path], object]
FILE = "run.sqlite"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest, a run of it with traces and pictures, and labels; only ever copied."""
    folder = tmp_path_factory.mktemp("whole")
    manifest = write_manifest(folder, 3)
    told = io.StringIO()
    with redirect_stdout(told), redirect_stderr(told):
        assert command(["batch", str(manifest), "--out", str(folder / "run"), "--judge", "rules", "--quiet"]) in (0, 3)
        assert command(["verify", str(folder / "run")]) == 0
    with Run.write(folder / "run") as run:
        for name in ("f0", "f1"):
            made, album = judgement(folder, name)
            (before,) = run.configurations()
            made = made.model_copy(update={"judge": before.judge})
            run.save_all([JudgementRecord(made, album=album, configuration=before.name)])
        run.keep_reply("k", {"message": {"type": "ai", "data": {"content": "x"}}, "usage": {}}, "f0")
    label = {"criterion": "instruction_following", "annotator": "Ann"}
    rows = [{"edit_id": name, "label": "Wrong Action", **label} for name in ("e0", "e1", "f0")]
    (folder / "run" / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


def cut(share: float) -> Damage:
    return lambda run: os.truncate(run / FILE, int((run / FILE).stat().st_size * share))


def zeroed(page: int, pages: int = 1) -> Damage:
    def damage(run: Path) -> None:
        with (run / FILE).open("r+b") as file:
            file.seek(4096 * page)
            file.write(bytes(4096 * pages))

    return damage


def scrambled(seed: int) -> Damage:
    def damage(run: Path) -> None:
        rng, size = random.Random(seed), (run / FILE).stat().st_size
        with (run / FILE).open("r+b") as file:
            for _ in range(40):
                file.seek(rng.randrange(100, size))
                file.write(rng.randbytes(rng.randint(1, 60)))

    return damage


def sql(*statements: str) -> Damage:
    def damage(run: Path) -> None:
        database = sqlite3.connect(run / FILE, isolation_level=None)
        for statement in statements:
            database.execute(statement)
        database.close()

    return damage


def column(table: str, name: str, value: str, where: str = "rowid = (SELECT min(rowid) FROM {})") -> Damage:
    """Put a value into the first row, whatever the table's own rules say."""
    where = where.replace("rowid", "asked") if table == "asked" else where  # which has no rowid

    def damage(run: Path) -> None:
        database = sqlite3.connect(run / FILE, isolation_level=None)
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = ?", (table,))
        database.close()
        database = sqlite3.connect(run / FILE, isolation_level=None)
        database.execute(f"UPDATE {table} SET {name} = {value} WHERE {where.format(table)}")
        database.close()

    return damage


def text(name: str, content: bytes) -> Damage:
    return lambda run: (run / name).write_bytes(content)


def torn_log(run: Path) -> None:
    """A log beside the file whose second half is garbage."""
    database = sqlite3.connect(run / FILE, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 0")
    for number in range(50):
        database.execute("INSERT INTO texts VALUES (?, ?)", (f"t{number}", "x" * 2000))
    log = (run / f"{FILE}-wal").read_bytes()
    database.close()
    (run / f"{FILE}-wal").write_bytes(log[: len(log) // 2] + bytes(random.Random(1).randbytes(3000)))


def pictures(change: Callable[[Path], object]) -> Damage:
    def damage(run: Path) -> None:
        for path in sorted((run / "pictures").rglob("*.*")):
            change(path)

    return damage


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_link(target: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return change


def as_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_bytes(b"not a folder")


def as_loop(run: Path) -> None:
    shutil.rmtree(run)
    run.symlink_to(run.name)


def lock_folder(run: Path) -> None:
    (run / "run.lock").unlink(missing_ok=True)
    (run / "run.lock").mkdir()


def about(value: object) -> Damage:
    return text("run.json", json.dumps(value).encode())


REMOVE: Damage = lambda run: (run / FILE).unlink()  # noqa: E731
KINDS: dict[str, Damage] = {
    **{f"file cut at {share:.0%}": cut(share) for share in (0.0, 0.001, 0.03, 0.3, 0.6, 0.95)},
    "first page zeroed": zeroed(0),
    "second page zeroed": zeroed(1),
    "a page in the middle zeroed": zeroed(6),
    "half the pages zeroed": zeroed(2, 12),
    **{f"bytes scrambled, seed {seed}": scrambled(seed) for seed in range(6)},
    "file is text": text(FILE, b"hello, this is not a database\n" * 50),
    "file removed": REMOVE,
    "file is a folder": lambda run: (REMOVE(run), (run / FILE).mkdir()),
    "file of another program": sql("PRAGMA application_id = 1"),
    "newer schema": sql("PRAGMA user_version = 7"),
    "log torn": torn_log,
    "log is garbage": text(f"{FILE}-wal", b"\x00garbage" * 999),
    **{
        f"no table {name}": sql(f"DROP TABLE {name}")
        for name in (
            "edits",
            "asked",
            "configurations",
            "units",
            "answers",
            "traces",
            "steps",
            "texts",
            "replies",
            "spent",
        )
    },
    "no column outcome": sql("PRAGMA legacy_alter_table = ON", "ALTER TABLE units DROP COLUMN outcome"),
    "no column pictures": sql("ALTER TABLE edits DROP COLUMN pictures"),
    "no column head": sql("ALTER TABLE traces DROP COLUMN head"),
    **{
        f"{table}.{name} is {kind}": column(table, name, value)
        for table, name in (
            ("edits", "facts"),
            ("edits", "pictures"),
            ("edits", "files"),
            ("answers", "shown"),
            ("answers", "criterion"),
            ("asked", "facts"),
            ("units", "outcome"),
            ("traces", "head"),
            ("replies", "reply"),
            ("units", "seconds"),
            ("units", "judge"),
            ("units", "status"),
        )
        for kind, value in (
            ("null", "NULL"),
            ("a number", "7"),
            ("bytes", "X'00ff80'"),
            ("half JSON", """'{"id": "e'"""),
            ("a list", "'[1, 2]'"),
            ("deep", "replace(hex(zeroblob(2000)), '0', '[')"),
        )
    },
    **{
        f"steps.step is {kind}": column("steps", "step", value, "position = 0")
        for kind, value in (("null", "NULL"), ("bytes", "X'ff'"), ("half JSON", "'{\"index'"), ("a list", "'[]'"))
    },
    "not UTF-8 in a text": column("units", "criterion", "CAST(X'fffe41' AS TEXT)"),
    "wrong types in edits": column("edits", "position", "'first'"),
    "repeat is a word": column("units", "repeat", "'once'"),
    "spent is a word": sql("INSERT INTO spent VALUES ('x', 'many', 1, 1, 1, 1, 'dear')"),
    "texts emptied": sql("DELETE FROM texts"),
    "steps emptied": sql("DELETE FROM steps"),
    "an edit's row missing": sql("DELETE FROM edits WHERE edit_id = 'e1'"),
    "all edits missing": sql("DELETE FROM edits"),
    "all units missing": sql("DELETE FROM units"),
    "hashes that lead elsewhere": sql(
        """UPDATE edits SET pictures = '{"source": ["../../../secret"], "edited": ["/etc/passwd"]}'"""
    ),
    "run.json missing": lambda run: (run / "run.json").unlink(),
    "run.json empty": text("run.json", b""),
    "run.json garbage": text("run.json", b"{{{"),
    "run.json not UTF-8": text("run.json", b"\xff\xfe{}"),
    "run.json a list": about([1]),
    "run.json without configurations": about({"schema": 1}),
    "run.json with wrong types": about({"schema": 1, "configurations": [1, None, {"name": 3, "rubrics": 5}]}),
    "run.json with strange rubrics": about(
        {"schema": 1, "configurations": [{"name": "n", "protocol": "dlebench", "rubrics": {"a": 1, "b": {"title": 2}}}]}
    ),
    "run.json newer": about({"schema": 9, "configurations": []}),
    "run.json deep": text("run.json", b"[" * 5000),
    "run.json a folder": lambda run: ((run / "run.json").unlink(), (run / "run.json").mkdir()),
    "pictures removed": lambda run: shutil.rmtree(run / "pictures"),
    "pictures garbage": pictures(lambda path: path.write_bytes(b"no picture")),
    "pictures empty": pictures(lambda path: path.write_bytes(b"")),
    "pictures cut": pictures(lambda path: os.truncate(path, path.stat().st_size // 2)),
    "pictures are folders": pictures(as_folder),
    "pictures are links out of the run": pictures(as_link("/etc/passwd")),
    "pictures are links in a loop": pictures(lambda path: as_link(path.name)(path)),
    "pictures is a file": lambda run: (shutil.rmtree(run / "pictures"), (run / "pictures").write_bytes(b"x")),
    "run.lock is a folder": lock_folder,
    "run is a file": as_file,
    "run is a link to itself": as_loop,
    "run removed": shutil.rmtree,
    "claims empty": text("claims.sqlite", b""),
    "claims garbage": text("claims.sqlite", b"hello" * 999),
    "claims zeroed": lambda run: text("claims.sqlite", (run / "claims.sqlite").read_bytes()[:4096] + bytes(20_000))(
        run
    ),
    "labels torn": lambda run: os.truncate(run / "labels.jsonl", (run / "labels.jsonl").stat().st_size - 9),
    "labels garbage": text("labels.jsonl", b"{}\n\x00\x01\n"),
    "labels not UTF-8": text("labels.jsonl", b'{"edit_id": "\xff"}\n{}\n'),
    "labels a folder": lambda run: ((run / "labels.jsonl").unlink(), (run / "labels.jsonl").mkdir()),
    "labels with wrong types": text(
        "labels.jsonl", b'{"edit_id": [1], "criterion": {}, "label": [], "annotator": 5}\n'
    ),
}


def commands(folder: Path, all_of_them: bool) -> Iterator[list[str]]:
    """Yield every command that reads or writes a run; without the drawn report and variants of the same reading."""
    run, other = str(folder / "run"), str(folder / "other")
    yield ["report", run, "--format", "md"]
    yield ["export", run, "--format", "jsonl"]
    yield ["export", run, "--format", "datasets", "--images", "--out", str(folder / "packed")]
    yield ["agree", run]
    yield ["compare", run, other]
    yield ["trace", run, "f0"]
    yield ["trace", run, "f0", "--json"]
    yield ["traces", run, "--where", "contradicted > 0"]
    if all_of_them:
        yield ["verify", run]
        yield ["gate", run, "--against", other]
        yield ["passport", run, other]
        yield ["masks", run, "--out", str(folder / "masks")]
        for kind in ("label-studio", "sft"):
            yield ["export", run, "--format", kind, "--out", str(folder / kind)]
        for kind in ("text", "html", "json"):
            yield ["report", run, "--format", kind]
        yield ["report", run, other]
        yield ["export", run, "--format", "csv"]
        yield ["export", run, "--format", "parquet", "--out", str(folder / "x.parquet")]
        yield ["agree", run, "--format", "json"]
        for edit_id in ("e0", "e1"):
            yield ["trace", run, edit_id]
            yield ["trace", run, edit_id, "--json"]
    batch = ["batch", str(folder / "manifest.jsonl"), "--out", run, "--judge", "rules", "--quiet"]
    yield [*batch, "--dry-run"]
    yield batch


def outcome(arguments: list[str]) -> tuple[int | str, str, str]:
    """Run a command in this process; what would have been a traceback comes back as the exception's name."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: int | str = command(arguments)
        except BaseException as error:  # a traceback for the user
            code = f"{type(error).__name__}: {str(error)[:200]}"
    return code, out.getvalue(), err.getvalue()


VARIANTS = re.compile(
    r"seed [1-9]|is (a number|a list|deep|bytes)|at (0%|60%|95%)|(judge|seconds|status) is|no column|half the pages|removed"
    r"|no table (traces|texts|replies|spent)|run.json (empty|a list|not|without|deep|a folder)|pictures (empty|cut)"
    r"|labels (not|a folder)|emptied|wrong types in|log is|is null"
)
"""Kinds that are much like others; the long form takes them too."""


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not VARIANTS.search(kind)])
def test_no_command_ends_in_a_traceback(kind: str, whole: Path, tmp_path: Path) -> None:
    judge_by_every_command(KINDS[kind], whole, tmp_path, all_of_them=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_no_command_in_any_format_ends_in_a_traceback(kind: str, whole: Path, tmp_path: Path) -> None:
    judge_by_every_command(KINDS[kind], whole, tmp_path, all_of_them=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_no_scrambled_file_ends_in_a_traceback(seed: int, whole: Path, tmp_path: Path) -> None:
    judge_by_every_command(scrambled(seed), whole, tmp_path, all_of_them=False)


def judge_by_every_command(damage: Damage, whole: Path, tmp_path: Path, all_of_them: bool) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    shutil.copytree(whole / "run", tmp_path / "other")
    (tmp_path.parent / "secret.png").write_bytes(b"secret")
    damage(tmp_path / "run")
    faults = []
    for arguments in commands(tmp_path, all_of_them):
        code, out, err = outcome(arguments)
        what = " ".join(arguments).replace(str(tmp_path), "…")
        if code not in range(6):
            faults.append(f"{what}: {code}")
        elif code == 2 and (
            err.count("\n") == 0 or not err.splitlines()[-1].startswith("editloupe: ") or len(err) > 2000
        ):
            faults.append(f"{what}: told as {err!r}")
        elif "root:" in out:
            faults.append(f"{what}: a file from outside the run")
    assert not faults, "\n".join(faults)
    packed = tmp_path / "packed"
    assert not [path for path in packed.rglob("*") if path.is_file() and b"root:" in path.read_bytes()]


@pytest.mark.long
def test_what_is_whole_is_read_beside_what_is_damaged(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "run"
    rows = sum(1 for _ in Run.open(run).units())
    column("units", "outcome", "'{'")(run)
    code, out, err = outcome(["export", str(run)])
    assert (code, len(out.splitlines())) == (0, rows - 1)
    assert "1 verdict cannot be read" in err
    code, out, _ = outcome(["report", str(run)])
    assert code == 0
    assert "The run is damaged" in out
    sql("DELETE FROM texts", "UPDATE steps SET step = 'x' WHERE position = 0")(run)
    code, out, err = outcome(["trace", str(run), "f0"])
    assert code == 0
    assert "answer: Wrong Action" in out
    assert "step 1 cannot be read" in out
    assert "text of a prompt" in err


@pytest.mark.long
def test_pictures_that_are_gone_are_named_in_the_report(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    pictures(lambda path: path.write_bytes(b"no picture"))(tmp_path / "run")
    code, out, _ = outcome(["report", str(tmp_path / "run"), "--format", "html"])
    assert code == 0
    assert "Missing from the run, or damaged: source, edited." in out


@pytest.mark.long
def test_nothing_that_was_there_is_lost_by_a_writer_that_cannot_read(whole: Path, tmp_path: Path) -> None:
    for name, damage in (
        ("file cut", cut(0.6)),
        ("newer", sql("PRAGMA user_version = 7")),
        ("about", text("run.json", b"{")),
    ):
        folder = tmp_path / name
        shutil.copytree(whole, folder)
        damage(folder / "run")
        before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
        code, _, err = outcome(
            ["batch", str(folder / "manifest.jsonl"), "--out", str(folder / "run"), "--judge", "rules"]
        )
        assert code == 2, err
        after = {path: path.read_bytes() for path in before if path.name != "run.lock"}
        assert after == {path: data for path, data in before.items() if path.name != "run.lock"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "NAME"],
        ["agree", "NAME"],
        ["gate", "NAME", "--against", "run"],
        ["passport", "NAME", "run"],
        ["stress", "NAME", "--out", "run", "--judge", "rules"],
        ["batch", "edits.jsonl", "--out", "NAME", "--judge", "rules"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_beyond_any_file_name_is_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x" * 5000, "a\udcffb", "/dev/null", "/proc/self/mem"):
        code, _, err = outcome([name if word == "NAME" else word for word in arguments])
        assert code == 2
        assert err.splitlines()[-1].startswith("editloupe: ")
        err.encode(sys.getfilesystemencoding(), "surrogateescape")
