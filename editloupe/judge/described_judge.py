"""What a judge says of itself: the questions that decide its answers, and its description for a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from editloupe.agent.chat import Chat
from editloupe.agent.models import ModelSettings
from editloupe.agent.providers.registry import client_packages
from editloupe.agent.secrets import shown
from editloupe.judge.question_key import Asked
from editloupe.pictures.memory import PictureSource
from editloupe.types import Edit, Mode, Sha

PACKAGES = ("editloupe", "langgraph", "langchain-core")
"""Whose versions are kept with a run, beside those of the providers' clients."""


class DescribedJudge(ABC):
    """The part of a judge that runs are kept by; what it returns holds no secrets."""

    spec: str
    base_url: str | None
    protocol: str
    mode: Mode
    criteria: tuple[str, ...]
    settings: ModelSettings
    _chat: Chat

    @property
    def members(self) -> tuple[str, ...]:
        """The specs of all judges that may be asked: one, where none answer together."""
        return (self.spec,)

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a user should know before reading verdicts."""

    @abstractmethod
    def further_parameters(self) -> dict[str, Any]:
        """Return what decides the answers of this kind of judge, beyond what every judge has."""

    @abstractmethod
    def rubric_texts(self) -> dict[str, Any]:
        """Return the rubrics that are asked, whole, by name."""

    @abstractmethod
    def asked(self) -> tuple[Asked, ...]:
        """Return every question this judge puts, whatever the edit: what decides an answer and nothing else."""

    @abstractmethod
    def asked_of(self, edit: Edit, criterion: str) -> Asked:
        """Return how one edit is asked on one criterion."""

    @abstractmethod
    def shown(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of what of an edit the judge is shown; None where a picture it needs has no hash."""

    def describe(self) -> dict[str, Any]:
        """Return what must be known later to say what was judged, by what, with which versions, settings and prompts."""
        return {
            "spec": self.spec,
            "base_url": shown(self.base_url) if self.base_url else self.base_url,
            "protocol": self.protocol,
            "mode": self.mode,
            "settings": self.settings.model_dump(mode="json", exclude={"retry", "timeout"}),
            "profile": self._chat.profile.model_dump(mode="json"),
            **self.further_parameters(),
            "criteria": list(self.criteria),
            "rubrics": self.rubric_texts(),
            "versions": {name: version(name) for name in (*PACKAGES, *client_packages(*self.members))},
            "notes": list(self.notes),
        }
