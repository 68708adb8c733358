"""Replies kept while a picture is under way, so that a command killed in the middle does not pay twice.

Once a picture is done, or has failed for good, its replies go: the next try asks anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editloupe._util.files import file_name, make_folder, whole_file
from editloupe._util.storable import fits, storable
from editloupe.agent.secrets import Secrets
from editloupe.evals.batch.replies import current_work

FOLDER = ".replies"


class KeptWhileUnderWay:
    """Replies as files, one folder a picture, below the folder that is being written."""

    def __init__(self, out: Path) -> None:
        self._folder = out / FOLDER
        self._without_secrets = Secrets()

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any."""
        try:
            found: Mapping[str, Any] = json.loads(self._path(key).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if fits(found) else storable(found)

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply; it is on disk when this returns."""
        text = json.dumps(reply if fits(reply) else storable(reply), default=str)
        path = self._path(key)
        make_folder(path.parent)
        with whole_file(path) as part:
            part.write_bytes(self._without_secrets(text).encode())

    def drop(self, name: str) -> None:
        """Let go of a picture's replies."""
        shutil.rmtree(self._folder / file_name(name), ignore_errors=True)
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, key: str) -> Path:
        work = current_work()
        return self._folder / (file_name(work.edit_id) if work else "") / f"{key}.json"
