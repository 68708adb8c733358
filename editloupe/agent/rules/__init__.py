"""The embedded judge `rules`, which decides from measured evidence without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe._util.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.agent.rules.judge import RulesJudge

__all__ = ["RulesJudge"]

__getattr__, __dir__ = lazy_names(__name__)
