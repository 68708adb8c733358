"""MANY edits: manifests, the runner and its executors, the run on disk, export."""
