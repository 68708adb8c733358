"""The answer of the gate as text, Markdown and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree

from editloupe._util.text import for_markdown, number_of, printable, shorten, verb
from editloupe.evals.gate.decisions import GateTest
from editloupe.evals.gate.gate import GateResult, LostEdit
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.text_renderer import as_markdown
from editloupe.evals.stats.comparison.paired_differences import OVERALL
from editloupe.rubrics.tables import PrintedTable

MOST_LISTED = 100
"""Broken outputs listed in text and Markdown, which keeps a step summary far below 1,024 kB; JSON and XML list all."""
LONGEST_TEXT = 200
LONGEST_NAME = 100
MOST_BYTES = 1_000_000
"""Bytes of a step summary. GitHub takes 1,024 kB."""
_WORDS = {"passed": "passed", "failed": "failed", "cannot_tell": "cannot tell"}


def gate_blocks(result: GateResult, links: Mapping[str, str] | None = None) -> Iterator[Block]:
    """Yield the answer, the table of scores, the broken outputs and the largest losses.

    Args:
        result: The answer.
        links: Addresses of thumbnails by path; pictures without one are named by their path.
    """
    yield Heading(f"Gate: {result.new} against {result.baseline}")
    yield Paragraph(summarize_gate(result), "answer")
    rows = tuple(_build_row(name, test, result.titles) for name, test in result.tests.items())
    if rows:
        yield PrintedTable(
            "",
            ("score", "new", "baseline", "difference", "low", "high", "edits", "answer"),
            rows,
            (
                f"Points of 100. low and high are one-sided bounds at {result.level:g}; high is corrected for the number of "
                f"scores. Passed: low is above −{result.drop:g}. Failed: high is below 0, and low is not above −{result.drop:g}.",
            ),
        )
    if result.broken:
        yield Heading("Broken outputs, not scored", 3)
        listed = [
            f"{shorten(edit.edit_id, LONGEST_NAME)}: {edit.reason} (“{shorten(edit.instruction, LONGEST_TEXT)}”)"
            for edit in result.broken[:MOST_LISTED]
        ]
        more = len(result.broken) - len(listed)
        yield Points((*listed, *([f"and {more} more"] if more else [])))
    if result.worst:
        yield Heading("Largest losses", 3)
        yield PrintedTable(
            "",
            ("edit", "difference", "instruction"),
            tuple(
                (shorten(edit.edit_id, LONGEST_NAME), edit.difference, shorten(edit.instruction, LONGEST_TEXT))
                for edit in result.worst
            ),
        )
        if links is None:
            yield Points(tuple(f"{edit.edit_id}: new {edit.new}, baseline {edit.baseline}" for edit in result.worst))
    yield Points(tuple(_describe_cases(result)))


def summarize_gate(result: GateResult) -> str:
    """Return the answer in one or two sentences."""
    if result.verdict == "passed" and result.identical == result.edits and result.identical:
        return f"Passed: all {number_of(result.identical, 'output')} are identical to the baseline's."
    names = {name: _title(name, result.titles) for name in result.tests}
    losses = [names[name] for name, test in result.tests.items() if test.loss_within_margin]
    within = f" A loss smaller than that is proven: {', '.join(losses)}." if losses else ""
    early = f" Certain after {result.drawn} of {result.looks[-1]} edits." if result.is_early else ""
    if result.verdict == "passed":
        return f"Passed: with {number_of(result.edits, 'edit')} no score loses {result.drop:g} points or more.{within}{early}"
    if result.verdict == "failed":
        reasons = []
        lost = [names[name] for name, test in result.tests.items() if test.verdict == "failed"]
        if lost:
            reasons.append(f"a loss is proven: {', '.join(lost)}")
        if result.broken:
            count = len(result.broken)
            reasons.append(f"{number_of(count, 'output')} {verb(count, 'is', 'are')} broken")
        return f"Failed: {'; '.join(reasons)}.{within}{early if lost else ''}"
    needed = f" About {result.needed} would be needed if they differ as these do." if result.needed else ""
    missing = list(dict.fromkeys(test.why for test in result.tests.values() if test.low is None and test.why))
    return (
        f"Cannot tell with {number_of(result.edits, 'edit')}.{needed}{''.join(f' {why}.' for why in missing)}{within}"
    )


def as_step_summary(result: GateResult, links: Mapping[str, str]) -> str:
    """Return the answer as Markdown below 1,024 kB, with links to the thumbnails of the worst edits.

    Args:
        result: The answer.
        links: Addresses of thumbnails by path, and of the picture sheet by `sheet`.
    """
    text = as_markdown(tuple(gate_blocks(result, links)))
    lines = [
        f"- {for_markdown(shorten(edit.edit_id, LONGEST_NAME))}: "
        + ", ".join(f"[{name}]({address})" for name, path in _name_pictures(edit) if (address := links.get(path)))
        for edit in result.worst
    ]
    listed = "\n".join(line for line in lines if "](" in line)
    sheet = f"[Picture sheet]({links['sheet']})" if "sheet" in links else ""
    parts = [text.rstrip("\n"), *([f"### Pictures\n\n{listed}"] if listed else []), *([sheet] if sheet else [])]
    return "\n\n".join(parts).encode()[:MOST_BYTES].decode(errors="ignore") + "\n"


def _name_pictures(edit: LostEdit) -> Iterator[tuple[str, str]]:
    yield from (("source", edit.source), ("baseline", edit.baseline), ("new", edit.new))


def _title(name: str, titles: Mapping[str, str]) -> str:
    return "Score" if name == OVERALL else titles.get(name) or name.replace("_", " ").capitalize()


def _build_row(name: str, test: GateTest, titles: Mapping[str, str]) -> tuple[str | int | float | None, ...]:
    answer = _WORDS[test.verdict] + (", with a loss" if test.loss_within_margin else "")
    return _title(name, titles), test.new, test.baseline, test.difference, test.low, test.high, test.edits, answer


def _describe_cases(result: GateResult) -> Iterator[str]:
    if result.identical:
        yield f"{number_of(result.identical, 'output')} identical to the baseline's: no difference, whatever was judged."
    if result.looks and result.identical < result.edits:
        yield (
            f"Edits were judged in a fixed random order and tested after {', '.join(map(str, result.looks))}, with bounds that "
            "allow for that."
        )
    for why, count in result.left_out.items():
        yield f"{number_of(count, 'case')} not compared: {why}."
    yield from result.notes


def as_junit(result: GateResult, allow_unsure: bool = False) -> str:
    """Return the answer as JUnit XML with one test case per score and per broken output.

    A proven loss or a broken output is a failure. A score that cannot be decided is an error.

    Args:
        result: The answer.
        allow_unsure: Whether a score that cannot be decided is skipped instead.
    """
    cases = [
        _build_case(_title(name, result.titles), *_judge_test(test, result, allow_unsure))
        for name, test in result.tests.items()
    ]
    cases += [
        _build_case(f"output of {edit.edit_id}", "failure", f"{edit.reason}: {edit.instruction}")
        for edit in result.broken
    ]
    if not cases:  # nothing could be compared, and an empty suite would count as passed
        cases = [_build_case(_title(OVERALL, {}), "skipped" if allow_unsure else "error", summarize_gate(result))]
    suite = ElementTree.Element(
        "testsuite", {"name": "editloupe gate", "tests": str(len(cases)), **_count_states(cases)}
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _judge_test(test: GateTest, result: GateResult, allow_unsure: bool) -> tuple[str | None, str]:
    bounds = (
        f"{test.difference:+.2f}, bounds {test.low:+.2f} and {test.high:+.2f}, {number_of(test.edits, 'edit')}, margin "
        f"{result.drop:g}"
        if test.difference is not None and test.low is not None and test.high is not None
        else test.why or "no bounds"
    )
    return {"passed": None, "failed": "failure", "cannot_tell": "skipped" if allow_unsure else "error"}[
        test.verdict
    ], bounds


def _build_case(name: str, state: str | None, text: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="editloupe.gate", name=_for_xml(name))
    message = _for_xml(shorten(text, 1000))
    if state:
        # Jenkins shows the attribute, GitLab only the text.
        ElementTree.SubElement(case, state, message=message).text = message
    else:
        ElementTree.SubElement(case, "system-out").text = message
    return case


def _count_states(cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    return {
        attribute: str(sum(case.find(tag) is not None for case in cases))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }


def _for_xml(text: str) -> str:
    """Return text without characters that XML cannot hold."""
    return "".join(c for c in printable(text) if not (0xD800 <= ord(c) <= 0xDFFF or ord(c) in (0xFFFE, 0xFFFF)))
