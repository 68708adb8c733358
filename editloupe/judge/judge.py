"""`Judge` opens a judge by its spec and judges one edit or many."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from editloupe.agent.chat_interface import ReplyStore, StepWatcher
from editloupe.agent.providers.provider import Profile
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.attachments import wire_limits
from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.agent.transport.secrets import redact_url as shown_address
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edit import EDIT_GRAPH, EditContext, EditGraph, decide_criterion
from editloupe.graphs.engines import tool_notes
from editloupe.graphs.forking import ForkPlan, fork_edit
from editloupe.judge.base_judge import BaseJudge, JudgeLifecycle
from editloupe.judge.edit_batches import check_edit, iterate, judge_edits
from editloupe.judge.panels import Ask, JudgeAnswers, PanelRunner
from editloupe.judge.plans import (
    Cascade,
    CascadeStage,
    MultiChat,
    Panel,
    Plan,
    SingleJudge,
    describe_guarantee,
    list_members,
    open_chats,
    plan_of,
    plan_of_chat_model,
)
from editloupe.judge.question_facts import find_inputs, measure_facts, plan_facts, question_facts
from editloupe.judge.question_key import QuestionSpec
from editloupe.judge.settings import JudgeSettings, Setup, build_protocol, find_setup
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.memory_budget import reserve_pictures
from editloupe.rubrics.case_pictures import check_tool_pictures
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import DEFAULT
from editloupe.telemetry.spans import add_evaluation, edit_span
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, Judgement, Mode, Outcome, Reason, Sha, Trace, Unjudged, UserError, Verdict

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

T = TypeVar("T")
JUDGE_VARIABLE = "EDITLOUPE_JUDGE"
DEFAULT_JUDGE = RULES


class Judge(BaseJudge):
    """A judge of image edits.

    Close it, or use it in a `with` block, to end its threads, connections and open requests.

    Example:
        >>> with Judge("rules", mode="plain") as judge:
        ...     judge.criteria
        ('instruction_following', 'visual_consistency')
    """

    def __init__(
        self,
        spec: str | Plan | BaseChatModel | None = None,
        *,
        name: str | None = None,
        profile: Profile | None = None,
        protocol: str | None = None,
        mode: Mode | None = None,
        base_url: str | None = None,
        criteria: Sequence[str] | None = None,
        rubrics: Sequence[str | Path] = (),
        settings: JudgeSettings | None = None,
        tools: ToolSettings | None = None,
        setup: str | Path | Setup | None = None,
        replies: ReplyStore | None = None,
        traffic: RateLimiter | None = None,
    ) -> None:
        """Open a judge.

        Args:
            spec: The model that answers, such as `openai:gpt-5.1`; `rules` (the embedded judge); `panel:SPEC,SPEC`;
                `cascade:FILE`; a plan; or a LangChain chat model, which needs a `name`. Default: the environment variable
                EDITLOUPE_JUDGE, else `rules`.
            name: The name of a chat model. It is part of the keys of its verdicts, so another model needs another name.
            profile: Properties of a chat model, such as how it writes positions. Default: read from its attributes.
            protocol: The protocol whose rubrics are asked. Default: the preset's, else the package's default protocol.
            mode: What the judge sees: `plain` (pictures only), `tools` (pictures and tools) or `oracle` (annotated targets).
                Default: the preset's, else the protocol's own.
            base_url: The address of the model's server, if it differs from the provider's.
            criteria: The criteria to judge. Default: all criteria of the protocol.
            rubrics: YAML files with rubrics of your own, or with other wordings of the protocol's rubrics.
            settings: Settings of judging. Values set here override the preset.
            tools: Settings of the tools. Values that differ from the defaults override the preset.
            setup: A preset: the name of a bundled one, a YAML file, or a `Setup`.
            replies: A store of model replies by request. A request whose reply is stored is not sent again.
            traffic: Decides when a request may be sent: concurrency, rate limits, cost caps.

        Raises:
            UserError: If a name, a file or a setting is wrong, or if the model's client cannot be opened.
        """
        spec = spec or os.environ.get(JUDGE_VARIABLE) or DEFAULT_JUDGE
        self.plan: Plan = _find_plan(spec, base_url, name, profile)
        """The judge that answers: one model, a panel or a cascade."""
        self.spec = self.plan.spec
        self.base_url = base_url
        self.setup = find_setup(setup)
        """The preset that provides the settings that were not passed."""
        self.settings: JudgeSettings = self.setup.judge_settings(settings)
        looking = self.setup.tool_settings(tools)
        self._protocol = build_protocol(self.setup, protocol, rubrics, self.settings)
        self.protocol = self._protocol.name
        mode = mode or self.setup.mode
        if mode is None and looking.offered == () and "plain" in self._protocol.modes:
            mode = "plain"
        self.mode: Mode = mode or self._protocol.default_mode
        if self.mode not in self._protocol.modes:
            raise UserError(
                f'{self._protocol.title} has no mode "{self.mode}"; it has: {", ".join(self._protocol.modes)}'
            )
        self._rubrics = self._protocol.select(criteria)
        self.criteria = tuple(dict.fromkeys(rubric.criterion for rubric in self._rubrics))
        self.criteria_chosen = bool(criteria)
        """Whether criteria were named. The score of an edit is their mean then: a protocol's formula needs all of its own."""
        if looking.offered == () and self.uses_tools:
            raise UserError(f"{self.mode} mode of {self._protocol.title} uses tools, and none is offered")
        check_tool_pictures(looking.pictures, [rubric.modes[self.mode] for rubric in self._rubrics])
        self.toolbox = build_toolbox(looking)
        """The tools of this judge."""
        self._chats = open_chats(self.plan, self.settings, replies, traffic)
        self._chat = self._chats[self.plan] if isinstance(self.plan, SingleJudge) else MultiChat(self._chats)
        self._rules = self.setup.rule_settings() if self.protocol == self.setup.protocol else None
        self._lifecycle = JudgeLifecycle(self._chat, self.toolbox)
        self._questions: dict[tuple[str, str], QuestionSpec] = {}
        if isinstance(self.plan, Cascade):
            self._check_calibrations(self.plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the verdicts: tools that are not offered, parameters that are not sent, and why."""
        promised = describe_guarantee(self.plan) if isinstance(self.plan, Cascade) else ()
        measures = self.toolbox.measures
        needed = dict.fromkeys(rubric.measured.measure for rubric in self._rubrics if rubric.measured)
        absent = [f"{name} is not measured: {why}" for name in needed if (why := measures.unavailable(name))]
        return (*promised, *(tool_notes(self.toolbox) if self.uses_tools else ()), *absent, *self._chat.notes)

    @property
    def uses_tools(self) -> bool:
        """True if some rubric allows tools in this mode."""
        return any(rubric.modes[self.mode].tools for rubric in self._rubrics)

    @property
    def members(self) -> tuple[str, ...]:
        """The specs of all judges that may be asked; several only for a panel or a cascade."""
        return tuple(dict.fromkeys(member.spec for member in list_members(self.plan)))

    def why_only_here(self) -> str | None:
        """Return why this judge cannot be opened on other machines; None if it can."""
        models = ((member.spec, member.chat_model) for member in list_members(self.plan))
        reasons = ((spec, model.why_not_importable()) for spec, model in models if model)
        return next((f"{spec} cannot judge on Ray: its class {why}" for spec, why in reasons if why), None)

    @property
    def scores_edits(self) -> bool:
        """True if the protocol has a formula that combines an edit's criteria into one score."""
        return self._protocol.edit_score is not None

    async def ajudge(
        self,
        edit: Edit,
        *,
        criteria: Sequence[str] | None = None,
        repeat: int = 0,
        watcher: StepWatcher | None = None,
        strict: bool = False,
        album: Album | None = None,
        graph: EditGraph = EDIT_GRAPH,
    ) -> Judgement:
        """Judge one edit, all criteria concurrently.

        Args:
            edit: The edit to judge.
            criteria: The criteria to judge; by default all of this judge.
            repeat: The number of this repetition, which is part of the unit's key.
            watcher: An object that is called with every finished step.
            strict: Raise if an input is missing or broken (a picture, a target box), or if judging fails. By default such
                an edit ends unjudged with the reason, as in a batch.
            album: Receives the pictures that the traces refer to.
            graph: The graph of an edit, for callers that embed it in a graph of their own.

        Returns:
            The judgement, with one outcome per criterion.

        Raises:
            UserError: If the judge cannot be asked at all (a wrong key, an unknown model), or with `strict`.
        """
        check_edit(edit)
        names = [rubric.criterion for rubric in self._protocol.select(criteria)] if criteria else self.criteria
        asked = tuple(dict.fromkeys(names))
        pictures = Album() if album is None else album

        async def ask(member: SingleJudge, names: tuple[str, ...], number: int, part: str) -> JudgeAnswers:
            context = self._context(member, names, number, part, pictures, watcher, strict)
            end = await graph.ainvoke({"edit": edit}, {"recursion_limit": 10}, context=context)
            traces = sorted((judged.trace for judged in end.get("judged", [])), key=lambda trace: trace.target or 0)
            return JudgeAnswers({outcome.criterion: outcome for outcome in end["outcomes"]}, tuple(traces))

        try:
            with edit_span(edit.id, self.protocol, self.mode, self.spec, repeat) as span:
                answered = await self._end(edit, asked, repeat, ask, strict, pictures)
                for outcome in answered.outcomes.values():
                    add_evaluation(span, outcome)
        finally:
            if album is None:  # the graph drops its own references later, in no fixed order
                pictures.clear()
        return self._judgement(edit, tuple(answered.outcomes.values()), answered.traces, asked)

    async def _end(
        self, edit: Edit, criteria: tuple[str, ...], repeat: int, ask: Ask, strict: bool, album: Album
    ) -> JudgeAnswers:
        """Return the outcomes of an edit. Without `strict`, every criterion has one even if judging fails."""
        try:
            async with reserve_pictures(edit.paths):
                if isinstance(self.plan, SingleJudge):
                    return await self._lifecycle.until_closed(ask(self.plan, criteria, repeat, ""))
                return await self._lifecycle.until_closed(
                    self._ask_together(self.plan, edit, criteria, repeat, ask, album)
                )
        except UserError as error:  # one sentence, without the frames and notes of the graph it was raised in
            vars(error).pop("__notes__", None)
            raise error.with_traceback(None) from None
        except Exception as error:  # an error in our code or in a plug-in must not affect the other edits
            if strict:
                raise
            detail = f"judging failed: {type(error).__name__}: {clean(str(error))}"
            names = [name for name in self.criteria_for(edit) if name in criteria]
            return JudgeAnswers({n: Unjudged(criterion=n, reason=Reason.INTERNAL, detail=detail) for n in names})

    async def afork(
        self,
        edit: Edit,
        criterion: str,
        plan: ForkPlan,
        *,
        target: int | None = None,
        repeat: int = 0,
        watcher: StepWatcher | None = None,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one criterion of an edit, or one of its targets, from a step of a stored trace on.

        Args:
            edit: The edit of the trace.
            criterion: The criterion of the trace.
            plan: The stored steps, the step to continue from, and the changes to it.
            target: The index of the target, if targets are judged one by one.
            repeat: The number of this repetition.
            watcher: An object that is called with every finished step.
            album: Holds the pictures that the stored steps refer to.

        Raises:
            UserError: If this judge is a panel or a cascade, or if the trace cannot be continued.
        """
        if not isinstance(self.plan, SingleJudge):
            raise UserError(f"{self.spec} has several judges; name the one that continues with --judge")
        self._protocol.select([criterion])
        pictures = Album() if album is None else album
        context = self._context(self.plan, (criterion,), repeat, "", pictures, watcher, strict=True)
        rubric = self._rubric_for(edit, criterion)
        async with reserve_pictures(edit.paths):
            judged = await self._lifecycle.until_closed(fork_edit(context, edit, rubric, target, plan))
        return self._judgement(edit, [decide_criterion([judged], context.min_confidence)], [judged.trace], [criterion])

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the judge's own thread and return its result."""
        return self._lifecycle.run(work)

    async def _ask_together(
        self, plan: Panel | Cascade, edit: Edit, criteria: tuple[str, ...], repeat: int, ask: Ask, album: Album
    ) -> JudgeAnswers:
        """Ask a panel or a cascade about the criteria that the protocol does not settle by a rule."""
        criteria = tuple(name for name in self.criteria_for(edit) if name in criteria)
        settled = {
            name: outcome
            for name in criteria
            if (outcome := self._protocol.settle(edit, self._rubric_for(edit, name))) is not None
        }

        def covers(stage: CascadeStage, criterion: str) -> bool:
            key = self._spec_for(self._rubric_for(edit, criterion), stage.judge).key
            return key in stage.calibration.asked.get(criterion, ())

        async def check(verdict: Verdict, traces: Sequence[Trace]) -> float | None:
            from editloupe.judge.claims.verdict_claims import measure_support  # few judges need it

            return await asyncio.to_thread(measure_support, verdict, traces, edit, album)

        together = PanelRunner(ask, covers, self.settings.min_confidence, check)
        measured = tuple(name for name in criteria if name not in settled and self._rubric_for(edit, name).measured)
        asked = tuple(name for name in criteria if name not in settled and name not in measured)
        answered = await together.answer(plan, asked, repeat) if asked else JudgeAnswers()
        computed = await ask(list_members(plan)[0], measured, repeat, "") if measured else JudgeAnswers()
        outcomes = {**settled, **computed.outcomes, **answered.outcomes}
        return JudgeAnswers(outcomes, (*computed.traces, *answered.traces))

    def _context(
        self,
        member: SingleJudge,
        criteria: tuple[str, ...],
        repeat: int,
        part: str,
        album: Album,
        watcher: StepWatcher | None,
        strict: bool,
    ) -> EditContext:
        """Return the context in which one model judges an edit."""
        settings, chat = self.settings, self._chats[member]
        shared = SharedContext(
            chat=chat,
            judge=member.spec,
            part=part,
            toolbox=self.toolbox,
            album=album,
            wire=wire_limits(settings.long_side, chat.profile),
            limits=LoopLimits(max_turns=settings.max_turns, max_repairs=settings.max_repairs),
            differences=settings.differences,
            rules=self._rules,
            watcher=watcher,
            repeat=repeat,
            strict=strict,
        )
        return EditContext(shared, self._protocol, criteria, self.mode, settings.min_confidence)

    def judge(self, edit: Edit, **options: Any) -> Judgement:
        """Judge one edit. Works inside and outside a running event loop.

        Args:
            edit: The edit to judge. If a picture is missing or broken, its criteria end unjudged (`bad_image`).
            options: The keyword arguments of `ajudge`. `strict=True` raises UserError for such an edit.

        Returns:
            The judgement, with one outcome per criterion.
        """
        return self._lifecycle.run(self.ajudge(edit, **options))

    __call__ = judge

    def batch(
        self, edits: Iterable[Edit], concurrency: int = 32, *, progress: bool = False
    ) -> Generator[Judgement, None, None]:
        """Judge many edits and yield a judgement per edit, in the order of the edits.

        Edits are read from the iterable as slots become free, and finished judgements wait in a bounded buffer until it is
        their turn. An edit with a missing or broken input ends unjudged. Leaving the loop early ends running requests.

        Args:
            edits: The edits to judge.
            concurrency: The number of requests in flight, at most.
            progress: Print the number of finished edits and the time left on standard error.

        Raises:
            UserError: If the judge cannot be asked at all (a wrong key, an unknown model), or is closed before the last
                judgement was read.
        """
        return iterate(self, judge_edits(self, edits, concurrency, True, progress))

    def batch_as_completed(
        self, edits: Iterable[Edit], concurrency: int = 32, *, progress: bool = False
    ) -> Generator[Judgement, None, None]:
        """Judge many edits as `batch` does, and yield judgements as they finish. `judgement.edit` is the edit of each.

        Args:
            edits: The edits to judge.
            concurrency: The number of requests in flight, at most.
            progress: Print the number of finished edits and the time left on standard error.
        """
        return iterate(self, judge_edits(self, edits, concurrency, False, progress))

    def abatch(
        self, edits: Iterable[Edit], concurrency: int = 32, *, progress: bool = False
    ) -> AsyncGenerator[Judgement, None]:
        """Judge many edits as `batch` does, without blocking the event loop.

        To leave early, wrap the generator in `contextlib.aclosing`, so that running requests end at once.

        Args:
            edits: The edits to judge.
            concurrency: The number of requests in flight, at most.
            progress: Print the number of finished edits and the time left on standard error.
        """
        return judge_edits(self, edits, concurrency, True, progress)

    def abatch_as_completed(
        self, edits: Iterable[Edit], concurrency: int = 32, *, progress: bool = False
    ) -> AsyncGenerator[Judgement, None]:
        """Judge many edits as `abatch` does, and yield judgements as they finish. `judgement.edit` is the edit of each.

        Args:
            edits: The edits to judge.
            concurrency: The number of requests in flight, at most.
            progress: Print the number of finished edits and the time left on standard error.
        """
        return judge_edits(self, edits, concurrency, False, progress)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria by which this edit is judged; all of them if the edit lacks the field that decides it."""
        try:
            return tuple(rubric.criterion for rubric in self._protocol.rubrics_for(edit, self.criteria))
        except MissingInput:
            return self.criteria

    def score(self, edit: Edit, verdicts: Sequence[Outcome]) -> float | None:
        """Return the edit's score by the protocol's formula, 0 to 100; None if a criterion has no number."""
        scores = {v.criterion: v.score_100 for v in verdicts if isinstance(v, Verdict) and v.score_100 is not None}
        return self._protocol.score_of(edit, scores)

    def why_unscorable(self) -> str | None:
        """Explain why this judge leaves every edit unjudged; None if it can judge some of its criteria."""
        from editloupe.agent.rules.judge import knows_rubric  # loads the tools' libraries

        by_engine = self._protocol.parts and self.mode == "tools"
        if set(self.members) != {RULES} or by_engine:
            return None
        if any(rubric.measured or knows_rubric(rubric) for rubric in self._rubrics):
            return None
        return (
            f"{RULES} judges {DEFAULT.title}'s two criteria only, not {self._protocol.title}; name another judge, or "
            f"{DEFAULT.name} as the protocol"
        )

    def rubric(self, criterion: str) -> Rubric:
        """Return the rubric of a criterion, in its first wording."""
        return self._protocol.rubric(criterion)

    def _rubric_for(self, edit: Edit, criterion: str) -> Rubric:
        try:
            return next(iter(self._protocol.rubrics_for(edit, [criterion])), self._protocol.rubric(criterion))
        except MissingInput:
            return self._protocol.rubric(criterion)

    def question_specs(self) -> tuple[QuestionSpec, ...]:
        """Return every question of this judge: all wordings of each criterion."""
        return tuple(self._spec_for(rubric, self.plan) for rubric in self._rubrics)

    def question_spec(self, edit: Edit, criterion: str) -> QuestionSpec:
        """Return the question that one edit is asked on one criterion."""
        return self._spec_for(self._rubric_for(edit, criterion), self.plan)

    def inputs_key(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of the edit's inputs to the judge; None if a picture has no hash."""
        return find_inputs(self._protocol, self._rubric_for(edit, criterion), self.mode, edit).key(hashes)

    def _spec_for(self, rubric: Rubric, plan: Plan) -> QuestionSpec:
        """Return the question of a rubric to a plan. A member of a panel is asked as if it were alone."""
        if (spec := self._questions.get((rubric.name, plan.spec))) is None and rubric.measured:
            facts = measure_facts(rubric, self.mode, plan.spec, self.toolbox.measures)
            self._questions[(rubric.name, plan.spec)] = spec = QuestionSpec(rubric.criterion, facts)
        if spec is None:

            def of(member: SingleJudge) -> dict[str, Any]:
                profile = self._chats[member].profile
                facts = question_facts(rubric, self.mode, member.spec, self.settings, profile, self.toolbox.facts())
                return {**facts, "own_rules": self._rules.model_dump(mode="json")} if self._rules is not None else facts

            spec = QuestionSpec(rubric.criterion, plan_facts(plan, of))
            self._questions[(rubric.name, plan.spec)] = spec
        return spec

    def _check_calibrations(self, cascade: Cascade) -> None:
        """Refuse a stage whose calibration was made for another judge, or for other prompts, tools or settings."""
        for stage in cascade.stages:
            keys_by_criterion: dict[str, tuple[str, ...]] = {}
            for name in self.criteria:
                if self._protocol.rubric(name).measured:
                    continue
                keys = {self._spec_for(rubric, stage.judge).key for rubric in self._rubrics if rubric.criterion == name}
                # A stage keeps no verdict on wordings that its calibration run did not contain.
                keys_by_criterion[name] = tuple(keys.intersection(stage.calibration.asked.get(name, ())) or keys)
            stage.calibration.check(stage.judge.spec, self.protocol, self.mode, keys_by_criterion)

    def further_parameters(self) -> dict[str, Any]:
        """Return the settings that the tools' observations depend on."""
        facts = {"setup": self.setup.describe(), "tools": self.toolbox.facts()}
        if measures := [rubric.measured.measure for rubric in self._rubrics if rubric.measured]:
            facts["measures"] = {name: self.toolbox.measures.facts(name) for name in measures}
        if isinstance(self.plan, SingleJudge):
            return facts
        each = [
            {
                "spec": member.spec,
                "base_url": shown_address(member.base_url) if member.base_url else None,
                "profile": chat.profile.model_dump(mode="json"),
            }
            for member, chat in self._chats.items()
        ]
        return {**facts, "members": each}

    def rubric_texts(self) -> dict[str, Any]:
        """Return the complete rubrics by name."""
        return {rubric.name: rubric.model_dump(mode="json") for rubric in self._rubrics}


def _find_plan(
    spec: str | Plan | BaseChatModel, base_url: str | None, name: str | None, profile: Profile | None
) -> Plan:
    if not isinstance(spec, (str, SingleJudge, Panel, Cascade)):
        if base_url is not None:
            raise UserError("a chat model has an address of its own; set it where the object is made")
        return plan_of_chat_model(spec, name, profile)
    if name is not None or profile is not None:
        raise UserError("`name` and `profile` go with a LangChain chat model, not with a spec or a plan")
    return plan_of(spec, base_url) if isinstance(spec, str) else spec


def judge_opener(judge: Judge | str | None, options: Mapping[str, Any]) -> Callable[[], Judge]:
    """Return a function that opens a judge at its first call and returns the same judge later.

    Args:
        judge: A spec, or an open judge, which its owner closes.
        options: The keyword arguments of `Judge`; empty for an open judge.
    """
    if isinstance(judge, Judge):
        if options:
            raise UserError("an open judge takes no options; pass them where it is opened")
        return lambda: judge
    lock, opened = threading.Lock(), list[Judge]()

    def open_once() -> Judge:
        with lock:
            if not opened:
                opened.append(Judge(judge, **options))
            return opened[0]

    return open_once
