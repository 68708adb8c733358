"""A judge for functions that others call: opened when it is first needed, and kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from editloupe.judge import Judge
from editloupe.types import UserError


class OpenedJudge:
    """A judge that is opened when it is first needed, and kept; one that is open already stays its owner's."""

    def __init__(self, judge: Judge | str | None, options: Mapping[str, Any]) -> None:
        if isinstance(judge, Judge) and options:
            raise UserError("a judge that is open already takes no options; give them where it is opened")
        self._given, self._options = judge, dict(options)
        self._judge = judge if isinstance(judge, Judge) else None
        self._lock = threading.Lock()

    @property
    def criteria(self) -> Sequence[str]:
        """The criteria that were chosen when it was given to be opened; none of its own where all are asked."""
        return self._options.get("criteria") or ()

    def judge(self) -> Judge:
        """Return the judge."""
        with self._lock:
            if self._judge is None:
                assert not isinstance(self._given, Judge)
                self._judge = Judge(self._given, **self._options)
            return self._judge
