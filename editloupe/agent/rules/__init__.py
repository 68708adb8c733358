"""The embedded judge `rules`: a chat model without weights that decides from measured evidence."""

from editloupe.agent.rules.chat import RulesChat

__all__ = ["RulesChat"]
