"""`editloupe make dlebench --editor FOLDER`: people edit crops, and what has changed since is edited again, never taken over."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from editloupe.making.folder import MakingFolder
from editloupe.making.reviews import review
from editloupe.types import Box
from tests.conftest import StartServer
from tests.making.demo_questions import lines, make, models, painted, write_questions
from tests.scripted import ScriptedServer

REFUSED = {"box": True, "metadata": True, "reference": False}


class Bench:
    """A benchmark of one question whose crop is edited by hand."""

    def __init__(self, folder: Path, server: ScriptedServer) -> None:
        self.questions, self.out, self.hand = (
            write_questions(folder / "set", "cat-eye"),
            folder / "bench",
            folder / "hand",
        )
        self.hand.mkdir()
        self.server = server

    def make(self) -> int:
        return make(self.questions, self.out, self.server, editor=str(self.hand))

    def todo(self) -> list[dict[str, str]]:
        with (self.out / "crops" / "todo.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def crop(self) -> bytes:
        (waiting,) = self.todo()
        return (self.out / "crops" / waiting["file"]).read_bytes()

    def edit(self, data: bytes | None = None) -> None:
        (waiting,) = self.todo()
        (self.hand / waiting["file"]).write_bytes(painted(self.crop()) if data is None else data)


@pytest.fixture
def bench(tmp_path: Path, scripted: StartServer) -> Bench:
    return Bench(tmp_path, scripted(models()))


@pytest.mark.long
def test_crops_wait_with_what_is_to_be_done_and_edited_ones_become_references(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.make() == 0
    said = capsys.readouterr()
    assert "1 waiting" in said.out
    assert f"1 crop waits in {bench.out / 'crops'} to be edited; see todo.csv there" in said.err
    (waiting,) = bench.todo()
    assert waiting["instruction"].startswith("Change the color of the cat's eye")
    assert waiting["target_boxes"] == "138,86,205,146"
    bench.edit()

    assert bench.make() == 0

    (made,) = lines(bench.out / "references.jsonl")
    assert made["by"] == "by hand"
    assert bench.todo() == []
    assert bench.server.served == 1


@pytest.mark.long
def test_a_crop_that_cannot_be_used_is_told_every_time_until_another_lies_there(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.make() == 0
    edited = painted(bench.crop())
    for data, why in ((b"no picture", "is not a picture"), (bench.crop(), "is the crop as it was")):
        bench.edit(data)
        capsys.readouterr()
        assert bench.make() == 3
        assert why in capsys.readouterr().err
        (waiting,) = MakingFolder(bench.out).samples()
        assert waiting.step == "reference"
        assert bench.todo() == []
        next(bench.hand.iterdir()).unlink()
        assert bench.make() == 0

    bench.edit(edited)

    assert bench.make() == 0
    assert len(lines(bench.out / "references.jsonl")) == 1


@pytest.mark.long
def test_corrected_boxes_and_refused_references_are_edited_anew(bench: Bench) -> None:
    assert bench.make() == 0
    first = bench.crop()
    bench.edit()
    assert bench.make() == 0
    review(MakingFolder(bench.out), "cat-eye", "ann", "regenerate", REFUSED)

    assert bench.make() == 0, "the refused crop lies there still, and is not taken again"

    (sample,) = MakingFolder(bench.out).samples()
    assert sample.step == "regenerate"
    assert bench.crop() == first
    bench.edit(painted(first, 0.3))
    assert bench.make() == 0
    box = [Box(x1=300, y1=100, x2=330, y2=130)]
    review(MakingFolder(bench.out), "cat-eye", "ann", "correct", REFUSED, boxes=box)
    assert bench.make() == 0
    assert bench.crop() != first, "other boxes have another crop"
    (sample,) = MakingFolder(bench.out).samples()
    assert sample.reference is None
