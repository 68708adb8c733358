"""The `editloupe` command, also as `python -m editloupe`: from its first line to its last, Ctrl-C and SIGTERM end it properly.

The command's modules take seconds to import; the signals are taken care of before the first of them.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from typing import Any

INTERRUPTED = 130
FAREWELL = 5.0
"""Seconds in which packages may do what they do at the end, such as sending off what they traced."""
TRACE_PATIENCE = 4.0
"""Seconds the last traces have to reach LangSmith, which sends them from threads that the interpreter waits for at its end.

An endpoint that refuses kept a finished command alive for 24 s, one that hangs for six minutes.
"""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), _leave)
    gc.disable()  # modules are no garbage, and looking for some among them takes a tenth of the start
    from editloupe.cli.main import run

    _end(run(sys.argv[1:]))


def _leave(number: int, frame: Any) -> None:
    """End at once. Nothing is lost: what a command has written is whole at every moment, as if it were killed.

    Raising instead would be swallowed here and there: in callbacks, while modules load, by whoever catches too much.
    """
    os.write(2, b"editloupe: interrupted\n")
    os._exit(INTERRUPTED)


def _end(code: int) -> None:
    """End with this code, soon: neither a worker thread nor a package's last words can hold the command up."""
    last = threading.Timer(FAREWELL, os._exit, [code])
    last.daemon = True
    last.start()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has what it wanted
        pass
    except OSError as error:
        code = 2
        os.write(2, f"editloupe: the output could not be written: {error.strerror}\n".encode())
    hand_over_traces()
    atexit._run_exitfuncs()
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
    waiting.join(TRACE_PATIENCE)
    if waiting.is_alive():
        text = f"editloupe: LangSmith did not take the last traces within {TRACE_PATIENCE:g} s; they are dropped"
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
