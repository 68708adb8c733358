"""Boxes as a detector gives them: the whole picture, every box above a floor, nothing tiled and nothing merged.

Counting rules need the detector's own boxes. Grounding DINO and OWL-ViT both load through the auto classes of transformers;
which of the two a folder holds is read off its weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from editloupe.pictures.pixels import Pixels
from editloupe.tools.geometry import whole_pixels
from editloupe.tools.models.devices import module
from editloupe.tools.models.grounding import GroundingDino
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tiling import Found

OWL = ("owlvit", "owlv2")
"""Model types that take a list of phrases a picture instead of one text."""


class Finder(Protocol):
    """Somebody who finds objects by name."""

    @property
    def fingerprint(self) -> str:
        """What the boxes depend on besides picture and phrase."""

    def unavailable(self) -> str | None:
        """Say what is missing on this machine, or None."""

    def find(self, pixels: Pixels, phrase: str) -> list[Found]:
        """Return the boxes of a phrase, best first; raises ToolError where the detector cannot be used."""


class WholePictureFinder(GroundingDino):
    """A detector of transformers, asked for one phrase in one whole picture."""

    def __init__(self, settings: ToolSettings, floor: float) -> None:
        super().__init__(dataclasses.replace(settings, box_threshold=floor, tile_levels=()))
        self.fingerprint = self._settings.digest("detector", "precision", "box_threshold", "text_threshold")

    def find(self, pixels: Pixels, phrase: str) -> list[Found]:
        """Return every box above the floor, best first."""
        with self._lock:
            return sorted(self._batch([pixels], [phrase])[0], key=lambda found: -found.score)

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Found]]:
        model, processor, device = self._load()
        if model.config.model_type not in OWL:
            return super()._batch(pictures, phrases)
        asked = [[phrase] for phrase in phrases]
        inputs = processor(images=list(pictures), text=asked, return_tensors="pt", padding="max_length").to(device)
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
        with module("torch").inference_mode():
            outputs = model(**inputs)
        outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
        results = processor.post_process_grounded_object_detection(
            outputs, threshold=self._settings.box_threshold, target_sizes=[p.shape[:2] for p in pictures]
        )
        found: list[list[Found]] = []
        for picture, phrase, result in zip(pictures, phrases, results, strict=True):
            size = (picture.shape[1], picture.shape[0])
            boxes = [
                (whole_pixels(numbers).clamped(*size), score)
                for numbers, score in zip(result["boxes"].tolist(), result["scores"].tolist(), strict=True)
                if numbers[2] > numbers[0] and numbers[3] > numbers[1]
            ]
            found.append([Found(box, float(score), phrase) for box, score in boxes if box])
        return found
