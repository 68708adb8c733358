"""Vision tools that a judge can call, without any language model.

The tools zoom in, compare pictures, detect objects and read text. Public names are imported when they are first used,
so that light modules such as `tools.settings` stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.tools.compare.process_pool import ComparisonPool
    from editloupe.tools.contract import (
        CachedResult,
        Frame,
        ResultCache,
        Tool,
        ToolError,
        ToolPicture,
        ToolResult,
        View,
    )
    from editloupe.tools.enhance import Enhancer
    from editloupe.tools.models.detectors import Finder, WholePictureFinder
    from editloupe.tools.models.features import DinoFeatures, Features, FeatureSettings
    from editloupe.tools.models.quality import HpsV3, Quality
    from editloupe.tools.parameters import read_box
    from editloupe.tools.registry import BUILT_IN, Toolbox, build_toolbox
    from editloupe.tools.result_cache import ToolResultCache, key
    from editloupe.tools.settings import ToolSettings

__all__ = [
    "BUILT_IN",
    "CachedResult",
    "ComparisonPool",
    "DinoFeatures",
    "Enhancer",
    "FeatureSettings",
    "Features",
    "Finder",
    "Frame",
    "HpsV3",
    "Quality",
    "ResultCache",
    "Tool",
    "ToolError",
    "ToolPicture",
    "ToolResult",
    "ToolResultCache",
    "ToolSettings",
    "Toolbox",
    "View",
    "WholePictureFinder",
    "build_toolbox",
    "key",
    "read_box",
]

__getattr__, __dir__ = lazy_names(__name__)
