"""Download data sets from the Hugging Face hub with its own client, into its cache."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from editloupe.pictures.picture_tables import group_by_split
from editloupe.pictures.table_cells import SUFFIXES, one_line
from editloupe.types import UserError

_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?::(.+))?")


def is_hub_name(path: Path) -> bool:
    """Return whether a path is `hf:OWNER/NAME`, with or without `:SPLIT`.

    >>> is_hub_name(Path("hf:lab/edits:dev")), is_hub_name(Path("edits.jsonl"))
    (True, False)
    """
    return str(path).startswith("hf:")


def fetch_dataset(path: Path, everything: bool = False) -> Path:
    """Return the local folder of a data set on the hub, as `FOLDER:SPLIT` if a split is named. Other paths are unchanged.

    Only the tables of the split are downloaded; the whole repository if it has no tables.

    Args:
        path: `hf:OWNER/NAME` or `hf:OWNER/NAME:SPLIT`.
        everything: Download the other files too, for the layout of a paper, and return the folder alone.

    Raises:
        UserError: The client is not installed, the hub cannot be reached, or it has no such data set or split.
    """
    if not is_hub_name(path):
        return path
    match = _NAME.fullmatch(str(path))
    if not match:
        raise UserError(f"{path} is not a data set on the hub; write hf:OWNER/NAME or hf:OWNER/NAME:SPLIT")
    folder, split = _download(match[1], match[2], everything), match[2]
    return folder if everything or not split else Path(f"{folder}:{split}")


@lru_cache(maxsize=16)
def _download(name: str, split: str | None, everything: bool) -> Path:
    """Download what is needed; once per process, because a manifest is read several times."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"hf:{name} needs the hub's client: pip install huggingface_hub") from None
    try:
        info = huggingface_hub.HfApi().dataset_info(name)
    except Exception as error:  # errors of the client, of HTTP and of the connection
        raise UserError(f"hf:{name} cannot be downloaded: {_reason(error)}") from None
    files = [file.rfilename for file in info.siblings or ()]
    wanted = _choose_files(name, files, split, everything)
    try:
        folder = huggingface_hub.snapshot_download(
            name, repo_type="dataset", revision=info.sha, allow_patterns=[glob.escape(file) for file in wanted]
        )
    except Exception as error:
        raise UserError(f"hf:{name} cannot be downloaded: {_reason(error)}") from None
    return Path(folder)


def _choose_files(name: str, files: Sequence[str], split: str | None, everything: bool) -> list[str]:
    """Return the files to download."""
    root = Path("/")
    tables = {file for file in files if Path(file).suffix.lower() in SUFFIXES}
    splits = {
        key: [path.relative_to(root).as_posix() for path in paths]
        for key, paths in group_by_split((root / file for file in tables), root).items()
    }
    others = [file for file in files if file not in tables]
    if split is None:
        if len(splits) > 1 and not everything:
            raise UserError(
                f"hf:{name} has the splits {', '.join(splits)}; name one, as hf:{name}:{next(iter(splits))}"
            )
        return [*tables, *(others if everything or not tables else ())]
    inside = splits.get(split) or [file for file in files if file.startswith(f"{split}/")]
    if not inside:
        raise UserError(f'hf:{name} has no split "{split}"; there are: {", ".join(splits) or "none"}')
    return [*inside, *(others if everything else ())]


def _reason(error: Exception) -> str:
    """Return why the client failed, in a few words."""
    kinds: dict[str, str] = {
        "GatedRepoError": "access to it must be requested on the hub, and its client needs a token",
        "RepositoryNotFoundError": "the hub has no such data set, or it is private",
        "OfflineModeIsEnabled": "the client is in offline mode (HF_HUB_OFFLINE)",
        "ConnectError": "the hub cannot be reached",
        "ConnectTimeout": "the hub does not answer",
    }
    for kind in type(error).__mro__:
        if sentence := kinds.get(kind.__name__):
            return sentence
    status: Any = getattr(getattr(error, "response", None), "status_code", None)
    return f"the hub answers {status}" if status else one_line(error)
