"""Pictures around annotated targets: crops that show a target with some context, and whole pictures with it painted white."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.case import SOURCE, Case
from editloupe.rubrics.model import Rubric, TargetCrop
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Box, Edit, Mode, Sha

ROLES: Mapping[str, str] = {
    "Source Image": "source",
    "Edited Image": "edited",
    "Reference Image": "reference",
    "Annotated Image": "annotated",
    "Input Images": "inputs",
    "Reference Images": "references",
    "Pose Sheet": "pose",
    "Golden Label": "golden",
    "Candidate A": "candidate_a",
    "Candidate B": "candidate_b",
}
"""Picture names of the bundled rubrics and the roles they stand for; a plural name stands for all pictures of its role."""
OPTIONAL = "?"


def name_to_role(name: str) -> str:
    """Return the role a picture's name stands for.

    >>> name_to_role("Annotated Image"), name_to_role("Depth Map"), name_to_role("Reference Images?")
    ('annotated', 'depth_map', 'references')
    """
    name = name.removesuffix(OPTIONAL)
    return ROLES.get(name) or "_".join(name.removesuffix(" Images").removesuffix(" Image").lower().split())


def role_to_name(role: str) -> str:
    """Return the name a role's picture is shown under.

    >>> role_to_name("source"), role_to_name("depth_map")
    ('Source Image', 'Depth Map Image')
    """
    known = {own: name for name, own in ROLES.items()}
    return known.get(role) or f"{role.replace('_', ' ').title()} Image"


def list_pictures(edit: Edit, role: str) -> tuple[PictureSource, ...]:
    """Return the pictures of an edit in one role; `inputs` begins with the source, `references` with the reference."""
    found = edit.files.get(role, ())
    if role == "inputs":
        return (edit.source, *(path for path in found if path != edit.source))
    if role == "references" and edit.reference:
        return (edit.reference, *found)
    return found


def open_pictures(edit: Edit, wanted: Sequence[str], album: Album) -> dict[str, Sha]:
    """Return the pictures a rubric asks for by name, in its order; one that is missing is told in one sentence."""
    found: dict[str, Sha] = {}
    for entry in wanted:
        name, role = entry.removesuffix(OPTIONAL), name_to_role(entry)
        paths = list_pictures(edit, role)
        if not paths and not entry.endswith(OPTIONAL):
            raise MissingInput(
                f'edit {edit.id} has no picture in the role "{role}"; give it with --image {role}=FILE '
                f'or under "more_images" in the manifest'
            )
        for label, path in zip(_number_names(name, len(paths)), paths, strict=True):
            found[label] = album.open(path).sha
    return found


def _number_names(name: str, count: int) -> list[str]:
    if not name.endswith(" Images"):
        return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
    single = name.removesuffix("s")
    return [single] if count == 1 else [f"{single} {number}" for number in range(1, count + 1)]


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the one case of a rubric that shows whole pictures by role."""
    pictures = open_pictures(edit, rubric.modes[mode].images, album)
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]


LARGEST_EXPANSION, SMALLEST_EXPANSION = 6.0, 0.3
"""λ_max and λ_min (DLEBench, Equation 1)."""
SMALL_SIDE, LARGE_SIDE = 32, 256
"""S_min and S_max (DLEBench, Equation 1)."""
BOX_SLACK = 2
"""Pixels an annotated box may reach over the border before it counts as lying outside: annotators round."""


def compute_expansion(shorter_side: float) -> float:
    """Return λ(s), how much context a crop gets around its target (DLEBench, Equation 1).

    >>> compute_expansion(20), compute_expansion(144), compute_expansion(300)
    (6.0, 3.15, 0.3)
    """
    alpha = (shorter_side - SMALL_SIDE) / (LARGE_SIDE - SMALL_SIDE)
    alpha = min(1.0, max(0.0, alpha))
    return (1 - alpha) * LARGEST_EXPANSION + alpha * SMALLEST_EXPANSION


def compute_crop(target: Box, width: int, height: int, how: TargetCrop = "adaptive") -> Box:
    """Return the crop around a target: each side grows by λ(s) of itself, half at either end, within the picture.

    >>> compute_crop(Box.model_validate([100, 100, 132, 132]), 1000, 1000)
    Box(x1=4, y1=4, x2=228, y2=228)
    >>> compute_crop(Box.model_validate([300, 300, 332, 332]), 1000, 1000, "each_end")
    Box(x1=108, y1=108, x2=524, y2=524)
    """
    if how == "box":
        return target
    target_width, target_height = target.size
    ratio = compute_expansion(min(target_width, target_height)) * (1.0 if how == "each_end" else 0.5)
    dx, dy = target_width * ratio, target_height * ratio
    grown = Box(x1=round(target.x1 - dx), y1=round(target.y1 - dy), x2=round(target.x2 + dx), y2=round(target.y2 + dy))
    return grown.clamped(width, height) or target


def union_box(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around several."""
    return Box(
        x1=min(b.x1 for b in boxes),
        y1=min(b.y1 for b in boxes),
        x2=max(b.x2 for b in boxes),
        y2=max(b.y2 for b in boxes),
    )


def map_to_picture(box: Box, source: Picture, other: Picture) -> Box:
    """Return a source box in the pixels of another picture of the same scene, whatever its size."""
    scaled = box.scaled(other.size[0] / source.size[0], other.size[1] / source.size[1])
    return scaled.clamped(*other.size) or Box(x1=0, y1=0, x2=1, y2=1)


def paint_white(pixels: Pixels, boxes: Sequence[Box]) -> Pixels:
    """Return the picture with these boxes painted white (DLEBench, Section 4.2)."""
    masked = pixels.copy()
    for box in boxes:
        masked[box.y1 : box.y2, box.x1 : box.x2] = 255
    return masked


def check_boxes(edit: Edit, source: Picture) -> tuple[Box, ...]:
    """Return the targets within the source picture; a box that lies outside is the user's mistake."""
    width, height = source.size
    inside = []
    for box in edit.target_boxes:
        over = max(-box.x1, -box.y1, box.x2 - width, box.y2 - height)
        clamped = box.clamped(width, height)
        if over > BOX_SLACK or clamped is None:
            raise MissingInput(
                f"target box {list(box)} lies outside the source picture, which is {width} × {height} pixels"
            )
        inside.append(clamped)
    return tuple(inside)


def build_masked_case(
    edit: Edit,
    rubric: Rubric,
    pictures: dict[str, Picture],
    boxes: Sequence[Box],
    album: Album,
    source: Picture | None = None,
) -> Case:
    """Return a case that shows whole pictures with all targets painted white."""
    source = source or pictures[SOURCE]
    places = {name: tuple(map_to_picture(box, source, picture) for box in boxes) for name, picture in pictures.items()}
    masked = {name: album.add(paint_white(picture.pixels, places[name])) for name, picture in pictures.items()}
    shas = {name: picture.sha for name, picture in masked.items()}
    return Case(edit=edit, rubric=rubric, mode="oracle", pictures=shas, target_boxes=places)


def build_crop_case(
    edit: Edit,
    rubric: Rubric,
    pictures: dict[str, Picture],
    boxes: Sequence[Box],
    album: Album,
    target: int | None,
    source: Picture | None = None,
) -> Case:
    """Return a case that shows one crop of each picture around these targets; boxes are in the source's pixels."""
    source = source or pictures[SOURCE]
    frame = compute_crop(union_box(boxes), *source.size, rubric.modes["oracle"].crop)
    shas, places = {}, {}
    for name, picture in pictures.items():
        part = map_to_picture(frame, source, picture)
        crop = np.ascontiguousarray(picture.pixels[part.y1 : part.y2, part.x1 : part.x2])
        shas[name] = album.add(crop).sha
        width, height = part.size
        local = [map_to_picture(box, source, picture) for box in boxes]
        moved = [Box(x1=b.x1 - part.x1, y1=b.y1 - part.y1, x2=b.x2 - part.x1, y2=b.y2 - part.y1) for b in local]
        places[name] = tuple(b.clamped(width, height) or Box(x1=0, y1=0, x2=width, y2=height) for b in moved)
    return Case(edit=edit, rubric=rubric, mode="oracle", pictures=shas, target=target, target_boxes=places)
