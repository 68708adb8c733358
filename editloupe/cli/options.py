"""Options that several commands share, and the judge they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from editloupe.safe_text import one_line
from editloupe.types import Box, Mode, UserError

if TYPE_CHECKING:
    from editloupe.judge import Judge

JUDGING, ASKING, LOOKING = "What is judged", "How the model is asked", "How the tools look"

JudgeSpec = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help="openai:NAME, google_genai:NAME or rules; else the variable EDITLOUPE_JUDGE, else rules.",
        rich_help_panel=ASKING,
    ),
]
BaseUrl = Annotated[
    str | None, typer.Option(help="A compatible server: vLLM, Ollama, LM Studio, a proxy.", rich_help_panel=ASKING)
]
ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="Whose rubrics, see `editloupe protocols`; without it dlebench.", rich_help_panel=JUDGING
    ),
]
RubricFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--rubric",
        help="A rubric of your own in YAML, or other words for a bundled one; may be given again.",
        rich_help_panel=JUDGING,
    ),
]
ListedBy = Annotated[
    str,
    typer.Option(
        "--differences",
        help="model or tool: who lists differences where a rubric has them listed first (Edit-Compass).",
        rich_help_panel=JUDGING,
    ),
]
ModeName = Annotated[
    str | None,
    typer.Option(
        "--mode", help="tools, oracle or plain; without it the protocol's own default.", rich_help_panel=JUDGING
    ),
]
Criteria = Annotated[
    list[str] | None,
    typer.Option("--criterion", help="Only this criterion; may be given again.", rich_help_panel=JUDGING),
]
MaxTurns = Annotated[
    int,
    typer.Option(
        min=1, help="Replies before the tools are forbidden and the answer is asked for.", rich_help_panel=ASKING
    ),
]
MaxRepairs = Annotated[int, typer.Option(min=0, help="Unreadable replies that are sent back.", rich_help_panel=ASKING)]
ToolCalls = Annotated[
    str,
    typer.Option(help="auto, native or text: how tools are called; auto follows the model.", rich_help_panel=ASKING),
]
Coordinates = Annotated[
    str, typer.Option(help="auto, pixels or per_mille: how the model counts positions.", rich_help_panel=ASKING)
]
Structured = Annotated[
    str,
    typer.Option(
        "--structured", help="auto, on or off: hold the provider to the answer's JSON schema.", rich_help_panel=ASKING
    ),
]
Temperature = Annotated[
    float | None, typer.Option(min=0, help="Without it 0, where the model accepts it.", rich_help_panel=ASKING)
]
MaxOutputTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Longest reply, thinking included; without it the provider's own limit.", rich_help_panel=ASKING
    ),
]
LongSide = Annotated[
    int, typer.Option(min=64, help="Longest side of a picture as sent; tools see every pixel.", rich_help_panel=ASKING)
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for one reply.", rich_help_panel=ASKING)]
MinConfidence = Annotated[
    float, typer.Option(min=0, max=1, help="Leave weaker verdicts of `rules` unjudged.", rich_help_panel=ASKING)
]
EnhancerChoice = Annotated[
    str | None,
    typer.Option("--enhancer", help="realesrgan, fast or none, for enlarged crops.", rich_help_panel=LOOKING),
]
DetectorChoice = Annotated[
    str | None, typer.Option("--detector", help="Folder or hub id of Grounding DINO weights.", rich_help_panel=LOOKING)
]
DetectorDownload = Annotated[
    bool, typer.Option("--detector-download", help="Allow fetching the detector's weights.", rich_help_panel=LOOKING)
]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.", rich_help_panel=LOOKING)]
ReadText = Annotated[
    str | None, typer.Option("--read-text", help="auto, on or off: offer the text reader.", rich_help_panel=LOOKING)
]


@dataclass(frozen=True)
class JudgeOptions:
    """The shared options as they were given."""

    judge: str | None = None
    base_url: str | None = None
    protocol: str | None = None
    mode: str | None = None
    criteria: Sequence[str] | None = None
    rubrics: Sequence[Path] | None = None
    differences: str = "model"
    max_turns: int = 8
    max_repairs: int = 2
    tool_calls: str = "auto"
    coordinates: str = "auto"
    structured: str = "auto"
    temperature: float | None = None
    max_output_tokens: int | None = None
    long_side: int = 2048
    timeout: float = 90.0
    min_confidence: float = 0.0
    enhancer: str | None = None
    detector: str | None = None
    detector_download: bool = False
    device: str | None = None
    read_text: str | None = None
    memory_bytes: int | None = None
    """The bound of what tools remember in memory."""

    def open(self, **hooks: Any) -> Judge:
        """Return the judge these options describe."""
        from editloupe.judge import Judge, JudgeSettings

        settings = JudgeSettings(
            max_turns=self.max_turns,
            max_repairs=self.max_repairs,
            tool_calls=_one_of("--tool-calls", self.tool_calls, ("auto", "native", "text")),
            coordinates=_one_of("--coordinates", self.coordinates, ("auto", "pixels", "per_mille")),
            structured=_one_of("--structured", self.structured, ("auto", "on", "off")),
            temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            long_side=self.long_side,
            timeout=self.timeout,
            min_confidence=self.min_confidence,
            differences=_one_of("--differences", self.differences, ("model", "tool")),
        )
        return Judge(
            self.judge,
            protocol=self.protocol,
            mode=cast(Mode, _one_of("--mode", self.mode, get_args(Mode))) if self.mode else None,
            base_url=self.base_url,
            criteria=self.criteria,
            rubrics=self.rubrics or (),
            settings=settings,
            tools=self._tools(),
            **hooks,
        )

    def announce(self) -> None:
        """Say on stderr that the embedded judge is used where no judge was named."""
        if not self.judge and not os.environ.get("EDITLOUPE_JUDGE"):
            tell("no --judge given: judged by the embedded `rules`, a rule-based baseline that needs no key")

    def _tools(self) -> Any:
        from editloupe.tools.settings import ToolSettings

        given = {
            "enhancer": self.enhancer,
            "detector": self.detector,
            "device": self.device,
            "read_text": self.read_text,
            "memory_bytes": self.memory_bytes,
            "detector_download": self.detector_download or None,
        }
        named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(ToolSettings.from_environment(), **named)


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


def tell(sentence: str) -> None:
    """Say something to the user without disturbing what is piped."""
    print(f"editloupe: {one_line(sentence)}", file=sys.stderr)


def _one_of(option: str, value: str, choices: Sequence[str]) -> Any:
    if value not in choices:
        raise UserError(f'{option} is one of {", ".join(choices)}, not "{value}"')
    return value
