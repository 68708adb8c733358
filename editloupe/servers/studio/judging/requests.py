"""Reads and checks the requests of the Judge page and of the Fork page, and opens their judges."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError, field_validator
from starlette.exceptions import HTTPException
from starlette.requests import Request

from editloupe._util.errors import describe_error
from editloupe.agent.spec_names import RULES
from editloupe.evals.forks.fork_judge import JudgeChange
from editloupe.evals.forks.fork_trace import ForkStop
from editloupe.judge import Judge
from editloupe.judge.plans import is_file_spec
from editloupe.judge.settings import DEFAULT_SETUP, setup_names
from editloupe.rubrics.case_pictures import OPTIONAL, name_to_role
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import DEFAULT
from editloupe.servers.http.access import LONGEST
from editloupe.servers.studio.judging.uploads import Uploads
from editloupe.servers.studio.run_catalog import OpenRun
from editloupe.servers.studio.settings import StudioSettings
from editloupe.tools.settings import read_assignments
from editloupe.types import Boxes, Edit, FailFastTuple, Mode, Record, UserError

M = TypeVar("M", bound=BaseModel)
_OWN_SLOTS = ("source", "edited", "reference")
Role = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
Picture = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{32})?$")]


class JudgeRequest(Record):
    """A request of the Judge page."""

    source: Picture = ""
    edited: Picture = ""
    reference: Picture = ""
    more: dict[Role, Picture] = Field(default_factory=dict, max_length=12)
    """Further pictures by role, such as an annotated one or a golden label."""
    instruction: str = Field(default="", max_length=LONGEST)
    instruction_type: str = Field(default="", max_length=80)
    boxes: Boxes = Field(default=(), max_length=50)
    judge: str = Field(default="", max_length=200)
    base_url: str | None = Field(default=None, max_length=400)
    """One of the allowed servers; empty for the provider's own, None for the default."""
    protocol: str = Field(default=DEFAULT.name, max_length=40)
    mode: Mode | None = None
    setup: str = Field(default=DEFAULT_SETUP, max_length=80)
    """A preset of EditLoupe; a page cannot name files."""
    name: str = Field(default="", max_length=80)
    """The edit's name: that of an example or of a file."""

    @field_validator("mode", mode="before")
    @classmethod
    def _no_mode_is_none(cls, value: object) -> object:
        return value or None

    @property
    def given(self) -> dict[str, str]:
        """The further pictures that were given."""
        return {role: sha for role, sha in self.more.items() if sha}

    @property
    def edit_id(self) -> str:
        """The edit's id; the same for the same content, so that repeats have one name."""
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
    """Read a request's JSON; raise UserError with one sentence if it has a mistake.

    It is read in a worker thread, so that no other page waits for it.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        # A form of another site cannot send JSON without a preflight request.
        raise HTTPException(415, "This address takes JSON.")
    try:
        return await asyncio.to_thread(kind.model_validate_json, await request.body())
    except ValidationError as error:
        raise UserError(describe_error(error, whole="the request")) from None


def build_edit(request: JudgeRequest, uploads: Uploads) -> Edit:
    """Return the edit to judge; every picture must have been uploaded before."""
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


def list_further_roles(protocol: Protocol) -> dict[str, str]:
    """Return the roles and names of the pictures a protocol uses in addition to source, edited and reference."""
    named = (name for rubric in protocol.rubrics for mode in rubric.modes.values() for name in mode.images)
    names = {name_to_role(name): name.removesuffix(OPTIONAL) for name in named}
    return {role: name for role, name in names.items() if role not in _OWN_SLOTS}


def fill_in_settings(request: JudgeRequest, open_run: OpenRun, name: str, uploads: Uploads) -> JudgeRequest:
    """Return a request for an edit of a run, with its stored pictures and the settings of its first verdict."""
    edit, pictures, _ = open_run.edit(name)
    shas: dict[str, str] = {}
    more: dict[str, str] = {}
    for role, hashes in pictures.items():
        path = open_run.run.pictures.find(hashes[0]) if hashes else None
        if path is not None:
            (shas if role in _OWN_SLOTS else more)[role] = str(uploads.copy(path)["sha"])
    units = open_run.units(name)
    judged = {"protocol": units[0].protocol, "mode": units[0].mode, "judge": units[0].judge} if units else {}
    texts = {"instruction": edit.instruction[:LONGEST], "instruction_type": (edit.instruction_type or "")[:80]}
    return request.model_copy(
        update={**shas, **judged, **texts, "more": more, "boxes": edit.target_boxes[:50], "name": edit.id[:80]}
    )


def build_judge(request: JudgeRequest, settings: StudioSettings) -> Judge:
    """Open the judge; raise UserError if its API key is missing."""
    spec = request.judge.strip() or settings.judge
    _check_setup(request.setup)
    if spec and is_file_spec(spec) and spec != settings.judge:
        raise UserError(
            "a page names no files of this machine; start the studio with that judge: `editloupe studio --judge SPEC`"
        )
    return Judge(
        spec,
        protocol=request.protocol,
        mode=request.mode,
        base_url=_base_url(request, spec, settings),
        setup=request.setup,
    )


def _check_setup(setup: str) -> None:
    if setup not in setup_names():
        raise UserError(f'there is no set-up "{setup}" here; there are: {", ".join(setup_names())}')


def _base_url(request: JudgeRequest, spec: str | None, settings: StudioSettings) -> str | None:
    if spec == RULES:
        return None
    if request.base_url is None:
        return settings.base_urls[0] if settings.base_urls and spec == settings.judge else None
    return _find_server(request.base_url, settings)


def _find_server(name: str, settings: StudioSettings) -> str | None:
    """Return the address of a server that the studio was started with, because the API key is sent to it; None for no name."""
    name = name.strip()
    if not name:
        return None
    address = settings.servers.get(name, name)
    if address not in settings.base_urls:
        raise UserError(
            "this studio asks only the servers it was started with; name another one with "
            "`editloupe studio --base-url URL`"
        )
    return address


AT_ONCE = 2
"""Forks that run at the same time; each may have several repeats."""
TOOL_SETTINGS = (
    "enhancer",
    "enhance_up_to",
    "network_share",
    "comparison",
    "pixel_threshold",
    "max_regions",
    "overview",
    "box_threshold",
    "text_threshold",
    "read_text",
)
"""Tool settings that a page may change: none that name files, weights or devices."""
MOST = 20
"""Repeats of one fork from the page."""
Place = int | str


class ForkRequest(Record):
    """A request of the Fork page; steps, calls and targets are counted from 1."""

    edit: str = Field(max_length=1000)
    criterion: str = Field(max_length=200)
    repeat: int = Field(default=0, ge=0)
    configuration: str | None = Field(default=None, max_length=80)
    target: int | None = Field(default=None, ge=1)
    parent: int | None = Field(default=None, ge=1)
    step: int = Field(ge=1)
    thought: str | None = Field(default=None, max_length=LONGEST)
    """None if it is unchanged."""
    dropped: FailFastTuple[int] = Field(default=(), max_length=64)
    again: FailFastTuple[int] = Field(default=(), max_length=64)
    boxes: dict[int, str] = Field(default_factory=dict, max_length=64)
    """By call, as x1, y1, x2, y2 in the coordinates of the call."""
    pictures: dict[str, str] = Field(default_factory=dict, max_length=64)
    """By observation, the hash of an uploaded picture."""
    judge: str = Field(default="", max_length=200)
    base_url: str = Field(default="", max_length=400)
    mode: Mode | None = None
    setup: str = Field(default="", max_length=80)
    """A preset of EditLoupe; empty for the parent's settings."""
    tools: str = Field(default="", max_length=1000)
    """Tool settings, one KEY=VALUE per line."""
    wording: str = Field(default="", max_length=LONGEST)
    """A reworded rubric, in YAML."""
    times: int = Field(default=1, ge=1, le=MOST)
    job: str = Field(default="", max_length=80)
    """The key by which it can be stopped."""

    @field_validator("mode", "configuration", "thought", mode="before")
    @classmethod
    def _nothing_is_none(cls, value: object) -> object:
        return value or None

    def box_numbers(self) -> dict[int, tuple[float, ...]]:
        """Return the changed boxes."""
        boxes: dict[int, tuple[float, ...]] = {}
        for call, text in self.boxes.items():
            try:
                numbers = tuple(float(part) for part in text.replace(",", " ").split())
            except ValueError:
                numbers = ()
            if len(numbers) != 4:
                raise UserError(f"the box of call {call} takes four numbers: x1, y1, x2, y2")
            boxes[call] = numbers
        return boxes

    def picture_files(self, uploads: Uploads) -> dict[Place, str | Path]:
        """Return the uploaded pictures."""
        return {observation: uploads.path(sha) for observation, sha in self.pictures.items()}

    def tool_settings(self) -> dict[str, Any]:
        """Return the changed tool settings; raise UserError if a page may not change one."""
        settings = read_assignments([line.strip() for line in self.tools.splitlines() if line.strip()])
        for name in settings:
            if name not in TOOL_SETTINGS:
                raise UserError(f"{name} is not set on the page; it has: {', '.join(TOOL_SETTINGS)}")
        return dict(settings)

    def other(self, settings: StudioSettings, rubrics: Sequence[Path]) -> JudgeChange:
        """Return the changes of the judge; only servers that the studio was started with can be used."""
        if self.setup:
            _check_setup(self.setup)
        return JudgeChange(
            judge=self.judge.strip() or None,
            base_url=_find_server(self.base_url, settings),
            mode=self.mode,
            setup=self.setup or None,
            tools=self.tool_settings(),
            rubrics=tuple(rubrics),
            address_of_run=False,
        )

    @contextmanager
    def rubric_files(self) -> Iterator[list[Path]]:
        """Yield the reworded rubric as a temporary file."""
        if not self.wording.strip():
            yield []
            return
        with TemporaryDirectory(prefix="editloupe-wording-") as folder:
            file = Path(folder) / "wording.yaml"
            file.write_text(self.wording, "utf-8")
            yield [file]


class ForkJobs:
    """The forks under way, by the key of their form."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, ForkStop] = {}
        self._closed = False

    @contextmanager
    def room(self, key: str) -> Iterator[ForkStop]:
        """Reserve a slot and yield the handle that stops the fork; raise UserError if no slot is free."""
        with self._lock:
            if self._closed:
                raise UserError("the studio is ending")
            if key in self._under_way:
                raise UserError("this fork is being made already; wait for it, or stop it")
            if len(self._under_way) >= AT_ONCE:
                raise UserError(f"{AT_ONCE} forks are being made already; wait for one of them, or stop it")
            stop = self._under_way[key] = ForkStop()
        try:
            yield stop
        finally:
            with self._lock:
                del self._under_way[key]

    def stop(self, key: str) -> bool:
        """Stop a fork; False if it has ended or does not exist."""
        with self._lock:
            fork_stop = self._under_way.get(key)
        if fork_stop is not None:
            fork_stop.stop()
        return fork_stop is not None

    def close(self) -> None:
        """Stop all forks; no further one can begin."""
        with self._lock:
            self._closed, left = True, list(self._under_way.values())
        for fork_stop in left:
            fork_stop.stop()
