"""Judging many edits into a run: planning, traffic, progress, stopping, on this machine or on a Ray cluster."""

from editloupe.evals.batch.batch import Batch, Ending, dry_run, judge_batch
from editloupe.evals.batch.traffic import Limits

__all__ = ["Batch", "Ending", "Limits", "dry_run", "judge_batch"]
