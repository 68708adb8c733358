"""The last traces of a command whose steps are traced: they have a few seconds to arrive, and never longer.

LangSmith sends traces from threads that the interpreter waits for at its end. An endpoint that refuses kept a finished command
alive for 24 s, one that hangs for six minutes.
"""

from __future__ import annotations

import sys
import threading

PATIENCE = 4.0
"""Seconds the last traces have to reach their endpoint."""


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
