"""Search the traces of runs with a filter, and count what matches. Both use an index of the run."""

from editloupe.evals.traces.filter_parser import ExpressionError
from editloupe.evals.traces.trace_search import FoundTraces, TraceHit, find_traces
from editloupe.evals.traces.trace_statistics import TraceStatistics

__all__ = ["ExpressionError", "FoundTraces", "TraceHit", "TraceStatistics", "find_traces"]
