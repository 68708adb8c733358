"""What the options of several commands share: panels of the help, the tools' options, and how values are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe.agent.spec_names import CASCADE, PANEL, RULES
from editloupe.agent.specs import forms
from editloupe.types import Box, UserError

if TYPE_CHECKING:
    from editloupe.tools.settings import ToolSettings

JUDGING, ASKING, LOOKING = "What is judged", "How the model is asked", "How the tools look"

JudgeSpec = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help=f"{forms(', ')} or {RULES}; {PANEL}SPEC,SPEC… or {CASCADE}FILE; else the variable EDITLOUPE_JUDGE, else {RULES}.",
        rich_help_panel=ASKING,
    ),
]


@dataclass(frozen=True)
class ToolOptions:
    """The options about the tools as they were given; what is None follows the set-up, the environment, the defaults."""

    offered: Annotated[
        str | None,
        typer.Option(
            "--tools",
            help="The tools the judge may call, with commas, or none, or all; without it all that can run here.",
            rich_help_panel=LOOKING,
        ),
    ] = None
    tool_set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any setting of the tools, such as max_regions=3 or network_share=1; may be given again.",
            rich_help_panel=LOOKING,
        ),
    ] = None

    enhancer: Annotated[
        str | None,
        typer.Option(
            "--enhancer", help="auto, realesrgan, spandrel, fast or none, for enlarged crops.", rich_help_panel=LOOKING
        ),
    ] = None
    detector: Annotated[
        str | None,
        typer.Option("--detector", help="Folder or hub id of Grounding DINO weights.", rich_help_panel=LOOKING),
    ] = None
    detector_download: Annotated[
        bool,
        typer.Option("--detector-download", help="Allow fetching the detector's weights.", rich_help_panel=LOOKING),
    ] = False
    device: Annotated[
        str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=LOOKING)
    ] = None
    read_text: Annotated[
        str | None, typer.Option("--read-text", help="auto, on or off: offer the text reader.", rich_help_panel=LOOKING)
    ] = None
    overview: Annotated[
        bool,
        typer.Option(
            "--overview", help="Show where the differences lie in the whole picture, too.", rich_help_panel=LOOKING
        ),
    ] = False

    def given(self) -> dict[str, Any]:
        """Return the settings that were named; an option of its own goes before the same setting in --tool-set."""
        from editloupe.tools.settings import read_assignments, read_settings, read_tool_names

        plain = {name: value for name, value in vars(self).items() if name not in ("offered", "tool_set")}
        own: dict[str, Any] = {
            **plain,
            "detector_download": self.detector_download or None,
            "overview": self.overview or None,
        }
        named = {name: value for name, value in own.items() if value is not None}
        if self.offered is not None:
            named["offered"] = read_tool_names(self.offered)
        return {**read_assignments(self.tool_set or ()), **read_settings(named)}

    def settings(self, **more: Any) -> ToolSettings:
        """Return the tools' settings: what was given here, else what the environment has, else the defaults."""
        from editloupe.tools.settings import ToolSettings

        return replace(ToolSettings.from_environment(), **{**self.given(), **more})


def parse_boxes(texts: Sequence[str]) -> tuple[Box, ...]:
    """Read boxes given as x1,y1,x2,y2."""
    boxes = []
    for text in texts:
        try:
            boxes.append(Box.model_validate([float(part) for part in text.split(",")]))
        except ValueError:
            raise UserError(
                f'"{text}" is not a box; write x1,y1,x2,y2 in pixels of the source, with x2 > x1 and y2 > y1'
            ) from None
    return tuple(boxes)


def parse_images(texts: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Read pictures given as ROLE=FILE; a role may be given again."""
    found: dict[str, tuple[Path, ...]] = {}
    for text in texts:
        role, equals, name = text.partition("=")
        if not equals or not role.strip() or not name.strip():
            raise UserError(f'"{text}" is not ROLE=FILE; write for instance --image annotated=marked.png')
        found[role.strip()] = (*found.get(role.strip(), ()), Path(name.strip()))
    return found


def one_of(option: str, value: str, choices: Sequence[str]) -> Any:
    """Return a value that is one of the choices; another is the user's mistake."""
    if value not in choices:
        raise UserError(f'{option} is one of {", ".join(choices)}, not "{value}"')
    return value
