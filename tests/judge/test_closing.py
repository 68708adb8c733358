"""A judge that is closed, left, collected or interrupted leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, UserError, reward
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, ScriptedServer, final, say, wrong_key

SPECS = {"openai": "openai:gpt-4.1", "gemini": "google_genai:gemini-2.5-pro"}


def unheard(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What asyncio tells of failures nobody listened to; that something took its time is no failure."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def labelled(request: Request) -> Any:
    return final("Perfect Consistency" if "Perfect Consistency" in request.system else "Flawless Execution")


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Change the color of the patch to red")


def many(edit: Edit, count: int) -> Iterator[Edit]:
    return (edit.model_copy(update={"id": str(number)}) for number in range(count))


def open_judge(server: ScriptedServer, provider: str = "openai") -> Judge:
    return Judge(SPECS[provider], base_url=getattr(server, f"{provider}_url"), mode="plain")


def held() -> tuple[int, int]:
    """Threads of ours and open descriptors of this process."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("editloupe-")]
    return len(threads), len(os.listdir("/proc/self/fd"))


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are listed under /proc")


def settled(wanted: tuple[int, int]) -> tuple[int, int]:
    """What is held once the server, which shares this process, has noticed that connections were closed."""
    end = time.monotonic() + 5
    while held() > wanted and time.monotonic() < end:
        time.sleep(0.02)
    return held()


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("provider", list(SPECS))
def test_a_closed_judge_leaves_no_thread_and_no_descriptor(edit: Edit, scripted: StartServer, provider: str) -> None:
    server = scripted(labelled, log=False)
    with open_judge(server, provider) as judge:
        judge(edit)
    before = settled((0, 0))
    for _ in range(8):
        with open_judge(server, provider) as judge:
            assert judge(edit).judged
            assert all(found.judged for found in judge.batch(many(edit, 3)))
    assert settled(before) <= before


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("provider", list(SPECS))
async def test_a_judge_closed_on_its_own_loop_leaves_nothing_either(
    edit: Edit, scripted: StartServer, provider: str
) -> None:
    server = scripted(labelled, log=False)
    async with open_judge(server, provider) as judge:
        await judge.ajudge(edit)
    before = await asyncio.to_thread(settled, (0, 0))
    for _ in range(5):
        async with open_judge(server, provider) as judge:
            assert (await judge.ajudge(edit)).judged
    assert await asyncio.to_thread(settled, before) <= before


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("calls", [25, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_rewards_in_a_loop_hold_threads_descriptors_and_memory_flat(
    edit: Edit, scripted: StartServer, calls: int
) -> None:
    def script(request: Request) -> Any:
        listed = "List of differences" in request.system
        return say('{"differences": "none"}' if listed else '{"reason": "seen", "score": 4}')

    server = scripted(script, log=False)
    options: dict[str, Any] = {"base_url": server.openai_url, "mode": "plain", "protocol": "editreward-compass"}
    one = edit.model_copy(update={"instruction_type": "ADD"})
    for _ in range(5):
        assert reward([one], "openai:gpt-4.1", **options) == [pytest.approx(0.75)]
    before, memory = settled((0, 0)), resident()
    for _ in range(calls):
        reward([one], "openai:gpt-4.1", **options)
    assert settled(before) <= before
    assert resident() - memory < 40 + 0.02 * calls, "megabytes"


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.long
def test_a_judge_that_nobody_holds_any_more_ends_its_thread(edit: Edit, scripted: StartServer) -> None:
    judge = open_judge(scripted(labelled))
    judge(edit)
    thread = judge._lifecycle._loop_thread._thread
    assert thread is not None
    del judge
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_closing_while_it_judges_ends_the_judging_with_a_sentence(edit: Edit, scripted: StartServer) -> None:
    server = scripted(lambda request: labelled(request).after(30.0), log=False)
    judge = open_judge(server)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            judge(edit)
        except BaseException as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while not server.served:
        time.sleep(0.01)
    judge.close()
    asking.join(10)
    assert not asking.is_alive()
    assert isinstance(ended[0], UserError)
    assert "closed" in str(ended[0])


async def test_closing_while_it_judges_on_this_loop_ends_that_too(edit: Edit, scripted: StartServer) -> None:
    server = scripted(lambda request: labelled(request).after(30.0), log=False)
    judge = open_judge(server)
    asking = asyncio.create_task(judge.ajudge(edit))
    while not server.served:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        await judge.aclose()
        with pytest.raises(UserError, match="closed while it was judging"):
            await asking


def test_a_closed_judge_says_so_and_closing_again_does_nothing(edit: Edit) -> None:
    judge = Judge("rules", mode="plain")
    judge.close()
    judge.close()
    asyncio.run(judge.aclose())
    with pytest.raises(UserError, match="this judge is closed"):
        judge(edit)
    with pytest.raises(UserError, match="this judge is closed"):
        list(judge.batch([edit]))
    with pytest.raises(UserError, match="this judge is closed"):
        asyncio.run(judge.ajudge(edit))


def test_a_batch_read_after_its_judge_was_closed_says_how_to_read_it(edit: Edit) -> None:
    sentence = r"^this judge is closed; read its batches before that, for instance with list\(judge.batch\(edits\)\)"
    with Judge("rules", mode="plain") as judge:
        unread, begun, unread_async = judge.batch([edit]), judge.batch(many(edit, 3)), judge.abatch([edit])
        next(begun)
    for judgements in (unread, begun):
        with pytest.raises(UserError, match=sentence):
            list(judgements)
    with pytest.raises(UserError, match=sentence):
        asyncio.run(anext(unread_async))


@pytest.mark.long
def test_what_a_batch_left_early_had_under_way_has_ended_with_it(
    edit: Edit, scripted: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = scripted(lambda request: labelled(request).after(0.05), log=False)
    with caplog.at_level(logging.ERROR, "asyncio"), open_judge(server) as judge:
        with closing(judge.batch(many(edit, 500), concurrency=4)) as judgements:
            next(judgements)
        time.sleep(0.3)  # the server may still be reading what had been sent
        asked = server.served
        time.sleep(0.3)
        assert server.served == asked
        assert judge(edit).judged, "the judge itself goes on"
    gc.collect()
    assert not unheard(caplog)


@pytest.mark.long
async def test_an_asynchronous_batch_left_early_ends_where_it_is_left(
    edit: Edit, scripted: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = scripted(lambda request: labelled(request).after(0.05), log=False)
    async with open_judge(server) as judge:
        async with aclosing(judge.abatch(many(edit, 500), concurrency=4)) as judgements:
            async for _ in judgements:
                break
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    gc.collect()
    assert not unheard(caplog)


@pytest.mark.long
def test_a_fault_that_ends_a_batch_leaves_no_other_behind_unheard(
    edit: Edit, scripted: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    with open_judge(scripted(lambda _: wrong_key(), log=False)) as judge, pytest.raises(UserError, match="key"):
        list(judge.batch(many(edit, 40), concurrency=16))
    gc.collect()
    assert not unheard(caplog)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of loops that end before their connections are closed
def test_one_judge_serves_one_event_loop_after_another(edit: Edit, scripted: StartServer) -> None:
    server = scripted(labelled)
    judge = open_judge(server)
    for _ in range(3):
        assert asyncio.run(judge.ajudge(edit)).judged
    assert judge(edit).judged
    assert server.served == 4 * 2, "no request had to be sent again"
    judge.close()
    gc.collect()


@pytest.mark.long
@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)", "judge.close()"])
def test_a_program_that_leaves_a_batch_early_ends_at_once(
    edit: Edit, scripted: StartServer, tmp_path: Path, ending: str
) -> None:
    server = scripted(lambda request: labelled(request).after(0.0 if server.served < 3 else 60.0), log=False)
    program = tmp_path / "program.py"
    program.write_text(
        "from editloupe import Edit, Judge\n"
        f"edit = Edit(source={str(edit.source)!r}, edited={str(edit.edited)!r}, instruction='Paint it')\n"
        f"judge = Judge('openai:gpt-4.1', base_url={server.openai_url!r}, mode='plain',"
        " criteria=['instruction_following'])\n"
        "edits = (edit.model_copy(update={'id': str(n)}) for n in range(100))\n"
        f"for judgement in judge.batch_as_completed(edits, concurrency=4):\n    break\n{ending}\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == (3 if "SystemExit" in ending else 0), done.stderr
    assert done.stderr == ""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no such signals here")
def test_an_interrupted_batch_raises_the_interrupt_itself_and_ends_what_was_under_way(
    edit: Edit, scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(lambda request: labelled(request).after(600), log=False)
    program = tmp_path / "program.py"
    program.write_text(
        # A shell that runs the tests in the background lets them ignore Ctrl-C, and so would the program.
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import threading\nfrom editloupe import Edit, Judge, reward\n"
        f"edit = Edit(source={str(edit.source)!r}, edited={str(edit.edited)!r}, instruction='Paint it')\n"
        f"with Judge('openai:gpt-4.1', base_url={server.openai_url!r}, mode='plain') as judge:\n"
        "    try:\n        reward([edit] * 8, judge)\n    except KeyboardInterrupt:\n        print('interrupted')\n"
        "print(threading.active_count())\n"
    )
    running = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while server.served < 16 and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    told, errors = running.communicate(timeout=60)
    assert told.split() == ["interrupted", "1"], errors


def test_a_judge_asked_by_the_edits_it_is_given_says_so_and_does_not_wait_for_itself(edit: Edit) -> None:
    with Judge("rules", mode="plain") as judge:

        def edits() -> Iterator[Edit]:
            judge(edit)
            yield edit

        with pytest.raises(UserError, match="while it reads its own edits"):
            list(judge.batch(edits()))
        assert judge(edit).judged


@pytest.mark.long
@needs_proc
def test_no_descriptor_left_for_a_loop_is_an_error_and_no_hang(edit: Edit, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, resource\nfrom editloupe import Edit, Judge\n"
        f"edit = Edit(source={str(edit.source)!r}, edited={str(edit.edited)!r}, instruction='Paint it')\n"
        "judge = Judge('rules', mode='plain')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')), 4096))\n"
        "try:\n    judge(edit)\nexcept OSError as error:\n    print('told', error.errno)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
        "print(len(judge(edit).verdicts))\njudge.close()\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["told", "24", "2"], done.stderr


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_judge_that_was_used_before_a_fork_judges_after_it_too(edit: Edit, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nfrom editloupe import Edit, Judge\n"
        f"edit = Edit(source={str(edit.source)!r}, edited={str(edit.edited)!r}, instruction='Paint it')\n"
        "judge = Judge('rules', mode='tools')\njudge(edit)\n"
        "child = os.fork()\n"
        "if not child:\n    os._exit(len(judge(edit).verdicts))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(judge(edit).verdicts))\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["2", "2"], done.stderr
