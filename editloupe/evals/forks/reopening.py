"""Shim for a documented import path: the names are in `editloupe.evals.forks.fork_judge`."""

from editloupe.evals.forks.fork_judge import JudgeChange

__all__ = ["JudgeChange"]
