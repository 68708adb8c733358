"""Web pages for judging an edit, reading runs and traces, and labelling edits.

Public names are imported when they are first used: settings are checked before the web framework is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.servers.studio.app import create_app
    from editloupe.servers.studio.settings import StudioSettings
    from editloupe.servers.studio.studio import Studio

__all__ = [
    "Studio",
    "StudioSettings",
    "create_app",
]

__getattr__, __dir__ = lazy_names(__name__)
