"""A server that trainers ask for rewards: JSON in the dialects they speak, pickles where that is allowed.

Public names are imported when they are first used: settings are checked before the web framework is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.servers.reward.app import create_app
    from editloupe.servers.reward.scoring import EditScorer
    from editloupe.servers.reward.serving import serve_rewards
    from editloupe.servers.reward.settings import RewardServerSettings

__all__ = [
    "EditScorer",
    "RewardServerSettings",
    "create_app",
    "serve_rewards",
]

__getattr__, __dir__ = lazy_names(__name__)
