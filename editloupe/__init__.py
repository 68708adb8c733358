"""EditLoupe: an open agentic judge for instruction-based image edits."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from editloupe.evals.papers.layouts import load_manifest
    from editloupe.evals.reward import areward, reward
    from editloupe.judge import Judge, JudgeSettings
    from editloupe.types import Box, Edit, Judgement, Reason, Trace, Unjudged, UserError, Verdict

__all__ = [
    "Box",
    "Edit",
    "Judge",
    "JudgeSettings",
    "Judgement",
    "Reason",
    "Trace",
    "Unjudged",
    "UserError",
    "Verdict",
    "areward",
    "load_manifest",
    "reward",
]

_HOMES = {
    "Judge": "judge",
    "JudgeSettings": "judge",
    "areward": "evals.reward",
    "load_manifest": "evals.papers.layouts",
    "reward": "evals.reward",
}
"""Where a public name lives; those not listed live in `types`."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a command that only prints help need not load the LMM stack."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'types')}"), name)
