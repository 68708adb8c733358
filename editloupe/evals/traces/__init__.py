"""All traces asked at once: a small language that finds them, an index that makes it quick, and statistics of what is found."""

from editloupe.evals.traces.filter_parser import ExpressionError
from editloupe.evals.traces.trace_search import FoundTraces, TraceHit, find_traces
from editloupe.evals.traces.trace_statistics import TraceStatistics

__all__ = ["ExpressionError", "FoundTraces", "TraceHit", "TraceStatistics", "find_traces"]
