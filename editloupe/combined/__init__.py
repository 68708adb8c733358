"""Judges that answer together: panels that vote, and cascades in which each keeps what it may be trusted with."""

from editloupe.combined.calibration import Calibration, CriterionTrust, Tested
from editloupe.combined.plans import Cascade, Member, Panel, Plan, Stage, is_combined, plan_of

__all__ = [
    "Calibration",
    "Cascade",
    "CriterionTrust",
    "Member",
    "Panel",
    "Plan",
    "Stage",
    "Tested",
    "is_combined",
    "plan_of",
]
