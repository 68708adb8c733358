"""Shared style of all figures, and writing them: to files, or as SVG inside a page with its colours, tooltips and links."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from editloupe._util.files import atomic_write, make_folder
from editloupe._util.text import one_line
from editloupe.evals.stats.intervals import Floats, Ints

WIDTH = 7.0
"""Width in inches of a text column."""
TOKENS: Mapping[str, str] = dict(
    re.findall(
        r"--([a-z0-9-]+): (#[0-9a-f]{6});",
        files("editloupe.evals.report").joinpath("tokens.css").read_text("utf-8").split("@media")[0],
    )
)
"""The colours of the light scheme by name. Pages put their own in their place, so figures use no others."""
SERIES = tuple(TOKENS[f"series-{number}"] for number in range(1, 7))
BLUE, ORANGE = SERIES[:2]
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers distinguish series in greyscale. Seven markers and six colours keep combinations distinct."""
INK, MUTED, GRID, SURFACE = (TOKENS[name] for name in ("ink", "soft", "line", "surface"))
CSS_COLOURS = {value: f"var(--{name})" for name, value in TOKENS.items()}
"""Colours of figures to what a page's style sheet calls them; mixed colours are added when they are mixed."""
MOST_POINTS = 500
"""Points of one panel; of more, a sample is drawn and the figure says so."""
Link = Callable[[Mapping[str, str]], str | None]
"""Returns the address of what a mark represents, or None."""
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_PAINT = ("fill", "stroke")
_KEPT = frozenset(
    (
        *("fill", "fill-opacity", "opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"),
        *("stroke-dashoffset", "stroke-linejoin", "stroke-linecap", "font-size", "font-weight", "text-anchor"),
    )
)
"""Style properties that are written as attributes; a page's policy may forbid style attributes."""
_DEFAULTS = {"stroke-linecap": "butt", "stroke-linejoin": "round", "fill-opacity": "1"}
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "hatch.color": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "editloupe",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # keep text as text: smaller, searchable and readable by screen readers
}


@contextmanager
def use_style() -> Iterator[None]:
    """Apply our matplotlib settings while a figure is drawn; the user's own stay unchanged."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(height: float, panels: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of the common width with panels in one row."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False, **options)[0])


@dataclass(frozen=True)
class AnswerStyle:
    """How an answer is drawn: its colour, the colour of text on it, its meter as text, and its marker."""

    colour: str
    ink: str
    meter: str
    marker: str


def answer_styles(count: int) -> list[AnswerStyle]:
    """Return the styles of answers from the worst to the best. Up to four have a label's colour, meter and marker.

    >>> [style.meter for style in answer_styles(3)]
    ['▂', '▂▄▆', '▂▄▆█']
    """
    places = [index * 3 / max(1, count - 1) for index in range(count)]
    if count <= 4:
        return [_label_style(round(place)) for place in places]
    styles = []
    for place in places:
        low = min(2, int(place))
        colour = mix_colours(f"level-{low + 2}", f"level-{low + 1}", round(place - low, 2))
        ink = TOKENS["on-bright"] if _brightness(colour) > 0.45 else TOKENS["on-strong"]
        styles.append(AnswerStyle(colour, ink, "", "o"))
    return styles


def _label_style(level: int) -> AnswerStyle:
    ink = TOKENS["on-strong" if level in (0, 3) else "on-bright"]
    return AnswerStyle(TOKENS[f"level-{level + 1}"], ink, "▂▄▆█"[: level + 1], "vsD^"[level])


def mix_colours(first: str, second: str, share: float) -> str:
    """Return a mixture of two tokens, and remember how a style sheet mixes it.

    Args:
        first: A token.
        second: Another one.
        share: The part of the first, from 0 to 1.
    """
    if share in (0.0, 1.0):
        return TOKENS[first if share else second]
    ends = [np.array(matplotlib.colors.to_rgb(TOKENS[name])) for name in (first, second)]
    colour = matplotlib.colors.rgb2hex((*(share * ends[0] + (1 - share) * ends[1]).tolist(), 1.0))
    CSS_COLOURS.setdefault(colour, f"color-mix(in srgb, var(--{first}) {share * 100:g}%, var(--{second}))")
    return colour


def draw_cells(axes: Axes, shares: Floats) -> dict[tuple[int, int], Rectangle]:
    """Draw a matrix as cells whose shade grows with the share, light enough for ink in both schemes; NaN is no cell."""
    cells = {}
    for (row, column), share in np.ndenumerate(shares):
        if np.isfinite(share):
            shade = mix_colours("series-1", "surface", round(float(np.clip(share, 0, 1)) * 20) / 40)
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, edgecolor=SURFACE, linewidth=1.2)
            cells[row, column] = cell
            axes.add_patch(cell)
    axes.set(xlim=(-0.5, shares.shape[1] - 0.5), ylim=(shares.shape[0] - 0.5, -0.5))
    return cells


def make_mark(kind: str, title: str, **fields: str) -> str:
    """Return what makes a part of a figure a link in pages that know its target, with a tooltip. Files have no links."""
    return json.dumps({"kind": kind, "title": one_line(title), **fields}, ensure_ascii=False)


def mark_points(points: Collection, marks: Sequence[str]) -> None:
    """Give every point of a scatter its mark."""
    points.set_urls(list(marks))


def mark_ticks(axis: Axis, marks: Sequence[str]) -> None:
    """Give the labels of an axis their marks."""
    for label, mark in zip(axis.get_ticklabels(), marks, strict=True):
        label.set_url(mark)


def sample_points(count: int) -> Ints:
    """Return the positions of the points that are drawn: all, or a sample that is always the same."""
    if count <= MOST_POINTS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))


def describe_sample(count: int) -> str:
    """Say how many points are drawn if not all are.

    >>> describe_sample(20000), describe_sample(20)
    ('500 of 20,000 points drawn', '')
    """
    return f"{MOST_POINTS} of {count:,} points drawn" if count > MOST_POINTS else ""


def spread_shared(points: Floats, reach: tuple[float, float]) -> Floats:
    """Move points that share their place a little apart, so that each can be seen; the others stay."""
    _, of_point, counts = np.unique(points.round(9), axis=0, return_inverse=True, return_counts=True)
    moves = np.random.default_rng(0).uniform(-1, 1, points.shape) * reach
    return np.asarray(points + np.where(counts[of_point.ravel()][:, None] > 1, moves, 0.0))


def contrast_colour(colour: Any) -> str:
    """Return black or white, whichever has more contrast to a colour."""
    return "black" if _brightness(colour) > 0.5 else "white"


def _brightness(colour: Any) -> float:
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def shorten_names(names: Sequence[str], most: int = 34) -> list[str]:
    """Shorten long names in the middle so that they fit next to an axis.

    >>> shorten_names(["a-very-long-name-of-a-run"], 11)
    ['a-ver…a-run']
    """
    half = (most - 1) // 2
    return [name if len(name) <= most else f"{name[:half]}…{name[-half:]}" for name in names]


def escape_text(text: str) -> str:
    """Escape text so that matplotlib does not read it as a formula."""
    return one_line(text).replace("$", r"\$")


def as_svg(figure: Figure) -> bytes:
    """Return a figure as SVG. The bytes are reproducible."""
    return _render("svg", figure, metadata={"Date": None})


def as_marked_svg(figure: Figure) -> bytes:
    """Return a figure as SVG without a background, its marks as links."""
    return _render("svg", figure, marked=True, metadata={"Date": None})


def as_png(figure: Figure, dpi: int = 200) -> bytes:
    """Return a figure as PNG."""
    return _render("png", figure, dpi=dpi)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the suffix (.svg, .pdf or .png)."""
    make_folder(path.parent)
    with atomic_write(path) as part:
        part.write_bytes(_render(path.suffix.removeprefix("."), figure, dpi=200))
    return path


def _render(kind: str, figure: Figure, marked: bool = False, **options: Any) -> bytes:
    target = io.BytesIO()
    if not marked:
        for artist in figure.findobj():
            artist.set_url(None)
            if isinstance(artist, Collection):
                artist.set_urls([None])
    with use_style(), warnings.catch_warnings():
        # Characters missing from the font are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(target, format=kind, facecolor="none" if marked else SURFACE, **options)
    return target.getvalue()


def as_inline_svg(figure: Figure, name: str, caption: str, link: Link | None = None) -> str:
    """Return a figure as an SVG element for a page with our style sheet.

    A figure with a colour that is no token keeps its light colours, on a light ground.

    Args:
        figure: The figure.
        name: What the ids in it begin with; unique on the page.
        caption: What the figure shows, for screen readers.
        link: Finds the address of a mark.
    """
    svg = _Inline(name, link or (lambda mark: None))
    return svg.convert(as_marked_svg(figure), caption)


class _Inline:
    def __init__(self, name: str, link: Link) -> None:
        self._name, self._link = re.sub(r"[^A-Za-z0-9-]", "-", name), link
        self._linked = False
        self._colours: dict[str, str] = CSS_COLOURS

    def convert(self, data: bytes, caption: str) -> str:
        root = ElementTree.fromstring(data)
        painted = [value for node in root.iter() for key, value in _read_style(node).items() if key in _PAINT]
        fixed = any(_tag(node) == "image" for node in root.iter()) or not all(
            value in CSS_COLOURS or value == "none" or value.startswith("url(") for value in painted
        )
        self._colours = {} if fixed else CSS_COLOURS
        children = [piece for node in root for piece in self._convert(node)]
        attributes = {
            "viewBox": root.attrib["viewBox"],
            "class": "chart-svg",
            "role": "group" if self._linked else "img",
            "aria-label": caption,
            "stroke-linejoin": "round",
        }
        whole = ElementTree.Element("svg", attributes)
        if fixed:
            ElementTree.SubElement(whole, "rect", {"width": "100%", "height": "100%", "fill": SURFACE})
        whole.extend(children)
        return ElementTree.tostring(whole, encoding="unicode")

    def _convert(self, node: ElementTree.Element) -> list[ElementTree.Element]:
        tag = _tag(node)
        if tag in ("metadata", "style"):
            return []
        children = [piece for child in node for piece in self._convert(child)]
        if tag == "a":
            return self._mark(node, children)
        attributes = self._attributes(node)
        if tag in ("g", "defs") and (not children or (tag == "g" and not attributes)):
            return children
        copy = ElementTree.Element(tag, attributes)
        copy.text = (node.text or "").strip() or None
        copy.extend(children)
        return [copy]

    def _mark(self, node: ElementTree.Element, children: list[ElementTree.Element]) -> list[ElementTree.Element]:
        mark = json.loads(next(value for key, value in node.attrib.items() if key.endswith("href")))
        address = self._link(mark)
        kind = "g" if address is None else "a"
        copy = ElementTree.Element(kind)
        if address is not None:
            self._linked = True
            copy.attrib = {"href": address, "aria-label": mark["title"]}
            if mark["kind"] == "edit":
                copy.attrib["tabindex"] = "-1"  # hundreds of points would bar the way; the table lists the same edits
        ElementTree.SubElement(copy, "title").text = mark["title"]
        copy.extend(children)
        return [copy]

    def _attributes(self, node: ElementTree.Element) -> dict[str, str]:
        attributes = {}
        for key, value in node.attrib.items():
            key = key.rpartition("}")[2]
            if key == "style" or (key == "id" and _tag(node) == "g"):
                continue
            if key == "transform" and value.startswith("rotate(-0 "):
                continue
            if key in ("id", "href"):
                value = f"{'#' if key == 'href' else ''}{self._name}-{value.lstrip('#')}"
            attributes[key] = _NUMBER.sub(lambda number: f"{float(number[0]):.2f}", value)
        for key, value in _read_style(node).items():
            if key in _PAINT:
                value = self._colours.get(value, value)
            if key in _KEPT and _DEFAULTS.get(key) != value:
                attributes[key] = "600" if key == "font-weight" and value == "700" else value
        return {
            key: value.replace("url(#", f"url(#{self._name}-") if "url(#" in value else " ".join(value.split())
            for key, value in attributes.items()
        }


def _tag(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2]


def _read_style(node: ElementTree.Element) -> dict[str, str]:
    """Return the style of an element, and its colours if they are attributes."""
    style = dict(part.strip().split(": ", 1) for part in node.attrib.get("style", "").split(";") if part.strip())
    return {key: node.attrib[key] for key in _PAINT if key in node.attrib} | style
