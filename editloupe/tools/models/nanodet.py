"""Detect objects of the 80 COCO classes with NanoDet, a small network, in plain torch.

The weights are a TensorFlow.js graph, which is run operation by operation. NanoDet is by RangiLyu, Apache-2.0
(https://github.com/RangiLyu/nanodet). Its weights are fetched and not part of this package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from editloupe._util.text import quote_line
from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.drawing import resize
from editloupe.tools.models.detectors import Detection, TiledDetector, read_detections
from editloupe.tools.models.weights import (
    WeightsMissing,
    explain_missing_packages,
    find_weights,
    import_optional,
    torch_dtype,
)
from editloupe.tools.settings import NANODET

_NAMES = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking meter,
bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase,
frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle,
wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake,
chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven,
toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear, hair drier, toothbrush
"""
CLASSES = tuple(name.strip() for name in _NAMES.split(","))
"""The classes of COCO, in the order of the network's outputs."""
SYNONYMS = {
    **dict.fromkeys(("man", "men", "woman", "women", "boy", "girl", "child", "children", "people"), "person"),
    **{"bike": "bicycle", "motorbike": "motorcycle", "plane": "airplane", "aeroplane": "airplane", "sofa": "couch"},
    **{"doughnut": "donut", "television": "tv", "remote control": "remote", "phone": "cell phone", "knives": "knife"},
    **{"fridge": "refrigerator", "mice": "mouse", "hair dryer": "hair drier"},
}
MOST_WORDS = max(len(name.split()) for name in (*CLASSES, *SYNONYMS))
"""Words of the longest name of a class."""
_TAIL = re.compile(
    r"\b(on|in|at|of|with|from|near|by|under|behind|beside|next|to|that|which|who|between|above|below)\b.*"
)
SIDE = 416
"""The side of the square to which the network's input is resized."""
STRIDES = (8, 16, 32)
"""Pixels of the input between two cells of each output grid."""
BINS = 11
"""The distance from a cell to a side of its box is a distribution over this many steps of a stride."""
BGR_MEAN = np.array((103.53, 116.28, 123.675), np.float32)
BGR_DEVIATION = np.array((57.375, 57.12, 58.395), np.float32)


def find_class(phrase: str) -> str:
    """Return the COCO class that a phrase names.

    The class is the last words of the phrase before a preposition, in the singular or plural.

    Raises:
        ToolError: If the phrase names no class.

    >>> find_class("the red cups on the table"), find_class("teddy bear"), find_class("race car")
    ('cup', 'teddy bear', 'car')
    """
    head = _TAIL.sub("", " ".join(phrase.lower().split())).split()
    for count in range(MOST_WORDS, 0, -1):
        words = " ".join(head[-count:])
        for name in (words, words.removesuffix("s"), words.removesuffix("es")):
            name = SYNONYMS.get(name, name)
            if name in CLASSES and "and" not in head:
                return name
    short = phrase if len(phrase) <= 80 else f"{phrase[:80]}…"
    raise ToolError(
        f"The detector cannot look for {quote_line(short)}: NanoDet knows {len(CLASSES)} kinds of everyday things only, "
        "such as person, car, dog, cup, chair, apple. Look with another tool."
    )


class NanoDet(TiledDetector):
    """The NanoDet detector. It finds classes, not phrases: "red cup" finds every cup."""

    def unavailable(self) -> str | None:
        """Return what is missing, or None."""
        if self._failure:
            return self._failure
        if packages := explain_missing_packages("detect", "torch"):
            return f"it needs {packages}"
        try:
            find_weights(NANODET)
        except WeightsMissing as error:
            return str(error)
        return None

    def detect_many(self, searches: Sequence[tuple[Pixels, str]]) -> list[list[Detection]]:
        """Run several searches; see the base class.

        Raises:
            ToolError: If a phrase names no class.
        """
        return super().detect_many([(pixels, find_class(phrase)) for pixels, phrase in searches])

    def _batch(self, pictures: Sequence[Pixels], phrases: Sequence[str]) -> list[list[Detection]]:
        torch = import_optional("torch")
        graph, _, device = self._load()
        small = np.stack([resize(picture, (SIDE, SIDE))[..., ::-1] for picture in pictures]).astype(np.float32)
        ready = ((small - BGR_MEAN) / BGR_DEVIATION).transpose(0, 3, 1, 2)
        with torch.inference_mode():
            scores, boxes = decode(graph(torch.from_numpy(np.ascontiguousarray(ready)).to(device, graph.dtype)))
        detections = []
        for index, (picture, phrase) in enumerate(zip(pictures, phrases, strict=True)):
            height, width = picture.shape[:2]
            own = scores[index, :, CLASSES.index(phrase)]
            chosen = (own >= self._settings.box_threshold).nonzero()[0]
            scaled = boxes[index, chosen] * np.array([width, height, width, height]) / SIDE
            detections.append(read_detections(scaled.tolist(), own[chosen].tolist(), repeat(phrase), (width, height)))
        return detections

    def _read_weights(self, device: str) -> tuple[Any, Any]:
        return TfjsGraph(find_weights(NANODET), device, torch_dtype(self._settings.precision)), None


def decode(outputs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Turn the network's outputs into scores and boxes.

    Args:
        outputs: Per stride, the scores (pictures × cells × classes) and the distributions (pictures × cells × 4 · bins).

    Returns:
        Scores (pictures × cells × classes) and boxes (pictures × cells × 4) in pixels of the input, as arrays.
    """
    scores, boxes = [], []
    for stride, (score, distribution) in zip(STRIDES, outputs, strict=True):
        numbers = distribution.float().cpu().reshape(*distribution.shape[:2], 4, BINS).softmax(-1).numpy()
        left, top, right, bottom = np.moveaxis(stride * (numbers @ np.arange(BINS)), -1, 0)
        y, x = (stride * (np.indices((SIDE // stride, SIDE // stride)).reshape(2, -1) + 0.5))[:, None]
        boxes.append(np.stack([x - left, y - top, x + right, y + bottom], -1))
        scores.append(score.float().cpu().numpy())
    return np.concatenate(scores, 1), np.concatenate(boxes, 1)


class TfjsGraph:
    """A TensorFlow.js graph model in torch, with the operations that NanoDet needs.

    Args:
        folder: The folder of `nanodet.json` and `nanodet.bin`.
        device: The torch device.
        dtype: The torch dtype of the computation.
    """

    def __init__(self, folder: Path, device: str, dtype: Any) -> None:
        torch = import_optional("torch")
        model = json.loads((folder / "nanodet.json").read_text("utf-8"))
        content = (folder / "nanodet.bin").read_bytes()
        self.dtype = dtype
        self._nodes: list[Mapping[str, Any]] = model["modelTopology"]["node"]
        """Operations in the order in which they can be run."""
        self._last_use = {_name(source): node["name"] for node in self._nodes for source in node.get("input", ())}
        """The operation after which a value is not needed any more."""
        self._weights: dict[str, Any] = {}
        start = 0
        for weight in model["weightsManifest"][0]["weights"]:
            stored = np.dtype(np.float16 if weight["dtype"] == "float32" else np.int32)  # shrunken for the download
            values = np.frombuffer(content, stored, int(np.prod(weight["shape"])), start).reshape(weight["shape"])
            start += values.nbytes
            tensor = torch.from_numpy(values.astype(np.float32 if stored.kind == "f" else np.int64))
            # Numbers such as axes and shapes stay on the CPU, where they are read.
            moves = stored.kind == "f" and values.ndim > 0
            self._weights[weight["name"]] = tensor.to(device, dtype) if moves else tensor
        unknown = {str(node["op"]) for node in self._nodes} - {"Const", "Placeholder", *_operations()}
        if unknown or start != len(content):
            raise ValueError(f"not the NanoDet graph: {', '.join(sorted(unknown)) or 'another length of weights'}")

    def __call__(self, pictures: Any) -> list[tuple[Any, Any]]:
        """Return scores and distributions per stride for a batch of prepared pictures."""
        operations = _operations()
        values: dict[str, Any] = dict(self._weights)
        for node in self._nodes:
            name, operation = node["name"], node["op"]
            if operation == "Placeholder":
                values[name] = pictures
            elif operation != "Const":
                inputs = [_pick(values, source) for source in node["input"]]
                values[name] = operations[operation](inputs, node["attr"])
                for source in {_name(source) for source in node["input"]}:
                    if self._last_use[source] == name:
                        del values[source]
        return [(values[f"Identity{scores}"], values[f"Identity{boxes}"]) for scores, boxes in _OUTPUTS]


_OUTPUTS = (("", "_3"), ("_1", "_4"), ("_2", "_5"))


def _name(source: str) -> str:
    return source.partition(":")[0]


def _pick(values: Mapping[str, Any], source: str) -> Any:
    """Return an input of a node; `name:1` is the second result of an operation with several."""
    value = values[_name(source)]
    return value[int(source.partition(":")[2] or 0)] if isinstance(value, tuple) else value


def _operations() -> dict[str, Callable[[Sequence[Any], Mapping[str, Any]], Any]]:
    """Return the operations of TensorFlow by name. Pictures have their channels last, in torch second."""
    torch = import_optional("torch")
    functional = torch.nn.functional

    def in_torch_order(work: Callable[[Any], Any], pictures: Any) -> Any:
        return work(pictures.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    def pair(attributes: Mapping[str, Any], name: str) -> list[int]:
        return [int(number) for number in attributes[name]["list"]["i"][1:3]]

    def pad(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        sides = [number for pair_of_sides in reversed(inputs[1].tolist()) for number in pair_of_sides]
        return functional.pad(inputs[0], sides, value=float(inputs[2]) if len(inputs) > 2 else 0.0)

    def convolve(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        kernel, strides = inputs[1].permute(3, 2, 0, 1), pair(attributes, "strides")
        return in_torch_order(lambda pictures: functional.conv2d(pictures, kernel, stride=strides), inputs[0])

    def pool(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        size, strides = pair(attributes, "ksize"), pair(attributes, "strides")
        return in_torch_order(lambda pictures: functional.max_pool2d(pictures, size, strides), inputs[0])

    def enlarge(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        size = inputs[1].tolist()
        return in_torch_order(lambda p: functional.interpolate(p, size, mode="bilinear"), inputs[0])

    return {
        "Add": lambda inputs, _: inputs[0] + inputs[1],
        "AddV2": lambda inputs, _: inputs[0] + inputs[1],
        "ConcatV2": lambda inputs, _: torch.cat(list(inputs[:-1]), int(inputs[-1])),
        "Conv2D": convolve,
        "Identity": lambda inputs, _: inputs[0],
        "LeakyRelu": lambda inputs, attributes: functional.leaky_relu(inputs[0], attributes["alpha"]["f"]),
        "MaxPool": pool,
        "Pad": pad,
        "PadV2": pad,
        # The graph was made for one picture; a batch keeps its first dimension.
        "Reshape": lambda inputs, _: inputs[0].reshape(len(inputs[0]), *inputs[1].tolist()[1:]),
        "ResizeBilinear": enlarge,
        "Sigmoid": lambda inputs, _: inputs[0].sigmoid(),
        "SparseToDense": lambda inputs, _: torch.zeros(inputs[1].tolist(), dtype=torch.int64),
        "SplitV": lambda inputs, _: inputs[0].split(inputs[1].tolist(), int(inputs[2])),
        "Transpose": lambda inputs, _: inputs[0].permute(*inputs[1].tolist()),
    }
