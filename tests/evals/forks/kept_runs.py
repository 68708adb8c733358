"""Runs with one judged edit, to fork its traces."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from editloupe import Box, Edit, Judge, fork
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.graphs.forking import NO_RESULT
from tests.drawn_pictures import edit_pair
from tests.scripted import Request, ScriptedServer, call, final

CRITERION = "instruction_following"
DIFFER = call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image")
ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")


def turns(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def script(request: Request) -> Any:
    """Two looks and an answer; without the result of the first look, another answer at once."""
    if turns(request) and NO_RESULT in json.dumps(request.body):
        return final("Wrong Action", "I was shown nothing.")
    return (DIFFER, ZOOM, final("Flawless Execution", "The patch is red."))[turns(request)]


class Kept:
    """A run with one judged edit, and the server its judge spoke to; a run judged alike before is copied, not judged again."""

    _judged: ClassVar[dict[str, tuple[Path, str, list[Request]]]] = {}

    def __init__(
        self,
        folder: Path,
        server: ScriptedServer,
        spec: str,
        kind: str | None = None,
        boxes: tuple[Box, ...] = (),
        replies: Any = None,
        **options: Any,
    ) -> None:
        before, after = edit_pair(folder)
        words = "Change the color of the patch to red"
        about: dict[str, Any] = {"instruction": words, "instruction_type": kind, "target_boxes": boxes}
        self.edit = Edit(id="patch", source=before, edited=after, reference=after if boxes else None, **about)
        self.run, self.server, self.spec = folder / "run", server, spec
        url = server.gemini_url if spec.startswith("google") else server.openai_url
        alike = None if replies not in (None, script) or boxes or kind or options else spec
        if alike in self._judged:
            judged, old, self.first = self._judged[alike]
            shutil.copytree(judged, self.run)
            (self.run / "run.json").write_text((self.run / "run.json").read_text().replace(old, url))
        else:
            self._judge(None if spec == "rules" else url, options)
            self.first = list(server.requests)
            if alike:
                judged = Path(tempfile.mkdtemp()) / "run"
                atexit.register(shutil.rmtree, judged.parent, ignore_errors=True)
                shutil.copytree(self.run, judged)
                self._judged[alike] = (judged, url, self.first)
        for path in (before, after):
            path.unlink()  # another machine: the run alone must do
        self.asked = len(server.requests)

    def _judge(self, url: str | None, options: dict[str, Any]) -> None:
        def open_judge(**hooks: Any) -> Judge:
            return Judge(self.spec, base_url=url, **{"criteria": [CRITERION], **options}, **hooks)

        judge_batch(Batch(edits=lambda: [self.edit], out=self.run, open_judge=open_judge), quiet=True)

    @property
    def more(self) -> list[Request]:
        """What was asked since the run was judged."""
        return server_requests(self.server)[self.asked :]

    def fork(self, step: int, **options: Any) -> Any:
        (made,) = fork(self.run, "patch", CRITERION, step, **options)
        return made


def server_requests(server: ScriptedServer) -> list[Request]:
    return list(server.requests)


Keep = Callable[..., Kept]
