"""The judge of EdiVal-Agent's pictures; batches, runs and traces work with it as with any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from editloupe._util.hashing import content_key
from editloupe.agent.chat_interface import ReplyStore, StepWatcher
from editloupe.agent.model_settings import build_sampling
from editloupe.agent.open_model import open_chat
from editloupe.agent.transport.attachments import wire_limits
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edival import CONSISTENCY, CRITERIA, EDIVAL_GRAPH, QUALITY
from editloupe.graphs.edival_observations import EdivalContext
from editloupe.judge.base_judge import BaseJudge, JudgeLifecycle
from editloupe.judge.question_key import QuestionSpec
from editloupe.judge.settings import JudgeSettings
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixel_budget import reserve_pixels
from editloupe.rubrics.edival import ASKED, PRECHECKS
from editloupe.rubrics.edival.pools import KEY, read_turn
from editloupe.rubrics.edival.questions import build_precheck, build_question
from editloupe.rubrics.edival.settings import EdivalSettings, load_published
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.models.detectors import Finder, WholePictureFinder
from editloupe.tools.models.features import DinoFeatures, Features, FeatureSettings
from editloupe.tools.models.quality import HpsV3, Quality
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, Judgement, Mode, Reason, Sha, Unjudged, UserError


@dataclass(frozen=True)
class Instruments:
    """What looks at pictures; None leaves the figures of that instrument out."""

    finder: Finder
    features: Features | None
    quality: Quality | None

    def notes(self) -> tuple[str, ...]:
        """Say what is left out."""
        left = []
        if self.features is None:
            left.append("no feature model: consistency is measured by pixels only and has no EdiVal-CC score")
        if self.quality is None:
            left.append("HPSv3 is not used: visual quality has luminance quantiles only")
        return tuple(left)


def open_instruments(
    settings: EdivalSettings, tools: ToolSettings, features: FeatureSettings | None, quality: str = "auto"
) -> Instruments:
    """Return the instruments; one that was asked for and cannot run here is the user's mistake.

    `quality` is `auto` (HPSv3 where it is installed), `hpsv3` or `none`.
    """
    finder = WholePictureFinder(tools, settings.lowest_threshold)
    model = DinoFeatures(features) if features else None
    hps = HpsV3(tools.device)
    for name, problem in (("detector", finder.unavailable()), ("features", model.unavailable() if model else None)):
        if problem:
            raise UserError(f"the {name} cannot be used: {problem}")
    if quality not in ("auto", "hpsv3", "none"):
        raise UserError(f'--quality is auto, hpsv3 or none, not "{quality}"')
    missing = hps.unavailable()
    if quality == "hpsv3" and missing:
        raise UserError(missing)
    return Instruments(finder, model, hps if quality != "none" and not missing else None)


class EdivalJudge(BaseJudge):
    """Judges pictures of chains: EdiVal-IF, EdiVal-CC and EdiVal-VQ."""

    protocol = "edival"
    mode: Mode = "tools"

    def __init__(
        self,
        spec: str,
        instruments: Instruments,
        *,
        base_url: str | None = None,
        criteria: Sequence[str] = CRITERIA,
        rules: EdivalSettings | None = None,
        settings: JudgeSettings | None = None,
        tools: ToolSettings | None = None,
        worded: Rubric | None = None,
        replies: ReplyStore | None = None,
        traffic: RateLimiter | None = None,
    ) -> None:
        self.spec, self.base_url = spec, base_url
        unknown = [name for name in criteria if name not in CRITERIA]
        if unknown:
            raise UserError(f'EdiVal-Agent has no criterion "{unknown[0]}"; it has: {", ".join(CRITERIA)}')
        self.criteria = tuple(criteria)
        self.instruments = instruments
        self.rules = rules or load_published()
        self._worded = worded
        self.settings: JudgeSettings = settings or JudgeSettings()
        self._chat = open_chat(spec, base_url, self.settings, replies, traffic)
        self._questions: dict[str, QuestionSpec] = {}
        self.toolbox = build_toolbox(replace(tools or ToolSettings.from_environment(), enhancer="none"))
        """The tools of its machine; the model is offered none of them."""
        self._lifecycle = JudgeLifecycle(self._chat, self.toolbox)

    @property
    def uses_tools(self) -> bool:
        """False: the instruments look at the pictures, and the model has no tools."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left out, and what the model's client had to say when it was opened."""
        return (*self.instruments.notes(), *self._chat.notes)

    async def ajudge(
        self,
        edit: Edit,
        *,
        criteria: Sequence[str] | None = None,
        repeat: int = 0,
        watcher: StepWatcher | None = None,
        strict: bool = False,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one picture; one that cannot be judged for want of input ends unjudged, or raises with `strict`."""
        wanted = tuple(criteria or self.criteria)
        shared = SharedContext(
            chat=self._chat,
            judge=self.spec,
            toolbox=self.toolbox,
            album=album or Album(),
            wire=wire_limits(self.settings.long_side, self._chat.profile),
            limits=LoopLimits(max_turns=self.settings.max_turns, max_repairs=self.settings.max_repairs),
            watcher=watcher,
            repeat=repeat,
            strict=strict,
        )
        finder, features, quality = self.instruments.finder, self.instruments.features, self.instruments.quality
        context = EdivalContext(shared, finder, self.rules, wanted, features, quality, self.notes, self._worded)
        try:
            turn = read_turn(edit)
        except MissingInput as error:
            if strict:
                raise
            outcomes = [Unjudged(criterion=c, reason=Reason.MISSING_INPUT, detail=str(error)) for c in wanted]
            return self._judgement(edit, outcomes, [], CRITERIA)
        async with reserve_pixels(edit.paths):
            end = await EDIVAL_GRAPH.ainvoke({"edit": edit, "turn": turn}, {"recursion_limit": 12}, context=context)
        return self._judgement(edit, end["outcomes"], end.get("traces", []), CRITERIA)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria this picture is asked: all of them."""
        return self.criteria

    def question_specs(self) -> tuple[QuestionSpec, ...]:
        """Return every question: what the criteria are measured by, and what the model is asked."""
        return tuple(self._asked(criterion) for criterion in self.criteria)

    def question_spec(self, edit: Edit, criterion: str) -> QuestionSpec:
        """Return how one picture is measured on one criterion."""
        return self._asked(criterion)

    def _asked(self, criterion: str) -> QuestionSpec:
        if (known := self._questions.get(criterion)) is None:
            facts = {
                "criterion": criterion,
                "protocol": self.protocol,
                "mode": self.mode,
                "judge": self.spec,
                **self._decides(criterion),
            }
            known = self._questions[criterion] = QuestionSpec(criterion, facts)
        return known

    def _decides(self, criterion: str) -> dict[str, Any]:
        """Return what one criterion's answer depends on: the model and its questions for one, an instrument for the others."""
        every = self.further_parameters()
        if criterion == QUALITY:
            return {"quality": every["quality"]}
        if criterion == CONSISTENCY:
            return {name: every[name] for name in ("rules", "detector", "features")}
        profile = self._chat.profile
        return {
            **{name: every[name] for name in ("rules", "detector", "questions")},
            "sampling": build_sampling(profile, self.settings),
            "structured": profile.structured_output,
            **({"written_reasoning": True} if profile.structured_output and not profile.reasons else {}),
            "max_image_bytes": profile.max_image_bytes,
        }

    def inputs_key(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of a turn: its pictures, its instruction and what is known of its objects."""
        if any(path not in hashes for path in edit.paths):
            return None
        pictures = {role: [hashes[path] for path in paths] for role, paths in edit.files.items()}
        return content_key({"pictures": pictures, "instruction": edit.instruction, KEY: edit.extra.get(KEY)})

    def further_parameters(self) -> dict[str, Any]:
        """Return the rules, the instruments and the questions."""
        features, quality = self.instruments.features, self.instruments.quality
        return {
            "rules": self.rules.model_dump(mode="json"),
            "detector": self.instruments.finder.fingerprint,
            "features": features.fingerprint if features else None,
            "quality": quality.fingerprint if quality else None,
            "questions": [
                *(build_question(task, self._worded).model_dump(mode="json") for task in ASKED),
                *(
                    build_precheck(task, self._worded).model_dump(mode="json")
                    for task in PRECHECKS
                    if task.type in self.rules.precheck
                ),
                *(
                    [self._worded.model_dump(mode="json", include={"parts"})]
                    if self._worded and self._worded.parts
                    else ()
                ),
            ],
        }

    def rubric_texts(self) -> dict[str, Any]:
        """Return none: what is asked depends on the turn and stands among the parameters."""
        return {}
