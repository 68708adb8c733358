"""What a benchmark has cost so far, and what it may cost: every paid request is a line, counted over all sessions."""

from __future__ import annotations

import threading
from pathlib import Path

from pydantic import TypeAdapter

from editloupe._util.text import for_json
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.evals.manifests.jsonl_log import append_line
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.records import SampleRecord
from editloupe.making.stage_files import StageLog
from editloupe.types import Usage, UserError

FILE = "costs.jsonl"


class Cost(SampleRecord):
    """One paid request: `costs.jsonl`; the id is the sample it was for, or empty."""

    stage: str
    model: str
    usage: Usage = Usage()
    dollars: float | None = None
    """None where the price is not known."""
    at: str


class Ledger:
    """The folder's costs; memory does not grow with them."""

    def __init__(self, folder: Path, cap: float | None = None) -> None:
        self.cap = cap
        self._file = folder / FILE
        self._kind = TypeAdapter(Cost)
        self._lock = threading.Lock()
        self.spent = 0.0
        self.requests = 0
        self.unpriced = 0
        """Requests whose price is not known."""
        self._reserved = 0.0
        for line in StageLog(self._file, self._kind).records():
            self._count(line)

    def pay(self, sample_id: str, stage: str, model: str, usage: Usage, dollars: float | None) -> None:
        """Write down a paid request; it is on disk when this returns."""
        line = Cost(id=sample_id, stage=stage, model=model, usage=usage, dollars=dollars, at=timestamp())
        with self._lock:
            try:
                append_line(self._file, for_json(line.model_dump(mode="json")).encode())
            except OSError as error:
                raise UserError(f"{self._file} cannot be written: {error.strerror or error}") from None
            self._count(line)

    def reserve(self, dollars: float) -> None:
        """Take room for a request about to be sent; raises OverBudget where the cap leaves none."""
        with self._lock:
            if self.cap is not None and self.spent + self._reserved + dollars > self.cap:
                spent = f"${self.spent:.4f} spent"
                under_way = f", ${self._reserved:.4f} under way" if self._reserved else ""
                raise OverBudget(
                    f"the cap of ${self.cap:g} is reached ({spent}{under_way}, the next request about ${dollars:.4f})"
                )
            self._reserved += dollars

    def release(self, dollars: float) -> None:
        """Give the room back, once the request is paid for or has come to nothing."""
        with self._lock:
            self._reserved = max(0.0, self._reserved - dollars)

    def _count(self, line: Cost) -> None:
        self.requests += 1
        self.spent += line.dollars or 0.0
        self.unpriced += line.dollars is None
