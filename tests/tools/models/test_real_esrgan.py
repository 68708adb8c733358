from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

from editloupe.pictures.pixels import Pixels
from editloupe.tools.contract import ToolError
from editloupe.tools.models import real_esrgan
from editloupe.tools.models.real_esrgan import (
    MODEL,
    EngineChoice,
    RealESRGAN,
    VulkanDevice,
    choose_engine,
    explain_missing_gpu,
    find_weights_file,
    iterate_tiles,
    list_vulkan_devices,
)
from tests.tools.tiny_rrdbnet import make_convolutions, name_convolutions, save_ncnn

needs_weights = pytest.mark.skipif(RealESRGAN().unavailable() is not None, reason="no Real-ESRGAN weights here")
NVIDIA = VulkanDevice("a discrete GPU", 0, real_esrgan.NVIDIA)
INTEL = VulkanDevice("an integrated GPU", 1, 0x8086)
LAVAPIPE = VulkanDevice("a CPU", 3, 0x10005)
SAME, SAME_HALF = 0.01, 8.0
"""Largest difference of the network's results in levels of 255: of two engines in float32, and of float16 from float32."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with random weights in ncnn's format."""
    return save_ncnn(tmp_path_factory.mktemp("realesrgan"), make_convolutions())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which packages are installed and which GPUs they find."""

    def set_up(
        packages: tuple[str, ...] = ("torch", "ncnn"), cuda: int = 0, vulkan: tuple[VulkanDevice, ...] = ()
    ) -> None:
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(real_esrgan, "is_installed", lambda name: name in packages)
        monkeypatch.setattr(real_esrgan, "may_have_gpu", lambda: True)
        monkeypatch.setattr("editloupe.tools.models.weights.may_have_gpu", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        monkeypatch.setattr(real_esrgan, "list_vulkan_devices", lambda: vulkan)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return set_up


def crop(x: int, y: int, width: int, height: int) -> Pixels:
    return np.ascontiguousarray(data.coffee()[y : y + height, x : x + width])


def shrunken(x: int, y: int, side: int) -> tuple[Pixels, Pixels]:
    """A detail of a photograph and the same four times smaller."""
    truth = crop(x, y, 4 * side, 4 * side)
    return truth, np.asarray(cv2.resize(truth, (side, side), interpolation=cv2.INTER_AREA), np.uint8)


def difference(one: RealESRGAN, other: RealESRGAN, pixels: Pixels) -> float:
    return float(np.abs(one._enlarge(pixels) - other._enlarge(pixels)).max())


def run(model: RealESRGAN, choice: EngineChoice) -> RealESRGAN:
    """Return the model with another engine than the one it would choose."""
    model._choice = choice
    return model


@pytest.mark.models
@needs_weights
def test_with_its_real_weights_it_beats_bicubic_and_stays_true() -> None:
    truth, small = shrunken(200, 100, 48)
    bicubic = cv2.resize(small, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC)

    large = RealESRGAN(threads=1).upscale(small, 4.0)

    assert large.shape == (192, 192, 3)
    assert psnr(large, truth) > psnr(bicubic, truth) + 0.5
    assert sharpness(large) > 1.2 * sharpness(bicubic)
    back = cv2.resize(large, small.shape[1::-1], interpolation=cv2.INTER_AREA)
    assert np.abs(back.astype(int) - small).mean() < 1.0


def psnr(a: Any, b: Any) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2)))


def sharpness(pixels: Any) -> float:
    return float(cv2.Laplacian(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.CV_32F).std())


@pytest.mark.models
@needs_weights
def test_torch_and_ncnn_give_the_same_picture_from_the_real_weights() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ncnn")
    small = crop(230, 130, 24, 16)
    ncnn = run(RealESRGAN(threads=1), EngineChoice("ncnn", "cpu", "float32"))
    torch = run(RealESRGAN(threads=1), EngineChoice("torch", "cpu", "float32"))

    assert difference(ncnn, torch, small) < SAME
    assert np.abs(ncnn.upscale(small, 4.0).astype(int) - torch.upscale(small, 4.0)).max() <= 1


@pytest.mark.slow
@pytest.mark.models
@needs_weights
def test_float16_is_close_to_float32_with_the_real_weights() -> None:
    pytest.importorskip("torch")
    small = crop(230, 130, 12, 12)
    whole = run(RealESRGAN(threads=1), EngineChoice("torch", "cpu", "float32"))
    half = run(RealESRGAN(threads=1), EngineChoice("torch", "cpu", "float16"))

    assert 0 < difference(whole, half, small) < SAME_HALF


@pytest.mark.slow
@pytest.mark.models
@needs_weights
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", SAME), ("float16", SAME_HALF)])
def test_a_vulkan_device_gives_the_same_picture(precision: Any, tolerance: float) -> None:
    """Mesa's lavapipe, which is a CPU, is enough: install mesa-vulkan-drivers."""
    pytest.importorskip("ncnn")
    if not list_vulkan_devices():
        pytest.skip("ncnn finds no Vulkan device")
    small = crop(230, 130, 12, 12)
    vulkan = RealESRGAN(device="vulkan:0", precision=precision)

    assert vulkan.engine == EngineChoice("ncnn", "vulkan:0", precision)
    assert difference(vulkan, RealESRGAN(threads=1, device="cpu"), small) < tolerance


@pytest.mark.models
@pytest.mark.parametrize("size", [(300, 140), (9, 5), (128, 128)])
def test_engines_agree_on_every_size_of_crop(size: tuple[int, int], tiny: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("ncnn")
    small = crop(60, 60, *size)
    ncnn = run(RealESRGAN(tiny, threads=1), EngineChoice("ncnn", "cpu", "float32"))
    torch = run(RealESRGAN(tiny, threads=1), EngineChoice("torch", "cpu", "float32"))

    assert ncnn._enlarge(small).shape == (4 * size[1], 4 * size[0], 3)
    assert difference(ncnn, torch, small) < SAME


@pytest.mark.models
def test_a_checkpoint_runs_in_torch_on_a_cpu(tiny: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {}
    for name, (weight, bias) in zip(name_convolutions(1), make_convolutions(), strict=True):
        state |= {f"{name}.weight": torch.from_numpy(weight), f"{name}.bias": torch.from_numpy(bias)}
    torch.save({"params_ema": state}, tmp_path / "RealESRGAN_x4plus.pth")
    model = RealESRGAN(tmp_path, threads=1, device="cpu")

    assert model.engine == EngineChoice("torch", "cpu", "float32")
    assert difference(model, RealESRGAN(tiny, threads=1, device="cpu"), crop(0, 0, 20, 20)) < SAME


@pytest.mark.models
def test_two_threads_at_once_load_the_weights_once(tiny: Path) -> None:
    model = RealESRGAN(tiny, threads=1, device="cpu")
    small = np.full((8, 8, 3), 90, np.uint8)
    start = threading.Barrier(2)
    results: list[Pixels] = []

    def work() -> None:
        start.wait()
        results.append(model.upscale(small, 4.0))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert model.loads == 1
    assert len(results) == 2
    assert np.array_equal(results[0], results[1])


@pytest.mark.models
def test_tiles_of_concurrent_crops_share_passes_and_memory_that_is_short_takes_them_one_by_one(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    alone = run(RealESRGAN(tiny, threads=1, share=1), EngineChoice("torch", "cpu", "float32"))
    model = run(RealESRGAN(tiny, threads=1, share=1), EngineChoice("torch", "cpu", "float32"))
    network: Any = model._load()
    network._batch, forward, room = real_esrgan.BATCH, network._network, [8]
    passes: list[int] = []

    def watched(tiles: Any) -> Any:
        passes.append(len(tiles))
        if len(tiles) > room[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(tiles)

    network._network = watched
    crops = [crop(10 * i, 0, 24, 16) for i in range(4)]
    for room[0], expected in ((8, [4]), (1, [4, 1, 1, 1, 1])):
        passes.clear()
        with ThreadPoolExecutor(4) as pool:
            monkeypatch.setattr("editloupe.tools.models.batching.GATHER", 0.3)
            enlarged = list(pool.map(lambda pixels: model.upscale(pixels, 4.0), crops))
        assert passes == expected
        for pixels, large in zip(crops, enlarged, strict=True):
            assert np.abs(large.astype(int) - alone.upscale(pixels, 4.0)).max() <= 1
    room[0] = 0
    with pytest.raises(ToolError, match="cpu has too little free memory for the enhancer"):
        model.upscale(crops[0], 4.0)


@pytest.mark.models
def test_a_large_crop_is_enlarged_in_batches_of_equal_tiles(tiny: Path) -> None:
    pytest.importorskip("ncnn")
    model = RealESRGAN(tiny, threads=1, device="cpu")

    model.upscale(crop(0, 0, 400, 400), 4.0)

    assert model.queue.batches == {1: 2, 3: 2, 8: 1}, (
        "nine whole tiles, three on the right, three below, and the corner"
    )


@pytest.mark.models
def test_damaged_weights_are_one_sentence(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for end in (".param", ".bin"):
        (tmp_path / f"{MODEL}{end}").write_bytes((tiny / f"{MODEL}{end}").read_bytes()[:-40])
    model = run(RealESRGAN(tmp_path), EngineChoice("torch", "cpu", "float32"))

    with pytest.raises(ToolError, match=r"^The weights of the enhancer could not be loaded: .*\.$"):
        model.upscale(crop(0, 0, 8, 8), 4.0)


@pytest.mark.models
@pytest.mark.parametrize("engine", ["torch", "ncnn"])
def test_weights_that_an_engine_would_run_and_that_are_not_real_esrgan_are_one_sentence(
    engine: Any, tmp_path: Path
) -> None:
    pytest.importorskip(engine)
    damaged, large, infinite = make_convolutions(), make_convolutions(), make_convolutions()
    damaged[1][0][0, 0, 0, 0] = np.nan
    large[-1][1][:] = 1e37
    infinite[-1][0][:] = infinite[-2][0][:] = 3e38
    trials = {
        f"{MODEL}.bin is damaged": save_ncnn(tmp_path / "damaged", damaged),
        f"is out of range: {MODEL}.param is damaged": save_ncnn(tmp_path / "large", large, half=False),
        f"{MODEL}.param is damaged, or the range of float32": save_ncnn(tmp_path / "infinite", infinite, half=False),
        f"{MODEL}.bin has .* bytes, but": save_ncnn(tmp_path / "longer", make_convolutions()),
        f"{MODEL}.param does not double the size twice": save_ncnn(tmp_path / "scale", make_convolutions()),
    }
    with (tmp_path / "longer" / f"{MODEL}.bin").open("ab") as file:
        file.write(bytes(100))
    param = tmp_path / "scale" / f"{MODEL}.param"
    param.write_text(param.read_text().replace(" 1=2.000000e+00 ", " 1=1.000000e+00 "))

    for sentence, folder in trials.items():
        model = run(RealESRGAN(folder, threads=1), EngineChoice(engine, "cpu", "float32"))
        with pytest.raises(ToolError, match=sentence):
            model.upscale(crop(0, 0, 8, 8), 4.0)


def test_tiles_cover_a_picture_without_gaps_or_overlap() -> None:
    seen = np.zeros((300, 257), int)
    for x, y, width, height in iterate_tiles(257, 300):
        seen[y : y + height, x : x + width] += 1

    assert (seen == 1).all()


@pytest.mark.parametrize(
    ("files", "named", "says"),
    [
        ((), "", f"has neither {MODEL}.param and {MODEL}.bin nor RealESRGAN_x4plus.safetensors"),
        ((f"{MODEL}.param",), "", f"lacks {MODEL}.bin"),
        ((f"{MODEL}.bin",), f"{MODEL}.bin", f"lacks {MODEL}.param"),
        ((), "x4.pth", "are not at .*x4.pth"),
        (("x4.onnx",), "x4.onnx", "x4.onnx is not a weights file"),
    ],
)
def test_missing_weights_say_what_is_missing(files: tuple[str, ...], named: str, says: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()

    with pytest.raises(ToolError, match=says):
        find_weights_file(tmp_path / named)


def test_without_weights_the_command_that_fetches_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITLOUPE_WEIGHTS", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.distribution", _not_installed)

    assert f"`editloupe weights fetch {MODEL}`" in str(RealESRGAN().unavailable())


def _not_installed(name: str) -> None:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


@pytest.mark.models
@pytest.mark.parametrize(
    ("found", "device", "choice"),
    [
        ({"cuda": 2, "vulkan": (NVIDIA,)}, "auto", EngineChoice("torch", "cuda", "float16")),
        ({"cuda": 2}, "cuda:1", EngineChoice("torch", "cuda:1", "float16")),
        ({"cuda": 2}, "cpu", EngineChoice("ncnn", "cpu", "float32")),
        ({"vulkan": (NVIDIA,)}, "auto", EngineChoice("ncnn", "vulkan:0", "float16")),
        ({"vulkan": (INTEL, NVIDIA)}, "auto", EngineChoice("ncnn", "vulkan:1", "float16")),
        ({"vulkan": (INTEL, NVIDIA)}, "vulkan", EngineChoice("ncnn", "vulkan:0", "float16")),
        ({"vulkan": (LAVAPIPE,)}, "auto", EngineChoice("ncnn", "cpu", "float32")),
        ({"vulkan": (LAVAPIPE,)}, "vulkan:0", EngineChoice("ncnn", "vulkan:0", "float16")),
        ({}, "auto", EngineChoice("ncnn", "cpu", "float32")),
        ({"packages": ("torch",)}, "auto", EngineChoice("torch", "cpu", "float32")),
        ({"packages": ("ncnn",), "vulkan": (NVIDIA,)}, "auto", EngineChoice("ncnn", "vulkan:0", "float16")),
    ],
)
def test_the_engine_follows_from_packages_devices_and_settings(
    found: dict[str, Any], device: str, choice: EngineChoice, machine: Callable[..., None], tiny: Path
) -> None:
    machine(**found)

    assert choose_engine(find_weights_file(tiny), device) == choice


@pytest.mark.models
@pytest.mark.parametrize(
    ("found", "device", "says"),
    [
        ({}, "cuda", r"torch .* finds no CUDA device"),
        ({"cuda": 1}, "cuda:1", r"torch .* finds 1 CUDA device"),
        ({}, "mps", r"torch .* finds no MPS device"),
        ({"packages": ("ncnn",)}, "cuda:1", "torch is not installed"),
        ({"packages": ("torch",)}, "vulkan", "ncnn is not installed"),
        ({"vulkan": (INTEL,)}, "vulkan:2", "ncnn finds 1 Vulkan device"),
        ({}, "gpu", "torch refuses it"),
        ({"packages": ()}, "auto", r"needs ncnn or torch: pip install '\.\[enhance\]' for ncnn"),
    ],
)
def test_a_device_that_cannot_be_used_is_refused_with_the_reason(
    found: dict[str, Any], device: str, says: str, machine: Callable[..., None], tiny: Path
) -> None:
    machine(**found)

    assert RealESRGAN(tiny, device=device).unavailable() is not None
    with pytest.raises(ToolError, match=says):
        choose_engine(find_weights_file(tiny), device)


@pytest.mark.models
@pytest.mark.parametrize(("numbers", "device"), [("1", "vulkan:2"), ("0,1", "vulkan:1"), ("", None), ("7", None)])
def test_a_vulkan_device_of_nvidia_is_one_that_cuda_would_see(
    numbers: str, device: str | None, machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tiny: Path
) -> None:
    machine(vulkan=(LAVAPIPE, NVIDIA, NVIDIA))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", numbers)

    assert choose_engine(find_weights_file(tiny)).device == (device or "cpu")


@pytest.mark.models
def test_a_precision_that_is_set_is_used_on_every_device(machine: Callable[..., None], tiny: Path) -> None:
    machine(cuda=1)
    file = find_weights_file(tiny)

    assert choose_engine(file, "auto", "float32") == EngineChoice("torch", "cuda", "float32")
    assert choose_engine(file, "cpu", "float16") == EngineChoice("torch", "cpu", "float16")


@pytest.mark.models
def test_what_only_torch_can_do_names_the_extra_with_torch(machine: Callable[..., None], tiny: Path) -> None:
    machine(packages=("ncnn",))

    with pytest.raises(ToolError, match=r"because x4.pth is a checkpoint: pip install '\.\[detect\]'"):
        choose_engine(Path("x4.pth"))
    with pytest.raises(ToolError, match=r"because float16 is set: pip install '\.\[detect\]'"):
        choose_engine(find_weights_file(tiny), "cpu", "float16")


@pytest.mark.models
def test_the_reason_for_no_gpu_names_every_engine_that_was_asked(machine: Callable[..., None], tiny: Path) -> None:
    file = find_weights_file(tiny)
    machine()
    assert str(explain_missing_gpu(file, "auto")).endswith("finds no CUDA or MPS device, ncnn finds no Vulkan GPU")
    machine(packages=("torch",))
    assert str(explain_missing_gpu(file, "auto")).endswith("finds no CUDA or MPS device, ncnn is not installed")
    assert explain_missing_gpu(file, "cpu") == "the device is set to cpu"
    machine(cuda=1)
    assert explain_missing_gpu(file, "auto") is None


@pytest.mark.models
def test_looking_for_vulkan_devices_prints_nothing_of_ncnn_and_keeps_the_lines_of_others() -> None:
    pytest.importorskip("ncnn")
    code = (
        "import os; from editloupe.tools.models import real_esrgan as r\n"
        "with r._without_ncnn_lines():\n"
        "    r.import_optional('ncnn').get_gpu_count(); os.write(2, b'a line of another thread\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "a line of another thread\n"
