"""Judge many edits into a resumable run, on this machine, on a Ray cluster, or through a provider's batch interface."""

from editloupe.evals.batch.batch import Batch, Ending, dry_run, judge_batch
from editloupe.evals.batch.traffic import Limits

__all__ = ["Batch", "Ending", "Limits", "dry_run", "judge_batch"]
