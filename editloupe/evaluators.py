"""Documented import path of the LangSmith and openevals evaluator."""

from editloupe.integrations.evaluators import edit_evaluator as edit_evaluator
