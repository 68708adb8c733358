"""An edit takes pictures as programs hold them, and judges them as it judges files."""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from editloupe import Edit, Judge, Unjudged, UserError, reward
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.writer import save_judgement
from editloupe.pictures import input as picture_input
from editloupe.pictures.decode import Album, open_picture
from editloupe.pictures.memory import MemoryPicture
from editloupe.pictures.pixels import ImageError, hash_bytes, hash_pixels
from editloupe.tools.compare.difference import compare
from editloupe.tools.compare.process_pool import ComparisonPool
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, textured
from tests.scripted import Request, final

INSTRUCTION = "Change the color of the patch to red"


def encoded(pixels: Any, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(file, format, **options)
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return edit_pair(tmp_path)


WAYS: dict[str, Any] = {
    "path": lambda path: path,
    "text": str,
    "bytes": lambda path: path.read_bytes(),
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "data URL": lambda path: data_url(path.read_bytes()),
    "PIL image": Image.open,
    "PIL RGBA": lambda path: Image.open(path).convert("RGBA"),
    "array": lambda path: np.asarray(Image.open(path)),
    "floats": lambda path: np.asarray(Image.open(path), dtype=np.float32) / 255,
}


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_to_give_a_picture_shows_the_same_pixels(pair: tuple[Path, Path], way: str) -> None:
    edit = Edit(source=WAYS[way](pair[0]), edited=WAYS[way](pair[1]), instruction=INSTRUCTION)
    for source, path in zip((edit.source, edit.edited), pair, strict=True):
        assert np.array_equal(open_picture(source).pixels, open_picture(path).pixels)


@pytest.mark.long
def test_the_same_edit_is_judged_alike_from_files_and_from_memory(pair: tuple[Path, Path]) -> None:
    with Judge("rules") as judge:
        found = [
            judge(Edit(source=WAYS[way](pair[0]), edited=WAYS[way](pair[1]), instruction=INSTRUCTION))
            for way in ("path", "bytes", "PIL image", "array")
        ]
    labels = [[(v.criterion, v.label) for v in judgement.verdicts] for judgement in found]
    assert all(one.judged for one in found)
    assert labels[1:] == labels[:-1]


def test_every_role_takes_a_picture_from_memory(pair: tuple[Path, Path]) -> None:
    source, edited = (np.asarray(Image.open(path)) for path in pair)
    edit = Edit(
        source=source,
        edited=edited,
        reference=edited,
        instruction=INSTRUCTION,
        target_boxes=[[60, 40, 100, 70]],
        more_images={"pose": [source], "annotated": [Image.fromarray(source), str(pair[0])]},
    )
    assert [len(edit.files[role]) for role in ("source", "edited", "reference", "pose", "annotated")] == [1, 1, 1, 1, 2]
    with Judge("rules", mode="oracle") as judge:
        assert judge(edit).judged


def test_bytes_are_known_as_their_file_is_and_pixels_by_what_they_show(pair: tuple[Path, Path]) -> None:
    data, pixels = pair[0].read_bytes(), np.asarray(Image.open(pair[0]))
    edit = Edit(source=data, edited=pixels, instruction=INSTRUCTION)
    assert str(edit.source) == f"memory:{hash_bytes(data)}"
    assert str(edit.edited) == f"memory:{hash_pixels(pixels)}"
    assert edit.id == hash_pixels(pixels)[:16]
    assert Edit(source=data, edited=pixels, instruction=INSTRUCTION) == edit


def test_what_is_changed_afterwards_was_not_given(pair: tuple[Path, Path]) -> None:
    pixels, image = np.asarray(Image.open(pair[0])).copy(), Image.open(pair[1]).convert("RGB")
    edit = Edit(source=pixels, edited=image, instruction=INSTRUCTION)
    before = [open_picture(one).pixels.copy() for one in edit.paths]
    pixels[:] = 0
    image.paste((0, 0, 0), (0, 0, *image.size))
    assert all(np.array_equal(open_picture(one).pixels, old) for one, old in zip(edit.paths, before, strict=True))


def test_pictures_in_memory_are_read_by_the_rules_of_files(tmp_path: Path) -> None:
    photo = Image.fromarray(textured(60, 40))
    exif = photo.getexif()
    exif[0x0112] = 6  # a quarter turn
    turned = encoded(photo, "JPEG", exif=exif)
    for given in (turned, Image.open(io.BytesIO(turned))):
        assert open_picture(Edit(source=given, edited=given, instruction="x").source).size == (40, 60)
    clear = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
    grey, deep = Image.new("L", (8, 8), 90), Image.fromarray(np.full((8, 8), 65535, np.uint16))
    shown = [
        open_picture(Edit(source=one, edited=one, instruction="x").source).pixels[0, 0] for one in (clear, grey, deep)
    ]
    assert [list(map(int, one)) for one in shown] == [[255] * 3, [90] * 3, [255] * 3]
    mask = np.zeros((8, 8, 1), np.uint8)
    assert open_picture(Edit(source=mask, edited=mask[..., 0], instruction="x").source).pixels.shape == (8, 8, 3)


def pages(kind: str) -> bytes:
    frames = [Image.fromarray(textured(16, 16, seed)) for seed in range(3)]
    return encoded(frames[0], kind.removeprefix("A"), save_all=True, append_images=frames[1:])


def animation() -> Image.Image:
    frames = [Image.fromarray(textured(16, 16, seed)) for seed in range(3)]
    return Image.open(io.BytesIO(encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])))


def cut_off() -> Image.Image:
    return Image.open(io.BytesIO(encoded(textured(64, 64))[:400]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (b"", "is an empty file"),
        (b"not a picture", "is not a picture this program reads"),
        (encoded(textured(64, 64))[:300], "damaged or incomplete"),
        (cut_off, "damaged or incomplete"),
        (animation, "animation of 3 frames"),
        (pages("APNG"), "animation of 3 frames"),
        (pages("GIF"), "not a picture this program reads"),
        (pages("TIFF"), "has several pages"),
        (lambda: Image.open(io.BytesIO(pages("TIFF"))), "has several pages"),
        (np.full((8, 8, 3), np.nan), "NaN or infinite values"),
        (Image.new("RGB", (0, 7)), "has no pixels: it is 0 × 7"),
        ("data:image/png;base64,@@@", "cannot be decoded"),
        ("data:image/png;base64", "holds no picture"),
        ("data:text/plain,hello", "is not a picture this program reads"),
        ("memory:" + "0" * 32, "is no longer available"),
    ],
)
def test_a_broken_picture_is_one_sentence_as_a_broken_file_is(
    pair: tuple[Path, Path], given: Any, sentence: str
) -> None:
    edit = Edit(source=pair[0], edited=given() if callable(given) else given, instruction=INSTRUCTION)
    with Judge("rules") as judge:
        with pytest.raises(UserError, match=sentence):
            judge(edit, strict=True)
        (judgement,) = judge.batch([edit])
        with pytest.warns(UserWarning, match="1 of 1 edit has no reward"):
            assert reward([edit], judge) == [None]
    for outcome in judgement.verdicts:
        assert isinstance(outcome, Unjudged)
        assert outcome.reason == "bad_image"
        assert sentence in outcome.detail


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (5, "a picture is a path, bytes, a data URL, a PIL image or a numpy array, not int"),
        ({"a": 1}, "not dict"),
        ("", "there is no picture: its path is empty"),
        (np.zeros((3, 64, 64), np.uint8), "move the channels to the end"),
        (np.zeros((2, 8, 8, 3), np.uint8), "not 2 × 8 × 8 × 3"),
        (np.zeros((0, 8, 3), np.uint8), "not 0 × 8 × 3"),
        (np.zeros((8, 8, 3), np.int64), "not int64"),
        (np.linspace(-1, 1, 192).reshape(8, 8, 3), "holds 0 to 1, not -1 to 1"),
    ],
)
@pytest.mark.parametrize("role", ["source", "edited", "reference"])
def test_what_can_be_no_picture_is_refused_when_the_edit_is_made(role: str, given: Any, sentence: str) -> None:
    pictures = {"source": "a.png", "edited": "b.png", role: given}
    with pytest.raises(ValidationError, match=sentence) as refused:
        Edit(**pictures, instruction=INSTRUCTION)
    assert [mistake["loc"][0] for mistake in refused.value.errors()] == [role]


@pytest.mark.parametrize("role", ["source", "edited"])
def test_an_edit_without_a_picture_says_which_one_is_not_there(role: str) -> None:
    with pytest.raises(
        ValidationError, match=f"1 validation error for Edit\n{role}\n  Value error, there is no picture"
    ):
        Edit(**{"source": "a.png", "edited": "b.png", role: None}, instruction=INSTRUCTION)


@pytest.mark.long
def test_json_names_a_picture_by_its_hash_and_never_holds_it(pair: tuple[Path, Path]) -> None:
    edit = Edit(source=pair[0].read_bytes(), edited=Image.open(pair[1]), instruction=INSTRUCTION)
    text = edit.model_dump_json()
    assert len(text) < 600
    back = Edit.model_validate_json(text)
    assert (back.source, back.edited) == (edit.source, edit.edited)  # while somebody holds them, they are found
    names = edit.source, str(edit.edited)
    del edit, back
    gc.collect()
    alone = Edit.model_validate_json(text)
    assert (alone.source, str(alone.edited)) == names
    assert isinstance(alone.edited, MemoryPicture)
    assert not alone.edited.has_content


def test_an_edit_in_memory_can_be_copied_and_sent_to_another_process(pair: tuple[Path, Path]) -> None:
    edit = Edit(source=pair[0].read_bytes(), edited=Image.open(pair[1]), instruction=INSTRUCTION)
    there = pickle.loads(pickle.dumps(edit))
    assert there == edit == copy.deepcopy(edit)
    assert np.array_equal(open_picture(there.edited).pixels, open_picture(edit.edited).pixels)


def test_a_jpeg_in_memory_is_decoded_when_somebody_looks_at_its_pixels_as_one_in_a_file_is(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    Image.fromarray(textured(160, 120)).save(file, quality=90)
    edit = Edit(source=file, edited=file.read_bytes(), instruction=INSTRUCTION)
    in_file, in_memory = Album().open(edit.source), Album().open(edit.edited)
    assert not in_file.decoded
    assert not in_memory.decoded
    assert in_memory.sha == in_file.sha
    assert in_memory.size == (160, 120)
    assert np.array_equal(in_memory.pixels, in_file.pixels)
    cut = Edit(source=file, edited=file.read_bytes()[:-900], instruction=INSTRUCTION)
    with pytest.raises(ImageError, match="damaged or incomplete"):
        Album().open(cut.edited)


def test_candidates_for_one_source_share_it_and_nothing_outlives_them(pair: tuple[Path, Path]) -> None:
    first, second = (Edit(source=Image.open(pair[0]), edited=Image.open(pair[1]), instruction=text) for text in "ab")
    assert first.source is second.source
    assert Album().open(first.source) is Album().open(second.source)


def test_a_picture_somebody_holds_is_compared_and_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Any] = []
    monkeypatch.setattr(picture_input, "hash_pixels", lambda pixels: hashed.append(pixels) or hash_pixels(pixels))
    before = textured(64, 48, seed=5)
    edits = [Edit(source=Image.fromarray(before), edited=textured(seed=n), instruction="a") for n in (6, 7, 8)]
    assert len(hashed) == 4
    assert {one.source.sha for one in edits if isinstance(one.source, MemoryPicture)} == {hash_pixels(before)}


def test_pictures_of_one_sum_are_told_apart() -> None:
    dark = np.zeros((8, 8, 3), np.uint8)
    dark[0] = 255
    turned = np.ascontiguousarray(dark[::-1])
    edit = Edit(source=dark, edited=turned, instruction="a")
    assert [edit.source, edit.edited] == [MemoryPicture(hash_pixels(one)) for one in (dark, turned)]
    assert Edit(source=dark, edited=turned, instruction="a").source == edit.source


def labelled(request: Request) -> Any:
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


def test_a_model_is_sent_what_was_given(pair: tuple[Path, Path], scripted: StartServer) -> None:
    server = scripted(labelled)
    edit = Edit(source=pair[0].read_bytes(), edited=Image.open(pair[1]), instruction=INSTRUCTION)
    with Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain") as judge:
        assert judge(edit).judged
    sent = server.requests[0].images
    assert sent[0].data == pair[0].read_bytes()  # byte for byte
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(sent[1].data))), np.asarray(Image.open(pair[1])))


@pytest.mark.long
def test_nothing_is_written_unless_a_run_is_kept_and_the_run_then_holds_the_very_pixels(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    large = textured(700, 500)
    changed = large.copy()
    changed[100:160, 100:180] = (220, 30, 30)
    edit = Edit(source=large, edited=encoded(changed), instruction=INSTRUCTION)
    with Judge("rules") as judge:
        album = Album()
        judgement = judge(edit, album=album)
        assert list(elsewhere.iterdir()) == []
        with Run.write(tmp_path / "run") as run:
            save_judgement(run, judge, judgement, album)
    with Run.open(tmp_path / "run") as run:
        (kept,) = run.edits()
        assert str(kept.edit.source) == str(edit.source)
        for role, wanted in (("source", large), ("edited", changed)):
            file = run.pictures.find(kept.pictures[role][0])
            assert file is not None
            assert np.array_equal(np.asarray(Image.open(file)), wanted)


@pytest.mark.long
def test_a_batch_of_edits_in_memory_is_kept_and_continued(pair: tuple[Path, Path], tmp_path: Path) -> None:
    def edits() -> list[Edit]:
        return [
            Edit(id=str(n), source=Image.open(pair[0]), edited=textured(160, 120, seed=n), instruction=INSTRUCTION)
            for n in range(3)
        ]

    batch = Batch(edits=edits, out=tmp_path / "run", open_judge=lambda **hooks: Judge("rules", mode="plain", **hooks))
    first, second = (judge_batch(batch, quiet=True) for _ in range(2))
    assert first.why is second.why is None
    with Run.open(tmp_path / "run") as run:
        assert len(list(run.units())) == 6
        assert {str(kept.edit.edited) for kept in run.edits()} == {str(edit.edited) for edit in edits()}


@pytest.mark.long
async def test_a_judge_on_an_event_loop_takes_them_too(pair: tuple[Path, Path]) -> None:
    edits = [Edit(source=Image.open(pair[0]), edited=textured(160, 120, n), instruction=INSTRUCTION) for n in range(4)]
    async with Judge("rules", mode="plain") as judge:
        found = await asyncio.gather(*(judge.ajudge(edit) for edit in edits))
    assert all(one.judged for one in found)


@pytest.mark.long
def test_pictures_in_memory_reach_the_processes_that_compare(pair: tuple[Path, Path]) -> None:
    edit = Edit(source=Image.open(pair[0]), edited=pair[1].read_bytes(), instruction=INSTRUCTION)
    pool = ComparisonPool(1)
    try:
        there = pool(*(open_picture(one) for one in edit.paths), max_crops=5)
    finally:
        pool.close()
    here = compare(*(open_picture(path).pixels for path in pair))
    assert [region.box for region in there.comparison.regions] == [region.box for region in here.regions]
    assert pool.pids == []
