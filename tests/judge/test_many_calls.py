"""Thousands of calls in one process leave nothing behind: no thread, no descriptor, no picture, no memory."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from editloupe import Edit, Judge, reward
from editloupe.integrations.trainer_rewards import trl
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.memory import MemoryPicture
from tests.conftest import StartServer
from tests.drawn_pictures import textured
from tests.servers.reward.running import INSTRUCTION, asking, labelled

PAGE = os.sysconf("SC_PAGE_SIZE")
pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is told under /proc")


def edits(seed: int, count: int = 1) -> list[Edit]:
    """Edits of pictures in memory that were never seen before."""
    source = Image.fromarray(textured(64, 48, seed))
    return [
        Edit(source=source, edited=Image.fromarray(textured(64, 48, seed + 1 + n)), instruction=INSTRUCTION)
        for n in range(count)
    ]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def held() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def kept() -> int:
    """How many pictures and albums are alive; their types are compared, for a lazy module would load if asked for its class."""
    gc.collect()
    return sum(type(one) in (MemoryPicture, Picture, Album) for one in gc.get_objects())


def leaves_nothing(call: Callable[[int], object], calls: int, warm: int, megabytes: float) -> None:
    for number in range(warm):
        call(number)
    pictures, before, memory = kept(), held(), resident()
    objects = len(gc.get_objects())
    for number in range(warm, warm + calls):
        call(number)
    assert kept() <= pictures
    assert len(gc.get_objects()) - objects < max(200, calls / 4)
    end = time.monotonic() + 5
    while held() > before and time.monotonic() < end:  # the scripted server notices a little later that somebody left
        time.sleep(0.02)
    assert held() <= before
    assert (resident() - memory) / 2**20 < megabytes


LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]
COUNTS = [pytest.param(25, 15, 24, id="short"), pytest.param(5000, 300, 40, id="long", marks=LONG)]


@pytest.mark.long
@pytest.mark.parametrize(("calls", "warm", "megabytes"), COUNTS)
def test_rewards_of_a_warm_judge(scripted: StartServer, calls: int, warm: int, megabytes: float) -> None:
    with asking(scripted(labelled, log=False)) as judge:
        leaves_nothing(lambda n: reward(edits(3 * n), judge), calls, warm, megabytes)


@pytest.mark.long
@pytest.mark.parametrize(("calls", "warm", "megabytes"), COUNTS)
def test_a_judge_that_is_called_again_and_again(scripted: StartServer, calls: int, warm: int, megabytes: float) -> None:
    with asking(scripted(labelled, log=False)) as judge:
        leaves_nothing(lambda n: judge(edits(3 * n)[0]), calls, warm, megabytes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("calls", "warm", "megabytes"),
    [(6, 4, 24), pytest.param(500, 50, 80, marks=LONG)],
    ids=["short", "long"],
)
def test_judges_that_are_opened_for_every_call(scripted: StartServer, calls: int, warm: int, megabytes: float) -> None:
    url = scripted(labelled, log=False).openai_url
    options = {"protocol": "dlebench", "mode": "plain", "base_url": url}
    leaves_nothing(lambda n: reward(edits(3 * n), "openai:gpt-4.1", **options), calls, warm, megabytes)


@pytest.mark.long
def test_the_embedded_judge_and_a_reward_function() -> None:
    with Judge("rules", mode="plain") as judge:
        function = trl(judge, edited="edited")
        columns = ("p", "c")

        def call(n: int) -> object:
            source, edited = textured(64, 48, 2 * n), textured(64, 48, 2 * n + 1)
            return function([columns[0]], [columns[1]], source=[source], edited=[edited], instruction=[INSTRUCTION])

        leaves_nothing(call, 20, 10, 24)
