"""What a trace amounts to: turns, repairs, calls by tool, and its words for full-text search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from editloupe.evals.traces.as_sql import spaced


@dataclass
class ToolCount:
    """One tool in one verdict."""

    calls: int = 0
    failed: int = 0
    cached: int = 0
    seconds: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    """Of the replies that called it, shared evenly among the calls of a reply."""


@dataclass
class StepFacts:
    """All steps of a verdict together."""

    turns: int = 0
    repairs: int = 0
    tools: dict[str, ToolCount] = field(default_factory=dict)
    words: dict[str, list[str]] = field(
        default_factory=lambda: {"thought": [], "called": [], "observed": [], "replied": []}
    )

    lost: list[int] = field(default_factory=list)
    """Steps that cannot be read."""

    def add(self, text: str) -> None:
        """Take in one step as the run holds it; what is no step raises ValueError, TypeError or AttributeError."""
        step: Mapping[str, Any] = json.loads(text)
        calls, seen = step.get("calls") or (), step.get("observations") or ()
        if step.get("problem"):
            self.repairs += 1
        else:
            self.turns += 1
        usage = step.get("usage") or {}
        tools = [str(one.get("tool")) for one in seen]
        for call in calls:
            self._word("called", call.get("name"), json.dumps(call.get("parameters"), ensure_ascii=False))
        for tool, one in zip(tools, seen, strict=True):
            count = self.tools.setdefault(tool, ToolCount())
            count.calls += 1
            count.failed += bool(one.get("failed"))
            count.cached += bool(one.get("cached"))
            count.seconds += float(one.get("seconds") or 0)
            count.input_tokens += float(usage.get("input_tokens") or 0) / len(tools)
            count.output_tokens += float(usage.get("output_tokens") or 0) / len(tools)
            self._word("observed", one.get("text"), *(one.get("captions") or ()))
        self._word("thought", step.get("thought"))
        self._word("replied", step.get("raw"), step.get("answer"))

    def _word(self, column: str, *texts: Any) -> None:
        self.words[column] += [str(text) for text in texts if text]

    def texts(self) -> tuple[str, ...]:
        """Return the texts of the columns, as they are searched."""
        return tuple(spaced("\n".join(parts)) for parts in self.words.values())

    def counts(self) -> Iterable[tuple[Any, ...]]:
        """Yield tool and numbers."""
        for tool, one in self.tools.items():
            yield (
                tool,
                one.calls,
                one.failed,
                one.cached,
                one.seconds,
                round(one.input_tokens),
                round(one.output_tokens),
            )
