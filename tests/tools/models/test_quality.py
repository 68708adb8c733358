"""The looks of one picture: luminance by hand, and HPSv3 through its process in an environment of its own.

The environment, the process and its protocol are real. Only the package `hpsv3` is a small stand-in, which is installed in
that environment and not here.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from editloupe.evals.edival.judge import open_instruments
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.edival.rules import load_published
from editloupe.tools.contract import ToolError
from editloupe.tools.models.detectors import WholePictureFinder
from editloupe.tools.models.quality import PICTURES_PER_CALL, SCORER, HpsV3, luminance_quantiles
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError

PACKAGE = """
import os, struct, sys, time, zlib
from pathlib import Path

print("Loading checkpoint shards")  # packages print while they load

def value(path):
    # The red of the first pixel of an 8-bit RGB picture, read without any package.
    data, at, packed, header = Path(path).read_bytes(), 8, b"", b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IHDR":
            header = data[at + 8 : at + 8 + size]
        if kind == b"IDAT":
            packed += data[at + 8 : at + 8 + size]
        at += 12 + size
    return zlib.decompress(packed)[1]

class HPSv3RewardInferencer:
    def __init__(self, config_path=None, checkpoint_path=None, device="cuda", differentiable=False):
        if Path(sys.prefix, "no-memory").exists():
            raise RuntimeError("CUDA out of memory")
        Path(sys.prefix, "starts").open("a").write(device + " " + str(os.getpid()) + "\\n")

    def reward(self, prompts, image_paths):
        assert len(prompts) == len(image_paths)
        print("scoring", len(image_paths))
        Path(sys.prefix, "calls").open("a").write(str(len(image_paths)) + "\\n")
        values = [value(path) for path in image_paths]
        if 13 in values:
            raise ValueError("a picture that cannot be scored")
        if 66 in values:
            print("Segmentation fault", file=sys.stderr, flush=True)
            os._exit(9)
        if 99 in values:
            return [[float("nan"), 0.0] for _ in values]
        if 77 in values:
            time.sleep(600)
        time.sleep(0.05)
        return [[v / 10, 99.0] for v in values]
"""


class Environment:
    """A virtual environment with a stand-in for `hpsv3` and nothing else."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder, self.python = folder, folder / "bin" / "python"
        next(folder.glob("lib/python*/site-packages")).joinpath("hpsv3.py").write_text(PACKAGE)

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text().splitlines()

    @property
    def pid(self) -> int:
        return int(self.lines("starts")[-1].split()[1])


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "hpsv3-env")


def picture(red: int) -> Pixels:
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[..., 0] = red
    return pixels


def ended(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(("color", "luma"), [((255, 0, 0), 0.2126), ((0, 255, 0), 0.7152), ((0, 0, 255), 0.0722)])
def test_luminance_weighs_the_channels_by_rec_709(color: tuple[int, int, int], luma: float) -> None:
    pixels = np.empty((8, 8, 3), np.uint8)
    pixels[:] = color
    assert luminance_quantiles(pixels) == pytest.approx((luma, luma))


def test_quantiles_see_a_bright_hundredth_and_a_bright_thousandth() -> None:
    pixels = np.zeros((100, 100, 3), np.uint8)
    assert luminance_quantiles(pixels) == (0, 0)
    pixels[0, :50] = 255
    assert luminance_quantiles(pixels) == pytest.approx((0, 1)), "half a hundredth: above the 99.9 %, below the 99 %"
    pixels[0:2] = 255
    assert luminance_quantiles(pixels) == pytest.approx((1, 1))


@pytest.mark.long
def test_pictures_of_several_threads_share_a_process_and_its_calls(environment: Environment) -> None:
    quality = HpsV3(environment.python, device="cpu")
    assert quality.unavailable() is None
    with ThreadPoolExecutor(12) as pool:
        scores = list(pool.map(quality.score, [picture(red) for red in range(20, 44)]))
    quality.close()
    assert scores == pytest.approx([red / 10 for red in range(20, 44)])
    assert [line.split()[0] for line in environment.lines("starts")] == ["cpu"], "one process, with the asked device"
    calls = [int(line) for line in environment.lines("calls")]
    assert sum(calls) == 24
    assert 1 < max(calls) <= PICTURES_PER_CALL
    assert ended(environment.pid)


@pytest.mark.long
def test_a_picture_that_fails_does_not_take_others_with_it(environment: Environment) -> None:
    quality = HpsV3(environment.python, device="cpu")

    def attempt(red: int) -> float | str:
        try:
            return quality.score(picture(red))
        except ToolError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, [10, 13, 20, 99, 30]))
    with pytest.raises(ToolError, match="HPSv3 failed: "):
        quality.score(np.zeros((0, 0, 3), np.uint8))
    assert results == [
        1.0,
        "HPSv3 failed: ValueError: a picture that cannot be scored",
        2.0,
        "HPSv3 sent a score that is not a finite number.",
        3.0,
    ]
    assert attempt(40) == 4.0
    assert len(environment.lines("starts")) == 1
    quality.close()


@pytest.mark.long
def test_a_process_that_dies_is_reported_and_not_started_again(environment: Environment) -> None:
    quality = HpsV3(environment.python, device="cpu")
    assert quality.score(picture(50)) == 5.0
    for red in (66, 50):
        with pytest.raises(ToolError, match=r"the HPSv3 process ended with code 9: Segmentation fault\."):
            quality.score(picture(red))
    assert len(environment.lines("starts")) == 1


@pytest.mark.long
def test_a_model_that_cannot_be_loaded_is_reported_by_its_last_line(environment: Environment) -> None:
    (environment.folder / "no-memory").touch()
    with pytest.raises(ToolError, match="ended with code 1: RuntimeError: CUDA out of memory"):
        HpsV3(environment.python, device="cpu").score(picture(50))


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("print('hello')", r"sent a line that is not a reply: b'hello\\n'"),
        ("print('{}'); input(); print('{\"scores\": [1, 2, 3]}')", "sent a reply without 1 scores"),
        ("print('{}'); input(); print('{\"scores\": [\"good\"]}')", "sent a reply without 1 scores"),
        ("print('{}'); input(); print('{\"scores\": [1', end='')", "ended with code 0"),
        ("print('{}'); input(); print('{\"scores\": [true]}')", "sent a reply without 1 scores"),
        ("print('{}'); input(); print('[' * 200_000)", "sent a line that is not a reply"),
        ("import time; time.sleep(600)", r"the HPSv3 process did not answer within 2 seconds\."),
        ("print('{}'); os.system('sleep 600')", r"the HPSv3 process did not answer within 1 seconds\."),
        ("print('{}'); os.system('sleep 600 &')", r"the HPSv3 process did not answer within 1 seconds\."),
    ],
)
def test_a_process_that_breaks_the_protocol_is_ended(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, sentence: str
) -> None:
    other = tmp_path / "scorer.py"
    other.write_text(f"import sys, os\nsys.stdout.reconfigure(line_buffering=True)\n{program}\n")
    monkeypatch.setattr("editloupe.tools.models.quality.SCORER", other)
    if "sleep" in program:
        monkeypatch.setattr("editloupe.tools.models.quality.LOADING_SECONDS", 2)
        monkeypatch.setattr("editloupe.tools.models.quality.PICTURE_SECONDS", 1)
    quality = HpsV3(environment.python, device="cpu")
    for _ in range(2):
        with pytest.raises(ToolError, match=sentence):
            quality.score(picture(50))
    assert quality._process
    assert quality._process._process.returncode is not None


@pytest.mark.long
def test_a_score_that_is_too_large_for_a_float_fails_the_picture_only(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = tmp_path / "scorer.py"
    scorer.write_text(
        "for reply in ('{}', '{\"scores\": [1' + '0' * 400 + ']}', '{\"scores\": [1]}'):\n"
        "    print(reply, flush=True); input()\n"
    )
    monkeypatch.setattr("editloupe.tools.models.quality.SCORER", scorer)
    quality = HpsV3(environment.python, device="cpu")
    with pytest.raises(ToolError, match="not a finite number"):
        quality.score(picture(50))
    assert quality.score(picture(50)) == 1.0
    quality.close()


@pytest.mark.long
def test_an_interrupted_call_leaves_no_reply_for_the_next_picture(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    quality = HpsV3(environment.python, device="cpu")
    assert quality.score(picture(50)) == 5.0
    assert quality._process
    monkeypatch.setattr(quality._process, "receive", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        quality.score(picture(20))
    with pytest.raises(ToolError, match="the HPSv3 process was closed"):
        quality.score(picture(30))


def _interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.long
def test_closing_ends_a_call_in_work(environment: Environment) -> None:
    quality = HpsV3(environment.python, device="cpu")
    failures: list[ToolError] = []

    def attempt() -> None:
        try:
            quality.score(picture(77))
        except ToolError as error:
            failures.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    while not (environment.folder / "calls").exists():
        time.sleep(0.02)
    quality.close()
    thread.join(20)
    assert [str(error) for error in failures] == ["the HPSv3 process was closed."]
    assert ended(environment.pid)


@pytest.mark.long
def test_the_process_ends_with_the_object_and_with_the_program(environment: Environment) -> None:
    quality = HpsV3(environment.python, device="cpu")
    quality.score(picture(50))
    del quality
    gc.collect()
    assert ended(environment.pid)
    code = (
        "import numpy as np, os, sys; from pathlib import Path; from editloupe.tools.models.quality import HpsV3\n"
        "HpsV3(Path(sys.argv[1]), 'cpu').score(np.zeros((4, 4, 3), np.uint8)); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(environment.python)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(environment.lines("starts")) == 2
    assert ended(environment.pid), "it reads the end of its input"


@pytest.mark.long
def test_the_scorer_can_be_driven_by_hand(environment: Environment, tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(picture(42)).save(tmp_path / "a.png")
    requests = json.dumps({"pictures": [str(tmp_path / "a.png")] * 2}) + "\nno request\n"
    done = subprocess.run(
        [str(environment.python), str(SCORER), "cpu"], input=requests, capture_output=True, text=True, check=True
    )
    ready, scores, error = (json.loads(line) for line in done.stdout.splitlines())
    assert (ready, scores) == ({"ready": True}, {"scores": [4.2, 4.2]})
    assert error["error"].startswith("JSONDecodeError")
    assert "Loading checkpoint shards" in done.stderr


def test_without_an_environment_it_says_how_to_make_one() -> None:
    assert "python -m venv hpsv3-env" in str(HpsV3(None).unavailable())
    with pytest.raises(ToolError, match="EDITLOUPE_HPSV3_PYTHON="):
        HpsV3(None).score(picture(0))


def test_a_python_without_the_package_is_refused_before_anything_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WholePictureFinder, "unavailable", lambda _: None)

    def opened(quality: str, python: str | None) -> object:
        tools = ToolSettings(hpsv3_python=Path(python) if python else None)
        return open_instruments(load_published(), tools, None, quality).quality

    assert opened("auto", None) is None
    assert opened("none", sys.executable) is None
    with pytest.raises(UserError, match=r"has no hpsv3: .* -m pip install hpsv3"):
        opened("auto", sys.executable)
    with pytest.raises(UserError, match="missing/python is not a Python that runs"):
        opened("hpsv3", "missing/python")
    with pytest.raises(UserError, match="needs an environment of its own"):
        opened("hpsv3", None)
