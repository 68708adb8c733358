"""Forks: a kept trace gone on with from one of its steps, with one thing changed; traces of their own, never verdicts."""

from editloupe.evals.forks.fork_store import forks_of
from editloupe.evals.forks.fork_trace import fork
from editloupe.evals.forks.records import Fork, ForkParent

__all__ = ["Fork", "ForkParent", "fork", "forks_of"]
