"""Shim of a documented import path. The name is in `editloupe.evals.forks`."""

from editloupe.evals.forks.fork_judge import JudgeChange

__all__ = ["JudgeChange"]
