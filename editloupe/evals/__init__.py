"""Many edits: manifests, batches, runs on disk, what they say, and reports; each a package with public names of its own."""

__all__ = ["batch", "manifests", "report", "reward", "runs", "stats"]
