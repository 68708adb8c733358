"""Who can judge a batch: the part of a judge that batches, runs and clusters rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from editloupe.judge.question_key import Asked
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.tools.registry import Toolbox
from editloupe.types import Edit, Judgement, Mode, Sha


class BatchJudge(Protocol):
    """What a batch asks of a judge; `Judge` fulfils it, and so does a judge of pictures in chains."""

    @property
    def spec(self) -> str:
        """Who answers."""

    @property
    def members(self) -> tuple[str, ...]:
        """The specs of all judges that may be asked: one, where none answer together."""

    @property
    def protocol(self) -> str:
        """Whose rubrics are asked."""

    @property
    def mode(self) -> Mode:
        """What the judge may look with."""

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria, in order."""

    @property
    def uses_tools(self) -> bool:
        """True where the judge looks with the tools of its toolbox."""

    @property
    def toolbox(self) -> Toolbox:
        """Its tools."""

    def criteria_for(self, edit: Edit) -> Sequence[str]:
        """Return the criteria one edit is asked."""

    def asked(self) -> tuple[Asked, ...]:
        """Return every question this judge puts, whatever the edit."""

    def asked_of(self, edit: Edit, criterion: str) -> Asked:
        """Return how one edit is asked on one criterion."""

    def shown(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of what of an edit the judge is shown; None where a picture it needs has no hash."""

    def describe(self) -> dict[str, Any]:
        """Return what must be known later to say what was judged, by what, with which versions and settings."""

    async def ajudge(
        self,
        edit: Edit,
        *,
        criteria: Sequence[str] | None = None,
        repeat: int = 0,
        strict: bool = False,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one edit; one that cannot be judged ends unjudged, or raises with `strict`."""

    def close(self) -> None:
        """Let go of everything."""

    async def aclose(self) -> None:
        """Let go of everything without blocking the event loop."""
