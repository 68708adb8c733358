"""Documented import path of the Inspect scorer."""

from editloupe.integrations.inspect_scorer import edit_judge as edit_judge
