"""Turn a figure into SVG inside a page: the page's colours and font, tooltips, and links to what is drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from xml.etree import ElementTree

from matplotlib.figure import Figure

from editloupe.evals.report.figures.style import CSS_COLOURS, SURFACE, as_marked_svg

Link = Callable[[Mapping[str, str]], str | None]
"""Returns the address of what a mark stands for, or None."""
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
