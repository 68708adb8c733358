"""The judge of EdiVal-Agent's pictures; batches, runs and traces work with it as with any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editloupe.agent.hooks import Replies, Traffic, Watcher
from editloupe.agent.models import keyed_profile, open_chat
from editloupe.described_judge import DescribedJudge, content_key, picture_hashes
from editloupe.evals.edival.instruments import Instruments
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edival import CRITERIA, EDIVAL_GRAPH
from editloupe.graphs.edival_context import EdivalContext
from editloupe.images import Album, WireLimits
from editloupe.judge import JudgeSettings
from editloupe.pixel_budget import room_for
from editloupe.rubrics.edival import ASKED
from editloupe.rubrics.edival.questions import question
from editloupe.rubrics.edival.settings import EdivalSettings, published
from editloupe.rubrics.edival.turn import read_turn
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.registry import Toolbox, build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import Edit, Judgement, Mode, Reason, Sha, Unjudged, UserError


class EdivalJudge(DescribedJudge):
    """Judges pictures of chains: EdiVal-IF, EdiVal-CC and EdiVal-VQ."""

    protocol = "edival"
    mode: Mode = "tools"
    uses_tools = False
    """Its looks are taken by the instruments; the model has no tools."""

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
        replies: Replies | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.spec, self.base_url = spec, base_url
        unknown = [name for name in criteria if name not in CRITERIA]
        if unknown:
            raise UserError(f'EdiVal-Agent has no criterion "{unknown[0]}"; it has: {", ".join(CRITERIA)}')
        self.criteria = tuple(criteria)
        self.instruments = instruments
        self.rules = rules or published()
        self.settings: JudgeSettings = settings or JudgeSettings()
        self._chat = open_chat(spec, base_url, self.settings, replies, traffic)
        self._toolbox = build_toolbox(replace(tools or ToolSettings.from_environment(), enhancer="none"))

    @property
    def toolbox(self) -> Toolbox:
        """The tools of its machine; the model is offered none of them."""
        return self._toolbox

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
        watcher: Watcher | None = None,
        strict: bool = True,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one picture; without `strict`, one that cannot be judged for want of input ends unjudged."""
        wanted = tuple(criteria or self.criteria)
        shared = SharedContext(
            chat=self._chat,
            judge=self.spec,
            toolbox=self._toolbox,
            album=album or Album(),
            wire=WireLimits(self.settings.long_side, self._chat.profile.max_image_bytes),
            limits=LoopLimits(max_turns=self.settings.max_turns, max_repairs=self.settings.max_repairs),
            watcher=watcher,
            repeat=repeat,
            strict=strict,
        )
        finder, features, quality = self.instruments.finder, self.instruments.features, self.instruments.quality
        context = EdivalContext(shared, finder, self.rules, wanted, features, quality, self.notes)
        try:
            turn = read_turn(edit)
        except MissingInput as error:
            if strict:
                raise
            outcomes = [Unjudged(criterion=c, reason=Reason.MISSING_INPUT, detail=str(error)) for c in wanted]
            return self._judgement(edit, outcomes, [])
        async with room_for(edit.paths):
            end = await EDIVAL_GRAPH.ainvoke({"edit": edit, "turn": turn}, {"recursion_limit": 12}, context=context)
        return self._judgement(edit, end["outcomes"], end.get("traces", []))

    def _judgement(self, edit: Edit, outcomes: Sequence[Any], traces: Sequence[Any]) -> Judgement:
        return Judgement(
            edit=edit,
            protocol=self.protocol,
            mode=self.mode,
            judge=self.spec,
            verdicts=tuple(sorted(outcomes, key=lambda v: CRITERIA.index(v.criterion))),
            traces=tuple(sorted(traces, key=lambda t: CRITERIA.index(t.criterion))),
            notes=self.notes,
        )

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria this picture is asked: all of them."""
        return self.criteria

    def unit_key(self, edit: Edit, criterion: str, repeat: int = 0, hashes: dict[Path, Sha] | None = None) -> str:
        """Return the content key of one unit: pictures, what is asked, by whom, with which settings."""
        hashed = picture_hashes(edit, {} if hashes is None else hashes)
        facts = {
            "pictures": {_name(role, i): sha for role, shas in hashed.items() for i, sha in enumerate(shas)},
            "edit": edit.model_dump(mode="json", include={"instruction", "extra"}),
            "criterion": criterion,
            "judge": {**self.parameters(), "profile": keyed_profile(self.spec, self.settings).model_dump(mode="json")},
            "repeat": repeat,
        }
        return content_key(facts)

    def further_parameters(self) -> dict[str, Any]:
        """Return the rules, the instruments and the questions."""
        features, quality = self.instruments.features, self.instruments.quality
        return {
            "rules": self.rules.model_dump(mode="json"),
            "detector": self.instruments.finder.fingerprint,
            "features": features.fingerprint if features else None,
            "quality": quality.fingerprint if quality else None,
            "questions": [question(task).model_dump(mode="json") for task in ASKED],
        }

    def rubric_texts(self) -> dict[str, Any]:
        """Return none: what is asked depends on the turn and stands among the parameters."""
        return {}

    def close(self) -> None:
        """Let go of the worker threads and the connections."""
        self._toolbox.close()
        self._chat.drop()

    async def aclose(self) -> None:
        """Let go of everything as `close` does, without blocking the event loop."""
        self._toolbox.close()
        await self._chat.aclose()


def _name(role: str, place: int) -> str:
    """Return what a unit's key calls a picture."""
    return role if role in ("source", "edited") else f"{role}{place}"
