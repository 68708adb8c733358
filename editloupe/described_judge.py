"""What a judge says of itself: the parameters that decide its answers, its description for a run, the keys of its units."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from editloupe.agent.chat import Chat
from editloupe.agent.models import ModelSettings
from editloupe.agent.providers.registry import client_packages
from editloupe.agent.secrets import shown
from editloupe.images import hash_file
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
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a user should know before reading verdicts."""

    @abstractmethod
    def further_parameters(self) -> dict[str, Any]:
        """Return what decides the answers of this kind of judge, beyond what every judge has."""

    @abstractmethod
    def rubric_texts(self) -> dict[str, Any]:
        """Return the rubrics that are asked, whole, by name."""

    def parameters(self) -> dict[str, Any]:
        """Return everything that decides the answers besides the edit and the rubric."""
        return {
            "spec": self.spec,
            "base_url": self.base_url,
            "protocol": self.protocol,
            "mode": self.mode,
            "settings": self.settings.model_dump(mode="json", exclude={"retry", "timeout"}),
            "profile": self._chat.profile.model_dump(mode="json"),
            **self.further_parameters(),
        }

    def describe(self) -> dict[str, Any]:
        """Return what must be known later to say what was judged, by what, with which versions, settings and prompts."""
        return {
            **self.parameters(),
            "base_url": shown(self.base_url) if self.base_url else self.base_url,
            "criteria": list(self.criteria),
            "rubrics": self.rubric_texts(),
            "versions": {name: version(name) for name in (*PACKAGES, *client_packages())},
            "notes": list(self.notes),
        }


def content_key(facts: Mapping[str, Any]) -> str:
    """Return the key of a unit of work: the same facts have the same key, whatever their order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def picture_hashes(edit: Edit, known: dict[Path, Sha]) -> dict[str, list[Sha]]:
    """Return the hashes of an edit's pictures by role; they are taken from `known` and put there.

    The units of one edit read its files once.
    """
    for path in edit.paths:
        if path not in known:
            known[path] = hash_file(path)
    return {role: [known[path] for path in paths] for role, paths in edit.files.items()}
