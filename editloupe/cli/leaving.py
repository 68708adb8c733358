"""How the program leaves when a tracer is on: it waits a few seconds for the last traces, and never longer.

LangSmith sends traces from threads that the interpreter waits for at its end. An endpoint that refuses kept a finished command
alive for 24 s, one that hangs for six minutes.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

PATIENCE = 4.0
"""Seconds the last traces have to reach their endpoint."""


def leave(code: int) -> NoReturn:
    """End the process with this code, without waiting for a tracer's threads longer than they are given."""
    if not traced():
        sys.exit(code)
    with suppress(KeyboardInterrupt):
        hand_over_traces()
    # An ordinary end would wait for the tracer's threads after all. Everything else that belongs to an end is done here.
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def traced() -> bool:
    """True where LangSmith's tracing is switched on and something was loaded that could be traced."""
    if "langchain_core.tracers.langchain" not in sys.modules:
        return False
    from langsmith.utils import tracing_is_enabled

    return bool(tracing_is_enabled())


def hand_over_traces() -> None:
    """Give the last traces a few seconds to reach their endpoint; a line says so where they are dropped."""
    if not traced():
        return
    from langchain_core.tracers.langchain import wait_for_all_tracers

    waiting = threading.Thread(target=wait_for_all_tracers, name="editloupe-last-traces", daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    if waiting.is_alive():
        text = f"editloupe: LangSmith did not take the last traces within {PATIENCE:g} s; they are dropped"
        print(text, file=sys.stderr)
