"""What a decision is: a label, how sure it is, and the sentences it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from editloupe.agent.rules.thresholds import FollowingChecks

LOCALIZATION_FAILURE, WRONG_ACTION, OVER_MODIFICATION, FLAWLESS = (
    "Localization Failure",
    "Wrong Action",
    "Over Modification",
    "Flawless Execution",
)
COLLAPSE, MULTIPLE, SINGLE, PERFECT = "Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"

NOTHING_DIFFERS = 0.96
"""How often nothing had happened where no place differed: 22 of 22 edits with known truth, as (22 + 1) / (22 + 2)."""


@dataclass(frozen=True)
class Decision:
    """A label with its reasons."""

    label: str
    confidence: float
    """The probability the fitted steps give this label."""
    reasons: tuple[str, ...]


def nothing_happened(reading: str) -> Decision:
    """Decide on a text edit where no place differs and the asked text is not read: there was no change to judge."""
    reason = f"1. Did the change happen on the target? No place differs, and {reading} → it did not."
    return Decision(LOCALIZATION_FAILURE, NOTHING_DIFFERS, (reason,))


def in_order(steps: FollowingChecks, numbers: Mapping[str, float]) -> Decision:
    """Walk the checks of Instruction Following strictly in the rubric's order; the first one failed gives the label."""
    checks = (
        (
            steps.hit,
            LOCALIZATION_FAILURE,
            "Did the change happen on the target?",
            "it did",
            "it did not, or not effectively",
        ),
        (steps.right, WRONG_ACTION, "Is it the asked action and value?", "it is", "it is something else"),
        (steps.kept, OVER_MODIFICATION, "Was everything else about the target preserved?", "it was", "it was not"),
    )
    reasons: list[str] = []
    chance = 1.0
    for number, (step, label, question, yes, no) in enumerate(checks, 1):
        passed = step.probability(numbers)
        outcome = yes if passed >= 0.5 else no
        reasons.append(f"{number}. {question} Measured {step.say(numbers)} → {outcome} (probability {passed:.2f}).")
        if passed < 0.5:
            return Decision(label, round(chance * (1 - passed), 4), tuple(reasons))
        chance *= passed
    return Decision(FLAWLESS, round(chance, 4), tuple(reasons))
