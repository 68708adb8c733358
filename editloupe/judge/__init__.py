"""`Judge` with its settings and presets, question keys, panels and cascades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.judge.base_judge import BaseJudge
    from editloupe.judge.calibration import Calibration, CriterionTrust, ThresholdTest
    from editloupe.judge.judge import DEFAULT_JUDGE, JUDGE_VARIABLE, Judge, judge_opener
    from editloupe.judge.plans import Cascade, CascadeStage, Panel, Plan, SingleJudge, is_combined, plan_of
    from editloupe.judge.settings import JudgeSettings, Setup, find_setup, setup_names

__all__ = [
    "DEFAULT_JUDGE",
    "JUDGE_VARIABLE",
    "BaseJudge",
    "Calibration",
    "Cascade",
    "CascadeStage",
    "CriterionTrust",
    "Judge",
    "JudgeSettings",
    "Panel",
    "Plan",
    "Setup",
    "SingleJudge",
    "ThresholdTest",
    "find_setup",
    "is_combined",
    "judge_opener",
    "plan_of",
    "setup_names",
]

__getattr__, __dir__ = lazy_names(__name__)
