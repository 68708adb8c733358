"""The `editloupe` command, also run by `python -m editloupe`.

Signal handlers are installed before the command's modules are imported, because the imports can take seconds.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

INTERRUPTED = 130
EXIT_TIMEOUT = 4.5
"""Seconds the interpreter has to shut down: to join worker threads and to run the exit functions of packages."""
TRACE_TIMEOUT = 4.0
"""Seconds the last traces have to reach LangSmith, whose threads the interpreter waits for when it ends.

Without a limit, an endpoint that refuses traces kept a finished command alive for 24 s, and one that hangs for six minutes.
"""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), _leave)
    codes: list[int] = []
    atexit.register(_skip_teardown, codes)  # registered first, so it runs after the exit functions of all packages
    from editloupe.cli.main import run

    codes.append(_finish(run(sys.argv[1:])))
    sys.exit(codes[0])


def _leave(number: int, frame: Any) -> None:
    """End the process at once. Nothing is lost: files and databases are complete at every moment, as if it were killed.

    An exception could be swallowed: in callbacks, while modules load, or by code that catches too much.
    """
    os.write(2, b"editloupe: interrupted\n")
    os._exit(INTERRUPTED)


def _skip_teardown(codes: list[int]) -> None:
    """Exit without the interpreter's teardown of modules, which takes a third of a short command's time."""
    if codes:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(codes[0])


def _finish(code: int) -> int:
    """Write out what is left and return the exit code. From here on, threads are waited for at most `EXIT_TIMEOUT`."""
    limit = threading.Timer(EXIT_TIMEOUT, os._exit, [code])
    limit.daemon = True
    limit.start()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has closed it
        pass
    except OSError as error:
        code = 2
        os.write(2, f"editloupe: the output could not be written: {error.strerror}\n".encode())
    flush_traces()
    return code


def is_tracing() -> bool:
    """Return True if LangSmith tracing is enabled and a tracer was loaded."""
    if "langchain_core.tracers.langchain" not in sys.modules:
        return False
    from langsmith.utils import tracing_is_enabled

    return bool(tracing_is_enabled())


def flush_traces() -> None:
    """Wait a few seconds until the last traces are sent; print a line if they are dropped."""
    if not is_tracing():
        return
    from langchain_core.tracers.langchain import wait_for_all_tracers

    waiting = threading.Thread(target=wait_for_all_tracers, name="editloupe-last-traces", daemon=True)
    waiting.start()
    waiting.join(TRACE_TIMEOUT)
    if waiting.is_alive():
        text = f"editloupe: LangSmith did not take the last traces within {TRACE_TIMEOUT:g} s; they are dropped"
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
