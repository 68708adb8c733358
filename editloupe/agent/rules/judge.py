"""The embedded judge, which calls the same tools as a model and decides the labels of the two criteria from measured numbers."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from editloupe.agent.chat_interface import ChatRequest, Reply
from editloupe.agent.providers.provider import RULES_PROFILE
from editloupe.agent.replies.finish_reasons import Refusal, ReplyFacts
from editloupe.agent.rules import instruction_following
from editloupe.agent.rules.instructions import ChangeRequest, parse_instruction
from editloupe.agent.rules.pixels import Rect, is_alike, is_attached, join_regions, to_rect
from editloupe.agent.rules.thresholds import ConsistencyLimits, FollowingChecks, load_thresholds
from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.registry import DEFAULT
from editloupe.tools.compare.difference import GlobalChange, compare
from editloupe.tools.contract import ResultCache
from editloupe.tools.result_cache import ToolResultCache, key
from editloupe.types import Reason, Usage

LOCALIZATION_FAILURE, WRONG_ACTION, OVER_MODIFICATION, FLAWLESS = (
    "Localization Failure",
    "Wrong Action",
    "Over Modification",
    "Flawless Execution",
)
COLLAPSE, MULTIPLE, SINGLE, PERFECT = "Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency"

NOTHING_DIFFERS = 0.96
"""How often nothing had happened if no region differed: 22 of 22 edits with known truth, as (22 + 1) / (22 + 2)."""


@dataclass(frozen=True)
class LabelDecision:
    """A label with its confidence and reasons."""

    label: str
    confidence: float
    """Probability of this label by the fitted checks."""
    reasons: tuple[str, ...]


def decide_no_change(reading: str) -> LabelDecision:
    """Decide a text edit in which no region differs and the asked text is not read: nothing changed."""
    reason = f"1. Did the change happen on the target? No place differs, and {reading} → it did not."
    return LabelDecision(LOCALIZATION_FAILURE, NOTHING_DIFFERS, (reason,))


def decide_nothing_left() -> LabelDecision:
    """Decide an edit after which hardly any contrast is left: whatever was asked, it is not on the target."""
    reason = "1. Did the change happen on the target? With its contrast, the target is gone → it did not."
    return LabelDecision(LOCALIZATION_FAILURE, 1.0, (reason,))


def decide_following(steps: FollowingChecks, numbers: Mapping[str, float]) -> LabelDecision:
    """Apply the checks of Instruction Following in the rubric's order; the first that fails gives the label."""
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
            return LabelDecision(label, round(chance * (1 - passed), 4), tuple(reasons))
        chance *= passed
    return LabelDecision(FLAWLESS, round(chance, 4), tuple(reasons))


SOFTNESS = 0.06
"""Range around the threshold in which it is uncertain whether a region is an anomaly."""


def find_anomalies(
    differences: Mapping[str, Any],
    targets: Sequence[Rect],
    own: Sequence[Rect],
    limits: ConsistencyLimits,
    instances: bool,
) -> list[tuple[Rect, float]]:
    """Return the changed regions outside the target, and for counts also outside its other instances.

    Args:
        differences: The result of comparing source and edited picture.
        targets: Boxes of the target.
        own: Boxes in which the reference differs from the source too.
        limits: The fitted limits.
        instances: Whether regions of the target's size are further instances of it.
    """
    width, height = differences["size"]
    places = []
    for region in differences["regions"]:
        box = to_rect(region["box"])
        if any(is_attached(box, target, limits.attach) for target in targets):
            continue
        if any(is_attached(box, own_box, 0.1) for own_box in own):
            continue
        if instances and any(is_alike(box, target) for target in targets):
            continue
        places.append((box, float(region["significance"])))
    return join_regions(places, limits.join * math.hypot(width, height))


def decide_consistency(
    differences: Mapping[str, Any], places: Sequence[tuple[Rect, float]], limits: ConsistencyLimits, setting: str
) -> LabelDecision:
    """Decide Visual Consistency in the rubric's order: first the whole scene, then the number of anomalies."""
    share = float(differences["changed_share"])
    if differences["whole_scene"]:
        confidence = 0.6 + 0.4 * min(1.0, share / 0.5)
        reason = (
            f"1. Did the scene itself change? It differs nearly everywhere ({100 * share:.0f} % of the area): it did."
        )
        return LabelDecision(COLLAPSE, round(confidence, 4), (reason,))
    change = _read_global_change(differences)
    if change.is_vanished:
        percent = 100 * (1 + change.contrast)
        reason = f"1. Did the scene itself change? Only {percent:.0f} % of its contrast is left: it did."
        return LabelDecision(COLLAPSE, 1.0, (reason,))
    doubts = [1 / (1 + math.exp(-(weight - limits.significance) / SOFTNESS)) for _, weight in places]
    counted = [region for region, doubt in zip(places, doubts, strict=True) if doubt >= 0.5]
    reasons = [f"1. Did the scene itself change? Only {100 * share:.1f} % of the area differs: it did not."]
    boxes = "; ".join(f"{list(box)} (significance {weight:.2f})" for box, weight in counted[:6])
    ignored = (
        f", {len(places) - len(counted)} below {limits.significance:.2f} left out" if len(places) > len(counted) else ""
    )
    reasons.append(
        f"2. Distinct changed regions {setting}: {len(counted) or 'none'}{ignored}{': ' if boxes else ''}{boxes}."
    )
    none, single = _chances(doubts)
    if not counted:
        return LabelDecision(PERFECT, round(none, 4), tuple(reasons))
    if len(counted) == 1:
        return LabelDecision(SINGLE, round(single, 4), tuple(reasons))
    return LabelDecision(MULTIPLE, round(1 - none - single, 4), tuple(reasons))


def _chances(doubts: Sequence[float]) -> tuple[float, float]:
    """Return the probabilities that none and that exactly one of the regions is an anomaly."""
    none = math.prod(1 - doubt for doubt in doubts)
    single = sum(
        doubt * math.prod(1 - other for j, other in enumerate(doubts) if j != i) for i, doubt in enumerate(doubts)
    )
    return none, single


LOCALIZE, ZOOM, READ, DETECT = "localize_differences", "zoom_in_image", "read_text", "detect_object"
CRITERIA = ("instruction_following", "visual_consistency")
KEPT_BYTES = 2**18
"""Size limit of what was measured, by the estimate of the cache: some hundred edits, far more than are judged at once."""


RulesReply = tuple[AIMessage, ReplyFacts]


def knows_rubric(rubric: Rubric) -> bool:
    """Return True if the embedded judge can decide this rubric."""
    return rubric.protocol == DEFAULT.name and rubric.criterion in CRITERIA


class RulesJudge:
    """A rule-based baseline, not a large multimodal model; its verdicts are deterministic."""

    profile = RULES_PROFILE
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._memory = ToolResultCache(KEPT_BYTES)
        """What was measured and read for the edits under way; each of their replies asks for the same."""

    async def reply(self, request: ChatRequest) -> Reply:
        """Decide from measured evidence, in a worker thread."""
        return await asyncio.to_thread(self.decide, request)

    def decide(self, request: ChatRequest) -> Reply:
        """Return the next reply: a tool call, or the answer."""
        if request.case is None:
            raise TypeError("the embedded judge decides cases, and this request has none")
        started = time.perf_counter()
        offered = [str(tool["function"]["name"]) for tool in request.tools] if request.may_call else []
        message, facts = _Turn(request.case, request.album, request.messages, offered, self._memory).reply()
        return Reply(message, Usage(), time.perf_counter() - started, facts=facts)

    async def aclose(self) -> None:
        """Do nothing; there are no connections."""

    def drop(self) -> None:
        """Do nothing; there are no connections."""


class _Turn:
    """One reply of the judge."""

    def __init__(
        self, case: Case, album: Album, messages: Sequence[AnyMessage], offered: Sequence[str], memory: ResultCache
    ) -> None:
        self.case, self.album, self.messages, self.offered, self.memory = case, album, messages, offered, memory
        self.observed = _observations(messages)
        self.asked = {call["name"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}

    def reply(self) -> RulesReply:
        """Return the next message of the judge."""
        case = self.case
        if not knows_rubric(case.rubric):
            return _refuse(f"the embedded judge knows {DEFAULT.title}'s two criteria only, not {case.rubric.title}")
        request = parse_instruction(
            case.edit.instruction, case.edit.instruction_type if "type" in case.rubric.tells else None
        )
        if request is None:
            return _refuse("the embedded judge does not understand what this instruction asks for")
        if case.rubric.criterion == CRITERIA[0]:
            return (
                self._follow_crops(request) if instruction_following.knows_target(case) else self._follow_whole(request)
            )
        return self._consistency(request)

    def _follow_crops(self, request: ChangeRequest) -> RulesReply:
        text = instruction_following.TextReading()
        if request.kind == "text":
            text = instruction_following.read_edited(self.case, self.album, request, memory=self.memory)
        numbers = instruction_following.measure_crops(self.case, self.album, request, text)
        start = [
            f"Asked: {request.say()}. The target's place and a reference are known, so the three crops are measured."
        ]
        if request.kind == "text":
            start.append(text.say(request))
        if request.kind == "count":
            start.append(
                f"Known instances {numbers['before']:.0f}, found afterwards {numbers['after']:.0f}, asked {request.new_count}."
            )
        checks = instruction_following.find_checks(request, text, load_thresholds(), target_known=True)
        return _answer(start, decide_following(checks, numbers))

    def _follow_whole(self, request: ChangeRequest) -> RulesReply:
        if call := self._first_looks(request):
            return call
        differences = self._differences()
        asked = f"Asked: {request.say()}. {_summary(differences)}"
        if _read_global_change(differences).is_vanished:
            return _answer([asked], decide_nothing_left())
        text = self._read_text(request)
        evidence = self._measure_whole(request, differences, text)
        if evidence.box and self._may(ZOOM):
            score = evidence.numbers["score"]
            thought = f"{list(evidence.box)} looks most like the asked change (score {score:.2f}); I zoom in on it."
            return _call(thought, (ZOOM, {"bbox_2d": self._as_sent(evidence.box, EDITED), "target_image": EDITED}))
        start = [asked]
        if evidence.box:
            start.append(
                f"Of these, {list(evidence.box)} looks most like the asked change (score {evidence.numbers['score']:.2f})."
            )
        if request.kind == "text":
            start.append(text.say(request))
        if text.done and not differences["regions"] and text.new <= text.old:
            return _answer(start, decide_no_change("the asked text is read no better than the old one"))
        checks = instruction_following.find_checks(request, text, load_thresholds(), target_known=False)
        return _answer(start, decide_following(checks, evidence.numbers))

    def _consistency(self, request: ChangeRequest) -> RulesReply:
        target_known = bool(self.case.target_boxes.get(SOURCE))
        if call := self._first_looks(request, to_search=not target_known):
            return call
        differences = self._differences()
        limits = load_thresholds().consistency["oracle" if target_known else "whole"]
        targets: list[Rect] = []
        own: list[Rect] = []
        if target_known:
            targets = [to_rect(box) for box in self.case.target_boxes[SOURCE]]
            if request.kind == "count" and REFERENCE in self.case.pictures:
                own = [to_rect(region.box) for region in self._compare(SOURCE, REFERENCE).regions]
            setting = "away from the annotated target"
        else:
            text = self._read_text(request)
            evidence = self._measure_whole(request, differences, text)
            sure = instruction_following.find_checks(
                request, text, load_thresholds(), target_known=False
            ).hit.probability(evidence.numbers)
            targets = [evidence.box] if evidence.box and sure >= limits.claim else []
            setting = (
                f"besides {list(targets[0])}, which looks like the asked change"
                if targets
                else "(none is clearly the asked change)"
            )
        places = find_anomalies(differences, targets, own, limits, instances=request.kind == "count" and bool(targets))
        return _answer([_summary(differences)], decide_consistency(differences, places, limits, setting))

    def _first_looks(self, request: ChangeRequest, to_search: bool = True) -> RulesReply | None:
        """Call the tools for the differences, then for the target or its text if unknown; None if there is nothing to call."""
        if self._may(LOCALIZE):
            return _call(
                f"Asked: {request.say()}. First I look where the pictures differ.",
                (LOCALIZE, {"comparison_image_1": SOURCE, "comparison_image_2": EDITED}),
            )
        name = request.name_in(self.case.edit.instruction)
        if to_search and name and request.kind not in ("text", "count") and self._may(DETECT):
            return _call(
                f'I look for "{name}" in the source.', (DETECT, {"target_image": SOURCE, "detect_object_name": name})
            )
        if to_search and request.kind == "text" and self._may(READ):
            return _call(
                "The edit is about text, so I read what the edited picture says.", (READ, {"target_image": EDITED})
            )
        return None

    def _read_text(self, request: ChangeRequest) -> instruction_following.TextReading:
        if request.kind != "text":
            return instruction_following.TextReading()
        places = self.observed.get(LOCALIZE, {}).get("texts", ())
        if READ in self.observed:
            return instruction_following.read_tool_result(request, self.observed[READ], places=places)
        return instruction_following.read_edited(self.case, self.album, request, places, self.memory)

    def _measure_whole(
        self, request: ChangeRequest, differences: Mapping[str, Any], text: instruction_following.TextReading
    ) -> instruction_following.WholeEvidence:
        places = [(list(region["box"]), region["significance"]) for region in differences["regions"]]
        pictures = [self.case.pictures[name] for name in (SOURCE, EDITED)]
        # Another edit's album of the same pictures may be cleared while they are measured, so albums share nothing.
        cache_key = key("regions", id(self.album), pictures, request, differences["whole_scene"], places)
        measured = self.memory.get(
            cache_key, lambda: instruction_following.measure_regions(self.case, self.album, request, differences)
        )
        if spotted := instruction_following.find_detected(self.observed.get(DETECT, {}), request):
            measured = tuple(region for region in measured if any(is_attached(region.box, box, 0.1) for box in spotted))
        return instruction_following.choose_region(
            measured, request, bool(differences["whole_scene"]), load_thresholds().target, text
        )

    def _may(self, tool: str) -> bool:
        return tool in self.offered and tool not in self.asked

    def _differences(self) -> Mapping[str, Any]:
        """Return the tool's differences; compare the pictures directly if it was not offered or failed."""
        if LOCALIZE in self.observed:
            return self.observed[LOCALIZE]
        comparison = self._compare(SOURCE, EDITED)
        return {
            "size": list(self.album[self.case.pictures[SOURCE]].size),
            "regions": [asdict(region) for region in comparison.regions],
            "changed_share": comparison.changed_share,
            "whole_scene": comparison.whole_scene,
            "global_change": asdict(comparison.global_change),
        }

    def _compare(self, first: str, second: str) -> Any:
        return compare(*(self.album[self.case.pictures[name]].pixels for name in (first, second)))

    def _as_sent(self, box: Rect, name: str) -> list[int]:
        """Convert a box of the source to pixels of a picture as announced, which may be a smaller copy."""
        width, height = self.album[self.case.pictures[SOURCE]].size
        sent = _announced_sizes(self.messages).get(name, self.album[self.case.pictures[name]].size)
        x, y = sent[0] / width, sent[1] / height
        x1, y1 = int(box[0] * x), int(box[1] * y)
        return [x1, y1, max(x1 + 1, round(box[2] * x)), max(y1 + 1, round(box[3] * y))]


def _read_global_change(differences: Mapping[str, Any]) -> GlobalChange:
    """Return the change of the whole picture; a comparison pixel by pixel measures none."""
    return GlobalChange(**differences.get("global_change", {}))


def _summary(differences: Mapping[str, Any]) -> str:
    if differences["whole_scene"]:
        return "The pictures differ nearly everywhere."
    if _read_global_change(differences).is_vanished:
        return "The edited picture has lost the contrast of the source."
    count = len(differences["regions"])
    return (
        "The pictures do not differ beyond noise."
        if not count
        else f"They differ in {count} region{'s' if count > 1 else ''}."
    )


def _observations(messages: Sequence[AnyMessage]) -> dict[str, Mapping[str, Any]]:
    """Return the measurements of the tools, by tool; a failed call has none."""
    names = {call["id"]: call["name"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
    return {
        names.get(message.tool_call_id, str(message.name)): message.artifact
        for message in messages
        if isinstance(message, ToolMessage) and isinstance(message.artifact, Mapping) and message.artifact
    }


def _announced_sizes(messages: Sequence[AnyMessage]) -> dict[str, tuple[int, int]]:
    sizes: dict[str, tuple[int, int]] = {}
    for message in messages:
        if isinstance(message, HumanMessage) and isinstance(message.content, list):
            for block in message.content:
                text = block.get("text", "") if isinstance(block, dict) else block
                match = re.match(r"(.+) \((\d+) × (\d+) pixels\):$", str(text))
                if match:
                    sizes.setdefault(match[1], (int(match[2]), int(match[3])))
    return sizes


def _thinking(sentences: Sequence[str]) -> str:
    return f"<Start Thinking>{' '.join(sentences)}</Start Thinking>"


def _call(thought: str, call: tuple[str, dict[str, Any]]) -> RulesReply:
    name, args = call
    calls = [{"name": name, "args": args, "id": f"rules-{name}", "type": "tool_call"}]
    return AIMessage(_thinking([thought]), tool_calls=calls), ReplyFacts()


def _answer(start: Sequence[str], decision: LabelDecision) -> RulesReply:
    text = f"{_thinking([*start, *decision.reasons])}\n<Start Final Answer>{decision.label}</Start Final Answer>"
    return AIMessage(text), ReplyFacts(confidence=decision.confidence)


def _refuse(detail: str) -> RulesReply:
    sentence = f"{detail[0].upper()}{detail[1:]}."
    return AIMessage(_thinking([sentence])), ReplyFacts(refusal=Refusal(Reason.NOT_UNDERSTOOD, sentence))
