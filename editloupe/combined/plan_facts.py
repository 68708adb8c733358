"""What decides the answers of judges that answer together: every judge's own facts, and how theirs become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from editloupe.asked import TELLS, TOOLS
from editloupe.combined.panel_vote import RULE
from editloupe.combined.plans import Member, Panel, Plan, Stage

SHARED = ("criterion", "variant", "protocol", "mode", TELLS, "answer", TOOLS)
"""Facts of a question that are the same for all judges of one run."""
FactsOf = Callable[[Member], dict[str, Any]]


def plan_facts(plan: Plan, facts_of: FactsOf) -> dict[str, Any]:
    """Return what decides the answers of a plan; those of one judge alone are its own."""
    if isinstance(plan, Member):
        return facts_of(plan)
    if isinstance(plan, Panel):
        each = [facts_of(member) for member in plan.members]
        return {**_shared(each), "judge": plan.spec, "panel": RULE, "members": [_own(facts) for facts in each]}
    each = [plan_facts(stage.judge, facts_of) for stage in plan.stages]
    stages = [_stage(stage, facts) for stage, facts in zip(plan.stages, each, strict=True)]
    return {**_shared(each), "judge": plan.spec, "stages": stages}


def _shared(each: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: facts[name] for name in SHARED for facts in each[:1] if name in facts}


def _own(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in SHARED}


def _stage(stage: Stage, facts: Mapping[str, Any]) -> dict[str, Any]:
    one = stage.calibration
    kept = {"confidence": one.confidence, "repeats": one.repeats, "from": one.threshold(str(facts["criterion"]))}
    return {**_own(facts), "kept": kept}
