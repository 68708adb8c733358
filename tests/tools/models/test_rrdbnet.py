from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.tools.models.real_esrgan import MODEL
from editloupe.tools.models.rrdbnet import Convolution, WeightsError, build_network, read_convolutions
from tests.tools.tiny_rrdbnet import make_convolutions, name_convolutions, save_ncnn

pytestmark = pytest.mark.models


def tensors(convolutions: list[Convolution]) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    names = name_convolutions((len(convolutions) - 6) // 15)
    parts = [
        (f"{name}.{kind}", array)
        for name, pair in zip(names, convolutions, strict=True)
        for kind, array in zip(("weight", "bias"), pair, strict=True)
    ]
    return {name: torch.from_numpy(array) for name, array in parts}


def same(one: list[Convolution], other: list[Convolution]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for first, second in pairs for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("blocks", [1, 2])
def test_ncnn_files_of_either_precision_are_read(half: bool, blocks: int, tmp_path: Path) -> None:
    convolutions = make_convolutions(blocks)

    assert same(read_convolutions(save_ncnn(tmp_path, convolutions, half) / f"{MODEL}.param"), convolutions)


@pytest.mark.parametrize("wrapper", ["params_ema", "params", None])
def test_a_checkpoint_is_read_with_and_without_a_wrapper(wrapper: str | None, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convolutions = make_convolutions(2)
    state = tensors(convolutions)
    torch.save({wrapper: state} if wrapper else state, tmp_path / "x4.pth")

    assert same(read_convolutions(tmp_path / "x4.pth"), convolutions)


def test_the_averaged_weights_of_a_checkpoint_are_preferred(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    published = make_convolutions(seed=1)
    torch.save({"params": tensors(make_convolutions(seed=2)), "params_ema": tensors(published)}, tmp_path / "x4.pth")

    assert same(read_convolutions(tmp_path / "x4.pth"), published)


def test_safetensors_are_read(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    convolutions = make_convolutions()
    safetensors.save_file(tensors(convolutions), tmp_path / "x4.safetensors")

    assert same(read_convolutions(tmp_path / "x4.safetensors"), convolutions)


def test_torch_and_ncnn_compute_the_same_from_the_same_files(tmp_path: Path) -> None:
    torch, ncnn = pytest.importorskip("torch"), pytest.importorskip("ncnn")
    file = save_ncnn(tmp_path, make_convolutions(2)) / f"{MODEL}.param"
    tiles = np.random.default_rng(0).random((3, 3, 20, 28), dtype=np.float32)

    with torch.inference_mode():
        ours = build_network(read_convolutions(file), "cpu", torch.float32)(torch.from_numpy(tiles)).numpy()
    net = ncnn.Net()
    net.opt.use_fp16_storage = net.opt.use_fp16_packed = net.opt.use_fp16_arithmetic = False
    assert net.load_param(str(file)) == net.load_model(str(file.with_suffix(".bin"))) == 0
    for tile, result in zip(tiles, ours, strict=True):
        extractor = net.create_extractor()
        extractor.input("data", ncnn.Mat(tile))
        theirs = np.array(extractor.extract("output")[1])
        assert theirs.shape == result.shape == (3, 80, 112)
        assert theirs.std() > 0.01
        assert np.abs(theirs - result).max() < 1e-5


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    folder = save_ncnn(tmp_path, make_convolutions())
    data = (folder / f"{MODEL}.bin").read_bytes()
    (folder / f"{MODEL}.bin").write_bytes(data[:-8])
    with pytest.raises(WeightsError, match=f"{MODEL}.param cannot be read"):
        read_convolutions(folder / f"{MODEL}.param")

    (folder / f"{MODEL}.bin").write_bytes(data + b"more")
    with pytest.raises(WeightsError, match=rf"{MODEL}.bin has {len(data) + 4} bytes, but .* describes {len(data)}"):
        read_convolutions(folder / f"{MODEL}.param")


def test_weights_in_integers_are_refused(tmp_path: Path) -> None:
    folder = save_ncnn(tmp_path, make_convolutions())
    data = (folder / f"{MODEL}.bin").read_bytes()
    (folder / f"{MODEL}.bin").write_bytes(b"\x38\x4b\x0d\x00" + data[4:])

    with pytest.raises(WeightsError, match="not float16 or float32"):
        read_convolutions(folder / f"{MODEL}.param")


def test_another_network_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "other.param").write_text("7767517\n2 2\nInput input 0 1 data\nPReLU relu 1 1 data output 0=3\n")
    with pytest.raises(WeightsError, match="layers of type PReLU"):
        read_convolutions(tmp_path / "other.param")

    torch.save({"params": {"conv_first.weight": torch.zeros(8, 3, 3, 3)}}, tmp_path / "other.pth")
    with pytest.raises(WeightsError, match="not Real-ESRGAN"):
        read_convolutions(tmp_path / "other.pth")

    folded = tensors(make_convolutions()) | {"conv_first.weight": torch.zeros(8, 12, 3, 3)}
    torch.save(folded, tmp_path / "x2.pth")
    with pytest.raises(WeightsError, match=r"shape \(8, 12, 3, 3\) instead of \(8, 3, 3, 3\).*factor 4"):
        read_convolutions(tmp_path / "x2.pth")


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("conv_hr.bias", (9,), r"the bias of convolution 20 of x4.pth has the shape \(9,\) instead of \(8,\)"),
        ("conv_hr.bias", (8, 1), r"the shape \(8, 1\) instead of \(8,\)"),
        ("conv_hr.bias", (0,), r"the shape \(0,\) instead of \(8,\)"),
        ("conv_first.weight", (), r"the weight of convolution 1 of x4.pth has the shape \(\) instead of"),
        ("body.0.rdb1.conv1.weight", (0, 8, 3, 3), r"the shape \(0, 8, 3, 3\) instead of"),
    ],
)
def test_a_weight_or_bias_of_another_shape_is_refused(
    name: str, shape: tuple[int, ...], sentence: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    torch.save(tensors(make_convolutions()) | {name: torch.zeros(shape)}, tmp_path / "x4.pth")

    with pytest.raises(WeightsError, match=sentence):
        read_convolutions(tmp_path / "x4.pth")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(number: float, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    convolutions = make_convolutions()
    convolutions[1][0][0, 0, 0, 0] = number
    torch.save(tensors(convolutions), tmp_path / "x4.pth")

    with pytest.raises(WeightsError, match=r"x4\.pth is damaged: it has weights that are not finite"):
        read_convolutions(tmp_path / "x4.pth")
    with pytest.raises(WeightsError, match=f"{MODEL}.bin is damaged: it has weights that are not finite"):
        read_convolutions(save_ncnn(tmp_path, convolutions) / f"{MODEL}.param")


class _Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "bad.pth").write_bytes(pickle.dumps(_Trap(tmp_path / "ran"), protocol=2))

    with pytest.raises(WeightsError, match=r"bad.pth cannot be read"):
        read_convolutions(tmp_path / "bad.pth")
    assert not (tmp_path / "ran").exists()
