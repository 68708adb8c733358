"""Forks that pages ask for: the request of the form, checked, and the forks under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field, ValidationError, field_validator

from editloupe._util.errors import describe_error
from editloupe.evals.forks.reopening import JudgeChange
from editloupe.evals.forks.stopping import ForkStop
from editloupe.judge.settings import setup_names
from editloupe.servers.studio.settings import StudioSettings
from editloupe.servers.studio.uploads import Uploads
from editloupe.tools.settings import read_assignments
from editloupe.types import Mode, Record, Several, UserError

AT_ONCE = 2
"""Forks under way together; each may ask several times."""
LONGEST = 20_000
"""Letters a thought may have."""
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
"""What a page may set about the tools: nothing that names files, weights or the machine."""
MOST = 20
"""Repeats of one fork from the page."""
Place = int | str


class ForkRequest(Record):
    """One press of the button; numbers of steps, calls and targets count from 1."""

    edit: str = Field(max_length=1000)
    criterion: str = Field(max_length=200)
    repeat: int = Field(default=0, ge=0)
    configuration: str | None = Field(default=None, max_length=80)
    target: int | None = Field(default=None, ge=1)
    parent: int | None = Field(default=None, ge=1)
    step: int = Field(ge=1)
    thought: str | None = Field(default=None, max_length=LONGEST)
    """None where it is as it was."""
    dropped: Several[int] = Field(default=(), max_length=64)
    again: Several[int] = Field(default=(), max_length=64)
    boxes: dict[int, str] = Field(default_factory=dict, max_length=64)
    """By call, as x1, y1, x2, y2 in the numbers of the call."""
    pictures: dict[str, str] = Field(default_factory=dict, max_length=64)
    """By observation, the hash of an uploaded picture."""
    judge: str = Field(default="", max_length=200)
    base_url: str = Field(default="", max_length=400)
    mode: Mode | None = None
    setup: str = Field(default="", max_length=80)
    """One of those that come with EditLoupe; a page names no files. Empty for the parent's settings."""
    tools: str = Field(default="", max_length=1000)
    """Settings of the tools, KEY=VALUE, one a line."""
    wording: str = Field(default="", max_length=LONGEST)
    """Other words for the rubric, in YAML."""
    times: int = Field(default=1, ge=1, le=MOST)
    job: str = Field(default="", max_length=80)
    """A key to stop it by, as the form was given one."""

    @field_validator("mode", "configuration", "thought", mode="before")
    @classmethod
    def _nothing_is_none(cls, value: object) -> object:
        return value or None

    def box_numbers(self) -> dict[int, tuple[float, ...]]:
        """Return the other boxes."""
        found: dict[int, tuple[float, ...]] = {}
        for call, text in self.boxes.items():
            try:
                numbers = tuple(float(part) for part in text.replace(",", " ").split())
            except ValueError:
                numbers = ()
            if len(numbers) != 4:
                raise UserError(f"the box of call {call} takes four numbers: x1, y1, x2, y2")
            found[call] = numbers
        return found

    def picture_files(self, uploads: Uploads) -> dict[Place, str | Path]:
        """Return the uploaded pictures."""
        return {place: uploads.path(sha) for place, sha in self.pictures.items()}

    def tool_settings(self) -> dict[str, Any]:
        """Return the other settings of the tools; those that name files or weights are not for a page to set."""
        found = read_assignments([line.strip() for line in self.tools.splitlines() if line.strip()])
        for name in found:
            if name not in TOOL_SETTINGS:
                raise UserError(f"{name} is not set on the page; it has: {', '.join(TOOL_SETTINGS)}")
        return dict(found)

    def other(self, settings: StudioSettings, rubrics: Sequence[Path]) -> JudgeChange:
        """Return what is other about the judge; it is asked only at servers that the studio was started with."""
        if self.setup and self.setup not in setup_names():
            raise UserError(f'there is no set-up "{self.setup}" here; there are: {", ".join(setup_names())}')
        wanted = self.base_url.strip()
        address = settings.servers.get(wanted, wanted) or None
        if address is not None and address not in settings.base_urls:
            raise UserError(
                "this studio asks only the servers it was started with; name another one with "
                "`editloupe studio --base-url URL`"
            )
        return JudgeChange(
            judge=self.judge.strip() or None,
            base_url=address,
            mode=self.mode,
            setup=self.setup or None,
            tools=self.tool_settings(),
            rubrics=tuple(rubrics),
            address_of_run=False,
        )

    @contextmanager
    def rubric_files(self) -> Iterator[list[Path]]:
        """Give the other words as a file, for as long as the judge is opened with it."""
        if not self.wording.strip():
            yield []
            return
        with TemporaryDirectory(prefix="editloupe-wording-") as folder:
            file = Path(folder) / "wording.yaml"
            file.write_text(self.wording, "utf-8")
            yield [file]


def read_fork_request(body: bytes) -> ForkRequest:
    """Read what the page sent; a mistake is told in one sentence."""
    try:
        return ForkRequest.model_validate_json(body)
    except ValidationError as error:
        raise UserError(describe_error(error, whole="the request")) from None


class ForkJobs:
    """The forks of this program, by the key their form was given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[str, ForkStop] = {}
        self._closed = False

    @contextmanager
    def room(self, key: str) -> Iterator[ForkStop]:
        """Take a place and give what stops the fork; where there is no place, that is told in a sentence."""
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
        """Stop a fork; False where it has ended, or was never begun."""
        with self._lock:
            found = self._under_way.get(key)
        if found is not None:
            found.stop()
        return found is not None

    def close(self) -> None:
        """Stop all of them; no further one begins."""
        with self._lock:
            self._closed, left = True, list(self._under_way.values())
        for one in left:
            one.stop()
