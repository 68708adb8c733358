"""Panels and cascades, read from a spec or a file: `panel:openai:a,rules`, `panel:FILE.yaml`, `cascade:FILE.yaml`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.agent.chat_interface import Chat, ChatRequest, Reply, ReplyStore
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.agent.providers.provider import Profile
from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.agent.specs import split_spec
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.judge.calibration import Calibration, parse_calibration, write_yaml
from editloupe.rubrics.yaml_files import read_yaml
from editloupe.types import UserError

FILES = (".yaml", ".yml")
IN_A_CASCADE = ("confidence", "repeats", "entropy")
"""Where a stage's confidence may come from: what it can know of an edit by itself."""


@dataclass(frozen=True)
class SingleJudge:
    """One judge: a model behind a server, or the embedded rules."""

    spec: str
    base_url: str | None = None


@dataclass(frozen=True)
class Panel:
    """Several judges that are all asked, and of whose answers the middle or the most frequent one stands."""

    members: tuple[SingleJudge, ...]

    @property
    def spec(self) -> str:
        """What it is called, wherever it was read from."""
        return PANEL + ",".join(member.spec for member in self.members)


@dataclass(frozen=True)
class CascadeStage:
    """One judge of a cascade and what of its verdicts may be kept."""

    judge: SingleJudge | Panel
    calibration: Calibration


@dataclass(frozen=True)
class Cascade:
    """Judges that are asked one after the other, each about what those before it could not be trusted with."""

    stages: tuple[CascadeStage, ...]

    @property
    def spec(self) -> str:
        """What it is called, wherever it was read from."""
        return CASCADE + ">".join(stage.judge.spec for stage in self.stages)

    @property
    def error(self) -> float:
        """The probability that some stage keeps what it promised not to: those of the stages together."""
        return sum(stage.calibration.error for stage in self.stages)


Plan = SingleJudge | Panel | Cascade


def is_combined(spec: str) -> bool:
    """Say whether a spec names judges that answer together."""
    return spec.startswith((PANEL, CASCADE))


def is_file_spec(spec: str) -> bool:
    """Say whether a spec is read from a file."""
    return spec.startswith(CASCADE) or (spec.startswith(PANEL) and spec.endswith(FILES) and "," not in spec)


def plan_of(spec: str, base_url: str | None = None) -> Plan:
    """Return who answers; `base_url` is the server of every model that a file does not give another one.

    >>> plan_of("panel:openai:a,rules", "http://localhost/v1").members[0]
    SingleJudge(spec='openai:a', base_url='http://localhost/v1')
    """
    if spec.startswith(CASCADE):
        return _cascade(Path(spec.removeprefix(CASCADE)), base_url)
    if spec.startswith(PANEL):
        return _panel(spec.removeprefix(PANEL), base_url)
    return SingleJudge(spec, base_url)


def describe_guarantee(cascade: Cascade) -> tuple[str, ...]:
    """Say what a cascade promises of the verdicts it keeps."""
    keeping = [stage.calibration for stage in cascade.stages if stage.calibration.keeps_something]
    if not keeping:
        return ("no stage may keep a verdict, so every edit is left to a person",)
    lowest = min(calibration.agreement for calibration in keeping)
    return (
        f"of each criterion's verdicts that a stage keeps, people agree with at least {lowest * 100:g} %; the probability "
        f"that some stage breaks this is at most {cascade.error * 100:.2g} % a criterion",
    )


def list_members(plan: Plan) -> tuple[SingleJudge, ...]:
    """Return all judges that may be asked, each once, in order."""
    if isinstance(plan, SingleJudge):
        return (plan,)
    if isinstance(plan, Panel):
        return plan.members
    return tuple(dict.fromkeys(member for stage in plan.stages for member in list_members(stage.judge)))


def _member(spec: str, base_url: str | None) -> SingleJudge:
    if is_combined(spec):
        raise UserError(f"{spec} cannot be one of the judges of a panel; name its judges themselves")
    split_spec(spec)  # a mistake is told before anything is opened
    return SingleJudge(spec, None if spec == RULES else base_url)


def _panel(named: str, base_url: str | None) -> Panel:
    if is_file_spec(PANEL + named):
        members = _listed(Path(named), base_url)
    else:
        members = tuple(_member(one.strip(), base_url) for one in named.split(",") if one.strip())
    specs = [member.spec for member in members]
    if len(specs) < 2:
        raise UserError(f"a panel has at least two judges, such as {PANEL}openai:NAME,google_genai:NAME,{RULES}")
    if twice := next((spec for spec in specs if specs.count(spec) > 1), None):
        raise UserError(f"{twice} stands twice in the panel; --repeats asks a judge more than once")
    return Panel(members)


def _listed(path: Path, base_url: str | None) -> tuple[SingleJudge, ...]:
    """Read a panel's file: `members`, each with `judge` and optionally `base_url`."""
    entries = _entries(path, "members", "a panel's file")
    return tuple(
        _member(
            _text(entry, "judge", path, f"member {number}") or "",
            _text(entry, "base_url", path, "", needed=False) or base_url,
        )
        for number, entry in enumerate(entries, 1)
        if _only(entry, ("judge", "base_url"), path)
    )


def _cascade(path: Path, base_url: str | None) -> Cascade:
    entries = stage_entries(path)
    calibrations = stage_calibrations(entries, path)
    cascade = Cascade(
        tuple(_stage(entry, own, path, base_url) for entry, own in zip(entries, calibrations, strict=True))
    )
    keys: tuple[str, ...] = ()
    for number, stage in enumerate(cascade.stages, 1):
        one = stage.calibration
        if one.confidence not in IN_A_CASCADE:
            raise UserError(
                f"stage {number} of {path.name} was calibrated by what other judges of its run said, who are not asked here; "
                "judge and calibrate them as one panel"
            )
        if one.after != keys:
            raise UserError(
                f"stage {number} of {path.name} was not calibrated on what the stages before it leave over; "
                "`editloupe calibrate RUN --append` does that"
            )
        keys = (*keys, one.key)
    return cascade


def stage_entries(path: Path) -> list[Mapping[str, Any]]:
    """Return the stages a file holds, as they are written there; one calibration alone is one stage."""
    data = read_yaml(path)
    if isinstance(data, Mapping) and "stages" not in data:
        return [{"calibration": data}]
    return _entries(path, "stages", "a cascade's file", data)


def write_stages(path: Path, entries: list[Mapping[str, Any]]) -> None:
    """Write the stages of a cascade; what was written by hand beside a calibration, such as a server, stays."""
    write_yaml(path, {"stages": [dict(entry) for entry in entries]})


def stage_calibrations(entries: Sequence[Mapping[str, Any]], path: Path) -> list[Calibration]:
    """Return the calibrations of a cascade's stages, each checked against those before it."""
    calibrations: list[Calibration] = []
    for entry in entries:
        _only(entry, ("judge", "base_url", "calibration"), path)
        calibrations.append(_stage_calibration(entry, path, calibrations))
    return calibrations


def _stage_calibration(entry: Mapping[str, Any], path: Path, earlier: Sequence[Calibration]) -> Calibration:
    """Return the calibration of a stage, which is in the file or in another one beside it."""
    given = entry.get("calibration")
    if isinstance(given, str):
        return Calibration.read(path.parent / given, earlier)
    if given is None:
        raise UserError(f"a stage of {path} has no calibration, so nothing says what it may keep")
    return parse_calibration(given, path, earlier)


def _stage(entry: Mapping[str, Any], calibration: Calibration, path: Path, base_url: str | None) -> CascadeStage:
    spec = _text(entry, "judge", path, "", needed=False) or calibration.judge
    server = _text(entry, "base_url", path, "", needed=False) or base_url
    if spec.startswith(CASCADE):
        raise UserError(f"{path}: a cascade cannot be a stage of another one")
    plan = plan_of(spec, server)
    if isinstance(plan, SingleJudge):
        plan = _member(plan.spec, server)
    assert not isinstance(plan, Cascade)
    if plan.spec != calibration.judge:
        raise UserError(f"the calibration holds for the judge {calibration.judge}, not for {plan.spec}")
    return CascadeStage(plan, calibration)


def _entries(path: Path, name: str, what: str, data: Any = None) -> list[Mapping[str, Any]]:
    data = read_yaml(path) if data is None else data
    listed = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(listed, list) or not listed or not all(isinstance(one, Mapping) for one in listed):
        raise UserError(f'{path} is not {what}: it needs "{name}:" with one entry per judge')
    return listed


def _only(entry: Mapping[str, Any], known: tuple[str, ...], path: Path) -> bool:
    if strange := [str(name) for name in entry if name not in known]:
        raise UserError(f"{path}: {strange[0]} is not a field of an entry; it has {', '.join(known)}")
    return True


def _text(entry: Mapping[str, Any], name: str, path: Path, whose: str, needed: bool = True) -> str | None:
    value = entry.get(name)
    if value is None and not needed:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}: {name}{f' of {whose}' if whose else ''} is a text")
    return value.strip()


class MultiChat:
    """Holds the chats of several judges; each is asked on its own."""

    def __init__(self, chats: Mapping[SingleJudge, Chat]) -> None:
        self._chats = chats

    @property
    def profile(self) -> Profile:
        """That of the first; whoever asks one of them takes its own."""
        return next(iter(self._chats.values())).profile

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how any of them was asked."""
        return tuple(dict.fromkeys(note for chat in self._chats.values() for note in chat.notes))

    async def reply(self, request: ChatRequest) -> Reply:
        """Refuse: a request is put to one of them."""
        raise TypeError("judges that answer together are asked one by one")

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await asyncio.gather(*(chat.aclose() for chat in self._chats.values()))

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""
        for chat in self._chats.values():
            chat.drop()


def open_chats(
    plan: Plan, settings: ModelSettings, replies: ReplyStore | None, traffic: RateLimiter | None
) -> dict[SingleJudge, Chat]:
    """Open everybody a plan may ask; settings of models are nothing to the rules beside them."""
    alone = isinstance(plan, SingleJudge)
    return {
        one: open_chat(
            one.spec,
            one.base_url,
            settings if alone or one.spec != RULES else ModelSettings(),
            replies,
            traffic,
        )
        for one in list_members(plan)
    }
