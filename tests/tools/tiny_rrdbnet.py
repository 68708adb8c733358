"""Real-ESRGAN's network with tiny random weights, in the formats in which the real weights are published."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from editloupe.tools.models.real_esrgan import MODEL
from editloupe.tools.models.rrdbnet import HALF_FLAG, LAST, Convolution

WIDTH, GROWTH = 8, 4


def make_convolutions(blocks: int = 1, seed: int = 0) -> list[Convolution]:
    """Return random weights whose numbers are the same in float16."""
    dense = [(GROWTH, WIDTH + GROWTH * i) for i in range(4)] + [(WIDTH, WIDTH + GROWTH * 4)]
    sizes = [(WIDTH, 3), *dense * 3 * blocks, *[(WIDTH, WIDTH)] * 4, (3, WIDTH)]
    random = np.random.default_rng(seed)
    return [
        (
            random.normal(0, 0.15, (outputs, inputs, 3, 3)).astype(np.float16).astype(np.float32),
            random.normal(0, 0.1, outputs).astype(np.float16).astype(np.float32),
        )
        for outputs, inputs in sizes
    ]


def save_ncnn(folder: Path, convolutions: Sequence[Convolution], half: bool = True) -> Path:
    """Write the `.param` and `.bin` files of a network and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{MODEL}.param").write_text(_describe(convolutions))
    with (folder / f"{MODEL}.bin").open("wb") as file:
        for weight, bias in convolutions:
            data = weight.astype("<f2" if half else "<f4").tobytes()
            file.write(struct.pack("<I", HALF_FLAG if half else 0) + data + b"\0" * (-len(data) % 4))
            file.write(bias.astype("<f4").tobytes())
    return folder


def name_convolutions(blocks: int) -> list[str]:
    """Return the names of a checkpoint's convolutions in the order of `make_convolutions`."""
    inner = [f"body.{b}.rdb{r}.conv{c}" for b in range(blocks) for r in (1, 2, 3) for c in range(1, 6)]
    return ["conv_first", *inner, *LAST]


def _describe(convolutions: Sequence[Convolution]) -> str:
    """Return the layers in ncnn's notation. Every use of a blob but its last needs a copy of its own (Split)."""
    layers: list[tuple[str, list[str], str, str]] = []
    left = iter(convolutions)

    def add(kind: str, inputs: list[str], options: str = "") -> str:
        layers.append((kind, inputs, f"b{len(layers)}", options))
        return layers[-1][2]

    def convolve(blob: str, activated: bool) -> str:
        weight, _ = next(left)
        leaky = " 9=2 -23310=1,2.000000e-01" if activated else ""
        return add("Convolution", [blob], f"0={len(weight)} 1=3 4=1 5=1 6={weight.size}{leaky}")

    shallow = features = convolve("data", False)
    for _ in range((len(convolutions) - 6) // 15):
        block = features
        for _ in range(3):
            parts = [block]
            for _ in range(4):
                parts.append(convolve(add("Concat", list(parts)), True))
            block = add(
                "Eltwise", [convolve(add("Concat", parts), False), block], "0=1 -23301=2,2.000000e-01,1.000000e+00"
            )
        features = add("Eltwise", [block, features], "0=1 -23301=2,2.000000e-01,1.000000e+00")
    features = add("BinaryOp", [shallow, convolve(features, False)])
    for _ in range(2):
        features = convolve(add("Interp", [features], "0=1 1=2.000000e+00 2=2.000000e+00"), True)
    convolve(convolve(features, True), False)
    return _write(layers)


def _write(layers: Sequence[tuple[str, list[str], str, str]]) -> str:
    uses = {name: sum(blob == name for _, blobs, _, _ in layers for blob in blobs) for _, _, name, _ in layers}
    copies = {name: iter(range(count)) for name, count in uses.items()}
    lines, blobs = ["Input input 0 1 data"], 1
    for number, (kind, inputs, output, options) in enumerate(layers):
        named = [f"{blob}_{next(copies[blob])}" if uses.get(blob, 0) > 1 else blob for blob in inputs]
        name = "output" if number == len(layers) - 1 else output
        lines.append(f"{kind} layer{number} {len(named)} 1 {' '.join(named)} {name} {options}".rstrip())
        blobs += 1
        if uses[output] > 1:
            split = [f"{output}_{i}" for i in range(uses[output])]
            lines.append(f"Split split{number} 1 {len(split)} {output} {' '.join(split)}")
            blobs += len(split)
    return "\n".join(["7767517", f"{len(lines)} {blobs}", *lines, ""])
