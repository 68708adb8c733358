from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from editloupe.tools.contract import CachedResult
from editloupe.tools.result_cache import ToolResultCache, key


def picture(value: int, kilobytes: int = 100) -> CachedResult:
    return CachedResult({"value": value}, (np.full((10, kilobytes * 100 // 3, 3), value, np.uint8),))


def test_a_cache_on_a_full_disk_does_not_fail_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = ToolResultCache(0, tmp_path)
    monkeypatch.setattr("os.replace", full)
    value = CachedResult({"n": 1}, ())
    assert cache.get(key("zoom", 1), lambda: value) is value
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_same_key_is_computed_once() -> None:
    memory, calls = ToolResultCache(10**6), []

    results = [memory.get("a", lambda: calls.append(1) or "made") for _ in range(3)]

    assert results == ["made"] * 3
    assert len(calls) == 1


def test_threads_that_ask_at_the_same_time_wait_for_one_computation() -> None:
    memory, calls = ToolResultCache(0), []  # nothing fits, so only waiting can share it
    start = threading.Barrier(8)
    results: list[str] = []

    def compute() -> str:
        calls.append(1)
        time.sleep(0.3)
        return "made"

    def ask() -> None:
        start.wait()
        results.append(memory.get("a", compute))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == ["made"] * 8
    assert len(calls) == 1


def test_other_keys_do_not_wait() -> None:
    memory = ToolResultCache(10**6)
    go = threading.Event()
    slow = threading.Thread(target=lambda: memory.get("slow", lambda: go.wait(10)))
    slow.start()

    assert memory.get("quick", lambda: 1) == 1

    go.set()
    slow.join()


def test_what_fails_is_told_and_not_kept() -> None:
    memory = ToolResultCache(10**6)

    def fail() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        memory.get("a", fail)
    assert memory.get("a", lambda: "made") == "made"


def test_memory_stays_within_its_bound_and_forgets_the_longest_unused() -> None:
    memory, made = ToolResultCache(350_000), []

    def ask(value: int) -> None:
        memory.get(str(value), lambda: made.append(value) or picture(value))

    for value in (1, 2, 3, 1, 4):
        ask(value)
    assert memory.bytes <= 350_000
    ask(1)
    ask(2)

    assert made == [1, 2, 3, 4, 2]


def test_a_result_larger_than_the_bound_is_returned_but_not_kept() -> None:
    memory = ToolResultCache(1000)

    assert memory.get("a", lambda: picture(1)).data == {"value": 1}
    assert memory.bytes == 0


def test_results_come_back_from_disk_unchanged(tmp_path: Path) -> None:
    pictures = (np.arange(60, dtype=np.uint8).reshape(4, 5, 3), np.zeros((2, 2, 3), np.uint8))
    ToolResultCache(10**6, tmp_path).get("k1", lambda: CachedResult({"box": [1, 2], "text": "ü"}, pictures))

    found = ToolResultCache(10**6, tmp_path).get("k1", lambda: pytest.fail("computed again"))

    assert found.data == {"box": [1, 2], "text": "ü"}
    assert all(np.array_equal(a, b) for a, b in zip(found.pictures, pictures, strict=True))


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    ToolResultCache(10**6, tmp_path).get("k1", lambda: picture(1))
    [file] = tmp_path.glob("*/*.npz")
    for damage in (b"", b"PK\x03\x04 no zip", file.read_bytes()[:-40]):
        file.write_bytes(damage)
        assert ToolResultCache(10**6, tmp_path).get("k1", lambda: picture(2)).data == {"value": 2}
        assert ToolResultCache(10**6, tmp_path).get("k1", lambda: picture(3)).data == {"value": 2}


def test_the_disk_stays_within_its_bound(tmp_path: Path) -> None:
    memory = ToolResultCache(0, tmp_path, folder_bytes=50_000)
    noise = np.random.default_rng(0)
    for number in range(12):
        memory.get(key("t", number), lambda: CachedResult({}, (noise.integers(0, 256, (30, 100, 3)).astype(np.uint8),)))

    assert 0 < sum(file.stat().st_size for file in tmp_path.glob("*/*")) <= 50_000


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    ToolResultCache(10**6).get("k", lambda: picture(1))

    assert list(tmp_path.iterdir()) == []
