"""Builders of the pictures of a case, such as whole pictures by role and crops around annotated targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.case import LOOP, MEASURE, SOURCE, Case
from editloupe.rubrics.model import ModeText, Rubric, TargetCrop
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Box, Edit, Mode, Sha, UserError

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
"""Role of each picture name in the bundled rubrics. A plural name means all pictures of its role."""
OPTIONAL = "?"


def name_to_role(name: str) -> str:
    """Return the role of a picture name.

    >>> name_to_role("Annotated Image"), name_to_role("Depth Map"), name_to_role("Reference Images?")
    ('annotated', 'depth_map', 'references')
    """
    name = name.removesuffix(OPTIONAL)
    return ROLES.get(name) or "_".join(name.removesuffix(" Images").removesuffix(" Image").lower().split())


def role_to_name(role: str) -> str:
    """Return the name under which the picture of a role is shown.

    >>> role_to_name("source"), role_to_name("depth_map")
    ('Source Image', 'Depth Map Image')
    """
    names = {own: name for name, own in ROLES.items()}
    return names.get(role) or f"{role.replace('_', ' ').title()} Image"


def list_pictures(edit: Edit, role: str) -> tuple[PictureSource, ...]:
    """Return the pictures of an edit in a role. `inputs` begins with the source, `references` with the reference."""
    pictures = edit.files.get(role, ())
    if role == "inputs":
        return (edit.source, *(path for path in pictures if path != edit.source))
    if role == "references" and edit.reference:
        return (edit.reference, *pictures)
    return pictures


def open_pictures(edit: Edit, names: Sequence[str], album: Album) -> dict[str, Sha]:
    """Open the pictures that a rubric names and return their hashes by name, in its order.

    Raises:
        MissingInput: If a picture that is not optional is missing.
    """
    shas: dict[str, Sha] = {}
    for entry in names:
        name, role = entry.removesuffix(OPTIONAL), name_to_role(entry)
        paths = list_pictures(edit, role)
        if not paths and not entry.endswith(OPTIONAL):
            raise MissingInput(
                f'edit {edit.id} has no picture in the role "{role}"; give it with --image {role}=FILE '
                f'or under "more_images" in the manifest'
            )
        for label, path in zip(_number_names(name, len(paths)), paths, strict=True):
            shas[label] = album.open(path).sha
    return shas


def check_tool_pictures(names: Collection[str] | None, modes: Iterable[ModeText]) -> None:
    """Raise UserError if tools would take none of the pictures that a mode shows.

    Args:
        names: The pictures that tools take; None for all.
        modes: The texts of a mode, one per rubric.
    """
    for mode in modes:
        images = [image.removesuffix(OPTIONAL) for image in mode.images]
        singles = tuple(image.removesuffix("s") if image.endswith(" Images") else image for image in images)
        if names is not None and mode.tools and not any(name.startswith(singles) for name in names):
            raise UserError(
                f"tools.pictures names none of the pictures that the judge sees; these are: {', '.join(images)}"
            )


def _number_names(name: str, count: int) -> list[str]:
    if not name.endswith(" Images"):
        return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
    single = name.removesuffix("s")
    return [single] if count == 1 else [f"{single} {number}" for number in range(1, count + 1)]


def build_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the single case of a rubric that shows whole pictures by role. This is enough for most papers."""
    pictures = open_pictures(edit, rubric.modes[mode].images, album)
    engine = MEASURE if rubric.measured else LOOP
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures, engine=engine)]


LARGEST_EXPANSION, SMALLEST_EXPANSION = 6.0, 0.3
"""λ_max and λ_min (DLEBench, Equation 1)."""
SMALL_SIDE, LARGE_SIDE = 32, 256
"""S_min and S_max (DLEBench, Equation 1)."""
BOX_SLACK = 2
"""Pixels by which a box may exceed the picture, because annotators round coordinates."""


def compute_expansion(shorter_side: float) -> float:
    """Return λ(s), the context of a crop relative to its target's side (DLEBench, Equation 1).

    >>> compute_expansion(20), compute_expansion(144), compute_expansion(300)
    (6.0, 3.15, 0.3)
    """
    alpha = (shorter_side - SMALL_SIDE) / (LARGE_SIDE - SMALL_SIDE)
    alpha = min(1.0, max(0.0, alpha))
    return (1 - alpha) * LARGEST_EXPANSION + alpha * SMALLEST_EXPANSION


def compute_crop(target: Box, width: int, height: int, context: TargetCrop = "adaptive") -> Box:
    """Return the crop around a target within a picture; see TargetCrop for the context.

    >>> compute_crop(Box.model_validate([100, 100, 132, 132]), 1000, 1000)
    Box(x1=4, y1=4, x2=228, y2=228)
    >>> compute_crop(Box.model_validate([300, 300, 332, 332]), 1000, 1000, "each_end")
    Box(x1=108, y1=108, x2=524, y2=524)
    """
    if context == "box":
        return target
    target_width, target_height = target.size
    ratio = compute_expansion(min(target_width, target_height)) * (1.0 if context == "each_end" else 0.5)
    dx, dy = target_width * ratio, target_height * ratio
    grown = Box(x1=round(target.x1 - dx), y1=round(target.y1 - dy), x2=round(target.x2 + dx), y2=round(target.y2 + dy))
    return grown.clamped(width, height) or target


def union_box(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that contains all boxes."""
    return Box(
        x1=min(b.x1 for b in boxes),
        y1=min(b.y1 for b in boxes),
        x2=max(b.x2 for b in boxes),
        y2=max(b.y2 for b in boxes),
    )


def map_to_picture(box: Box, source: Picture, other: Picture) -> Box:
    """Scale a box of the source to the pixels of another picture of the same scene."""
    scaled = box.scaled(other.size[0] / source.size[0], other.size[1] / source.size[1])
    return scaled.clamped(*other.size) or Box(x1=0, y1=0, x2=1, y2=1)


def paint_white(pixels: Pixels, boxes: Sequence[Box]) -> Pixels:
    """Return a copy of the pixels with the boxes painted white (DLEBench, Section 4.2)."""
    masked = pixels.copy()
    for box in boxes:
        masked[box.y1 : box.y2, box.x1 : box.x2] = 255
    return masked


def check_boxes(edit: Edit, source: Picture) -> tuple[Box, ...]:
    """Return the target boxes, clamped to the source picture.

    Raises:
        MissingInput: If a box is outside the picture by more than BOX_SLACK pixels.
    """
    width, height = source.size
    inside = []
    for box in edit.target_boxes:
        over = max(-box.x1, -box.y1, box.x2 - width, box.y2 - height)
        clamped = box.clamped(width, height)
        if over > BOX_SLACK or clamped is None:
            raise MissingInput(
                f"target box {list(box)} is outside the source picture, which is {width} × {height} pixels"
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
    """Return a case with whole pictures in which all targets are painted white. Boxes are in the source's pixels."""
    source = source or pictures[SOURCE]
    scaled = {name: tuple(map_to_picture(box, source, picture) for box in boxes) for name, picture in pictures.items()}
    masked = {name: album.add(paint_white(picture.pixels, scaled[name])) for name, picture in pictures.items()}
    shas = {name: picture.sha for name, picture in masked.items()}
    return Case(edit=edit, rubric=rubric, mode="oracle", pictures=shas, target_boxes=scaled)


def build_crop_case(
    edit: Edit,
    rubric: Rubric,
    pictures: dict[str, Picture],
    boxes: Sequence[Box],
    album: Album,
    target: int | None,
    source: Picture | None = None,
) -> Case:
    """Return a case with one crop per picture around all of the boxes. Boxes are in the source's pixels."""
    source = source or pictures[SOURCE]
    frame = compute_crop(union_box(boxes), *source.size, rubric.modes["oracle"].crop)
    shas, boxes_in_crop = {}, {}
    for name, picture in pictures.items():
        part = map_to_picture(frame, source, picture)
        crop = np.ascontiguousarray(picture.pixels[part.y1 : part.y2, part.x1 : part.x2])
        shas[name] = album.add(crop).sha
        width, height = part.size
        local = [map_to_picture(box, source, picture) for box in boxes]
        moved = [Box(x1=b.x1 - part.x1, y1=b.y1 - part.y1, x2=b.x2 - part.x1, y2=b.y2 - part.y1) for b in local]
        boxes_in_crop[name] = tuple(b.clamped(width, height) or Box(x1=0, y1=0, x2=width, y2=height) for b in moved)
    return Case(edit=edit, rubric=rubric, mode="oracle", pictures=shas, target=target, target_boxes=boxes_in_crop)
