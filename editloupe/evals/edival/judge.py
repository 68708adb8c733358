"""The judge of EdiVal-Agent's chains, which batches, runs and traces use like any other, and the pictures it is to judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from editloupe._util.hashing import content_key
from editloupe.agent.chat_interface import ReplyStore, StepWatcher
from editloupe.agent.model_settings import build_sampling
from editloupe.agent.open_model import open_chat
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.attachments import wire_limits
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.agent.transport.usage import CHARACTERS_PER_TOKEN
from editloupe.evals.batch.progress import TOKENS_A_PICTURE, TOKENS_A_REPLY
from editloupe.evals.edival.files import (
    ChainFile,
    Expected,
    Result,
    build_edits,
    find_model_results,
    find_results,
    list_expected,
    read_folder,
)
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edival import CONSISTENCY, CRITERIA, EDIVAL_GRAPH, FOLLOWING, QUALITY
from editloupe.graphs.edival_observations import EdivalContext
from editloupe.judge.base_judge import BaseJudge, JudgeLifecycle
from editloupe.judge.question_key import QuestionSpec
from editloupe.judge.settings import JudgeSettings
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.memory_budget import reserve_pictures
from editloupe.rubrics.edival import ASKED, PRECHECKS
from editloupe.rubrics.edival.pools import KEY, read_turn
from editloupe.rubrics.edival.questions import build_precheck, build_question
from editloupe.rubrics.edival.rules import EdivalSettings, load_published
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.models.detectors import Finder, WholePictureFinder
from editloupe.tools.models.features import DinoFeatures, Features, FeatureSettings
from editloupe.tools.models.quality import HpsV3, Quality
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, Judgement, Mode, Reason, Sha, Unjudged, UserError


@dataclass(frozen=True)
class EdivalInstruments:
    """The models that measure pictures; None if an instrument is not used."""

    finder: Finder
    features: Features | None
    quality: Quality | None

    def notes(self) -> tuple[str, ...]:
        """Return a sentence per instrument that is not used."""
        notes = []
        if self.features is None:
            notes.append("no feature model: consistency is measured by pixels only and has no EdiVal-CC score")
        if self.quality is None:
            notes.append("HPSv3 is not used: visual quality has luminance quantiles only")
        return tuple(notes)


def open_instruments(
    settings: EdivalSettings, tools: ToolSettings, features: FeatureSettings | None, quality: str = "auto"
) -> EdivalInstruments:
    """Open the instruments.

    Args:
        settings: Thresholds and rules.
        tools: Settings of the detector.
        features: Settings of the feature model, or None to measure consistency by pixels only.
        quality: `auto` (HPSv3 if `tools.hpsv3_python` is set), `hpsv3` or `none`.

    Raises:
        UserError: If a required instrument cannot run here.
    """
    finder = WholePictureFinder(tools, settings.lowest_threshold)
    model = DinoFeatures(features) if features else None
    for name, problem in (("detector", finder.unavailable()), ("features", model.unavailable() if model else None)):
        if problem:
            raise UserError(f"the {name} cannot be used: {problem}")
    if quality not in ("auto", "hpsv3", "none"):
        raise UserError(f'--quality is auto, hpsv3 or none, not "{quality}"')
    hps = None
    if quality == "hpsv3" or (quality == "auto" and tools.hpsv3_python):
        hps = HpsV3(tools.hpsv3_python, tools.device)
        if problem := hps.unavailable():
            raise UserError(problem)
    return EdivalInstruments(finder, model, hps)


class EdivalJudge(BaseJudge):
    """Judges pictures of chains by EdiVal-IF, EdiVal-CC and EdiVal-VQ.

    Args:
        spec: Spec of the model that answers questions, or the name of the embedded rules.
        instruments: Detector, feature model and quality model.
        base_url: Address of the model's server.
        criteria: Names of the criteria to judge.
        rules: Thresholds and rules; the published ones by default.
        settings: Settings of the judge.
        tools: Settings of the tools; from the environment by default.
        worded: A reworded rubric whose texts replace those of the questions.
        replies: Store of replies.
        traffic: Rate limiter.

    Raises:
        UserError: If a criterion is unknown or the model cannot be opened.
    """

    protocol = "edival"
    mode: Mode = "tools"

    def __init__(
        self,
        spec: str,
        instruments: EdivalInstruments,
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
        """The tools of this machine. The model is offered none of them."""
        self._lifecycle = JudgeLifecycle(self._chat, self.toolbox)

    @property
    def uses_tools(self) -> bool:
        """Always False, because the model has no tools."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on instruments that are not used, and notes of the model's client."""
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
        """Judge one picture.

        If input is missing, the outcomes are unjudged; with `strict`, MissingInput is raised.
        """
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
        async with reserve_pictures(edit.paths):
            judging = EDIVAL_GRAPH.ainvoke({"edit": edit, "turn": turn}, {"recursion_limit": 12}, context=context)
            end = await self._lifecycle.until_closed(judging)
        return self._judgement(edit, end["outcomes"], end.get("traces", []), CRITERIA)

    def close(self) -> None:
        """End running tasks, connections and the process of the quality model. Can be called again."""
        super().close()
        if self.instruments.quality:
            self.instruments.quality.close()

    async def aclose(self) -> None:
        """End everything as `close` does, without blocking the event loop."""
        await super().aclose()
        if self.instruments.quality:
            await asyncio.to_thread(self.instruments.quality.close)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria of a picture, which are all criteria of the judge."""
        return self.criteria

    def question_specs(self) -> tuple[QuestionSpec, ...]:
        """Return the question of every criterion."""
        return tuple(self._find_question(criterion) for criterion in self.criteria)

    def question_spec(self, edit: Edit, criterion: str) -> QuestionSpec:
        """Return the question of a criterion, which is the same for all pictures."""
        return self._find_question(criterion)

    def _find_question(self, criterion: str) -> QuestionSpec:
        if (question := self._questions.get(criterion)) is None:
            facts = {
                "criterion": criterion,
                "protocol": self.protocol,
                "mode": self.mode,
                "judge": self.spec,
                **self._list_dependencies(criterion),
            }
            question = self._questions[criterion] = QuestionSpec(criterion, facts)
        return question

    def _list_dependencies(self, criterion: str) -> dict[str, Any]:
        """Return the settings that the outcome of a criterion depends on."""
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
        """Return the key of a turn from its pictures, instruction and objects, or None if a hash is missing."""
        if any(path not in hashes for path in edit.paths):
            return None
        pictures = {role: [hashes[path] for path in paths] for role, paths in edit.files.items()}
        turn = edit.extra.get(KEY)
        if criterion != FOLLOWING and isinstance(turn, Mapping):  # only questions quote the chain's sentences
            turn = {name: value for name, value in turn.items() if name != "sentences"}
        return content_key({"pictures": pictures, "instruction": edit.instruction, KEY: turn})

    def further_parameters(self) -> dict[str, Any]:
        """Return the rules, the fingerprints of the instruments and the questions."""
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
        """Return no texts, because questions depend on the turn and are among the parameters."""
        return {}


@dataclass(frozen=True)
class Evaluation:
    """The pictures to judge and their chains.

    Args:
        chain_folder: Folder of the chains' files.
        chains: The chains.
        results: The pictures of all models.
    """

    chain_folder: Path
    chains: Sequence[ChainFile]
    results: Sequence[Result]

    def edits(self) -> Iterator[Edit]:
        """Yield the edits to judge."""
        return build_edits(self.results, self.chains, self.chain_folder)

    def expected(self) -> list[Expected]:
        """Return how complete the results of each model and mode are."""
        return list_expected(self.results, self.chains)


def find_evaluation(
    chains: Path,
    results: Path | None,
    models: Sequence[str] = (),
    modes: Sequence[str] = (),
    by_model: Mapping[str, Path] | None = None,
) -> Evaluation:
    """Find the pictures to judge.

    Args:
        chains: Folder of the chains' files.
        results: Folder with one sub-folder per model, or None.
        models: Names of models to judge; all if empty.
        modes: Modes to judge; all if empty.
        by_model: Further folders of results, by model.

    Returns:
        The pictures and their chains.

    Raises:
        UserError: If a folder is invalid, a model has two folders, or no pictures are left.
    """
    files = read_folder(chains, ChainFile)
    every = find_results(results, files) if results is not None else []
    for model, folder in (by_model or {}).items():
        if any(result.model == model for result in every):
            raise UserError(f"{results} and {folder} both have results of {model}; rename one of them")
        every += find_model_results(model, folder, files)
    for kind, wanted in (("model", models), ("mode", modes)):
        present = {getattr(result, kind) for result in every}
        for name in wanted:
            if name not in present:
                raise UserError(f'there are no results of the {kind} "{name}"; there are: {", ".join(sorted(present))}')
    selected = [
        result for result in every if (not models or result.model in models) and (not modes or result.mode in modes)
    ]
    if not selected:
        pairs = ", ".join(sorted({f"{result.model}/{result.mode}" for result in every}))
        raise UserError(f"no results are left to judge; there are: {pairs}")
    return Evaluation(chains, files, selected)


@dataclass(frozen=True)
class OpenEdivalJudge:
    """Opens the judge of an evaluation. It holds settings only, so that it can be sent to a worker of a cluster."""

    spec: str
    rules: EdivalSettings
    tools: ToolSettings
    features: FeatureSettings | None = None
    quality: str = "auto"
    base_url: str | None = None
    criteria: Sequence[str] = CRITERIA
    settings: JudgeSettings = field(default_factory=JudgeSettings)
    worded: Rubric | None = None
    """A reworded rubric whose texts replace those of the questions; None for the usual texts."""

    def instruments(self) -> EdivalInstruments:
        """Open the instruments; raise UserError if one that is required cannot run here."""
        return open_instruments(self.rules, self.tools, self.features, self.quality)

    def __call__(self, **hooks: Any) -> EdivalJudge:
        """Open the judge with the hooks of a batch."""
        return EdivalJudge(
            self.spec,
            self.instruments(),
            base_url=self.base_url,
            criteria=self.criteria,
            rules=self.rules,
            settings=self.settings,
            tools=self.tools,
            worded=self.worded,
            **hooks,
        )


def estimate_tokens(edit: Edit, criterion: str, description: Mapping[str, Any]) -> dict[str, float]:
    """Estimate the tokens of one unit: one question about a crop per task that boxes do not decide.

    A pre-check is counted for every task that may have one, although tasks that the boxes reject have none.
    """
    if description["spec"] == RULES or criterion != FOLLOWING:
        return {"requests": 0.0}
    try:
        tasks = read_turn(edit).tasks
    except MissingInput:
        return {"requests": 0.0}
    checked = description.get("rules", {}).get("precheck", ())
    questions = [build_question(task) for task in tasks if not task.by_detector]
    prechecks = [build_precheck(task) for task in tasks if task.type in checked]
    pictures = len(questions) * (2 if description.get("rules", {}).get("crops") == "both" else 1) + 2 * len(prechecks)
    questions += prechecks
    texts = sum(len(rubric.model_dump_json()) for rubric in questions) / CHARACTERS_PER_TOKEN
    return {
        "requests": float(len(questions)),
        "input_tokens": texts + pictures * TOKENS_A_PICTURE,
        "output_tokens": float(len(questions) * TOKENS_A_REPLY),
    }
