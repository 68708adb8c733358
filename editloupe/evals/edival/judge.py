"""The judge of EdiVal-Agent's pictures, in the shape of `Judge`, so that batches, runs and traces work as for any other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from editloupe.agent.hooks import Replies, Traffic, Watcher
from editloupe.agent.models import keyed_profile, open_chat
from editloupe.agent.providers.registry import client_packages
from editloupe.agent.secrets import shown
from editloupe.graphs.context import LoopLimits, SharedContext
from editloupe.graphs.edival import CRITERIA, EDIVAL_GRAPH
from editloupe.graphs.edival_context import EdivalContext
from editloupe.images import Album, WireLimits, hash_file
from editloupe.judge import JudgeSettings
from editloupe.pixel_budget import room_for
from editloupe.rubrics.edival import ASKED
from editloupe.rubrics.edival.questions import question
from editloupe.rubrics.edival.settings import EdivalSettings, published
from editloupe.rubrics.edival.turn import read_turn
from editloupe.rubrics.protocol import MissingInput
from editloupe.tools.features import DinoFeatures, Features, FeatureSettings
from editloupe.tools.finders import Finder, WholePictureFinder
from editloupe.tools.quality import HpsV3, Quality
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


class EdivalJudge:
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
        self.settings = settings or JudgeSettings()
        self._chat = open_chat(spec, base_url, self.settings, replies, traffic)
        self._toolbox = build_toolbox(replace(tools or ToolSettings.from_environment(), enhancer="none"))

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
        own = self.instruments
        context = EdivalContext(shared, own.finder, self.rules, wanted, own.features, own.quality, own.notes())
        try:
            turn = read_turn(edit)
        except MissingInput as error:
            if strict:
                raise
            outcomes = [Unjudged(criterion=c, reason=Reason.MISSING_INPUT, detail=str(error)) for c in wanted]
            return self._judgement(edit, outcomes, [])
        async with room_for(_pictures(edit).values()):
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
            notes=self.instruments.notes(),
        )

    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria this picture is asked: all of them."""
        return self.criteria

    def unit_key(self, edit: Edit, criterion: str, repeat: int = 0, hashes: dict[Path, Sha] | None = None) -> str:
        """Return the content key of one unit: pictures, what is asked, by whom, with which settings."""
        known = {} if hashes is None else hashes
        paths = _pictures(edit)
        for path in paths.values():
            if path not in known:
                known[path] = hash_file(path)
        pictures = {role: known[path] for role, path in paths.items()}
        facts = {
            "pictures": pictures,
            "edit": edit.model_dump(mode="json", include={"instruction", "extra"}),
            "criterion": criterion,
            "judge": {**self.parameters(), "profile": keyed_profile(self.spec, self.settings).model_dump(mode="json")},
            "repeat": repeat,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    def parameters(self) -> dict[str, Any]:
        """Return everything that decides the outcomes besides the picture; no secrets among it."""
        own = self.instruments
        return {
            "spec": self.spec,
            "base_url": self.base_url,
            "protocol": self.protocol,
            "mode": self.mode,
            "rules": self.rules.model_dump(mode="json"),
            "settings": self.settings.model_dump(mode="json", exclude={"retry", "timeout"}),
            "profile": self._chat.profile.model_dump(mode="json"),
            "detector": own.finder.fingerprint,
            "features": own.features.fingerprint if own.features else None,
            "quality": own.quality.fingerprint if own.quality else None,
            "questions": [question(task).model_dump(mode="json") for task in ASKED],
        }

    def describe(self) -> dict[str, Any]:
        """Return what must be known later to say what was judged, by what, with which versions and settings."""
        packages = ("editloupe", "langgraph", "langchain-core", *client_packages())
        return {
            **self.parameters(),
            "base_url": shown(self.base_url) if self.base_url else self.base_url,
            "criteria": list(self.criteria),
            "rubrics": {},
            "versions": {name: version(name) for name in packages},
            "notes": [*self.instruments.notes(), *self._chat.notes],
        }

    def close(self) -> None:
        """Let go of the worker threads and the connections."""
        self._toolbox.close()
        self._chat.drop()

    async def aclose(self) -> None:
        """Let go of everything as `close` does, without blocking the event loop."""
        self._toolbox.close()
        await self._chat.aclose()


def _pictures(edit: Edit) -> dict[str, Path]:
    own = {"source": edit.source, "edited": edit.edited}
    return own | {f"{role}{i}": path for role, several in edit.more_images.items() for i, path in enumerate(several)}
