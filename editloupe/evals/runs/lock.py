"""One writer at a time: a lock file that names its holder and that the system drops when the holder dies."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from editloupe.types import UserError


class RunLock:
    """Holds a run's folder for writing; a second process gets a UserError that names the first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(self._file)
            raise UserError(
                f"{path.parent} is being written by {holder}; wait for it to end, or write into another folder"
            ) from None
        except OSError:
            os.close(self._file)
            raise
        try:
            if not path.exists() or not os.path.samestat(os.fstat(self._file), path.stat()):
                raise UserError(f"{path.parent} was just removed by another process; give the command again")
            os.ftruncate(self._file, 0)
            os.write(self._file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except (OSError, UserError):
            os.close(self._file)  # or this process would keep the run from the next writer
            raise

    def release(self) -> None:
        """Let the next writer in; the file stays, unless the whole run was removed."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1
