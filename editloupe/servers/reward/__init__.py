"""A reward server for trainers, with the request formats of several training frameworks.

Public names are imported on first use, so settings can be checked before the web framework is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.servers.reward.app import create_app, serve_rewards
    from editloupe.servers.reward.scoring import EditScorer
    from editloupe.servers.reward.settings import RewardServerSettings

__all__ = [
    "EditScorer",
    "RewardServerSettings",
    "create_app",
    "serve_rewards",
]

__getattr__, __dir__ = lazy_names(__name__)
