"""Judge many edits, store the runs, and compute and report the results."""

__all__ = ["batch", "manifests", "report", "reward", "runs", "stats"]
