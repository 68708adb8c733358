"""A trace as one file to send to somebody, with what people said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from editloupe._util.files import write_text
from editloupe.cli.telling import tell
from editloupe.evals.report.trace_html import trace_html
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.evals.traces.finding import searching
from editloupe.types import Trace


def write_trace(run: Run, name: str, stories: Sequence[tuple[Unit, tuple[Trace, ...]]], out: Path) -> None:
    """Write the page of an edit's verdicts."""
    with searching(run) as opened:
        people = opened.people_about(name)
    write_text(out, trace_html(run, run.edit(name), stories, people))
    whole = (
        "the trace without pictures that are gone" if run.damage.sentences() else "the whole trace with its pictures"
    )
    tell(f"{out} holds {whole} ({out.stat().st_size / 1e6:.1f} MB)")
