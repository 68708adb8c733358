"""Whatever stands where a picture should be: an edit that is judged, or one sentence; nothing else, in bounded memory."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe import Edit, Judge
from editloupe.evals.batch.local_executor import judge_job
from editloupe.evals.batch.planner import Planner
from editloupe.evals.runs.store import Run
from editloupe.evals.stress.variants import choose_variants, with_variants
from editloupe.pictures import memory_budget
from editloupe.pictures.decode import Album, Picture, declared_pixels, decode, hash_file, open_picture
from editloupe.pictures.encode import EncodingLimits
from editloupe.pictures.memory_budget import (
    MemoryBudget,
    limit_memory,
    machine_memory,
    memory_limit,
    memory_shares,
    picture_budget,
)
from editloupe.pictures.pixels import ImageError
from editloupe.types import Reason, Unjudged, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair, save, textured
from tests.faults.hostile_pictures import chunk, encoded, hostile, png
from tests.scripted import final

FEW = pytest.param(200)
MANY = pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])
BATCH = 40


def one_line(sentence: str) -> bool:
    return 0 < len(sentence) < 600 and "\n" not in sentence and "Traceback" not in sentence


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_hostile_picture_is_decoded_or_refused_in_one_sentence(count: int) -> None:
    decoded, told = 0, {}
    for seed in range(count):
        try:
            picture = decode(hostile(seed), f"picture {seed}")
        except ImageError as error:
            told[seed] = str(error)
            continue
        decoded += 1
        assert isinstance(picture, Picture)
        assert picture.pixels.ndim == 3
        assert picture.pixels.shape[2] == 3
        assert picture.pixels.dtype == np.uint8
        wire = picture.wire(EncodingLimits(long_side=64))
        assert max(wire.size) <= 64
    assert [seed for seed, sentence in told.items() if not one_line(sentence)] == []
    assert count * 0.15 < decoded < count * 0.9, "the makers no longer make what they are for"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [FEW, MANY])
def test_edits_with_hostile_pictures_are_judged_or_unjudged_with_a_reason(count: int, tmp_path: Path) -> None:
    good = save(textured(32, 32), tmp_path / "good.png")
    edits = []
    for seed in range(count):
        path = tmp_path / f"{seed}.png"
        path.write_bytes(hostile(seed))
        source, edited = (path, good) if seed % 2 else (good, path)
        edits.append(Edit(id=str(seed), source=source, edited=edited, instruction="Make the cup red."))
    judge = Judge("rules", mode="plain")
    reasons = set()
    tracemalloc.start()
    seen = 0
    for start in range(0, count, BATCH):
        for judgement in judge.batch(edits[start : start + BATCH]):
            seen += 1
            for outcome in judgement.verdicts:
                if isinstance(outcome, Unjudged):
                    reasons.add(outcome.reason)
                    assert one_line(outcome.detail), (judgement.edit.id, outcome)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == count
    assert Reason.INTERNAL not in reasons
    assert Reason.BAD_IMAGE in reasons
    assert peak < 400_000_000
    assert picture_budget().used == 0


def _special(folder: Path, kind: str) -> Path:
    path = folder / "special.png"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "circle":
        path.symlink_to(path)
    elif kind == "endless device":
        path.symlink_to("/dev/zero")
    elif kind == "waiting device":
        path.symlink_to("/dev/ptmx")
    elif kind == "name too long":
        path = folder / f"{'x' * 5000}.png"
    elif kind == "NUL in the name":
        path = folder / "a\0b.png"
    elif kind == "half a character":
        path = folder / "\ud83d.png"
    elif kind == "unreadable":
        path.write_bytes(b"x")
        path.chmod(0)
    elif kind == "file in a file":
        (folder / "file").write_text("x")
        path = folder / "file" / "a.png"
    return path


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "kind",
    [
        "pipe",
        "socket",
        "folder",
        "circle",
        "endless device",
        "waiting device",
        "missing",
        "name too long",
        "NUL in the name",
        "half a character",
        "unreadable",
        "file in a file",
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = _special(tmp_path, kind)
    good = save(textured(32, 32), tmp_path / "good.png")
    started = time.monotonic()
    for use in (open_picture, hash_file):
        if kind == "unreadable" and os.geteuid() == 0:
            continue
        with pytest.raises(ImageError) as told:
            use(path)
        assert one_line(str(told.value).replace("x" * 5000, "x").replace("\0", ""))
    assert declared_pixels(path) == 0
    edit = Edit(id="a", source=good, edited=path, instruction="Make the cup red.")
    (judgement,) = Judge("rules", mode="plain").batch([edit])
    assert {outcome.reason for outcome in judgement.verdicts if isinstance(outcome, Unjudged)} == {Reason.BAD_IMAGE}
    assert time.monotonic() - started < 10


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_batch_with_a_pipe_and_an_endless_device_ends_by_itself(tmp_path: Path) -> None:
    save(textured(32, 32), tmp_path / "good.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    lines = [
        f'{{"id": "{n}", "source": "good.png", "edited": "{n}.png", "instruction": "Make it red."}}'
        for n in ("pipe", "zero", "good")
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "editloupe", "batch", str(tmp_path / "m.jsonl"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--judge", "rules", "--mode", "plain", "--allow-outside"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 3, done.stderr
    with Run.open(tmp_path / "run") as run:
        told = {unit.edit_id: unit.outcome for unit in run.units()}
    assert isinstance(told["pipe"], Unjudged)
    assert "a pipe, not a file" in told["pipe"].detail
    assert isinstance(told["zero"], Unjudged)
    assert "a device, not a file" in told["zero"].detail


def test_a_file_beyond_the_size_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(600_000_000)  # takes no room on the disk
    tracemalloc.start()
    with pytest.raises(ImageError, match="larger than the limit of 512 MB"):
        open_picture(path)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("format", ["WEBP", "PNG"])
def test_an_animation_is_refused_since_tools_and_model_would_see_different_pictures(format: str) -> None:
    frames = [Image.fromarray(textured(24, 24, seed)) for seed in range(3)]
    data = encoded(frames[0], format, save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match="an animation of 3 frames"):
        decode(data, "moving")


def test_a_tiff_of_several_pages_is_refused_and_one_with_a_thumbnail_is_read() -> None:
    frames = [Image.fromarray(textured(24, 24, seed)) for seed in range(3)]
    with pytest.raises(ImageError, match="pages has several pages"):
        decode(encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:]), "pages")
    thumbnail = frames[1].resize((6, 6))
    thumbnail.encoderinfo = {"tiffinfo": {254: 1}}
    data = encoded(frames[0], "TIFF", save_all=True, append_images=[thumbnail])
    with Image.open(io.BytesIO(data)) as image:
        assert getattr(image, "n_frames", 1) == 2
        image.seek(1)
        if dict(getattr(image, "tag_v2", {})).get(254) != 1:
            pytest.skip("this version of Pillow does not mark a page as a thumbnail")
    picture = decode(data, "with a thumbnail")
    assert np.array_equal(picture.pixels, np.asarray(frames[0]))
    assert picture.file is None, "what is sent is made from these pixels"


def test_a_colour_marked_transparent_is_flattened_for_the_model_as_for_the_tools() -> None:
    rows = b"".join(b"\0" + b"\xff\0\0" * 8 for _ in range(8))
    picture = decode(png(8, 8, chunk(b"tRNS", b"\0\xff\0\0\0\0"), pixels=rows), "red is transparent")
    assert (picture.pixels == 255).all()
    assert picture.file is None


def test_a_jpeg_of_endless_passes_is_refused() -> None:
    data = encoded(Image.fromarray(textured(32, 32)), "JPEG", progressive=True)
    scan = data[data.index(b"\xff\xda") : data.index(b"\xff\xda") + 40]
    with pytest.raises(ImageError, match="more than 500 scans"):
        decode(data[:-2] + scan * 600 + data[-2:], "endless")
    assert decode(data, "fine").size == (32, 32)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "I;16", "I", "F", "L", "P", "CMYK", "LA"])
def test_a_large_picture_brought_to_rgb_in_strips_is_the_same_as_in_one_go(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image.fromarray(textured(90, 70))
    if mode == "RGBA":
        image.putalpha(Image.fromarray(textured(90, 70, 3)[:, :, 0]))
    elif mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    else:
        image = image.convert(mode)
    data = encoded(image, "TIFF")
    whole = decode(data, "whole").pixels
    monkeypatch.setattr("editloupe.pictures.pixels.STRIP_PIXELS", 1000)
    assert np.array_equal(decode(data, "strips").pixels, whole)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "colour"), [(16, 0), (8, 6), (8, 2), (1, 0)])
def test_the_largest_picture_allowed_takes_bounded_memory(depth: int, colour: int, tmp_path: Path) -> None:
    width, height = 12_000, 12_000
    row = b"\0" + b"\0" * (width * depth * {0: 1, 2: 3, 6: 4}[colour] // 8)
    path = tmp_path / "bomb.png"
    path.write_bytes(png(width, height, depth=depth, colour=colour, pixels=row * height))
    code = (
        "import resource, sys; from pathlib import Path; from editloupe.pictures.decode import open_picture;"
        "p = open_picture(Path(sys.argv[1])); print(p.size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 2_000_000, "KB at the highest"


async def test_pixels_beyond_the_budget_wait_their_turn_and_none_is_lost() -> None:
    budget = MemoryBudget(10)
    most = under_way = finished = 0

    async def one(pixels: int) -> None:
        nonlocal most, under_way, finished
        async with budget.reserve(pixels):
            under_way += min(pixels, 10)
            most = max(most, under_way)
            try:
                await asyncio.sleep(0.001)
            finally:
                under_way -= min(pixels, 10)
            finished += 1

    tasks = [asyncio.create_task(one(size)) for size in (3, 4, 9, 1, 500, 2, 2, 10, 0, 6) * 10]
    await asyncio.sleep(0.005)
    for task in tasks[5::7]:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(end, asyncio.CancelledError) for end in ends)
    assert cancelled
    assert finished == len(tasks) - cancelled
    assert most <= 10
    assert budget.used == 0


def test_threads_and_event_loops_share_one_budget() -> None:
    budget = MemoryBudget(10)
    finished: list[int] = []

    def in_thread(number: int) -> None:
        with budget.reserve_in_thread(6):
            time.sleep(0.001)
            finished.append(number)

    async def many() -> None:
        async def one(number: int) -> None:
            async with budget.reserve(6):
                await asyncio.sleep(0.001)
                finished.append(number)

        await asyncio.gather(*(one(number) for number in range(20)))

    threads = [threading.Thread(target=in_thread, args=(100 + n,)) for n in range(20)]
    threads += [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(finished) == 80
    assert budget.used == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("lots", 'EDITLOUPE_MAX_MEMORY is a size such as 4GB, not "lots"'), ("4", "must be at least 512 MB")],
)
def test_a_wrong_limit_in_the_environment_is_told(text: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "_chosen", None)
    monkeypatch.setenv("EDITLOUPE_MAX_MEMORY", text)
    with pytest.raises(UserError, match=sentence):
        memory_limit()


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the limit that a test sets."""
    monkeypatch.setattr(memory_budget, "_chosen", None)
    yield
    monkeypatch.undo()
    picture_budget.cache_clear()


@pytest.mark.usefixtures("unlimited")
def test_all_shares_together_stay_below_the_limit_and_it_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDITLOUPE_MAX_MEMORY", raising=False)
    assert memory_limit() == machine_memory() // 2
    for size in (10**9, 4 * 10**9, 64 * 10**9):
        limit_memory(size)
        pictures, requests, caches, previews = memory_shares()
        used = memory_budget.PROGRAM_BYTES + pictures + caches + previews
        assert 0.99 * size < used + requests * memory_budget.COPIES_OF_REQUEST <= size
        assert picture_budget().total == pictures
    with pytest.raises(UserError, match="max_memory must be at least 512 MB"):
        limit_memory(1000)


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/self/cgroup", "0::/job/step\n")
    write("sys/fs/cgroup/job/step/memory.max", "max\n")
    write("sys/fs/cgroup/job/memory.max", "2000000000\n")
    assert list(memory_budget._group_limits(tmp_path)) == [2_000_000_000]
    write("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/abc\nnonsense\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000000\n")
    assert list(memory_budget._group_limits(tmp_path)) == [3_000_000_000]


def test_a_picture_swapped_after_hashing_is_not_filed_under_the_old_key(tmp_path: Path) -> None:
    source, edited = edit_pair(tmp_path)
    edit = Edit(id="a", source=source, edited=edited, instruction="Make the rectangle red.")
    judge = Judge("rules", mode="plain")
    with Run.write(tmp_path / "run") as run:
        planner = Planner(run, judge)
        (job,) = planner.jobs([(0, edit)])
        planner.close()
    assert set(job.hashes) == {source, edited}
    save(textured(160, 120, seed=9), edited)
    done = asyncio.run(judge_job(judge, job, None))
    assert len(done.judgement.verdicts) == 2
    for outcome in done.judgement.verdicts:
        assert isinstance(outcome, Unjudged)
        assert outcome.reason == Reason.BAD_IMAGE
        assert "changed before it was judged" in outcome.detail


def test_an_album_takes_files_that_stayed_as_they_were(tmp_path: Path) -> None:
    source, _ = edit_pair(tmp_path)
    assert Album({source: hash_file(source)}).open(source).sha == hash_file(source)
    with pytest.raises(ImageError, match="changed before"):
        Album({source: "0" * 32}).open(source)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_sixteen_pairs_of_24_megapixels_stay_within_the_budget(scripted: StartServer, tmp_path: Path) -> None:
    Image.fromarray(textured(600, 400)).resize((6000, 4000)).save(tmp_path / "large.jpg", quality=90)
    for number in range(32):
        os.link(tmp_path / "large.jpg", tmp_path / f"{number}.jpg")
    server = scripted(lambda request: final("Wrong Action"), delay=3)
    code = (
        "import resource, sys; from pathlib import Path; from editloupe import Edit, Judge; f = Path(sys.argv[1]);"
        "edits = [Edit(source=f / f'{n}.jpg', edited=f / f'{n + 1}.jpg', instruction='x') for n in range(0, 32, 2)];"
        "judge = Judge('openai:gpt-4.1', mode='plain', base_url=sys.argv[2], criteria=['instruction_following']);"
        "print(sum(j.judged for j in judge.batch(edits)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(tmp_path), server.openai_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=350, check=True)
    judged, kilobytes = map(int, done.stdout.split())
    assert judged == 16
    assert kilobytes < 2_200_000


def test_a_picture_too_wide_for_jpeg_has_no_jpeg_variant(tmp_path: Path) -> None:
    wide = save(np.tile(textured(80, 8), (1, 900, 1)), tmp_path / "wide.png")
    edit = Edit(source=wide, edited=wide, instruction="Paint it red")
    made = [edit.id for edit in with_variants([edit], choose_variants(["jpeg", "brighter"]), tmp_path / "variants")]
    assert made == [edit.id, f"{edit.id}~brighter"]
