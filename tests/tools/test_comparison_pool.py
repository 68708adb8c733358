import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from editloupe.images import Pixels
from editloupe.tools.comparison_pool import ComparisonPool
from editloupe.tools.difference import Comparison, compare

LEAVE_ONE_BEHIND = """
import os, signal, sys
import numpy as np
from editloupe.tools.comparison_pool import ComparisonPool
if __name__ == "__main__":
    pool = ComparisonPool(1)
    pool(np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.uint8))
    print(pool.pids[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def pool() -> Iterator[ComparisonPool]:
    made = ComparisonPool(2)
    yield made
    made.close()


def same(one: Comparison, other: Comparison) -> bool:
    assert one.alignment is not None
    assert other.alignment is not None
    return one == other and np.array_equal(one.alignment.registration.matrix, other.alignment.registration.matrix)


@pytest.mark.long
def test_the_other_processes_find_exactly_what_is_found_here(
    pool: ComparisonPool, photo: Pixels, edited: Pixels
) -> None:
    pairs = [
        (photo, edited),
        (photo, photo),
        (photo[:301, :203], edited[5:290, ::2]),
        (photo[:20, :20], edited[:9, :9]),
    ]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda pair: pool(*pair), pairs * 3))
    assert all(same(one, compare(*pair)) for one, pair in zip(found, pairs * 3, strict=True))


@pytest.mark.long
def test_no_more_processes_are_started_than_are_needed_at_one_time(pool: ComparisonPool, photo: Pixels) -> None:
    assert pool.pids == []
    for _ in range(3):
        pool(photo, photo)
    assert len(pool.pids) == 1


@pytest.mark.long
def test_a_killed_process_costs_no_comparison(pool: ComparisonPool, photo: Pixels, edited: Pixels) -> None:
    pool(photo, edited)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert all(same(pool(photo, edited), compare(photo, edited)) for _ in range(3))


@pytest.mark.long
def test_pictures_that_cannot_be_compared_fail_as_they_do_here(pool: ComparisonPool, photo: Pixels) -> None:
    empty = np.zeros((0, 5, 3), np.uint8)
    for somebody in (compare, pool):
        with pytest.raises(ZeroDivisionError):
            somebody(empty, photo)
    assert pool(photo, photo).regions == ()


@pytest.mark.long
def test_ctrl_c_is_left_to_whoever_asks(pool: ComparisonPool, photo: Pixels, edited: Pixels) -> None:
    pool(photo, edited)
    os.kill(pool.pids[0], signal.SIGINT)
    pids = pool.pids
    assert same(pool(photo, edited), compare(photo, edited))
    assert pool.pids == pids
    assert Path(f"/proc/{pids[0]}").exists() or sys.platform != "linux"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_a_killed_batch() -> None:
    ended = subprocess.run([sys.executable, "-c", LEAVE_ONE_BEHIND], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    left = Path(f"/proc/{int(ended.stdout)}")
    end = time.monotonic() + 20
    while left.exists() and "Z" not in (left / "stat").read_text().split(")")[1].split()[0]:
        assert time.monotonic() < end, "it is still there"
        time.sleep(0.05)
