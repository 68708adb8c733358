"""Benchmarks in the making that someone else wrote: the studio shows pictures of their folder only, and no page fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.types import UserError
from tests.conftest import StartServer
from tests.making.demo_questions import make, models, write_questions
from tests.servers.studio.conftest import OpenStudio

pytestmark = pytest.mark.long
SECRET = "a key of this machine"


@pytest.fixture
def bench(tmp_path: Path, scripted: StartServer) -> Path:
    questions = write_questions(tmp_path / "set", "cat-eye", "spoon-wood")
    assert make(questions, tmp_path / "bench", scripted(models())) == 0
    return tmp_path / "bench"


def first(bench: Path, stage: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((bench / f"{stage}.jsonl").read_text("utf-8").splitlines()[0])
    return record


def change(bench: Path, stage: str, **fields: Any) -> None:
    """Change the first record of a stage."""
    path = bench / f"{stage}.jsonl"
    _, *others = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps({**first(bench, stage), **fields}), *others]) + "\n", "utf-8")


def link_source(bench: Path) -> None:
    file = bench / first(bench, "questions")["picture"]
    file.unlink()
    file.symlink_to(bench.parent / "secret")


def link_sources(bench: Path) -> None:
    shutil.rmtree(bench / "sources")
    (bench / "sources").symlink_to(bench.parent / "outside")


def link_in_a_circle(bench: Path) -> None:
    file = bench / first(bench, "questions")["picture"]
    file.unlink()
    file.symlink_to(file.name)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a linked source": link_source,
    "a linked folder": link_sources,
    "a link in a circle": link_in_a_circle,
    "a reference above": lambda bench: change(bench, "references", reference="../secret"),
    "a reference that no file can be": lambda bench: change(bench, "references", reference="a\0b"),
    "no size": lambda bench: change(bench, "questions", size=[0, -3]),
    "an endless size": lambda bench: change(bench, "questions", size=[10**18, 10**18]),
    "boxes outside": lambda bench: change(bench, "boxes", boxes=[[-5, -5, -1, -1]]),
    "scores that are no numbers": lambda bench: change(bench, "boxes", scores=[float("nan")]),
    "long texts": lambda bench: change(bench, "questions", question="x" * 2_000_000),
    "markup": lambda bench: change(bench, "metadata", edit_instruction="<script>alert(1)</script>", by="<b>"),
    "another folder as its id": lambda bench: change(bench, "questions", id="../../x?y#z"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_benchmark_shows_nothing_from_outside_and_no_page_fails(
    name: str, bench: Path, studio: OpenStudio, tmp_path: Path
) -> None:
    shas = [first(bench, "questions")["sha"], first(bench, "references")["sha"]]
    (tmp_path / "outside").mkdir()
    for file in (
        tmp_path / "secret",
        *(tmp_path / "outside" / f"{sha}{end}" for sha in shas for end in (".jpg", ".png")),
    ):
        file.write_text(SECRET)
    HOSTILE[name](bench)
    client = studio(runs=(bench,))
    for task in ("", "/boxes?name=ann", "/review?name=ann", "/review?name=ann&sample=cat-eye"):
        page = client.get(f"/making/bench{task}")
        assert page.status_code in (200, 400), page.text
        assert "<script>alert" not in page.text
    for sha in shas:
        shown = client.get(f"/pictures/{sha}")
        assert shown.status_code in (200, 404)
        assert SECRET not in shown.text


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("boxes", '{"id": "cat-eye", "boxes": [[NaN, 0, 1, 1]]}'),
        ("reviews", "not a record"),
        ("boxes", "[" * 100_000),
        ("metadata", "\0\0"),
    ],
)
def test_a_line_that_is_no_record_is_one_sentence_at_the_start(
    stage: str, line: str, bench: Path, studio: OpenStudio
) -> None:
    with (bench / f"{stage}.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=rf"^{stage}\.jsonl, line \d+: not a valid record of this stage") as told:
        studio(runs=(bench,))
    assert "\n" not in str(told.value)
