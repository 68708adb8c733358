"""Drawn scenes with one target, for tests of the embedded judge."""

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from editloupe.pictures.decode import Album
from editloupe.rubrics.case import Case
from editloupe.rubrics.registry import get_protocol
from editloupe.types import Edit, Mode

Pixels = npt.NDArray[np.uint8]
BOX = (130, 90, 190, 150)
RED, BLUE, GREEN = (200, 30, 35), (35, 70, 205), (30, 150, 50)


def ground(seed: int = 1) -> Pixels:
    """A soft, textured ground of 400 × 300 pixels."""
    noise = np.random.default_rng(seed).normal(0, 1, (300, 400, 3)).astype(np.float32)
    soft = cv2.GaussianBlur(noise, (0, 0), 6)
    return np.clip(150 + soft / soft.std() * 14, 0, 255).astype(np.uint8)


def disc(picture: Pixels, centre: tuple[int, int], colour: tuple[int, int, int], radius: int = 28) -> Pixels:
    """Draw a disc with a dark cross on it, so that it has some structure."""
    drawn = picture.copy()
    cv2.circle(drawn, centre, radius, colour, -1, cv2.LINE_AA)
    dark = tuple(int(c * 0.45) for c in colour)
    cv2.line(drawn, (centre[0] - radius // 2, centre[1]), (centre[0] + radius // 2, centre[1]), dark, 4, cv2.LINE_AA)
    cv2.line(drawn, (centre[0], centre[1] - radius // 2), (centre[0], centre[1] + radius // 2), dark, 4, cv2.LINE_AA)
    return drawn


def ellipse(picture: Pixels, centre: tuple[int, int], colour: tuple[int, int, int]) -> Pixels:
    """Draw the disc stretched out of shape."""
    drawn = picture.copy()
    cv2.ellipse(drawn, centre, (52, 15), 0, 0, 360, colour, -1, cv2.LINE_AA)
    return drawn


def make_edit(
    folder: Path, source: Pixels, edited: Pixels, reference: Pixels, instruction: str, **more: object
) -> Edit:
    """Write the pictures and return the edit with its target box."""
    paths = {}
    for name, pixels in (("source", source), ("edited", edited), ("reference", reference)):
        paths[name] = folder / f"{name}.png"
        cv2.imwrite(str(paths[name]), cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))
    return Edit.model_validate({"instruction": instruction, "target_boxes": [BOX], **paths, **more})


def make_case(edit: Edit, criterion: str, mode: Mode) -> tuple[Case, Album]:
    """Return the first case of one criterion."""
    album, dlebench = Album(), get_protocol("dlebench")
    return dlebench.make_cases(edit, dlebench.rubric(criterion), mode, album)[0], album
