"""Find, crop, compare and measure objects for EdiVal-Agent's graph.

`EdivalContext` holds the detector, the models and the rules. Every look becomes a step of the trace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from editloupe.graphs.context import LiveContext, SharedContext
from editloupe.pictures.decode import Picture
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.edival.questions import enlarge
from editloupe.rubrics.edival.rules import DetectorQuery, EdivalSettings, Hit, filter_usable
from editloupe.rubrics.model import Rubric
from editloupe.tools.contract import CachedResult
from editloupe.tools.drawing import crop, draw_boxes, resize
from editloupe.tools.models.detectors import Finder
from editloupe.tools.models.features import Features, black_out, compare_backgrounds, compare_regions
from editloupe.tools.models.quality import Quality, luminance_quantiles
from editloupe.tools.result_cache import key
from editloupe.types import Box, Edit, Observation, Sha, Step, ToolCall, Trace


@dataclass(frozen=True)
class EdivalContext(LiveContext):
    """The context of EdiVal-Agent's graph: the shared context, the detector, the models and the rules."""

    shared: SharedContext
    finder: Finder
    """The detector."""
    rules: EdivalSettings
    criteria: tuple[str, ...]
    features: Features | None = None
    """Without a feature model, pictures are compared by their pixels only."""
    quality: Quality | None = None
    """Without a quality model, visual quality has luminance quantiles only."""
    notes: tuple[str, ...] = ()
    worded: Rubric | None = None
    """The rubric whose wording the questions use, if it is not the usual one."""

    def heading(self, edit: Edit, criterion: str) -> Trace:
        """Return the head of a trace."""
        judge = self.shared.judge
        return Trace(
            edit_id=edit.id, criterion=criterion, protocol="edival", mode="tools", judge=judge, notes=self.notes
        )

    def tell(self, heading: Trace, steps: Sequence[Step]) -> None:
        """Report the steps to the watcher."""
        for step in steps:
            if self.shared.watcher:
                self.shared.watcher.step(heading, step)

    def find(self, picture: Picture, phrase: str) -> tuple[Hit, ...]:
        """Return the boxes of a phrase as shares of the picture, best first. Cached by picture and phrase."""
        cache_key = key("edival_find", self.finder.fingerprint, picture.sha, phrase)
        cached = self.shared.toolbox.memory.get(
            cache_key, lambda: CachedResult({"hits": [hit.model_dump() for hit in self._hits(picture, phrase)]})
        )
        return tuple(Hit.model_validate(hit) for hit in cached.data["hits"])

    def _hits(self, picture: Picture, phrase: str) -> list[Hit]:
        width, height = picture.size
        return [
            Hit(
                x1=region.box.x1 / width,
                y1=region.box.y1 / height,
                x2=region.box.x2 / width,
                y2=region.box.y2 / height,
                score=region.score,
                phrase=region.label,
            )
            for region in self.finder.find(picture.pixels, phrase)
        ]

    def quality_of(self, picture: Picture) -> float | None:
        """Return the quality model's score of a picture, or None without a model. Cached by picture."""
        if self.quality is None:
            return None
        quality = self.quality
        cache_key = key("edival_quality", quality.fingerprint, picture.sha)
        cached = self.shared.toolbox.memory.get(
            cache_key, lambda: CachedResult({"score": quality.score(picture.pixels)})
        )
        return float(cached.data["score"])


DETECT, COMPARE, MEASURE = "detect_object", "compare_regions", "measure_quality"


@dataclass(frozen=True)
class ObjectDetection:
    """The hits of one detector call, with its call and observation."""

    query: DetectorQuery
    hits: tuple[Hit, ...]
    """Hits at or above the threshold, without boxes that fill the picture."""
    call: ToolCall
    observation: Observation


def hit_box(hit: Hit, size: tuple[int, int]) -> Box:
    """Return a hit as a box of whole pixels inside the picture, at least one pixel wide and high."""
    return to_box((hit.x1, hit.y1, hit.x2, hit.y2), size)


def to_box(shares: tuple[float, float, float, float], size: tuple[int, int]) -> Box:
    """Return four shares of a picture's sides as a box of whole pixels inside the picture."""
    width, height = size
    x1, y1 = min(int(shares[0] * width + 1e-6), width - 1), min(int(shares[1] * height + 1e-6), height - 1)
    x2, y2 = max(x1 + 1, round(shares[2] * width)), max(y1 + 1, round(shares[3] * height))
    return Box(x1=max(0, x1), y1=max(0, y1), x2=min(width, x2), y2=min(height, y2))


def detect(
    context: EdivalContext, query: DetectorQuery, name: str, picture: Picture, threshold: float, number: int, show: bool
) -> ObjectDetection:
    """Detect one phrase in one picture and return it as a call with its observation."""
    started = time.perf_counter()
    hits = filter_usable(context.find(picture, query.phrase), threshold, context.rules.large_box)
    boxes = [hit_box(hit, picture.size) for hit in hits]
    parameters = {"target_image": name, "detect_object_name": query.phrase, "threshold": threshold}
    call = ToolCall(id=f"{DETECT}_{number}", name=DETECT, parameters=parameters)
    places = "; ".join(f"{list(box)}, confidence {hit.score:.2f}" for box, hit in zip(boxes, hits, strict=True))
    count = "1 box" if len(hits) == 1 else f"{len(hits)} boxes"
    text = f'"{query.phrase}" in {name}: {count}. {places}.' if hits else f'No "{query.phrase}" was found in {name}.'
    pictures: tuple[Sha, ...] = ()
    if hits and show:
        marks = [f"{i}: {hit.score:.2f}" for i, hit in enumerate(hits, 1)]
        pictures = (context.shared.album.add(draw_boxes(picture.pixels, boxes, marks)).sha,)
    observation = Observation(
        call_id=call.id,
        tool=DETECT,
        text=text,
        pictures=pictures,
        captions=(f'{name} with boxes round "{query.phrase}"',) if pictures else (),
        data={
            "picture": name,
            "phrase": query.phrase,
            "objects": [_facts(b, h) for b, h in zip(boxes, hits, strict=True)],
        },
        seconds=time.perf_counter() - started,
    )
    return ObjectDetection(query, tuple(hits), call, observation)


def _facts(box: Box, hit: Hit) -> dict[str, Any]:
    return {"box": list(box), "confidence": round(hit.score, 4), "label": hit.phrase}


def detection_step(index: int, thought: str, detections: Sequence[ObjectDetection], answer: str | None = None) -> Step:
    """Return detector calls as one step."""
    return Step(
        index=index,
        thought=thought,
        calls=tuple(detection.call for detection in detections),
        observations=tuple(detection.observation for detection in detections),
        answer=answer,
    )


def crop_object(context: EdivalContext, picture: Picture, hit: Hit | None) -> Sha:
    """Return the crop for the LMM: around a box, enlarged if it is small; the whole picture if there is no box."""
    if hit is None:
        return picture.sha
    part = crop(picture.pixels, to_box(enlarge(hit, context.rules), picture.size))
    height, width = part.shape[:2]
    factor = context.rules.least_crop / max(width, height)
    if factor > 1:
        part = resize(part, (max(1, round(width * factor)), max(1, round(height * factor))))
    return context.shared.album.add(np.ascontiguousarray(part)).sha


@dataclass(frozen=True)
class ContentConsistency:
    """The parts of EdiVal-CC, 0 to 1, and the steps that measured them."""

    values: Mapping[str, Any]
    steps: tuple[Step, ...]


def compare(
    context: EdivalContext,
    base: Picture,
    current: Picture,
    all_objects: Sequence[str],
    unchanged: Sequence[str],
    background: bool,
) -> ContentConsistency:
    """Measure the consistency of unchanged objects in their base boxes, and of the background (Equation 3)."""
    threshold = context.rules.threshold
    names = [*all_objects] if background else [name for name in all_objects if name in unchanged]
    detections: list[ObjectDetection] = []
    for name in names:
        detections.append(
            detect(context, DetectorQuery("before", name), "Base Image", base, threshold, len(detections), show=False)
        )
        if background:  # unchanged objects are compared in their base boxes; only the background needs the new boxes
            query = DetectorQuery("after", name)
            detections.append(detect(context, query, "Edited Image", current, threshold, len(detections), show=False))
    hits_by_query = {entry.query: entry.hits for entry in detections}
    steps = [detection_step(0, "Find every object there ever was.", detections)]
    started = time.perf_counter()
    objects: dict[str, dict[str, float | None]] = {}
    for name in unchanged:
        boxes = [hit_box(hit, base.size) for hit in hits_by_query.get(DetectorQuery("before", name), ())]
        if boxes:
            alike = compare_regions(base.pixels, current.pixels, boxes, context.features)
            objects[name] = {"features": _mean([a.features for a in alike]), "l1": _mean([a.l1 for a in alike])}
    values: dict[str, Any] = {
        "object": _mean([entry["features"] for entry in objects.values()]),
        "object_l1": _mean([entry["l1"] for entry in objects.values()]),
        "background": None,
        "background_l1": None,
        "objects": objects,
        "square": is_square(base.pixels),
        "not_found": [name for name in unchanged if name not in objects],
        "not_masked": [],
    }
    pictures: tuple[Sha, ...] = ()
    if background:
        boxes = [hit_box(hit, base.size) for hits in hits_by_query.values() for hit in hits]
        rules = context.rules
        rest = compare_backgrounds(
            base.pixels,
            current.pixels,
            boxes,
            context.features,
            rules.background_features,
            rules.background_patch_share,
        )
        masked = {query.phrase for query, hits in hits_by_query.items() if hits}
        values["not_masked"] = [name for name in all_objects if name not in masked]
        if rest is not None:
            values |= {"background": rest.features, "background_l1": rest.l1}
            resized = resize(current.pixels, base.size)
            pictures = tuple(
                context.shared.album.add(black_out(pixels, boxes)[0]).sha for pixels in (base.pixels, resized)
            )
    call = ToolCall(id=COMPARE, name=COMPARE, parameters={"unchanged": list(unchanged), "background": background})
    observation = Observation(
        call_id=call.id,
        tool=COMPARE,
        text=_sentence(values),
        pictures=pictures,
        captions=("Base Image without objects", "Edited Image without objects") if pictures else (),
        data=values,
        seconds=time.perf_counter() - started,
    )
    steps.append(Step(index=1, thought="Compare what should have stayed.", calls=(call,), observations=(observation,)))
    return ContentConsistency(values, tuple(steps))


BLACK = 16
"""Largest value of a channel in a black bar; JPEG leaves a little noise in it."""
UNEVEN = 2
"""Pixels by which two bars of a letterboxed picture, or the sides of what is between them, may differ."""


def is_square(pixels: Pixels) -> bool:
    """Return whether a picture is square. Two equal black bars at opposite edges are its frame (Tables 23 and 24).

    >>> wide = np.zeros((512, 512, 3), np.uint8)
    >>> wide[100:412] = 200
    >>> is_square(wide), is_square(np.full((512, 512, 3), 200, np.uint8)), is_square(wide[100:412])
    (False, True, False)
    """
    height, width = pixels.shape[:2]
    dark = pixels.max(2) <= BLACK
    for axis in (1, 0):
        lit = np.flatnonzero(~dark.all(axis))
        length = int(pixels.shape[1 - axis])
        if not len(lit):
            continue
        before, after = int(lit[0]), length - 1 - int(lit[-1])
        if min(before, after) > 0 and abs(before - after) <= UNEVEN:
            inside = length - before - after
            return abs(inside - int(pixels.shape[axis])) <= UNEVEN
    return bool(width == height)


def measure(context: EdivalContext, base: Picture, current: Picture) -> tuple[dict[str, float | None], Step]:
    """Measure the quality of the current picture: HPSv3 if it is used, its change, and luminance quantiles."""
    started = time.perf_counter()
    p99, p999 = luminance_quantiles(current.pixels)
    p99_base, p999_base = luminance_quantiles(base.pixels)
    values: dict[str, float | None] = {"hps": None, "hps_base": None, "hps_change": None, "p99": p99, "p999": p999}
    values |= {"p99_base": p99_base, "p999_base": p999_base}
    text = f"99 % of the pixels are below {p99:.3f} of full luminance, 99.9 % below {p999:.3f}."
    hps, hps_base = context.quality_of(current), context.quality_of(base)
    if hps is not None and hps_base is not None:
        values |= {"hps": hps, "hps_base": hps_base, "hps_change": abs(hps - hps_base)}
        text = f"HPSv3 {hps:.3f}, base picture {hps_base:.3f}. {text}"
    call = ToolCall(id=MEASURE, name=MEASURE, parameters={"target_image": "Edited Image"})
    spent = time.perf_counter() - started
    observation = Observation(call_id=call.id, tool=MEASURE, text=text, data=values, seconds=spent)
    return values, Step(index=0, thought="Measure the picture by itself.", calls=(call,), observations=(observation,))


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _sentence(values: Mapping[str, Any]) -> str:
    parts = []
    for name, title in (("object", "Unchanged objects"), ("background", "Background")):
        features, l1 = values[name], values[f"{name}_l1"]
        if l1 is None:
            parts.append(f"{title}: nothing to compare.")
        else:
            by = "" if features is None else f"{features:.4f} by features, "
            parts.append(f"{title}: {by}{l1:.4f} by pixels.")
    if values["not_masked"]:
        names = ", ".join(f'"{name}"' for name in values["not_masked"])
        parts.append(f"Found in neither picture, so not left out of the background: {names}.")
    return " ".join(parts)
