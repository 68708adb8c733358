"""Every setting of the tools can be written down, and what is written wrongly is told in one sentence."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from editloupe.tools.registry import BUILT_IN
from editloupe.tools.settings import ToolSettings, read_assignments, read_settings, setting_names
from editloupe.types import UserError

WRITTEN: dict[str, tuple[str, Any]] = {
    "offered": ("zoom_in_image,read_text", ("zoom_in_image", "read_text")),
    "enhancer": ("none", "none"),
    "enhancer_weights": ("weights/folder", Path("weights/folder")),
    "enhance_up_to": ("none", None),
    "network_share": ("0.25", 0.25),
    "comparison": ("pixels", "pixels"),
    "pixel_threshold": ("0", 0),
    "max_regions": ("3", 3),
    "overview": ("true", True),
    "detector": ("IDEA-Research/grounding-dino-base", "IDEA-Research/grounding-dino-base"),
    "detector_download": ("true", True),
    "device": ("cuda:1", "cuda:1"),
    "precision": ("float16", "float16"),
    "box_threshold": ("0.3", 0.3),
    "text_threshold": ("0.2", 0.2),
    "tile_levels": ("2,3", (2, 3)),
    "batch_size": ("8", 8),
    "hpsv3_python": ("hpsv3-env/bin/python", Path("hpsv3-env/bin/python")),
    "read_text": ("off", "off"),
    "threads": ("2", 2),
    "workers": ("none", None),
    "memory_bytes": ("1000", 1000),
    "cache_folder": ("looks", Path("looks")),
    "cache_bytes": ("1000", 1000),
    "plugins": ("false", False),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_setting_is_read_as_it_is_written(name: str) -> None:
    text, value = WRITTEN[name]
    assert read_assignments([f"{name}={text}"]) == {name: value}


def test_every_setting_can_be_written_but_objects() -> None:
    assert {field.name for field in fields(ToolSettings)} - {*setting_names()} == {"extra_tools"}
    assert {*WRITTEN} <= {*setting_names()}


def test_lists_and_numbers_of_yaml_are_read_too() -> None:
    assert read_settings({"tile_levels": [2], "max_regions": 3, "offered": ["zoom_in_image"]}) == {
        "tile_levels": (2,),
        "max_regions": 3,
        "offered": ("zoom_in_image",),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_regions", "is not KEY=VALUE"),
        ("magic=1", '"magic" is not a tool setting; the settings are: offered, pictures'),
        ("extra_tools=x", "is not a tool setting"),
        ("max_regions=many", "tool setting max_regions cannot be 'many'"),
        ("max_memory=much", "max_memory cannot be 'much': write a size such as 4GB"),
        ("max_regions=0", "max_regions must be at least 1"),
        ("network_share=1.5", "network_share must be between 0 and 1"),
        ("network_share=nan", "network_share must be between 0 and 1"),
        ("tile_levels=1", "tile_levels must be numbers of parts"),
        ("pixel_threshold=255", "pixel_threshold must be from 0 to 254 grey levels"),
        ("enhancer=spandrel", 'the enhancer "spandrel" was removed: use realesrgan'),
        ("enhancer_precision=bfloat16", "enhancer_precision cannot be 'bfloat16'"),
        ("device=gpu", '"gpu" is not a device; use auto, cpu, cuda, cuda:N, mps, xpu or vulkan:N'),
        ("device=cuda:x", '"cuda:x" is not a device'),
        ("comparison=loose", '"loose" is not a value of comparison; use one of registered, pixels'),
    ],
)
def test_what_is_written_wrongly_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        read_assignments([text])
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_a_tool_depends_on_are_settings() -> None:
    assert {name for tool in BUILT_IN for name in tool.depends_on} <= {*setting_names()}
