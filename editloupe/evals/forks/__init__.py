"""Continue stored traces from one of their steps with one thing changed. The results are forks, never verdicts."""

from editloupe.evals.forks.fork_judge import JudgeChange
from editloupe.evals.forks.fork_store import Fork, ForkParent, forks_of
from editloupe.evals.forks.fork_trace import ForkStop, ForkStopped, fork

__all__ = ["Fork", "ForkParent", "ForkStop", "ForkStopped", "JudgeChange", "fork", "forks_of"]
