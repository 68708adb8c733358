"""Shared style of all figures, and saving them to files."""

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

from editloupe._util.files import atomic_write, make_folder
from editloupe._util.text import one_line

WIDTH = 7.0
"""Width in inches of a text column."""
BLUE, ORANGE, GREEN, PINK, SKY, RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, RED)
"""The palette of Okabe and Ito, which is safe for colour-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers distinguish series in greyscale. Seven markers and six colours keep combinations distinct."""
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


def ordinal_colours(count: int) -> list[Any]:
    """Return colours from the worst answer (light yellow) to the best (dark blue); the order is visible in greyscale."""
    scale = score_colours()
    return [scale(0.05 + 0.87 * index / max(1, count - 1)) for index in range(count)]


def score_colours() -> Any:
    """Return the colour scale of scores used in all figures and in the studio; blue is good."""
    return matplotlib.colormaps["cividis_r"]


def contrast_colour(colour: Any) -> str:
    """Return black or white, whichever has more contrast to a colour."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


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


def as_png(figure: Figure, dpi: int = 200) -> bytes:
    """Return a figure as PNG."""
    return _render("png", figure, dpi=dpi)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the suffix (.svg, .pdf or .png)."""
    make_folder(path.parent)
    with atomic_write(path) as part:
        part.write_bytes(_render(path.suffix.removeprefix("."), figure, dpi=200))
    return path


def _render(kind: str, figure: Figure, **options: Any) -> bytes:
    target = io.BytesIO()
    with use_style(), warnings.catch_warnings():
        # Characters missing from the font are drawn as boxes; the tables have them.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(target, format=kind, facecolor="white", **options)
    return target.getvalue()
