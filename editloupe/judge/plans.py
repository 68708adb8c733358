"""Read panels and cascades from a spec or a file: `panel:openai:a,rules`, `panel:FILE.yaml`, `cascade:FILE.yaml`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe.agent.chat_interface import Chat, ChatRequest, Reply, ReplyStore
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.agent.providers.langchain import ChatModel, check_name
from editloupe.agent.providers.provider import Profile
from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.agent.specs import split_spec
from editloupe.agent.transport.rate_limits import RateLimiter
from editloupe.judge.calibration import Calibration, parse_calibration, write_yaml
from editloupe.rubrics.rubric_files import read_yaml
from editloupe.types import UserError

FILES = (".yaml", ".yml")
IN_A_CASCADE = ("confidence", "repeats", "entropy", "claims")
"""Sources of confidence that a stage can use: those that need no other judge."""


@dataclass(frozen=True)
class SingleJudge:
    """One judge: a model on a server, or the embedded rules."""

    spec: str
    base_url: str | None = None
    chat_model: ChatModel | None = field(default=None, compare=False, repr=False)
    """The object that is asked, if a program passed one."""


@dataclass(frozen=True)
class Panel:
    """Several judges that are all asked. The most frequent answer or the lower median counts."""

    members: tuple[SingleJudge, ...]

    @property
    def spec(self) -> str:
        """The canonical spec, independent of the file it was read from."""
        return PANEL + ",".join(member.spec for member in self.members)


@dataclass(frozen=True)
class CascadeStage:
    """One judge of a cascade, with the calibration that says which of its verdicts are kept."""

    judge: SingleJudge | Panel
    calibration: Calibration


@dataclass(frozen=True)
class Cascade:
    """Judges that are asked one after another, each about the verdicts that the earlier ones did not keep."""

    stages: tuple[CascadeStage, ...]

    @property
    def spec(self) -> str:
        """The canonical spec, independent of the file it was read from."""
        return CASCADE + ">".join(stage.judge.spec for stage in self.stages)

    @property
    def error(self) -> float:
        """The probability that some stage breaks its guarantee: the sum over the stages."""
        return sum(stage.calibration.error for stage in self.stages)


Plan = SingleJudge | Panel | Cascade


def is_combined(spec: str) -> bool:
    """Return True if a spec names a panel or a cascade."""
    return spec.startswith((PANEL, CASCADE))


def is_file_spec(spec: str) -> bool:
    """Return True if a spec names a file."""
    return spec.startswith(CASCADE) or (spec.startswith(PANEL) and spec.endswith(FILES) and "," not in spec)


def plan_of(spec: str, base_url: str | None = None) -> Plan:
    """Return the plan of a spec.

    Args:
        spec: A judge, `panel:SPEC,SPEC`, `panel:FILE` or `cascade:FILE`.
        base_url: The server of every model for which a file names no other.

    Raises:
        UserError: If the spec or the file is wrong.

    >>> plan_of("panel:openai:a,rules", "http://localhost/v1").members[0]
    SingleJudge(spec='openai:a', base_url='http://localhost/v1')
    """
    if spec.startswith(CASCADE):
        return _cascade(Path(spec.removeprefix(CASCADE)), base_url)
    if spec.startswith(PANEL):
        return _panel(spec.removeprefix(PANEL), base_url)
    return SingleJudge(spec, base_url)


def plan_of_chat_model(model: Any, name: str | None, profile: Profile | None = None) -> SingleJudge:
    """Return the plan of a LangChain chat model.

    Args:
        model: The chat model.
        name: Its name, which is part of the keys of its verdicts.
        profile: Properties of the model. Default: they are read from its attributes.

    Raises:
        UserError: If the object is no chat model, or if the name is missing or malformed.
    """
    from langchain_core.language_models import BaseChatModel

    if not isinstance(model, BaseChatModel):
        raise UserError(f"a judge is a spec, a plan or a LangChain chat model, not a {type(model).__name__}")
    return SingleJudge(check_name(name), chat_model=ChatModel(model, profile))


def describe_guarantee(cascade: Cascade) -> tuple[str, ...]:
    """Describe the guarantee of a cascade for the verdicts it keeps."""
    keeping = [stage.calibration for stage in cascade.stages if stage.calibration.keeps_something]
    if not keeping:
        return ("no stage may keep a verdict, so every edit is left to a person",)
    lowest = min(calibration.agreement for calibration in keeping)
    return (
        f"of each criterion's verdicts that a stage keeps, people agree with at least {lowest * 100:g} %; the probability "
        f"that some stage breaks this is at most {cascade.error * 100:.2g} % per criterion",
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
    split_spec(spec)  # raises for a wrong spec before anything is opened
    return SingleJudge(spec, None if spec == RULES else base_url)


def _panel(specs_or_file: str, base_url: str | None) -> Panel:
    if is_file_spec(PANEL + specs_or_file):
        members = _read_members(Path(specs_or_file), base_url)
    else:
        members = tuple(_member(spec.strip(), base_url) for spec in specs_or_file.split(",") if spec.strip())
    specs = [member.spec for member in members]
    if len(specs) < 2:
        raise UserError(f"a panel has at least two judges, such as {PANEL}openai:NAME,google_genai:NAME,{RULES}")
    if twice := next((spec for spec in specs if specs.count(spec) > 1), None):
        raise UserError(f"{twice} is listed twice in the panel; use --repeats to ask a judge several times")
    return Panel(members)


def _read_members(path: Path, base_url: str | None) -> tuple[SingleJudge, ...]:
    """Read a panel's file: `members`, each with `judge` and optionally `base_url`."""
    members = []
    for number, entry in enumerate(_entries(path, "members", "a panel's file"), 1):
        _check_fields(entry, ("judge", "base_url"), path)
        spec = entry.get("judge")
        if not isinstance(spec, str) or not spec.strip():
            raise UserError(f"{path}: judge of member {number} must be a text")
        members.append(_member(spec.strip(), _text(entry, "base_url", path) or base_url))
    return tuple(members)


def _cascade(path: Path, base_url: str | None) -> Cascade:
    entries = stage_entries(path)
    calibrations = stage_calibrations(entries, path)
    cascade = Cascade(
        tuple(_stage(entry, own, path, base_url) for entry, own in zip(entries, calibrations, strict=True))
    )
    keys: tuple[str, ...] = ()
    for number, stage in enumerate(cascade.stages, 1):
        calibration = stage.calibration
        if calibration.confidence not in IN_A_CASCADE:
            raise UserError(
                f"stage {number} of {path.name} was calibrated with the answers of other judges, which are not asked here; "
                "judge and calibrate them as one panel"
            )
        if calibration.after != keys:
            raise UserError(
                f"stage {number} of {path.name} was not calibrated on the edits that the stages before it leave over; "
                "use `editloupe calibrate RUN --append`"
            )
        keys = (*keys, calibration.key)
    return cascade


def stage_entries(path: Path) -> list[Mapping[str, Any]]:
    """Return the stages of a file as written. A file with a single calibration is one stage."""
    data = read_yaml(path)
    if isinstance(data, Mapping) and "stages" not in data:
        return [{"calibration": data}]
    return _entries(path, "stages", "a cascade's file", data)


def write_stages(path: Path, entries: list[Mapping[str, Any]]) -> None:
    """Write the stages of a cascade. Fields added by hand, such as a server, are kept."""
    write_yaml(path, {"stages": [dict(entry) for entry in entries]})


def stage_calibrations(entries: Sequence[Mapping[str, Any]], path: Path) -> list[Calibration]:
    """Return the calibrations of a cascade's stages, each checked against the earlier ones."""
    calibrations: list[Calibration] = []
    for entry in entries:
        _check_fields(entry, ("judge", "base_url", "calibration"), path)
        calibrations.append(_stage_calibration(entry, path, calibrations))
    return calibrations


def _stage_calibration(entry: Mapping[str, Any], path: Path, earlier: Sequence[Calibration]) -> Calibration:
    """Return the calibration of a stage, from the file itself or from another file that it names."""
    calibration = entry.get("calibration")
    if isinstance(calibration, str):
        return Calibration.read(path.parent / calibration, earlier)
    if calibration is None:
        raise UserError(f"a stage of {path} has no calibration, so it cannot keep any verdict")
    return parse_calibration(calibration, path, earlier)


def _stage(entry: Mapping[str, Any], calibration: Calibration, path: Path, base_url: str | None) -> CascadeStage:
    spec = _text(entry, "judge", path) or calibration.judge
    server = _text(entry, "base_url", path) or base_url
    if spec.startswith(CASCADE):
        raise UserError(f"{path}: a cascade cannot be a stage of another one")
    plan = plan_of(spec, server)
    if isinstance(plan, SingleJudge):
        plan = _member(plan.spec, server)
    assert not isinstance(plan, Cascade)
    if plan.spec != calibration.judge:
        raise UserError(f"the calibration is valid for the judge {calibration.judge}, not for {plan.spec}")
    return CascadeStage(plan, calibration)


def _entries(path: Path, name: str, file_kind: str, data: Any = None) -> list[Mapping[str, Any]]:
    data = read_yaml(path) if data is None else data
    entries = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise UserError(f'{path} is not {file_kind}: it needs "{name}:" with one entry per judge')
    return entries


def _check_fields(entry: Mapping[str, Any], fields: tuple[str, ...], path: Path) -> None:
    if strange := [str(name) for name in entry if name not in fields]:
        raise UserError(f"{path}: {strange[0]} is not a field of an entry; it has {', '.join(fields)}")


def _text(entry: Mapping[str, Any], name: str, path: Path) -> str | None:
    """Return a field of an entry; None if it is not set."""
    value = entry.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}: {name} must be a text")
    return value.strip()


class MultiChat:
    """The chats of several judges, which are asked one by one."""

    def __init__(self, chats: Mapping[SingleJudge, Chat]) -> None:
        self._chats = chats

    @property
    def profile(self) -> Profile:
        """The profile of the first chat. Requests use the profile of their own chat."""
        return next(iter(self._chats.values())).profile

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all chats, without repetitions."""
        return tuple(dict.fromkeys(note for chat in self._chats.values() for note in chat.notes))

    async def reply(self, request: ChatRequest) -> Reply:
        """Raise TypeError: a request is sent to one of the chats."""
        raise TypeError("the judges of a panel or a cascade are asked one by one")

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await asyncio.gather(*(chat.aclose() for chat in self._chats.values()))

    def drop(self) -> None:
        """Close the connections of all loops without waiting."""
        for chat in self._chats.values():
            chat.drop()


def open_chats(
    plan: Plan, settings: ModelSettings, replies: ReplyStore | None, traffic: RateLimiter | None
) -> dict[SingleJudge, Chat]:
    """Open the chats of all judges of a plan. The embedded judge of a panel ignores the model settings."""
    alone = isinstance(plan, SingleJudge)
    return {
        member: open_chat(
            member.spec,
            member.base_url,
            settings if alone or member.spec != RULES else ModelSettings(),
            replies,
            traffic,
            member.chat_model,
        )
        for member in list_members(plan)
    }
