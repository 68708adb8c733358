"""How a rubric is put to a judge, as data: everything that decides the answer apart from the edit, and nothing else.

Not in it: where the model is served, versions of packages, tools that cannot run here, names of manifest columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from editloupe.agent.models import sampling
from editloupe.agent.profiles import Profile
from editloupe.agent.prompts import system_text
from editloupe.agent.rules.thresholds import rules_fingerprint
from editloupe.agent.specs import RULES, split_spec
from editloupe.asked import text_key
from editloupe.judge_settings import JudgeSettings
from editloupe.rubrics.model import LabelAnswer, Rubric
from editloupe.types import Mode

DIFFERENCES = "localize_differences"
_SOME_TOOL: tuple[Mapping[str, Any], ...] = ({},)
"""Stands for the tools in a prompt; which ones there are is a fact of its own."""


def question_facts(
    rubric: Rubric,
    mode: Mode,
    spec: str,
    settings: JudgeSettings,
    profile: Profile,
    tools: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return what decides the answers to a rubric; `tools` says of each tool what it shows depends on."""
    looks, by_rules = rubric.modes[mode].tools, split_spec(spec)[0] == RULES
    structured = profile.structured_output and not looks and not isinstance(rubric.answer, LabelAnswer)
    written = structured and not profile.reasons
    facts: dict[str, Any] = {
        "criterion": rubric.criterion,
        "variant": rubric.variant,
        "protocol": rubric.protocol,
        "mode": mode,
        "judge": spec,
        "tells": sorted(rubric.tells),
        "answer": rubric.answer.model_dump(mode="json", include=_SCORED[rubric.answer.kind]),
        "long_side": min(settings.long_side, profile.max_long_side or settings.long_side),
        "min_confidence": settings.min_confidence,
    }
    if (text := rubric.modes[mode]).targets == "crops" and text.crop != "adaptive":
        facts["target_crop"] = text.crop
    if by_rules:
        facts["rules"] = rules_fingerprint()
    else:
        native = profile.native_tools and looks
        tools_told = _SOME_TOOL if looks else ()
        prompt = system_text(rubric, mode, tools_told, native, structured, written)
        # What is told beside the system text, such as how the instruction is introduced, is in the wording alone.
        facts["wording"] = text_key(f"{prompt}\n{rubric.wording.model_dump_json()}")
        facts |= {"sampling": sampling(profile, settings), "structured": structured}
        facts |= {"written_reasoning": True} if written else {}
        facts |= {"max_repairs": settings.max_repairs, "max_image_bytes": profile.max_image_bytes}
    if looks:
        facts |= {"max_turns": settings.max_turns, "tools": {name: dict(one) for name, one in tools.items()}}
        facts |= {"native_tools": profile.native_tools, "per_mille": profile.per_mille} if not by_rules else {}
    if rubric.parts:
        facts["parts"] = text_key(json.dumps({name: part.model_dump() for name, part in rubric.parts.items()}))
    if rubric.stage is not None:
        facts["differences"] = settings.differences
        facts["stage"] = text_key(rubric.stage.model_dump_json())
        if settings.differences == "tool":
            facts["differences_by"] = tools.get(DIFFERENCES)
    return facts


_SCORED: Mapping[str, Any] = {
    "label": {"kind": True, "labels": {"__all__": {"name", "score"}}},
    "number": {"kind", "key", "low", "high"},
    "checks": {"kind": True, "checks": {"__all__": {"key", "values", "only_if"}}, "score": True},
    "yes_no": {"kind", "key"},
    "text": {"kind", "key"},
}
"""What of an answer decides the score; its words are in the prompt."""
