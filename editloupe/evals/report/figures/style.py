"""One look for all figures, and how they become files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from editloupe._util.files import make_folder, whole_file
from editloupe._util.text import one_line

WIDTH = 7.0
"""Inches; a text column of a page."""
BLUE, ORANGE, GREEN, PINK, SKY, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
"""The palette of Okabe and Ito, which people without full colour vision can tell apart."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Every series also has its own mark, so that a grey print can be read; seven to six colours, so that pairs stay unlike."""
INK, MUTED, GRID = "#1b1f24", "#5b6470", "#d5dae0"
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "editloupe",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # letters as letters: a fifth of the size, found by a search and read out
}


@contextmanager
def use_style() -> Iterator[None]:
    """Use our settings while a figure is drawn, and leave the user's own alone."""
    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(height: float, panels: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of the common width with panels side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False, **options)[0])


def ordinal_colours(count: int) -> list[Any]:
    """Return colours from the worst answer (yellow, light) to the best (blue, dark), whose order survives a grey print."""
    scale = score_colours()
    return [scale(0.05 + 0.87 * place / max(1, count - 1)) for place in range(count)]


def score_colours() -> Any:
    """Return the one colour scale of scores: blue is good, as on the studio's pages, in every figure."""
    return matplotlib.colormaps["cividis_r"]


def contrast_colour(colour: Any) -> str:
    """Return black or white, whichever can be read on a colour."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def shorten_names(names: Sequence[str], most: int = 34) -> list[str]:
    """Return names that fit beside an axis; long ones lose their middle.

    >>> shortened(["a-very-long-name-of-a-run"], 11)
    ['a-ver…a-run']
    """
    half = (most - 1) // 2
    return [name if len(name) <= most else f"{name[:half]}…{name[-half:]}" for name in names]


def escape_text(text: str) -> str:
    """Return text that matplotlib can draw and does not take for a formula."""
    return one_line(text).replace("$", r"\$")


def as_svg(figure: Figure) -> bytes:
    """Return a figure as SVG; same figure, same bytes."""
    return _render("svg", figure, metadata={"Date": None})


def as_png(figure: Figure, dpi: int = 200) -> bytes:
    """Return a figure as PNG."""
    return _render("png", figure, dpi=dpi)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as what its suffix says: .svg, .pdf or .png."""
    make_folder(path.parent)
    with whole_file(path) as part:
        part.write_bytes(_render(path.suffix.removeprefix("."), figure, dpi=200))
    return path


def _render(kind: str, figure: Figure, **options: Any) -> bytes:
    target = io.BytesIO()
    with use_style(), warnings.catch_warnings():
        # A name in a script the font does not have is drawn as boxes; the tables beside the figure have it whole.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(target, format=kind, facecolor="white", **options)
    return target.getvalue()
