"""Read pickles in processes of their own, with limits on memory and CPU time.

A process reads one pickle after the other. If one exceeds a limit, the system ends its process and the sender gets an error; the
server and other requests go on.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import threading
from collections import deque
from typing import Any

from editloupe.servers.reward.unpickling import NotData, unpickle_data

PROCESSES = 2
CPU_SECONDS = 10
"""CPU time for a pickle; the largest that are allowed take about three seconds."""
MEMORY_BYTES, MEMORY_PER_BYTE = 256 * 2**20, 8
"""Memory for a pickle: a fixed part, and a part for every byte of it."""
TOO_MUCH = f"reading the pickle takes too much memory, or more than {CPU_SECONDS} seconds"
_LENGTH = struct.Struct(">Q")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "TMPDIR")
"""Variables that a process gets; it needs no keys."""
_slots = threading.BoundedSemaphore(PROCESSES)
_idle: deque[subprocess.Popen[bytes]] = deque()


def unpickle_in_process(data: bytes) -> Any:
    """Return the data of a pickle. Waits until one of `PROCESSES` processes is free.

    Raises:
        NotData: The pickle is damaged, not plain data, or exceeds a limit.
    """
    with _slots:
        process = _take_process()
        try:
            reply = _exchange(process, data)
        except BaseException as error:
            process.kill()
            process.communicate()
            if isinstance(error, (OSError, EOFError)):  # the process has ended
                raise NotData(TOO_MUCH) from None
            raise
        _idle.append(process)
    is_data, value = pickle.loads(reply)  # written by `main`, from data that holds no names of functions
    if not is_data:
        raise NotData(value)
    return value


def _take_process() -> subprocess.Popen[bytes]:
    while _idle:
        process = _idle.pop()
        if process.poll() is None:
            return process
    paths = [path or os.getcwd() for path in sys.path]
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C is for the server, which answers pending requests first
        env={
            **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONSAFEPATH": "1",
            "OPENBLAS_NUM_THREADS": "1",  # its threads would count as memory
        },
    )


def _exchange(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_LENGTH.pack(len(data)))
    process.stdin.write(data)
    process.stdin.flush()
    head = process.stdout.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    reply = process.stdout.read(size)
    if len(reply) < size:
        raise EOFError
    return reply


def main() -> None:
    """Answer pickles from standard input with `(True, data)` or `(False, error)` until it is closed."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    own_bytes = _read_virtual_bytes()
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _set_limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + 1 + CPU_SECONDS)
        if own_bytes is not None:
            _set_limit(resource.RLIMIT_AS, own_bytes + MEMORY_BYTES + MEMORY_PER_BYTE * size)
        data = sys.stdin.buffer.read(size)
        try:
            reply = pickle.dumps((True, unpickle_data(data)), pickle.HIGHEST_PROTOCOL)
        except NotData as error:
            reply = pickle.dumps((False, str(error)))
        except MemoryError:
            reply = pickle.dumps((False, TOO_MUCH))
        sys.stdout.buffer.write(_LENGTH.pack(len(reply)))
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
        del data, reply


def _set_limit(kind: int, value: int) -> None:
    """Set the soft limit, so that the next pickle can have another one."""
    import resource

    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _read_virtual_bytes() -> int | None:
    """Return the address space of this process; None on systems other than Linux, which do not limit it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


if __name__ == "__main__":
    main()
