"""How a sample of VIBE becomes a case: pictures by role, the user's marks laid over the original where they come apart."""

from __future__ import annotations

import numpy as np
from PIL import Image

from editloupe.pictures.decode import Album, open_layer
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics import roles
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import Rubric
from editloupe.types import Edit, Mode, Sha

ANNOTATED = "Annotated Image"
LAYER = "layer"
"""The role of marks that come as a transparent picture of their own, as in the benchmark's files."""


def make_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the one case of a rubric."""
    wanted = rubric.modes[mode].images
    layers = edit.more_images.get(LAYER, ())
    if ANNOTATED not in wanted or edit.more_images.get("annotated") or not layers:
        return roles.make_cases(edit, rubric, mode, album)
    marked = album.add(overlaid(album.open(edit.source).pixels, layers[0])).sha
    pictures: dict[str, Sha] = {}
    for name in wanted:
        pictures |= {ANNOTATED: marked} if name == ANNOTATED else roles.gather(edit, [name], album)
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]


def overlaid(pixels: Pixels, layer: PictureSource) -> Pixels:
    """Return the picture with a transparent layer over it, stretched to its size."""
    marks = open_layer(layer)
    base = Image.fromarray(pixels).convert("RGBA")
    if marks.size != base.size:
        marks = marks.resize(base.size, Image.Resampling.LANCZOS)
    return np.asarray(Image.alpha_composite(base, marks).convert("RGB"), dtype=np.uint8).copy()
