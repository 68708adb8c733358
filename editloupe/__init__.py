"""EditLoupe is an open agentic judge for instruction-based image edits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe._util.version import __version__ as __version__
    from editloupe.evals.forks import fork
    from editloupe.evals.manifests.layouts import load_manifest
    from editloupe.evals.reward import areward, best_of, reward
    from editloupe.judge import Judge
    from editloupe.judge.settings import JudgeSettings
    from editloupe.tools.function_tool import tool
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
    "best_of",
    "fork",
    "load_manifest",
    "reward",
    "tool",
]

__getattr__, __dir__ = lazy_names(__name__)
"""Names are imported on first use, so that `--help` does not load the LMM stack."""
