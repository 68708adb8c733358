"""Processes that others began for us, and ending them with us."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int | None = None) -> list[int]:
    """Return the processes below one, this one by default; none where the system does not list them under /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):  # it ended while we looked
                # "pid (name) state parent …"; a name may hold spaces and brackets of its own
                parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
                children[parent].append(int(folder.name))
    found: list[int] = []
    waiting = [os.getpid() if pid is None else pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command_of(pid: int) -> str:
    """Return a process's command line; empty where it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def end_all(commands: Mapping[int, str]) -> None:
    """Kill these processes; one that has ended, or whose number belongs to another command meanwhile, is passed over."""
    for pid, command in commands.items():
        if command and command_of(pid) == command:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
