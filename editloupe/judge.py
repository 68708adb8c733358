"""Judge: the one object most programs need. It opens a judge by its spec and judges edits, one or many."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from editloupe.agent.attachments import wire_limits
from editloupe.agent.faults import clean
from editloupe.agent.hooks import Replies, Traffic, Watcher, with_request_limit
from editloupe.agent.models import open_chat
from editloupe.agent.tool_words import without_usual
from editloupe.asked import Asked
from editloupe.described_judge import DescribedJudge
from editloupe.graphs.by_loop import tool_notes
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edit import EDIT_GRAPH, EditContext
from editloupe.images import Album
from editloupe.judge_lifecycle import JudgeLifecycle
from editloupe.judge_settings import JudgeSettings
from editloupe.pixel_budget import room_for
from editloupe.question_facts import question_facts
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput, Protocol, cropping, telling, without_ours
from editloupe.rubrics.registry import DEFAULT
from editloupe.rubrics.registry import protocol as find_protocol
from editloupe.rubrics.shown import shown_of
from editloupe.rubrics.user_rubrics import with_files
from editloupe.setups.setup import Setup, find_setup
from editloupe.tools.registry import Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, Judgement, Mode, Outcome, Reason, Sha, Unjudged, UserError, Verdict

JUDGE_VARIABLE = "EDITLOUPE_JUDGE"
DEFAULT_JUDGE = "rules"
SLACK = 2.0
"""Edits under way for every one whose requests fill the allowed concurrency: some always wait for tools or the disk."""


class Judge(DescribedJudge):
    """A judge of image edits; closing it ends its threads and connections, and whatever it still has under way.

    >>> with Judge("rules", mode="plain") as judge:
    ...     judge.criteria
    ('instruction_following', 'visual_consistency')
    """

    def __init__(
        self,
        spec: str | None = None,
        *,
        protocol: str | None = None,
        mode: Mode | None = None,
        base_url: str | None = None,
        criteria: Sequence[str] | None = None,
        rubrics: Sequence[str | Path] = (),
        settings: JudgeSettings | None = None,
        tools: ToolSettings | None = None,
        setup: str | Path | Setup | None = None,
        replies: Replies | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.spec = spec or os.environ.get(JUDGE_VARIABLE) or DEFAULT_JUDGE
        self.base_url = base_url
        self.setup = find_setup(setup)
        """Where settings come from that were not given one by one."""
        self.settings: JudgeSettings = self.setup.judge_settings(settings)
        looking = self.setup.tool_settings(tools)
        self._protocol = _protocol_of(self.setup, protocol, rubrics, self.settings)
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
        if looking.offered == () and self.uses_tools:
            raise UserError(f"{self.mode} mode of {self._protocol.title} looks with tools, and none is offered")
        self._toolbox = build_toolbox(looking)
        self._chat = open_chat(self.spec, base_url, self.settings, replies, traffic)
        self._rules = self.setup.rule_settings() if self.protocol == self.setup.protocol else None
        self._lifecycle = JudgeLifecycle(self._chat, self._toolbox)
        self._questions: dict[str, Asked] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def toolbox(self) -> Toolbox:
        """The tools this judge looks with."""
        return self._toolbox

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before reading verdicts: tools that are not offered, parameters not sent, and why."""
        return (*(tool_notes(self._toolbox) if self.uses_tools else ()), *self._chat.notes)

    @property
    def uses_tools(self) -> bool:
        """True where some rubric lets the judge look with tools in this mode."""
        return any(rubric.modes[self.mode].tools for rubric in self._rubrics)

    async def ajudge(
        self,
        edit: Edit,
        *,
        criteria: Sequence[str] | None = None,
        repeat: int = 0,
        watcher: Watcher | None = None,
        strict: bool = True,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one edit, all criteria side by side.

        With `strict`, an edit whose pictures or boxes cannot be used raises UserError; without, it ends unjudged.
        """
        wanted = tuple(dict.fromkeys(criteria)) if criteria else self.criteria
        self._protocol.select(wanted)
        settings = self.settings
        shared = SharedContext(
            chat=self._chat,
            judge=self.spec,
            toolbox=self._toolbox,
            album=Album() if album is None else album,
            wire=wire_limits(settings.long_side, self._chat.profile),
            limits=LoopLimits(max_turns=settings.max_turns, max_repairs=settings.max_repairs),
            differences=settings.differences,
            rules=self._rules,
            watcher=watcher,
            repeat=repeat,
            strict=strict,
        )
        context = EditContext(shared, self._protocol, wanted, self.mode, settings.min_confidence)
        try:
            async with room_for(edit.paths):
                end = await self._lifecycle.until_closed(
                    EDIT_GRAPH.ainvoke({"edit": edit}, {"recursion_limit": 10}, context=context)
                )
        except UserError:
            raise
        except Exception as error:  # a fault of ours or of a plug-in must not take the other edits with it
            if strict:
                raise
            detail = f"judging failed: {type(error).__name__}: {clean(str(error))}"
            asked = [name for name in self.criteria_for(edit) if name in wanted]
            end = {"outcomes": [Unjudged(criterion=name, reason=Reason.INTERNAL, detail=detail) for name in asked]}
        finally:
            if album is None:  # the graph's own references go later, in no certain order
                shared.album.clear()
        order = {name: place for place, name in enumerate(wanted)}
        return Judgement(
            edit=edit,
            protocol=self.protocol,
            mode=self.mode,
            judge=self.spec,
            verdicts=tuple(sorted(end["outcomes"], key=lambda v: order[v.criterion])),
            traces=tuple(
                sorted((one.trace for one in end.get("judged", [])), key=lambda t: (order[t.criterion], t.target or 0))
            ),
            notes=self.notes,
        )

    def judge(self, edit: Edit, **options: Any) -> Judgement:
        """Judge one edit; works inside and outside a running event loop."""
        return self._lifecycle.run(self.ajudge(edit, **options))

    __call__ = judge

    async def abatch(self, edits: Iterable[Edit], concurrency: int = 32) -> AsyncGenerator[Judgement, None]:
        """Judge many edits and yield judgements as they finish; edits are taken from the iterable as places become free.

        At most `concurrency` requests are under way at one time. An edit that cannot be judged for want of input ends
        unjudged; a wrong key or an unknown model raises. Whoever leaves early leaves through `contextlib.aclosing`, so
        that what is under way ends there and not some time later.
        """
        if concurrency < 1:
            raise UserError(
                f"concurrency is the number of requests under way at one time, at least 1, not {concurrency}"
            )
        source, places = iter(edits), edits_at_once(self.spec, len(self.criteria), concurrency)
        limited = with_request_limit(concurrency)
        under_way: set[asyncio.Task[Judgement]] = set()
        try:
            while True:
                while len(under_way) < places and (edit := next(source, None)) is not None:
                    under_way.add(asyncio.create_task(self.ajudge(edit, strict=False), context=limited.copy()))
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    under_way.discard(task)
                    yield task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def batch(self, edits: Iterable[Edit], concurrency: int = 32) -> Generator[Judgement, None, None]:
        """Judge many edits and iterate over judgements as they finish; leaving early ends what is under way."""
        judgements = self.abatch(edits, concurrency)

        async def following() -> Judgement | None:
            return await anext(judgements, None)

        async def leave() -> None:
            await judgements.aclose()

        try:
            while (judgement := self._lifecycle.run(following())) is not None:
                yield judgement
        finally:
            with suppress(UserError):  # closed meanwhile, which ended everything
                self._lifecycle.run(leave())

    def asked(self) -> tuple[Asked, ...]:
        """Return every question this judge puts: of each criterion all its wordings."""
        return tuple(self._asked_by(rubric) for rubric in self._rubrics)

    def asked_of(self, edit: Edit, criterion: str) -> Asked:
        """Return how one edit is asked on one criterion."""
        return self._asked_by(self._rubric_for(edit, criterion))

    def _asked_by(self, rubric: Rubric) -> Asked:
        if (known := self._questions.get(rubric.name)) is None:
            facts = question_facts(
                rubric, self.mode, self.spec, self.settings, self._chat.profile, self._toolbox.facts()
            )
            if self._rules is not None:
                facts["own_rules"] = self._rules.model_dump(mode="json")
            known = self._questions[rubric.name] = Asked(rubric.criterion, facts)
        return known

    def shown(self, edit: Edit, criterion: str, hashes: Mapping[Path, Sha]) -> str | None:
        """Return the key of what of an edit the judge is shown; None where a picture it needs has no hash."""
        return shown_of(self._protocol, self._rubric_for(edit, criterion), self.mode, edit).key(hashes)

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria this edit is asked; all of them where it does not say what that depends on."""
        try:
            return tuple(rubric.criterion for rubric in self._protocol.rubrics_for(edit, self.criteria))
        except MissingInput:
            return self.criteria

    @property
    def scores_edits(self) -> bool:
        """True where the protocol has a formula that makes one score of an edit's criteria."""
        return self._protocol.edit_score is not None

    def score(self, edit: Edit, verdicts: Sequence[Outcome]) -> float | None:
        """Return the edit's own score by the protocol's formula, 0 to 100; None where a criterion lacks a number."""
        known = {v.criterion: v.score_100 for v in verdicts if isinstance(v, Verdict) and v.score_100 is not None}
        return self._protocol.score_of(edit, known)

    def rubric(self, criterion: str) -> Rubric:
        """Return the rubric of a criterion, in its first wording."""
        return self._protocol.rubric(criterion)

    def _rubric_for(self, edit: Edit, criterion: str) -> Rubric:
        try:
            return next(iter(self._protocol.rubrics_for(edit, [criterion])), self._protocol.rubric(criterion))
        except MissingInput:
            return self._protocol.rubric(criterion)

    def further_parameters(self) -> dict[str, Any]:
        """Return what the tools' observations depend on."""
        return {"setup": self.setup.describe(), "tools": self._toolbox.facts()}

    def rubric_texts(self) -> dict[str, Any]:
        """Return the rubrics that are asked, whole, by name."""
        return {rubric.name: rubric.model_dump(mode="json") for rubric in self._rubrics}

    def close(self) -> None:
        """End everything under way, the background thread, the tools' threads and the connections; may be called again."""
        self._lifecycle.close()

    async def aclose(self) -> None:
        """End everything as `close` does, without blocking the event loop."""
        await self._lifecycle.aclose()


def _protocol_of(setup: Setup, name: str | None, rubrics: Sequence[str | Path], settings: JudgeSettings) -> Protocol:
    """Return the protocol as it is asked: the user's rubrics or words in it, and what the settings say of its texts."""
    name = name or (None if rubrics else setup.protocol)
    found = reworded_protocol(name, rubrics, setup) if rubrics else setup.worded(find_protocol(name or DEFAULT.name))
    found = found if settings.target_crop is None else cropping(found, settings.target_crop)
    found = found if settings.tells is None else telling(found, settings.tells)
    return found if settings.our_notes else without_ours(found)


def reworded_protocol(name: str | None, rubrics: Sequence[str | Path], setup: Setup | None = None) -> Protocol:
    """Return a protocol with the user's rubrics or words in it; what a file leaves as it is, a set-up may still word otherwise.

    Words that a tool has by itself are none of the user's.
    """
    found = with_files(name, rubrics)
    worded = [rubric.model_copy(update={"wording": without_usual(rubric.wording)}) for rubric in found.rubrics]
    if setup is not None and setup.protocol == found.name:
        usual = find_protocol(found.name)
        by_name = {
            mine.name: (mine, theirs) for mine, theirs in zip(usual.rubrics, setup.worded(usual).rubrics, strict=True)
        }
        worded = [merged(rubric, *by_name[rubric.name]) if rubric.name in by_name else rubric for rubric in worded]
    return replace(found, rubrics=tuple(worded))


def merged(given: Rubric, usual: Rubric, otherwise: Rubric) -> Rubric:
    """Return a rubric with its modes as another wording has them, wherever they are the usual ones."""
    modes = {}
    for mode, text in given.modes.items():
        changed = {
            field: getattr(otherwise.modes[mode], field)
            for field in type(text).model_fields
            if getattr(text, field) == getattr(usual.modes[mode], field)
        }
        modes[mode] = text.model_copy(update=changed)
    return given.model_copy(update={"modes": modes})


def edits_at_once(spec: str, criteria: int, concurrency: int) -> int:
    """Return how many edits keep so many requests under way; the embedded judge has no requests, only cores."""
    if spec == "rules":
        return max(1, min(concurrency, 2 * (os.cpu_count() or 1)))
    return max(1, round(SLACK * concurrency / criteria))
