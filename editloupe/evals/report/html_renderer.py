"""Render blocks as one self-contained HTML page without scripts, also suitable for printing. Pictures become thumbnails."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files

from PIL import Image, ImageDraw

from editloupe._util.text import for_html, format_counts, printable, shorten
from editloupe.evals.report.block_types import Block, Cases, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.notable_edits import NotableEdit
from editloupe.evals.report.report_figures import Draw
from editloupe.evals.report.table_formats import cell_text
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.tables import PrintedTable
from editloupe.tools.geometry import add_context, map_box
from editloupe.types import Box, Edit, Observation, Sha, Step, ToolCall, Trace

_INTERVAL = re.compile(r"^(\S+) (\[[^\]]*\])$")
LONG = 8
"""Number of headings from which a page gets a table of contents."""
MANY_COLUMNS = 7
"""Number of columns above which a table is set narrower."""
PAGE_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
LONG_SIDE, CROP_SIDE, TRACE_SIDE = 290, 190, 220
QUALITY = 82
PICTURES = "pictures"
_FRAME = (213, 94, 0)
_MOST_OF_PICTURE = 0.4
"""Targets above this share of the picture are not enlarged."""


def _read_style(name: str) -> str:
    """Return a style sheet of this package, after the colours and sizes that all pages share."""
    return "".join(files("editloupe.evals.report").joinpath(part).read_text("utf-8") for part in ("tokens.css", name))


def score_level(score_100: float | None) -> int:
    """Return the colour step of a score of 0 to 100: 1 worst, 4 best, 0 if there is none.

    >>> [score_level(place) for place in (None, 0, 33.3, 66.7, 100)]
    [0, 1, 2, 3, 4]
    """
    return 0 if score_100 is None else 1 + round(max(0.0, min(100.0, score_100)) / 100 * 3)


def render_label(label: str, score_100: float | None, judged: bool = True) -> str:
    """Return a label with the colour and the meter of its score."""
    if not judged:
        return f'<span class="chip unjudged">{for_html(label)}</span>'
    level = score_level(score_100)
    bars = ""
    for bar in range(4):
        lit = ' class="on"' if bar < level else ""
        bars += f'<rect x="{4.6 * bar:.1f}" y="{9 - 3 * bar}" width="3.4" height="{3 + 3 * bar}" rx="0.6"{lit}/>'
    meter = f'<svg class="meter level-{level}" viewBox="0 0 18 12" aria-hidden="true">{bars}</svg>'
    return f'<span class="chip level-{level}">{meter}<span>{for_html(label)}</span></span>'


def as_html(blocks: Sequence[Block], drawings: Mapping[str, Draw], title: str, made_by: str) -> str:
    """Return the page. All text of models and manifests is escaped."""
    with ExitStack() as stack:
        page = _Page(drawings, stack, blocks)
        body = "\n".join(part for block in blocks for part in page.render(block)) + page.close()
    main = f"<main>\n{body}\n<p><small>{for_html(made_by)}</small></p>\n</main>"
    return render_document(title, "page.css", f"{_render_contents(page.headings)}{main}")


def render_document(title: str, style: str, body: str) -> str:
    """Return a self-contained HTML document that runs and loads nothing.

    Args:
        title: The title; it is escaped.
        style: The name of a style sheet of this package.
        body: The content of the body as HTML.
    """
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{PAGE_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{for_html(title)}</title>\n<style>\n{_read_style(style)}</style>\n</head>\n<body>\n{body}\n"
        f"</body>\n</html>\n"
    )


def _render_contents(headings: Sequence[Heading]) -> str:
    """Return the table of contents, or an empty string for a short page."""
    listed = [(number, heading) for number, heading in enumerate(headings, start=1) if heading.level <= 3]
    if len(listed) < LONG:
        return ""
    items = "".join(
        f'<li class="level-{heading.level}"><a href="#section-{number}">{for_html(heading.text)}</a></li>'
        for number, heading in listed
    )
    return f'<nav class="contents" aria-label="Contents" tabindex="0"><ul>{items}</ul></nav>\n'


class _Page:
    """Renders blocks one by one. Each run is opened once for its pictures and traces."""

    def __init__(self, drawings: Mapping[str, Draw], stack: ExitStack, blocks: Sequence[Block]) -> None:
        self._sections = _number_cases(blocks)
        self._drawings = drawings
        self._stack = stack
        self._runs: dict[str, Run] = {}
        self._cases = self._tables = self._figures = 0
        self._folded = False
        self.headings: list[Heading] = []

    def render(self, block: Block) -> Iterator[str]:
        if isinstance(block, Heading):
            self.headings.append(block)
            heading = f'<h{block.level} id="section-{len(self.headings)}">{for_html(block.text)}</h{block.level}>'
            if block.level <= 2:
                yield self.close()
            self._folded = self._folded or block.folded
            yield f'<details class="run"><summary>{heading}</summary>' if block.folded else heading
        elif isinstance(block, Paragraph) and block.kind == "json":
            text = for_html(block.text)
            yield f"<details><summary>The passport as JSON</summary><pre><code>{text}</code></pre></details>"
        elif isinstance(block, Paragraph):
            kind = "" if block.kind == "plain" else f' class="{block.kind}"'
            yield f"<p{kind}>{for_html(block.text)}</p>"
        elif isinstance(block, Points):
            yield "<ul>" + "".join(f"<li>{for_html(item)}</li>" for item in block.items) + "</ul>"
        elif isinstance(block, PrintedTable):
            self._tables += 1
            yield _render_table(block, self._tables)
        elif isinstance(block, Drawing):
            yield from self._drawing(block)
        elif isinstance(block, Cases):
            run = self._run(block.folder)
            yield from (self._case(block, run, item) for item in block.items)

    def close(self) -> str:
        """Return the end of the folded part that is open, if there is one."""
        folded, self._folded = self._folded, False
        return "</details>" if folded else ""

    def _run(self, folder: str) -> Run:
        if folder not in self._runs:
            self._runs[folder] = self._stack.enter_context(Run.open(folder))
        return self._runs[folder]

    def _drawing(self, block: Drawing) -> Iterator[str]:
        if draw := self._drawings.get(block.name):
            from editloupe.evals.report.figures import as_inline_svg

            self._figures += 1
            sections = self._sections.get((block.folder, block.configuration), {})

            def link(mark: Mapping[str, str]) -> str | None:
                number = sections.get((mark.get("edit", ""), mark.get("criterion", ""))) or sections.get(
                    (mark.get("edit", ""), "")
                )
                return f"#case-{number}" if number else None

            svg = as_inline_svg(draw(), f"figure-{self._figures}", block.caption, link)
            yield (
                f'<figure class="drawing"><div class="scroll" tabindex="0" role="region" aria-label="Figure '
                f'{self._figures}">{svg}</div><figcaption>{for_html(block.caption)}</figcaption></figure>'
            )

    def _case(self, cases: Cases, run: Run, item: NotableEdit) -> str:
        self._cases += 1
        level = min(6, 1 + (self.headings[-1].level if self.headings else 1))
        edit, pictures, _ = run.edit(item.edit_id)
        small = make_thumbnails(run, edit, pictures)
        pictures_html = _render_pictures(small) if small else "<p>The run did not keep the pictures of this edit.</p>"
        gone = [role for role, shas in pictures.items() if shas and run.damage.holds(PICTURES, shas[0])]
        if gone:
            pictures_html = (
                f"{_render_pictures(small)}<p>Missing from the run, or damaged: {for_html(', '.join(gone))}.</p>"
            )
        title = cases.titles.get(item.criterion, item.criterion)
        people = for_html(format_counts(item.human))
        facts = {
            title: render_label(item.label, item.score_100, item.kind != "unjudged"),
            "People": f'<b class="apart">{people}</b>' if item.kind == "disagrees with people" else people,
            "Because": for_html(item.because),
            "Judge's reason": for_html(shorten(item.rationale)) if item.rationale != item.because else "",
            "Type": for_html(item.instruction_type or ""),
            "Editing model": for_html(item.model or ""),
        }
        facts_html = "".join(f"<dt>{for_html(n)}</dt><dd>{v}</dd>" for n, v in facts.items() if v)
        trace_html = "".join(_render_trace(run, trace) for trace in _load_traces(run, item, cases.configuration))
        command = f"<code>{for_html(cases.trace_command(item))}</code>"
        details = f"<details><summary>Trace: what the judge did</summary>{trace_html}</details>" if trace_html else ""
        return (
            f'<section class="case" id="case-{self._cases}"><h{level}>{for_html(item.edit_id)} '
            f'<span class="kind">{item.kind}</span></h{level}><p class="instruction">“{for_html(item.instruction)}”</p>'
            f"{pictures_html}<dl>{facts_html}</dl>{command}{details}</section>"
        )


def _number_cases(blocks: Sequence[Block]) -> dict[tuple[str, str], dict[tuple[str, str], int]]:
    """Return the numbers of the sections of edits, by run and configuration, then by edit and criterion's title or nothing."""
    numbers: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
    count = 0
    for block in blocks:
        if isinstance(block, Cases):
            own = numbers.setdefault((block.folder, block.configuration), {})
            for item in block.items:
                count += 1
                for criterion in (block.titles.get(item.criterion, item.criterion), ""):
                    own.setdefault((item.edit_id, criterion), count)
    return numbers


def _render_table(grid: PrintedTable, number: int) -> str:
    head = "".join(f'<th scope="col">{for_html(column)}</th>' for column in grid.columns)
    lines = []
    for row in grid.rows:
        kind = ' class="total"' if row[0] == "overall" else ""
        lines.append(
            f"<tr{kind}>"
            + "".join(f"<td>{_render_cell(cell_text(cell))}</td>" for cell in grid.format_row(row))
            + "</tr>"
        )
    body = "".join(lines)
    name = for_html(" ".join(filter(None, (f"Table {number}:", grid.columns[0] if grid.columns else ""))))
    table = f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
    wide = ' class="wide"' if len(grid.columns) > MANY_COLUMNS else ""
    table += f"<table{wide}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    # The caption is outside the scrolling area; inside, it would be as wide as the table.
    return f"<figure>{table}<figcaption>{for_html(grid.note)}</figcaption></figure>" if grid.note else table


def _render_cell(text: str) -> str:
    """Render the interval of a cell in smaller type."""
    if match := _INTERVAL.match(text):
        return f'{for_html(match[1])} <span class="interval">{for_html(match[2])}</span>'
    return for_html(text)


def _render_pictures(small: Sequence[Thumbnail]) -> str:
    figures = (render_figure(thumbnail.address, thumbnail.size, thumbnail.caption) for thumbnail in small)
    return f'<div class="pictures">{"".join(figures)}</div>'


def render_figure(address: str, size: tuple[int, int], caption: str) -> str:
    """Return a picture with its caption."""
    (width, height), words = size, for_html(caption)
    image = f'<img src="{address}" width="{width}" height="{height}" alt="{words}">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def render_call(call: ToolCall) -> str:
    """Return a tool call as code."""
    arguments = ", ".join(f"{name}={format_json(value)}" for name, value in call.parameters.items())
    return f"<code>{for_html(f'{call.name}({arguments})')}</code>"


def format_json(value: object) -> str:
    """Return a value as JSON on one line."""
    return printable(json.dumps(value, ensure_ascii=False, default=str))


def _render_trace(run: Run, trace: Trace) -> str:
    target = f"<p>Target {trace.target + 1}</p>" if trace.target is not None else ""
    return f'{target}<ol class="steps">{"".join(_render_step(run, step) for step in trace.steps)}</ol>'


def _render_step(run: Run, step: Step) -> str:
    parts = [f'<div class="thought">{for_html(step.thought)}</div>'] if step.thought else []
    parts += [f"<div>{render_call(call)}</div>" for call in step.calls]
    parts += [_render_observation(run, observation) for observation in step.observations]
    if step.problem:
        parts.append(f'<div class="problem">Not usable: {for_html(step.problem)}</div>')
    if step.answer is not None:
        parts.append(f"<div>Answer: <strong>{for_html(step.answer)}</strong></div>")
    return f"<li>{''.join(parts)}</li>"


def _render_observation(run: Run, observation: Observation) -> str:
    small, gone = [], 0
    for index, sha in enumerate(observation.pictures):
        caption = observation.captions[index] if index < len(observation.captions) else "picture"
        if (thumbnail := make_tool_thumbnail(run, sha, caption)) is not None:
            small.append(thumbnail)
        else:
            gone += 1
    kind = ' class="problem"' if observation.failed else ""
    lost = f"<div>{gone} of its pictures missing from the run, or damaged</div>" if gone else ""
    return f"<div{kind}>→ {for_html(observation.text)}</div>{_render_pictures(small) if small else ''}{lost}"


def _load_traces(run: Run, item: NotableEdit, configuration: str) -> list[Trace]:
    """Return the traces of a verdict; other configurations of the run may have judged the same edit."""
    asked = {
        unit.asked
        for unit in run.units(item.edit_id, configuration or None)
        if (unit.criterion, unit.repeat) == (item.criterion, item.repeat)
    }
    return [trace for key in asked for trace in run.load_trace(item.edit_id, item.criterion, item.repeat, key)]


@dataclass(frozen=True)
class Thumbnail:
    """A picture embedded in a page, with its caption."""

    address: str
    """A data URI."""
    caption: str
    size: tuple[int, int]


def make_thumbnails(run: Run, edit: Edit, pictures: dict[str, list[Sha]]) -> list[Thumbnail]:
    """Return thumbnails of source, edit, enlarged target and reference. Missing pictures are noted as damage."""
    opened = {role: _open_picture(run, shas[0]) for role, shas in pictures.items() if shas}
    source, edited = opened.get("source"), opened.get("edited")
    thumbnails = []
    if source is not None:
        name = "source, target framed" if edit.target_boxes else "source"
        thumbnails.append(_make_thumbnail(_draw_frames(source, edit.target_boxes), name, LONG_SIDE))
    if edited is not None:
        thumbnails.append(_make_thumbnail(edited, "edited", LONG_SIDE))
    region = _find_region(edit.target_boxes, source.size) if source is not None else None
    if source is not None and edited is not None and region is not None:
        thumbnails.append(_make_thumbnail(_crop(source, region), "target in the source", CROP_SIDE, enlarge=True))
        same_place = map_box(region, source.size, edited.size)
        thumbnails.append(_make_thumbnail(_crop(edited, same_place), "same place in the edit", CROP_SIDE, enlarge=True))
    if (reference := opened.get("reference")) is not None:
        thumbnails.append(_make_thumbnail(reference, "reference", CROP_SIDE))
    return thumbnails


def make_tool_thumbnail(run: Run, sha: Sha, caption: str) -> Thumbnail | None:
    """Return a thumbnail of a tool's picture; None if the run does not have it."""
    picture = _open_picture(run, sha)
    return None if picture is None else _make_thumbnail(picture, caption, TRACE_SIDE)


def _open_picture(run: Run, sha: Sha) -> Image.Image | None:
    """Open a picture of the run; note it as damage if it is missing or broken."""
    path = run.pictures.find(sha)
    try:
        if path is not None:
            return Image.fromarray(open_picture(path).pixels)
    except ImageError:
        pass
    run.damage.add(PICTURES, sha)
    return None


def _draw_frames(picture: Image.Image, boxes: tuple[Box, ...]) -> Image.Image:
    if not boxes:
        return picture
    copy = picture.copy()
    width = max(2, round(max(picture.size) / 200))
    for box in boxes:
        x1, y1, x2, y2 = box
        ImageDraw.Draw(copy).rectangle((x1 - width, y1 - width, x2 + width, y2 + width), outline=_FRAME, width=width)
    return copy


def _find_region(boxes: tuple[Box, ...], size: tuple[int, int]) -> Box | None:
    """Return the region of the source around all targets; None if that is most of the picture."""
    inside = [part for box in boxes if (part := box.clamped(*size))]
    if not inside:
        return None
    union = Box(
        x1=min(box.x1 for box in inside),
        y1=min(box.y1 for box in inside),
        x2=max(box.x2 for box in inside),
        y2=max(box.y2 for box in inside),
    )
    region = add_context(union, 0.5, min(64, *size), size)
    return region if region.area < _MOST_OF_PICTURE * size[0] * size[1] else None


def _crop(picture: Image.Image, box: Box) -> Image.Image:
    return picture.crop((box.x1, box.y1, box.x2, box.y2))


def _make_thumbnail(picture: Image.Image, caption: str, side: int, enlarge: bool = False) -> Thumbnail:
    scale = side / max(picture.size)
    if scale < 1 or enlarge:
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    return Thumbnail(make_address("jpeg", encode_jpeg(picture, QUALITY)), caption, picture.size)


def encode_jpeg(picture: Image.Image, quality: int) -> bytes:
    """Return a picture as JPEG."""
    target = io.BytesIO()
    picture.convert("RGB").save(target, "JPEG", quality=quality, optimize=True)
    return target.getvalue()


def make_address(kind: str, data: bytes) -> str:
    """Return a picture's file as a data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
