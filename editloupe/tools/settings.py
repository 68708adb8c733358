"""Settings of the tools, and how they are read from a command line, YAML or the environment."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import ByteSize, TypeAdapter, ValidationError

from editloupe._util.errors import first_error
from editloupe.types import UserError

if TYPE_CHECKING:  # a tool's contract loads the picture libraries
    from editloupe.tools.contract import Tool

EnhancerName = Literal["auto", "realesrgan", "fast", "none"]
EnhancerPrecision = Literal["float32", "float16"]
Precision = Literal["float32", "float16", "bfloat16"]
Switch = Literal["auto", "on", "off"]
ComparisonMode = Literal["registered", "pixels"]

GROUNDING_DINO = "IDEA-Research/grounding-dino-tiny"
"""Swin-T, for which the thresholds were published (EdiVal-Agent, Section O); `grounding-dino-base` is the larger Swin-B."""
NANODET = "nanodet"
"""The small detector, as a setting and as the name of its weights."""
CLIP, DINO = "openai/clip-vit-base-patch32", "facebook/dino-vits16"
"""The models of picture similarity in most published tables."""
READ_TEXT = "read_text"
DEVICE = re.compile(r"auto|cpu|mps|(cuda|xpu|npu|hpu|vulkan)(:\d{1,3})?")


@dataclass(frozen=True)
class ToolSettings:
    """Settings of the tools. The defaults need no weights, no GPU and no network."""

    offered: tuple[str, ...] | None = None
    """The tools a judge may call, by name. None offers all, an empty tuple none."""
    pictures: tuple[str, ...] | None = None
    """The pictures that tools take, by name, such as `Source Image`. None: all that the judge sees."""
    enhancer: EnhancerName = "auto"
    """`auto` is Real-ESRGAN if a GPU can run it, else the fast classical enhancer."""
    enhancer_weights: Path | None = None
    """Folder or file with the weights of `realesrgan`: .param and .bin of ncnn, .pth or .safetensors. Default: the weights
    on this machine."""
    enhancer_precision: EnhancerPrecision | None = None
    """Number format of `realesrgan`. Default: float16 on a GPU and float32 on a CPU; a run records it."""
    enhance_up_to: int | None = None
    """Crops with a longer side above this are not enlarged. Default: the limit of the backend."""
    network_share: float = 0.5
    """Share of the network in an enlarged crop, for `realesrgan`. The rest is classical enlargement.
    1 is the network alone, 0 the classical enlargement alone."""
    zoom_both: bool = True
    """Whether `zoom_in_image` also offers the same region of two pictures side by side."""
    zoom_smallest: int = 64
    """Smaller boxes are grown to this many pixels of the original, because nothing can be recognised without its
    surroundings.
    At 1 every box is shown as requested."""
    comparison: ComparisonMode = "registered"
    """How `localize_differences` compares: `registered` aligns the pictures and discounts noise, `pixels` compares
    strictly."""
    pixel_threshold: int = 25
    """With `comparison="pixels"`, the difference of a channel (of 255) from which a pixel counts as different."""
    max_regions: int = 5
    """The number of crops that `localize_differences` shows."""
    overview: bool = False
    """Whether `localize_differences` also shows a small copy of the picture with a numbered box per crop."""
    detector: str = GROUNDING_DINO
    """A folder with Grounding DINO weights, a model id of the hub, or `nanodet`, which knows 80 kinds of things."""
    detector_download: bool = False
    """Whether the weights may be downloaded from the hub. If False, only weights on this machine are used."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, `mps`… `vulkan:0` is for the enhancer alone."""
    precision: Precision = "float32"
    box_threshold: float = 0.35
    text_threshold: float = 0.25
    tile_levels: tuple[int, ...] | None = None
    """Number of parts into which each side is cut, per further scale. Default: (2,) on a CPU and (4,) on a GPU; a run
    records it."""
    batch_size: int = 4
    """Tiles per forward pass of the detector."""
    clip: str = CLIP
    """A folder with CLIP weights or a model id of the hub, for the measures `clip_image`, `clip_text` and `clip_direction`."""
    dino: str = DINO
    """A folder with DINO weights or a model id of the hub, for the measure `dino`."""
    hpsv3_python: Path | None = None
    """Python of the environment that has `hpsv3`, which scores visual quality."""
    read_text: Switch = "auto"
    """`auto` offers `read_text`, and reads the text of differing places, if the instruction is about text."""
    threads: int | None = None
    """Threads of a model on the CPU. Default: the choice of each model."""
    workers: int | None = None
    """Concurrent tool calls. Default: one per core, at most eight, and sixteen searches of the detector."""
    max_memory: ByteSize | None = None
    """Memory limit of the process for pictures, requests and caches, such as 4GB. Default: half of the machine's or
    container's memory. Models are not counted."""
    memory_bytes: int = 512 * 2**20
    """Size limit of the cache in memory; at most an eighth of `max_memory` is used."""
    cache_folder: Path | None = None
    """Folder of the cache on disk. Without it, nothing is written."""
    cache_bytes: int = 2 * 2**30
    """Size limit of the cache on disk."""
    plugins: bool = True
    """Whether tools of other packages are loaded."""
    extra_tools: tuple[Tool, ...] = ()
    """Further tools, as objects."""

    def __post_init__(self) -> None:
        if str(self.enhancer) == "spandrel":
            raise UserError(
                'the enhancer "spandrel" was removed: use realesrgan, which reads .pth files and runs in torch'
            )
        closed = {"enhancer": EnhancerName, "precision": Precision, "read_text": Switch, "comparison": ComparisonMode}
        if self.enhancer_precision is not None:
            closed["enhancer_precision"] = EnhancerPrecision
        for name, choices in closed.items():
            if getattr(self, name) not in get_args(choices):
                listed = ", ".join(get_args(choices))
                raise UserError(f'"{getattr(self, name)}" is not a value of {name}; use one of {listed}')
        if not DEVICE.fullmatch(self.device):
            raise UserError(f'"{self.device}" is not a device; use auto, cpu, cuda, cuda:N, mps, xpu or vulkan:N')
        for name in ("box_threshold", "text_threshold", "network_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        for name in ("max_regions", "batch_size", "zoom_smallest", "workers", "threads", "enhance_up_to"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        if self.max_memory is not None:
            from editloupe.pictures.memory_budget import check_limit  # loads the picture libraries

            check_limit(self.max_memory, "max_memory")
        for name in ("memory_bytes", "cache_bytes"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be at least 0, not {getattr(self, name)}")
        if not 0 <= self.pixel_threshold < 255:
            raise UserError(f"pixel_threshold must be from 0 to 254 grey levels, not {self.pixel_threshold}")
        if any(level < 2 for level in self.tile_levels or ()):
            raise UserError(
                "tile_levels must be numbers of parts per side, each at least 2; an empty list cuts no tiles"
            )
        if self.overview and self.comparison == "pixels":
            raise UserError(
                "overview needs comparison=registered: switch the overview off, or compare registered pictures"
            )
        if self.offered is not None and self.read_text != "off":
            # A named tool is offered for every instruction; one that is not named is not used by another tool either.
            object.__setattr__(self, "read_text", "on" if READ_TEXT in self.offered else "off")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ToolSettings:
        """Read the settings in the environment of this machine.

        The variables are EDITLOUPE_ENHANCER, _DETECTOR, _DEVICE, _PRECISION, _READ_TEXT, _ENHANCER_WEIGHTS,
        _HPSV3_PYTHON and _CACHE_FOLDER.

        Args:
            environment: Variables and their values.
        """
        paths = ("enhancer_weights", "hpsv3_python", "cache_folder")
        values = {}
        for name in ("enhancer", "detector", "device", "precision", "read_text", *paths):
            value = environment.get(f"EDITLOUPE_{name.upper()}", "")
            if value:
                values[name] = Path(value) if name in paths else value
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks the names

    def digest(self, *names: str) -> str:
        """Return a short hash of the named settings, for the keys of cached results."""
        field_names = {f.name for f in fields(self)}
        values = {name: str(getattr(self, name)) for name in sorted(names) if name in field_names}
        return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


OBJECTS = ("extra_tools",)
"""Settings that only a program can set."""
NOTHING, EVERYTHING = "none", "all"


def setting_names() -> tuple[str, ...]:
    """Return the names of all settings that can be written as text."""
    return tuple(field.name for field in fields(ToolSettings) if field.name not in OBJECTS)


def read_settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings from text or YAML to their values.

    Raises:
        UserError: If a name is unknown or a value is not valid.

    >>> read_settings({"tile_levels": "2,3", "network_share": "1", "offered": []})
    {'tile_levels': (2, 3), 'network_share': 1.0, 'offered': ()}
    """
    values = {name: _read(name, value) for name, value in written.items()}
    ToolSettings(**values)  # checks the values
    return values


def read_assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Read settings written as KEY=VALUE. The last value of a setting counts.

    >>> read_assignments(["max_regions=3", "tile_levels=none"])
    {'max_regions': 3, 'tile_levels': ()}
    """
    values = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals):
            raise UserError(f'"{text}" is not KEY=VALUE; write for instance --tool-set max_regions=3')
        values[name] = value
    return read_settings(values)


def read_tool_names(text: str) -> tuple[str, ...] | None:
    """Read a comma-separated list of tools. `none` is an empty tuple; `all` is None, which offers every tool that can run.

    >>> read_tool_names("zoom_in_image, localize_differences"), read_tool_names("none"), read_tool_names("all")
    (('zoom_in_image', 'localize_differences'), (), None)
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UserError("--tools takes tool names separated by commas, or none, or all")
    if names == (EVERYTHING,):
        return None
    return () if names == (NOTHING,) else names


def _read(name: str, value: Any) -> Any:
    if name not in setting_names():
        raise UserError(f'"{name}" is not a tool setting; the settings are: {", ".join(setting_names())}')
    hint = _hints()[name]
    if get_origin(hint) is Literal:
        return str(value)  # `ToolSettings` checks the choices
    several = any(get_origin(part_hint) is tuple for part_hint in (hint, *get_args(hint)))
    if several and isinstance(value, str):
        value = () if value in ("", NOTHING) else tuple(part.strip() for part in value.split(","))
    elif isinstance(value, str) and value == NOTHING and type(None) in get_args(hint):
        value = None
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        why = "write a size such as 4GB" if ByteSize in (hint, *get_args(hint)) else first_error(error).message
        raise UserError(f"the tool setting {name} cannot be {value!r}: {why}") from None


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(ToolSettings, localns={"Tool": object})


__all__ = ["read_assignments", "read_settings", "read_tool_names", "setting_names"]
