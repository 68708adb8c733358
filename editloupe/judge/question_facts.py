"""Collect the facts that determine an answer, both of the question (hashed into `QuestionSpec.key`) and of the edit's inputs.

Left out on purpose: the server's address, package versions, tools that cannot run here, names of manifest columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe._util.hashing import content_key, text_key
from editloupe.agent.model_settings import build_sampling
from editloupe.agent.prompts import build_system_text
from editloupe.agent.providers.provider import Profile
from editloupe.agent.rules.thresholds import rules_fingerprint
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import split_spec
from editloupe.judge.panels import PANEL_RULE
from editloupe.judge.plans import CascadeStage, Panel, Plan, SingleJudge
from editloupe.judge.question_key import TELLS, TOOLS
from editloupe.judge.settings import JudgeSettings
from editloupe.pictures.memory import PictureSource
from editloupe.rubrics.case_pictures import build_cases, list_pictures, name_to_role
from editloupe.rubrics.model import LabelAnswer, Rubric, Telling
from editloupe.rubrics.protocol import Protocol, collect_all_facts, collect_no_facts
from editloupe.tools.measures import PictureMeasures
from editloupe.types import Edit, Mode, Sha

DIFFERENCES = "localize_differences"
_SOME_TOOL: tuple[Mapping[str, Any], ...] = ({},)
"""A placeholder for the tools in a prompt. The tools themselves are a separate fact."""


def question_facts(
    rubric: Rubric,
    mode: Mode,
    spec: str,
    settings: JudgeSettings,
    profile: Profile,
    tools: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the facts that determine the answers to a rubric. `tools` holds the facts of each tool."""
    if rubric.measured:
        raise TypeError(f"{rubric.criterion} is measured; no judge is asked")
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
        prompt = build_system_text(rubric, mode, _SOME_TOOL if looks else (), native, structured, written)
        # Texts outside the system text, such as the introduction of the instruction, are only in the wording.
        facts["wording"] = text_key(f"{prompt}\n{rubric.wording.model_dump_json()}")
        facts |= {"sampling": build_sampling(profile, settings), "structured": structured}
        facts |= {"written_reasoning": True} if written else {}
        facts |= {"max_repairs": settings.max_repairs, "max_image_bytes": profile.max_image_bytes}
    if looks:
        facts |= {
            "max_turns": settings.max_turns,
            "tools": {name: dict(tool_facts) for name, tool_facts in tools.items()},
        }
        facts |= {"native_tools": profile.native_tools, "per_mille": profile.per_mille} if not by_rules else {}
    if rubric.parts:
        facts["parts"] = text_key(json.dumps({name: part.model_dump() for name, part in rubric.parts.items()}))
    if rubric.stage is not None:
        facts["differences"] = settings.differences
        facts["stage"] = text_key(rubric.stage.model_dump_json())
        if settings.differences == "tool":
            facts["differences_by"] = tools.get(DIFFERENCES)
    return facts


def measure_facts(rubric: Rubric, mode: Mode, spec: str, measures: PictureMeasures) -> dict[str, Any]:
    """Return the facts that determine a measured criterion.

    The judge does not affect it, but belongs to the facts, so that a configuration has units of its own on every criterion.
    """
    assert rubric.measured
    return {
        "criterion": rubric.criterion,
        "variant": rubric.variant,
        "protocol": rubric.protocol,
        "mode": mode,
        "judge": spec,
        "answer": rubric.measured.model_dump(mode="json"),
        "pictures": list(rubric.modes[mode].images),
        "measure": measures.facts(rubric.measured.measure),
    }


_SCORED: Mapping[str, Any] = {
    "label": {"kind": True, "labels": {"__all__": {"name", "score"}}},
    "number": {"kind", "key", "low", "high"},
    "checks": {"kind": True, "checks": {"__all__": {"key", "values", "only_if"}}, "score": True},
    "yes_no": {"kind", "key"},
    "text": {"kind", "key"},
}
"""The parts of an answer that determine the score; its words are in the prompt."""


SHARED = ("criterion", "variant", "protocol", "mode", TELLS, "answer", TOOLS)
"""Facts of a question that are the same for all judges of one run."""
FactsOf = Callable[[SingleJudge], dict[str, Any]]


def plan_facts(plan: Plan, facts_of: FactsOf) -> dict[str, Any]:
    """Return the facts that determine the answers of a plan."""
    if isinstance(plan, SingleJudge):
        return facts_of(plan)
    if isinstance(plan, Panel):
        each = [facts_of(member) for member in plan.members]
        return {**_shared(each), "judge": plan.spec, "panel": PANEL_RULE, "members": [_own(facts) for facts in each]}
    each = [plan_facts(stage.judge, facts_of) for stage in plan.stages]
    stages = [_stage(stage, facts) for stage, facts in zip(plan.stages, each, strict=True)]
    return {**_shared(each), "judge": plan.spec, "stages": stages}


def _shared(each: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: each[0][name] for name in SHARED if name in each[0]}


def _own(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in SHARED}


def _stage(stage: CascadeStage, facts: Mapping[str, Any]) -> dict[str, Any]:
    calibration = stage.calibration
    kept = {
        "confidence": calibration.confidence,
        "repeats": calibration.repeats,
        "from": calibration.threshold(str(facts["criterion"])),
    }
    return {**_own(facts), "kept": kept}


@dataclass(frozen=True)
class JudgeInputs:
    """The inputs of an edit that determine an answer; hashed into the unit's key."""

    pictures: Mapping[str, tuple[PictureSource, ...]]
    """By role."""
    texts: Mapping[str, Any]

    def key(self, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the hash of all inputs; None if a picture has no hash."""
        if any(path not in hashes for paths in self.pictures.values() for path in paths):
            return None
        by_role = {role: [hashes[path] for path in paths] for role, paths in self.pictures.items()}
        return content_key({**self.texts, "pictures": by_role})


def find_inputs(protocol: Protocol, rubric: Rubric, mode: Mode, edit: Edit) -> JudgeInputs:
    """Return the inputs of an edit for one rubric. If the paper's rule decides the edit, only its result counts."""
    if settled := protocol.settle(edit, rubric):
        return JudgeInputs({}, {"settled": settled.label, "score": settled.score})
    text = rubric.modes[mode]
    if rubric.measured:
        measured = {role: list_pictures(edit, role) for role in map(name_to_role, text.images)}
        return JudgeInputs(
            {role: paths for role, paths in measured.items() if paths},
            {name: edit.extra.get(name) for name in rubric.measured.texts},
        )
    roles = [name_to_role(name) for name in (*text.images, *(rubric.stage.images if rubric.stage else ()))]
    pictures = {role: paths for role in dict.fromkeys(roles) if (paths := list_pictures(edit, role))}
    pictures |= {role: edit.files[role] for role in protocol.further_roles if role in edit.files}
    tells = (*rubric.tells, *(rubric.stage.tells if rubric.stage else ()))
    facts_of = protocol.case_facts or (collect_no_facts if protocol.make_cases is build_cases else collect_all_facts)
    # The tools read object names from the instruction even if the judge does not see it.
    texts = {"instruction": edit.instruction, **dict(edit_texts(edit, tells)), **facts_of(edit, rubric, mode)}
    return JudgeInputs(pictures, texts)


def edit_texts(edit: Edit, tells: Sequence[Telling]) -> Iterator[tuple[str, str]]:
    """Yield the texts of an edit that the judge sees, by name."""
    if "instruction" in tells:
        yield "instruction", edit.instruction.strip()
    if "type" in tells and edit.instruction_type:
        yield "type", edit.instruction_type
    if "hint" in tells and edit.hint:
        yield "hint", edit.hint
