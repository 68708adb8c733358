"""The answer of the gate as text, Markdown and JUnit XML, and pictures of the edits that lost most."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe._util.files import atomic_write, make_folder, safe_file_name
from editloupe._util.text import for_markdown, number_of, printable, shorten, verb
from editloupe.agent.rules.pixels import distance, soft_lab
from editloupe.evals.gate.decisions import GateTest
from editloupe.evals.gate.gate import GateResult, LostEdit
from editloupe.evals.report.block_types import Block, Heading, Paragraph, Points
from editloupe.evals.report.text_renderer import as_markdown
from editloupe.evals.stats.comparison.paired_differences import OVERALL
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.tables import PrintedTable

Frame = tuple[int, int, int, int]
SIDE = 256
"""Longest side of a thumbnail."""
SHEET = "sheet.jpg"
_MARGIN, _LINE, _TEXT = 12, 18, 14
_FRAME = (213, 94, 0)
_CHANGE = 12.0
"""Difference in CIELAB units from which a region is framed."""
_MOST_FRAMES, _SMALLEST = 4, 40
"""Frames per picture, and pixels of the smallest framed region."""
_TEXT_LENGTH = 105
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
        lines = [
            f"{shorten(edit.edit_id, LONGEST_NAME)}: {edit.reason} (“{shorten(edit.instruction, LONGEST_TEXT)}”)"
            for edit in result.broken[:MOST_LISTED]
        ]
        more = len(result.broken) - len(lines)
        yield Points((*lines, *([f"and {more} more"] if more else [])))
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
    pictures = "\n".join(line for line in lines if "](" in line)
    sheet = f"[Picture sheet]({links['sheet']})" if "sheet" in links else ""
    parts = [text.rstrip("\n"), *([f"### Pictures\n\n{pictures}"] if pictures else []), *([sheet] if sheet else [])]
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
        identical = number_of(result.identical, "output")
        if result.identical == result.edits:
            yield f"{identical} identical to the baseline's: no difference, so nothing was judged."
        else:
            yield (
                f"{identical} identical to the baseline's: each counts as a difference of 0. `new` and `baseline` are means of "
                "the judged edits alone."
            )
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


def save_pictures(result: GateResult, folder: Path, url: str | None = None) -> dict[str, str]:
    """Save thumbnails and the sheet of the worst edits, and return their addresses.

    Args:
        result: The answer.
        folder: The folder, which is made.
        url: The address under which the folder will be found. By default its path.

    Returns:
        Addresses of thumbnails by the path of their picture, and that of the sheet as `sheet`. Empty if no edit lost.
    """
    make_folder(folder)
    base = url.rstrip("/") if url else quote(os.fsencode(folder.as_posix()))
    links: dict[str, str] = {}
    rows = []
    for number, edit in enumerate(result.worst, start=1):
        thumbnails = []
        for role, path in _name_pictures(edit):
            thumbnail = _open(path)
            thumbnails.append(thumbnail)
            if thumbnail is not None:
                name = f"{number}-{safe_file_name(edit.edit_id)}-{role}.jpg"
                _save(thumbnail, folder / name)
                links[path] = f"{base}/{quote(name)}"
        rows.append((edit, thumbnails))
    if rows:
        _save(_draw_sheet(result, rows), folder / SHEET)
        links["sheet"] = f"{base}/{SHEET}"
    return links


def _open(path: str) -> Image.Image | None:
    """Return a thumbnail; None if the picture cannot be opened."""
    try:
        picture = Image.fromarray(open_picture(Path(path)).pixels)
    except (ImageError, OSError):
        return None
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return picture


def _save(picture: Image.Image, path: Path) -> None:
    with atomic_write(path) as part:
        picture.save(part, "JPEG", quality=85)


def _draw_sheet(result: GateResult, rows: Sequence[tuple[LostEdit, Sequence[Image.Image | None]]]) -> Image.Image:
    """Draw a row per edit: source, baseline and new, the last two with frames around what differs between them."""
    font = ImageFont.load_default(_TEXT)
    heights = [
        max((each.height for each in pictures if each), default=0) + 3 * _LINE + 2 * _MARGIN for _, pictures in rows
    ]
    width = 3 * SIDE + 4 * _MARGIN
    sheet = Image.new("RGB", (width, 2 * _LINE + _MARGIN + sum(heights)), "white")
    draw = ImageDraw.Draw(sheet)

    def write(x: int, y: int, text: str) -> None:
        draw.text((x, y), printable(shorten(text, _TEXT_LENGTH)), "black", font)

    write(
        _MARGIN,
        _MARGIN,
        f"{result.new} against {result.baseline}: largest losses. Frames: where the two outputs differ.",
    )
    for row, (edit, (source, baseline, new)) in enumerate(rows):
        top = 2 * _LINE + _MARGIN + sum(heights[:row])
        write(_MARGIN, top, f"{edit.edit_id}: {edit.difference:+.1f} points")
        write(_MARGIN, top + _LINE, edit.instruction)
        boxes = _find_changes(baseline, new) if baseline and new else []
        none: list[Frame] = []
        pictures = (("source", source, none), ("baseline", baseline, boxes), ("new", new, boxes))
        for column, (name, picture, frames) in enumerate(pictures):
            left, below = _MARGIN + column * (SIDE + _MARGIN), top + 2 * _LINE
            write(left, below, name if picture else f"{name}: not at hand")
            if picture:
                framed = picture.copy()
                for x1, y1, x2, y2 in frames:
                    ImageDraw.Draw(framed).rectangle((x1 - 2, y1 - 2, x2 + 2, y2 + 2), outline="white", width=6)
                    ImageDraw.Draw(framed).rectangle((x1, y1, x2, y2), outline=_FRAME, width=2)
                sheet.paste(framed, (left, below + _LINE))
    return sheet


def _find_changes(first: Image.Image, second: Image.Image) -> list[Frame]:
    """Return boxes around the largest regions in which two pictures differ."""
    if first.size != second.size:
        return []
    gap = distance(*(soft_lab(np.asarray(picture.convert("RGB"))) for picture in (first, second)))
    mask = cv2.dilate((gap > _CHANGE).astype(np.uint8), np.ones((9, 9), np.uint8))
    _, _, regions, _ = cv2.connectedComponentsWithStats(mask)
    largest = sorted(regions[1:].tolist(), key=lambda region: -region[4])[:_MOST_FRAMES]
    return [(x, y, x + w - 1, y + h - 1) for x, y, w, h, area in largest if area >= _SMALLEST]
