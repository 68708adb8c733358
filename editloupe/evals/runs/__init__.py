"""Runs on disk: units, outcomes, traces, replies and pictures; written by one, read by many, exported."""

from editloupe.evals.runs.damage import RunDamaged
from editloupe.evals.runs.prices import Price, price_of
from editloupe.evals.runs.records import Unit
from editloupe.evals.runs.store import Run

__all__ = ["Price", "Run", "RunDamaged", "Unit", "price_of"]
