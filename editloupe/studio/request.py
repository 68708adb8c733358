"""What the Judge page asks for, checked: pictures by hash, an instruction, boxes, and who shall judge how."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from editloupe.images import decode, open_picture
from editloupe.judge import Judge
from editloupe.studio.library import Library
from editloupe.studio.settings import StudioSettings
from editloupe.studio.shelf import keep
from editloupe.types import Box, Edit, Mode, Record, UserError

SHA = r"^[0-9a-f]{32}$"
LONGEST = 4000
"""Letters an instruction may have."""


class JudgeRequest(Record):
    """One press of the button."""

    source: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    edited: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    reference: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    instruction: str = Field(default="", max_length=LONGEST)
    instruction_type: str = Field(default="", max_length=80)
    boxes: tuple[Box, ...] = Field(default=(), max_length=50)
    judge: str = Field(default="", max_length=200)
    base_url: str = Field(default="", max_length=400)
    protocol: str = Field(default="dlebench", max_length=40)
    mode: Mode | None = None
    name: str = Field(default="", max_length=80)
    """What the edit is called; the name of an example or of a file."""

    @field_validator("mode", mode="before")
    @classmethod
    def _no_mode_is_none(cls, value: object) -> object:
        return value or None

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
        ]
        digest = hashlib.sha256(json.dumps(facts).encode("utf-8", "replace")).hexdigest()[:6]
        plain = re.sub(r"[^\w-]+", "-", Path(self.name).stem).strip("-")[:40] or "edit"
        return f"{plain}-{digest}"


def read_request(body: bytes) -> JudgeRequest:
    """Read what the page sent; a mistake is told in one sentence."""
    try:
        return JudgeRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the request"
        raise UserError(f"{where}: {str(first['msg']).removeprefix('Value error, ')}") from None


def edit_of(request: JudgeRequest, library: Library) -> Edit:
    """Return the edit to judge; every picture must have been given before."""
    for role, sha in (("source", request.source), ("edited", request.edited)):
        if not sha:
            raise UserError(f"choose the {role} picture first")
    if not request.instruction.strip():
        raise UserError("type the instruction: what was asked of the editing model")
    return Edit(
        id=request.edit_id,
        source=_file(request.source, library),
        edited=_file(request.edited, library),
        reference=_file(request.reference, library) if request.reference else None,
        instruction=request.instruction.strip(),
        instruction_type=request.instruction_type or None,
        target_boxes=request.boxes,
    )


def judge_of(request: JudgeRequest, settings: StudioSettings) -> Judge:
    """Open the judge; a missing key is one sentence."""
    base_url = request.base_url.strip() or None
    if base_url and base_url != settings.base_url and not settings.local:
        # A key would follow the address: whoever holds the token could have it sent to a server of their own.
        raise UserError(
            "the server's address can only be given on the command line while other machines can reach this"
        )
    spec = request.judge.strip() or settings.judge
    if not base_url and spec == settings.judge:
        base_url = settings.base_url
    return Judge(spec, protocol=request.protocol, mode=request.mode, base_url=base_url)


def keep_upload(data: bytes, library: Library) -> dict[str, object]:
    """Open an uploaded picture safely, keep it under its hash, and say what it is."""
    picture = decode(data, "this file")
    folder = library.writer().folder
    file = library.uploads / picture.sha
    if not file.exists():
        part = folder / f".{picture.sha}.part"
        part.write_bytes(data)
        part.replace(file)
    keep(library.pictures, picture)
    return {"sha": picture.sha, "width": picture.size[0], "height": picture.size[1]}


def _file(sha: str, library: Library) -> Path:
    """Return an uploaded file by its hash; a hash has no slashes or dots, so it cannot leave the folder."""
    path = library.uploads / sha
    if not re.fullmatch(SHA, sha) or not path.is_file():
        raise UserError("a picture is missing on the server; choose it again")
    open_picture(path)
    return path
