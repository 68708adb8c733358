"""Requests of several threads are processed together, each answered once and none for another's fault."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from editloupe.pictures.pixels import Pixels
from editloupe.tools.models.batching import Batcher, Request


def picture(size: int, value: int = 0) -> Pixels:
    return np.full((size, size, 3), value, np.uint8)


class Work:
    """Answers with the parameter, and fails on a batch that holds "bad"."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.first = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, requests: Sequence[Request]) -> list[Any]:
        self.batches.append([(pixels.shape[0], parameter) for pixels, parameter in requests])
        self.first.set()
        assert self.go_on.wait(10)
        if any(parameter == "bad" for _, parameter in requests):
            raise ValueError("no such thing")
        return [f"{parameter}!" for _, parameter in requests]


def ask_while_busy(batcher: Batcher, work: Work, requests: Sequence[Request]) -> list[Any]:
    """Return the results, or errors, of requests of as many threads that arrive while another batch runs."""

    def ask(request: Request) -> Any:
        try:
            return batcher.process([request])[0]
        except ValueError as error:
            return error

    with ThreadPoolExecutor(len(requests) + 1) as threads:
        busy = threads.submit(batcher.process, [(picture(1), "first")])
        assert work.first.wait(10)
        waiting = []
        for count, request in enumerate(requests, 1):
            waiting.append(threads.submit(ask, request))
            distinct = len({(pixels.tobytes(), parameter) for pixels, parameter in requests[:count]})
            while len(batcher._waiting) < distinct:
                pass
        work.go_on.set()
        assert busy.result() == ["first!"]
        return [future.result() for future in waiting]


def test_threads_that_wait_at_the_same_time_share_batches_of_pictures_of_one_size() -> None:
    work = Work()
    batcher = Batcher(work, batch_size=2)
    requests = [(picture(8), "a"), (picture(9), "b"), (picture(8), "c"), (picture(8), "d")]
    assert ask_while_busy(batcher, work, requests) == ["a!", "b!", "c!", "d!"]
    assert work.batches == [[(1, "first")], [(8, "a"), (8, "c")], [(9, "b")], [(8, "d")]]
    assert batcher.batches == {1: 3, 2: 1}
    assert batcher.fill == 5 / 8


def test_equal_requests_are_processed_once() -> None:
    work = Work()
    batcher = Batcher(work, batch_size=4)
    requests = [(picture(8), "cup"), (picture(8, 1), "cup"), (picture(8), "cup"), (picture(8), "dog")]
    assert ask_while_busy(batcher, work, requests) == ["cup!", "cup!", "cup!", "dog!"]
    assert work.batches[1:] == [[(8, "cup"), (8, "cup"), (8, "dog")]]


def test_only_the_request_at_fault_fails() -> None:
    work = Work()
    results = ask_while_busy(Batcher(work, batch_size=3), work, [(picture(8), name) for name in ("a", "bad", "b")])
    assert results[::2] == ["a!", "b!"]
    assert isinstance(results[1], ValueError)


def test_an_interrupt_ends_the_call_and_leaves_the_queue_usable() -> None:
    given = iter([KeyboardInterrupt(), ["later"]])

    def work(requests: Sequence[Request]) -> list[Any]:
        result = next(given)
        if isinstance(result, BaseException):
            raise result
        return result

    batcher = Batcher(work, batch_size=3)
    with pytest.raises(KeyboardInterrupt):
        batcher.process([(picture(8), "a"), (picture(8), "b")])
    assert batcher.process([(picture(8), "a")]) == ["later"]
    assert Batcher(work, batch_size=3).process([]) == []


def test_an_interrupt_while_requests_are_processed_one_by_one_ends_the_wait_of_all_of_them() -> None:
    work = Work()

    def interrupted(requests: Sequence[Request]) -> list[Any]:
        results = work(requests)
        if requests[0][1] == "interrupt":
            raise KeyboardInterrupt
        return results

    def ask(name: str) -> Any:
        try:
            return batcher.process([(picture(8), name)])[0]
        except BaseException as error:
            return type(error)

    batcher = Batcher(interrupted, batch_size=3)
    results = ask_of_daemons(ask, ["a", "interrupt", "bad"], batcher, work)
    assert results.keys() == {"a", "interrupt", "bad"}
    assert results["interrupt"] is results["bad"] is KeyboardInterrupt
    assert results["a"] in ("a!", KeyboardInterrupt), "the interrupt if its thread is the one that processes the batch"


def test_too_few_results_fail_the_requests_that_have_none() -> None:
    work = Work()

    def ask(name: str) -> Any:
        try:
            return batcher.process([(picture(8), name)])[0]
        except ValueError as error:
            return str(error)

    batcher = Batcher(lambda requests: [result for result in work(requests) if result != "lost!"], batch_size=3)
    results = ask_of_daemons(ask, ["a", "lost", "b"], batcher, work)
    assert results == {"a": "a!", "lost": "1 requests have 0 results", "b": "b!"}


def ask_of_daemons(ask: Callable[[str], Any], names: Sequence[str], batcher: Batcher, work: Work) -> dict[str, Any]:
    """Return the results by name, of threads that share a batch and do not keep the tests from ending."""
    results: dict[str, Any] = {}
    threads = [
        threading.Thread(target=lambda name=name: results.update({name: ask(name)}), daemon=True)
        for name in ["first", *names]
    ]
    threads[0].start()
    assert work.first.wait(10)
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(batcher._waiting) < number:
            pass
    work.go_on.set()
    for thread in threads:
        thread.join(5)
    assert results.pop("first") == "first!"
    return results
