"""The network of Real-ESRGAN (RRDBNet) in plain torch, and readers of its published weights.

The weights are a list of convolutions in the order in which the network applies them. They come from the ncnn files
(`.param` and `.bin`) or from a checkpoint (`.pth` or `.safetensors`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from editloupe._util.text import shorten_error
from editloupe.tools.models.weights import import_optional

SLOPE = 0.2
"""Slope of the leaky rectifiers below zero."""
RESIDUAL = 0.2
"""Factor of a block's result before its input is added."""
LAST = ("conv_body", "conv_up1", "conv_up2", "conv_hr", "conv_last")
"""Convolutions after the blocks, in a checkpoint's names."""
NCNN_LAYERS = {"Input", "Split", "Concat", "Convolution", "Eltwise", "BinaryOp", "Interp"}
"""Layer types of the network in an ncnn file."""
DOUBLING = [1, 2, 2]
"""Parameters 0 to 2 of both Interp layers of an ncnn file: nearest neighbour, factor 2 in both directions."""
HALF_FLAG, FULL_FLAG = 0x01306B47, 0
"""Marks before a weight in an ncnn file: float16 or float32 follow."""

Convolution = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Weight (outputs × inputs × 3 × 3) and bias."""


class WeightsError(Exception):
    """A weights file that cannot be used. Its sentence names the file."""


def read_convolutions(file: Path) -> list[Convolution]:
    """Read the network's weights.

    Args:
        file: A `.param` file with its `.bin` file in the same folder, or a checkpoint (`.pth`, `.safetensors`). A
            `.pth` file is read without running code in it.

    Raises:
        WeightsError: If the file cannot be read, has weights that are not finite, or holds another network than
            RRDBNet with factor 4.
    """
    try:
        convolutions = _read_ncnn(file) if file.suffix == ".param" else _read_checkpoint(file)
    except WeightsError:
        raise
    except Exception as error:  # each format has its own errors on a damaged file
        raise WeightsError(f"{file.name} cannot be read ({shorten_error(error, 200)})") from error
    _check_shapes([(weight.shape, bias.shape) for weight, bias in convolutions], file)
    numbers = file.with_suffix(".bin") if file.suffix == ".param" else file
    if not all(np.isfinite(array).all() for convolution in convolutions for array in convolution):
        raise WeightsError(f"{numbers.name} is damaged: it has weights that are not finite")
    return convolutions


def _check_shapes(shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], file: Path) -> None:
    """Refuse weights and biases whose shapes are not those of RRDBNet x4, of any width and number of blocks."""
    blocks, rest = divmod(len(shapes) - 1 - len(LAST), 15)
    if len(shapes) < 21 or rest:
        raise WeightsError(f"{file.name} has {len(shapes)} convolutions, which is not Real-ESRGAN x4plus (RRDBNet)")
    # A scalar or an empty weight is compared with a shape of one channel, and so refused.
    width, growth = (max((1, *weight[:1])) for weight, _ in shapes[:2])
    dense = [(growth, width + growth * i, 3, 3) for i in range(4)] + [(width, width + growth * 4, 3, 3)]
    expected = [(width, 3, 3, 3), *dense * 3 * blocks, *[(width, width, 3, 3)] * 4, (3, width, 3, 3)]
    for number, ((weight, bias), right) in enumerate(zip(shapes, expected, strict=True), 1):
        for kind, shape, right_shape in (("weight", weight, right), ("bias", bias, right[:1])):
            if tuple(shape) != right_shape:
                raise WeightsError(
                    f"the {kind} of convolution {number} of {file.name} has the shape {tuple(shape)} instead of "
                    f"{right_shape}, so it is not Real-ESRGAN with factor 4"
                )


def _read_ncnn(file: Path) -> list[Convolution]:
    layers = [line.split() for line in file.read_text("ascii").splitlines()[2:] if line.strip()]
    other = sorted({layer[0] for layer in layers} - NCNN_LAYERS)
    if other:
        raise WeightsError(f"{file.name} has layers of type {', '.join(other)}, which Real-ESRGAN x4plus has not")
    enlargements = [_read_parameters(layer) for layer in layers if layer[0] == "Interp"]
    if [[float(numbers.get(key, 0)) for key in "012"] for numbers in enlargements] != [DOUBLING] * 2:
        raise WeightsError(f"{file.name} does not double the size twice, so it is not Real-ESRGAN with factor 4")
    data = memoryview(file.with_suffix(".bin").read_bytes())
    convolutions: list[Convolution] = []
    position = 0
    for layer in (layer for layer in layers if layer[0] == "Convolution"):
        numbers = _read_parameters(layer)
        outputs, size = int(numbers["0"]), int(numbers["6"])
        (flag,) = struct.unpack_from("<I", data, position)
        if flag not in (HALF_FLAG, FULL_FLAG):
            raise WeightsError(f"{file.stem}.bin has weights that are not float16 or float32")
        kind = np.dtype("<f2" if flag == HALF_FLAG else "<f4")
        weight = np.frombuffer(data, kind, size, position + 4).astype(np.float32)
        position += 4 + (size * kind.itemsize + 3) // 4 * 4
        bias = np.frombuffer(data, "<f4", outputs, position).astype(np.float32)
        position += 4 * outputs
        convolutions.append((weight.reshape(outputs, -1, 3, 3), bias))
    if position != len(data):
        raise WeightsError(f"{file.stem}.bin has {len(data)} bytes, but {file.name} describes {position}")
    return convolutions


def _read_parameters(layer: Sequence[str]) -> dict[str, str]:
    """Return the numbered parameters of a layer, which follow the names of its inputs and outputs."""
    return dict(part.split("=", 1) for part in layer[4 + int(layer[2]) + int(layer[3]) :])


def _read_checkpoint(file: Path) -> list[Convolution]:
    state: Mapping[str, Any]
    if file.suffix == ".safetensors":
        state = import_optional("safetensors.torch").load_file(file)
    else:
        state = import_optional("torch").load(file, map_location="cpu", weights_only=True)
    for name in ("params_ema", "params"):  # the averaged weights are the published ones
        if name in state:
            state = state[name]
            break
    blocks = len({name.split(".")[1] for name in state if name.startswith("body.")})
    names = ["conv_first", *(f"body.{b}.rdb{r}.conv{c}" for b in range(blocks) for r in (1, 2, 3) for c in range(1, 6))]
    names += LAST
    missing = [name for name in names if f"{name}.weight" not in state or f"{name}.bias" not in state]
    if missing or not blocks:
        raise WeightsError(f"{file.name} has no {(missing or ['body'])[0]}, so it is not Real-ESRGAN (RRDBNet)")
    return [(_to_numpy(state[f"{name}.weight"]), _to_numpy(state[f"{name}.bias"])) for name in names]


def _to_numpy(tensor: Any) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = tensor.float().numpy()
    return values


def build_network(convolutions: Sequence[Convolution], device: str, dtype: Any) -> Callable[[Any], Any]:
    """Return the network as a function of a torch tensor (pictures × 3 × height × width, 0 to 1).

    Args:
        convolutions: The weights, from `read_convolutions`.
        device: The torch device.
        dtype: The torch type of weights and activations.
    """
    torch = import_optional("torch")
    functional = import_optional("torch.nn.functional")
    first, *inner = [
        tuple(torch.from_numpy(array).to(device, dtype) for array in convolution) for convolution in convolutions
    ]
    dense, (body, up1, up2, high, last) = inner[: -len(LAST)], inner[-len(LAST) :]

    def convolve(x: Any, convolution: Any) -> Any:
        return functional.conv2d(x, *convolution, padding=1)

    def activate(x: Any, convolution: Any) -> Any:
        return functional.leaky_relu_(convolve(x, convolution), SLOPE)

    def double(x: Any) -> Any:
        return functional.interpolate(x, scale_factor=2, mode="nearest")

    def run_dense_block(x: Any, group: Sequence[Any]) -> Any:
        features = x
        for convolution in group[:-1]:
            features = torch.cat((features, activate(features, convolution)), 1)
        return torch.add(x, convolve(features, group[-1]), alpha=RESIDUAL)

    def run(x: Any) -> Any:
        shallow = features = convolve(x, first)
        for start in range(0, len(dense), 15):
            block = features
            for group in range(start, start + 15, 5):
                block = run_dense_block(block, dense[group : group + 5])
            features = torch.add(features, block, alpha=RESIDUAL)
        features = convolve(features, body) + shallow
        del shallow, block
        features = activate(double(features), up1)
        features = activate(double(features), up2)
        return convolve(activate(features, high), last)

    network: Callable[[Any], Any] = run
    return network
