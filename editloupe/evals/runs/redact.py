"""Keeps secrets out of files: the keys this process holds are replaced before anything is written."""

from __future__ import annotations

from editloupe.agent.secrets import PLACEHOLDER, Secrets


class Redactor(Secrets):
    """Takes every key the environment held when the run was opened, every key a judge was given, and what addresses carry."""


__all__ = ["PLACEHOLDER", "Redactor"]
