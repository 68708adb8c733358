"""A fork that is stopped ends at once, keeps what had ended, and asks nothing more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from editloupe import fork
from editloupe.evals.forks import forks_of
from editloupe.evals.forks.fork_trace import ForkStop, ForkStopped
from tests.conftest import StartServer
from tests.evals.forks.kept_runs import CRITERION, Kept, script
from tests.scripted import Hang, Request, final


class OneThenSilence:
    """Answers the first request of a fork, and leaves the others waiting for ever."""

    def __init__(self) -> None:
        self.forking, self.waiting = False, threading.Event()
        self._answered = False

    def __call__(self, request: Request) -> Any:
        if not self.forking:
            return script(request)
        if not self._answered:
            self._answered = True
            return final("Wrong Action")
        self.waiting.set()
        return Hang(600)


@pytest.fixture
def replies() -> OneThenSilence:
    return OneThenSilence()


@pytest.fixture
def kept(tmp_path: Path, scripted: StartServer, replies: OneThenSilence) -> Kept:
    made = Kept(tmp_path, scripted(replies), "openai:gpt-4.1", replies=replies)
    replies.forking = True
    return made


@pytest.mark.long
def test_what_had_ended_is_kept_and_the_rest_is_left(kept: Kept, replies: OneThenSilence) -> None:
    stop = ForkStop()
    with ThreadPoolExecutor(1) as aside:
        making = aside.submit(fork, kept.run, "patch", CRITERION, 1, drop=[1], times=2, stop=stop)
        assert replies.waiting.wait(60)
        while not forks_of(kept.run):  # the one that was answered is kept by a thread of its own
            assert not making.done()
        stop.stop()
        with pytest.raises(ForkStopped, match="1 of 2 forks had ended and is kept") as told:
            making.result(60)
    assert [one.label for one in told.value.made] == ["Wrong Action"]
    assert [one.label for one in forks_of(kept.run)] == ["Wrong Action"]
    assert len(kept.more) == 2
    stop.stop()  # again: nothing happens


@pytest.mark.long
def test_a_stop_before_the_first_request_asks_nothing(kept: Kept) -> None:
    stop = ForkStop()
    stop.stop()
    with pytest.raises(ForkStopped, match="nothing was kept"):
        fork(kept.run, "patch", CRITERION, 1, drop=[1], stop=stop)
    assert kept.more == []
    assert forks_of(kept.run) == []
