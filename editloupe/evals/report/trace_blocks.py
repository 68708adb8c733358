"""Turn trace statistics into blocks."""

from __future__ import annotations

from collections.abc import Iterator

from editloupe._util.text import number_of
from editloupe.evals.report.block_types import Block, Heading, Paragraph
from editloupe.evals.traces.trace_statistics import NO_EXPERIMENT, CriterionStatistics, Share, TraceStatistics
from editloupe.rubrics.tables import PrintedTable


def statistics_blocks(counted: TraceStatistics, searched: int) -> tuple[Block, ...]:
    """Return the blocks on the verdicts that match a filter."""
    return tuple(_blocks(counted, searched))


def _blocks(counted: TraceStatistics, searched: int) -> Iterator[Block]:
    cost = "" if counted.cost is None else f", ${counted.cost:.2f}"
    tokens = f"{counted.input_tokens} + {counted.output_tokens} tokens"
    shared = (
        ""
        if counted.traces == counted.verdicts
        else f" in {number_of(counted.traces, 'trace')}, some of them shared by edits"
    )
    yield Paragraph(
        f"{counted.verdicts} of {searched} verdicts fit: {counted.judged} judged, "
        f"{counted.verdicts - counted.judged} unjudged{shared}; {counted.seconds:.0f} s summed over "
        f"{'traces' if shared else 'verdicts'}, {tokens}{cost}.",
        "answer",
    )
    if not counted.verdicts:
        return
    if counted.tools:
        columns = ("Tool", "verdicts", "calls", "failed", "from memory", "seconds", "tokens in", "tokens out")
        rows = tuple(
            (
                usage.tool,
                str(usage.verdicts),
                str(usage.calls),
                str(usage.failed),
                f"{usage.cached / usage.calls:.0%}" if usage.calls else "–",
                f"{usage.seconds:.1f}",
                str(usage.input_tokens),
                str(usage.output_tokens),
            )
            for usage in counted.tools
        )
        note = "Tokens are those of the replies that called a tool, shared evenly among the calls of a reply."
        if shared:
            note += " What was done in a trace that several edits share is counted once."
        yield PrintedTable("", columns, rows, (note,))
    for title, counts in (("Turns", counted.turns), ("Repairs", counted.repairs)):
        if counts:
            listed = sorted(counts.items())
            yield PrintedTable(
                "", (title, *(str(number) for number, _ in listed)), (("verdicts", *(str(n) for _, n in listed)),)
            )
    for statistics in counted.criteria:
        yield Heading(f"{statistics.criterion} ({statistics.protocol})", 3)
        yield from _criterion(statistics)
    if any(statistics.tools for statistics in counted.criteria):
        yield Paragraph(NO_EXPERIMENT, "warning")


def _criterion(statistics: CriterionStatistics) -> Iterator[Block]:
    labels = [name for name in statistics.labels if statistics.counts.get(name)]
    rows = [("all verdicts", *(str(statistics.counts[name]) for name in labels))]
    rows += [(tool, *(str(by.get(name, 0)) for name in labels)) for tool, by in statistics.by_tool.items()]
    if labels:
        yield PrintedTable("", ("Called ↓, label →", *labels), tuple(rows))
    if not statistics.agreement.of:
        return
    yield PrintedTable(
        "",
        ("People ↓, judge →", *statistics.labels),
        tuple((name, *map(str, counts)) for name, counts in zip(statistics.labels, statistics.confusion, strict=True)),
    )
    yield Paragraph(f"Judge and people gave the same in {format_share(statistics.agreement)}.")
    if statistics.tools:
        compared = tuple(
            (each.tool, format_share(each.used), format_share(each.unused), format_difference(each.difference))
            for each in statistics.tools
        )
        yield PrintedTable("", ("Agreement with people", "with a call", "without", "difference"), compared)


def format_share(share: Share) -> str:
    """Format a share with its interval."""
    if share.interval is None:
        return "none"
    low, high = share.interval
    return f"{share.count / share.of:.0%} [{low:.0%}, {high:.0%}] of {share.of}"


def format_difference(difference: tuple[float, float, float] | None) -> str:
    """Format a difference of shares with its interval, in percentage points."""
    if difference is None:
        return "–"
    value, low, high = (100 * part for part in difference)
    return f"{value:+.0f} [{low:+.0f}, {high:+.0f}]"
