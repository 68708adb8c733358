"""The providers whose models can be judges, one file per provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.agent.providers.provider import ErrorForm, Opening, Provider
    from editloupe.agent.providers.registry import PROVIDERS, find_provider, list_client_packages

__all__ = ["PROVIDERS", "ErrorForm", "Opening", "Provider", "find_provider", "list_client_packages"]

__getattr__, __dir__ = lazy_names(__name__)
