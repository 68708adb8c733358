"""The `editloupe` command with clocks around its parts, run by `batch.py --profile`: prints where its core-seconds went.

Clocks count the CPU time of the thread they run on. Time inside another part is taken out of it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

SPENT: Counter[str] = Counter()
CALLS: Counter[str] = Counter()
ON_THE_LOOP: Counter[str] = Counter()
_INSIDE = threading.local()
_LOCK = threading.Lock()


def add_clocks(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with a clock around it."""

    def timed(*args: Any, **options: Any) -> Any:
        before, _INSIDE.taken = getattr(_INSIDE, "taken", 0.0), 0.0
        started = time.thread_time()
        try:
            return function(*args, **options)
        finally:
            whole = time.thread_time() - started
            with _LOCK:
                SPENT[part] += whole - _INSIDE.taken
                CALLS[part] += 1
                if threading.current_thread() is threading.main_thread():
                    ON_THE_LOOP[part] += whole - _INSIDE.taken
            _INSIDE.taken = before + whole

    return timed


def put_clocks() -> None:
    """Put clocks around decoding, encoding, hashing, tools and the store."""
    from editloupe.evals.runs.store import Run
    from editloupe.graphs import context
    from editloupe.pictures import decode, encode

    for part, home, names in (
        ("decoding", decode, ("decode",)),
        ("encoding", encode, ("_wire", "encode")),
        ("hashing", decode, ("hash_bytes", "hash_pixels")),
        ("tools here", context, ("_run",)),
        ("store", Run, ("keep_reply", "find_reply", "add_spending", "save_all", "checkpoint")),
    ):
        for name in names:
            setattr(home, name, add_clocks(part, getattr(home, name)))


def main() -> None:
    """Run the command line given, and write what was counted to the file named first."""
    file = sys.argv.pop(1)
    from editloupe.cli.main import run
    from editloupe.evals.batch import batch

    put_clocks()
    at_first_edit: dict[str, float] = {}
    before = batch._Session._open_executor

    async def marked(*args: Any) -> Any:
        """Reset the clocks when the executor opens, just before the first edit."""
        at_first_edit.update(process=time.process_time(), loop=time.thread_time())
        ON_THE_LOOP.clear()
        SPENT.clear()
        return await before(*args)

    batch._Session._open_executor = marked  # type: ignore[method-assign]
    code = run(sys.argv[1:])
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    comparing = others.ru_utime + others.ru_stime
    loop = time.thread_time() - at_first_edit["loop"] - sum(ON_THE_LOOP.values())
    whole = time.process_time()
    parts = {
        "start": at_first_edit["process"],
        "event loop": loop,
        "comparing": comparing,
        **SPENT,
        "other threads": whole - at_first_edit["process"] - loop - sum(SPENT.values()),
    }
    with open(file, "w", encoding="utf-8") as out:
        json.dump({"parts": parts, "calls": CALLS, "all": whole + comparing}, out)
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
