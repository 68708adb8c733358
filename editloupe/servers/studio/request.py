"""What the Judge page asks for, checked: pictures by hash, an instruction, boxes, and who shall judge how."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError, field_validator
from starlette.requests import Request

from editloupe._util.errors import describe_error
from editloupe.agent.spec_names import RULES
from editloupe.judge import Judge
from editloupe.judge.plans import is_file_spec
from editloupe.judge.settings import DEFAULT_SETUP, setup_names
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import DEFAULT
from editloupe.rubrics.roles import OPTIONAL, role_of
from editloupe.servers.studio.library import OpenRun
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.uploads import Uploads
from editloupe.types import Boxes, Edit, Mode, Record, UserError

M = TypeVar("M", bound=BaseModel)
_OWN_SLOTS = ("source", "edited", "reference")
LONGEST = 4000
"""Letters an instruction may have."""


Role = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
Picture = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$")]


class JudgeRequest(Record):
    """One press of the button."""

    source: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    edited: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    reference: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    more: dict[Role, Picture] = Field(default_factory=dict, max_length=12)
    """Further pictures by role, such as an annotated one or a golden label."""
    instruction: str = Field(default="", max_length=LONGEST)
    instruction_type: str = Field(default="", max_length=80)
    boxes: Boxes = Field(default=(), max_length=50)
    judge: str = Field(default="", max_length=200)
    base_url: str | None = Field(default=None, max_length=400)
    """One of the servers named at the start; empty for the provider's own, None for the one that is proposed."""
    protocol: str = Field(default=DEFAULT.name, max_length=40)
    mode: Mode | None = None
    setup: str = Field(default=DEFAULT_SETUP, max_length=80)
    """One of those that come with EditLoupe; a page names no files."""
    name: str = Field(default="", max_length=80)
    """What the edit is called; the name of an example or of a file."""

    @field_validator("mode", mode="before")
    @classmethod
    def _no_mode_is_none(cls, value: object) -> object:
        return value or None

    @property
    def given(self) -> dict[str, str]:
        """The further pictures that there are."""
        return {role: sha for role, sha in self.more.items() if sha}

    @property
    def edit_id(self) -> str:
        """The same edit has the same name each time it is judged, whoever judges it."""
        facts = [
            self.source,
            self.edited,
            self.reference,
            self.instruction,
            self.instruction_type,
            [*map(list, self.boxes)],
            *([sorted(self.given.items())] if self.given else []),
        ]
        digest = hashlib.sha256(json.dumps(facts).encode("utf-8", "replace")).hexdigest()[:6]
        plain = re.sub(r"[^\w-]+", "-", Path(self.name).stem).strip("-")[:40] or "edit"
        return f"{plain}-{digest}"


async def parse_json(request: Request, kind: type[M]) -> M:
    """Read a request's JSON in a worker thread, so that no other page waits for it; raise ValidationError if it is wrong."""
    return await asyncio.to_thread(kind.model_validate_json, await request.body())


def read_request(body: bytes) -> JudgeRequest:
    """Read what the page sent; a mistake is told in one sentence."""
    try:
        return JudgeRequest.model_validate_json(body)
    except ValidationError as error:
        raise UserError(describe_error(error, whole="the request")) from None


def edit_of(request: JudgeRequest, uploads: Uploads) -> Edit:
    """Return the edit to judge; every picture must have been given before."""
    for role, sha in (("source", request.source), ("edited", request.edited)):
        if not sha:
            raise UserError(f"choose the {role} picture first")
    if not request.instruction.strip():
        raise UserError("type the instruction: what was asked of the editing model")
    return Edit(
        id=request.edit_id,
        source=uploads.path(request.source),
        edited=uploads.path(request.edited),
        reference=uploads.path(request.reference) if request.reference else None,
        instruction=request.instruction.strip(),
        instruction_type=request.instruction_type or None,
        target_boxes=request.boxes,
        more_images={role: (uploads.path(sha),) for role, sha in request.given.items()},
    )


def further_roles(protocol: Protocol) -> dict[str, str]:
    """Return the pictures a protocol's rubrics show beside source, edit and reference: their roles and names."""
    named = (name for rubric in protocol.rubrics for mode in rubric.modes.values() for name in mode.images)
    found = {role_of(name): name.removesuffix(OPTIONAL) for name in named}
    return {role: name for role, name in found.items() if role not in _OWN_SLOTS}


def filled_in(request: JudgeRequest, one: OpenRun, name: str, uploads: Uploads) -> JudgeRequest:
    """Return a request about an edit of a run, with the pictures the run kept, to be judged as it was judged there first."""
    edit, pictures, _ = one.edit(name)
    shas: dict[str, str] = {}
    more: dict[str, str] = {}
    for role, hashes in pictures.items():
        path = one.run.pictures.find(hashes[0]) if hashes else None
        if path is not None:
            (shas if role in _OWN_SLOTS else more)[role] = str(uploads.copy(path)["sha"])
    units = one.units(name)
    known = {"protocol": units[0].protocol, "mode": units[0].mode, "judge": units[0].judge} if units else {}
    told = {"instruction": edit.instruction[:LONGEST], "instruction_type": (edit.instruction_type or "")[:80]}
    return request.model_copy(
        update={**shas, **known, **told, "more": more, "boxes": edit.target_boxes[:50], "name": edit.id[:80]}
    )


def judge_of(request: JudgeRequest, settings: StudioSettings) -> Judge:
    """Open the judge; a missing key is one sentence."""
    spec = request.judge.strip() or settings.judge
    if request.setup not in setup_names():
        raise UserError(f'there is no set-up "{request.setup}" here; there are: {", ".join(setup_names())}')
    if spec and is_file_spec(spec) and spec != settings.judge:
        raise UserError(
            "a page names no files of this machine; start the studio with that judge: `editloupe studio --judge SPEC`"
        )
    return Judge(
        spec,
        protocol=request.protocol,
        mode=request.mode,
        base_url=_server(request, spec, settings),
        setup=request.setup,
    )


def _server(request: JudgeRequest, spec: str | None, settings: StudioSettings) -> str | None:
    """Return the address the judge is asked at: one that was named at the start, for the key goes where it points."""
    if spec == RULES:
        return None
    if request.base_url is None:
        return settings.base_urls[0] if settings.base_urls and spec == settings.judge else None
    wanted = request.base_url.strip()
    if not wanted:
        return None
    found = settings.servers.get(wanted, wanted)
    if found not in settings.base_urls:
        raise UserError(
            "this studio asks only the servers it was started with; name another one with "
            "`editloupe studio --base-url URL`"
        )
    return found
