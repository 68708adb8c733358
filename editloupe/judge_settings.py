"""Everything that can be set about judging, beside the judge, the protocol and the tools."""

from __future__ import annotations

from editloupe.agent.models import ModelSettings
from editloupe.graphs.context import Differences
from editloupe.images import LONG_SIDE
from editloupe.rubrics.model import TargetCrop, Telling


class JudgeSettings(ModelSettings):
    """Everything that can be set about judging; the defaults are the documented ones."""

    max_turns: int = 8
    """Replies a judge has for one case before the tools are forbidden and its answer is asked for."""
    max_repairs: int = 2
    """Replies that may be unreadable before a case is left unjudged."""
    long_side: int = LONG_SIDE
    """Pictures are sent at most this long; the tools always work on the original pixels."""
    min_confidence: float = 0.0
    """Verdicts of a judge that knows its confidence end unjudged below this."""
    differences: Differences = "model"
    """Who lists the differences where a rubric has them listed first: the model, or the tool."""
    our_notes: bool = True
    """Whether rubrics keep the parts that their papers do not have; False leaves those out."""
    target_crop: TargetCrop | None = None
    """How much the crops of oracle mode show round their targets, whatever the rubric says; None leaves that to the rubric."""
    tells: tuple[Telling, ...] | None = None
    """What of an edit's own text the judge is given, whatever its rubric says; None leaves that to the rubric."""
