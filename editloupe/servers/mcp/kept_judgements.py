"""What was judged here, for read_trace: in a run where the server was given one, else the last few in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.writer import keep_judgement
from editloupe.judge import Judge
from editloupe.pictures.decode import Album
from editloupe.types import Judgement, UserError

REMEMBERED = 32
"""Judgements kept in memory; without their pictures, so each takes some kilobytes."""


class KeptJudgements:
    """Keeps judgements; safe to use from several threads."""

    def __init__(self, judge: Judge, out: Path | None) -> None:
        self.out = out
        self._judge = judge
        self._run = Run.write(out) if out is not None else None
        self._recent: OrderedDict[str, Judgement] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, judgement: Judgement, album: Album) -> list[str]:
        """Keep a judgement and return what the client should know of that."""
        with self._lock:
            if self._run is None:
                self._recent.pop(judgement.edit.id, None)
                self._recent[judgement.edit.id] = _without_pictures(judgement)
                while len(self._recent) > REMEMBERED:
                    self._recent.popitem(last=False)
                return []
            try:
                keep_judgement(self._run, self._judge, judgement, album)
            except UserError as error:  # what was judged is told, whatever happens to the disk
                return [f"this judgement could not be kept in the run: {error}"]
            return []

    def recent(self, edit_id: str) -> Judgement:
        """Return a judgement that is in memory."""
        with self._lock:
            if (found := self._recent.get(edit_id)) is not None:
                return found
            known = ", ".join(f'"{name}"' for name in list(self._recent)[-5:]) or "none"
        raise UserError(
            f'no edit "{edit_id}" was judged here lately (there are: {known}); name the run that holds it with run'
        )

    def close(self) -> None:
        """Let go of the run."""
        with self._lock:
            if self._run is not None:
                self._run.close()


def _without_pictures(judgement: Judgement) -> Judgement:
    """Return a judgement whose edit holds no picture any more: one that was sent along is megabytes."""
    gone: dict[str, Any] = {"source": Path(), "edited": Path(), "reference": None, "more_images": {}}
    return judgement.model_copy(update={"edit": judgement.edit.model_copy(update=gone)})
