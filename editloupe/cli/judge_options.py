"""The options of every command that opens a judge, and the judge they describe."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from editloupe.cli.options import ASKING, JUDGING, JudgeSpec, ToolOptions, one_of
from editloupe.cli.output import tell
from editloupe.judge import JUDGE_VARIABLE, Judge
from editloupe.judge.plans import Plan, is_combined, plan_of
from editloupe.judge.settings import JudgeSettings, Setup, find_setup, setup_names
from editloupe.rubrics.model import TargetCrop, Telling
from editloupe.rubrics.registry import DEFAULT, DEFAULT_FOR_PAIRS
from editloupe.types import Mode, UserError

USUAL = JudgeSettings()
"""Where the defaults come from."""


@dataclass(frozen=True)
class ModelOptions:
    """The parameters of the provider as they were given."""

    reasoning_effort: Annotated[
        str | None,
        typer.Option(
            help="How much a reasoning model thinks, by its provider's words: low, medium, high…",
            rich_help_panel=ASKING,
        ),
    ] = None
    thinking_level: Annotated[
        str | None,
        typer.Option(
            help="The same, where a provider calls it so: minimal, low, medium or high.", rich_help_panel=ASKING
        ),
    ] = None
    thinking_budget: Annotated[
        int | None,
        typer.Option(
            min=-1,
            help="The same in tokens, where a provider takes them: 0 for none, -1 for its own choice.",
            rich_help_panel=ASKING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="The seed of sampling, where the provider takes one.", rich_help_panel=ASKING),
    ] = None
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of likely words to draw from.", rich_help_panel=ASKING)
    ] = None
    service_tier: Annotated[
        str | None,
        typer.Option(
            help="flex is slower and cheaper; a reply is then waited for 900 seconds.", rich_help_panel=ASKING
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A header of every request; may be given again. Values are not written down.",
            rich_help_panel=ASKING,
        ),
    ] = None
    extra_body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="An object whose fields join the body of every request.", rich_help_panel=ASKING
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the settings that were given."""
        found = {name: value for name, value in vars(self).items() if value is not None and name != "header"}
        if self.header:
            found["headers"] = _headers(self.header)
        if self.extra_body is not None:
            found["extra_body"] = _object(self.extra_body)
        return found


@dataclass(frozen=True)
class JudgeOptions:
    """The options about a judge as they were given."""

    judge: JudgeSpec = None
    setup: Annotated[
        str | None,
        typer.Option(
            help=f"Settings under one name, {', '.join(setup_names())}, or a file of your own; single options go before it.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    base_url: Annotated[
        str | None, typer.Option(help="A compatible server: vLLM, Ollama, LM Studio, a proxy.", rich_help_panel=ASKING)
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            help=f"Whose rubrics, see `editloupe protocols`; without it {DEFAULT.name}, for pairs {DEFAULT_FOR_PAIRS.name}.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    mode: Annotated[
        str | None,
        typer.Option(help="tools, oracle or plain; without it the protocol's own default.", rich_help_panel=JUDGING),
    ] = None
    criteria: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="Only this criterion; may be given again.", rich_help_panel=JUDGING),
    ] = None
    rubrics: Annotated[
        list[Path] | None,
        typer.Option(
            "--rubric",
            help="A rubric of your own in YAML, with --protocol beside its criteria, or other words for one; may be given again.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    differences: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.differences),
            help="model or tool: who lists differences where a rubric has them listed first (Edit-Compass).",
            rich_help_panel=JUDGING,
        ),
    ] = None
    target_crop: Annotated[
        str | None,
        typer.Option(
            help="adaptive, each_end or box: how much the crops of oracle mode show round a target; else as the rubric says.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    tells: Annotated[
        str | None,
        typer.Option(
            help="What of an edit's text the judge is given: instruction, type, hint, with commas; else as the rubric says.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    our_notes: Annotated[
        bool | None,
        typer.Option(
            "--our-notes/--no-our-notes",
            show_default="our-notes",
            help="Keep the parts of a rubric that its paper does not have, such as notes by type, or leave them out.",
            rich_help_panel=JUDGING,
        ),
    ] = None
    max_turns: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.max_turns),
            min=1,
            help="Replies before the tools are forbidden and the answer is asked for.",
            rich_help_panel=ASKING,
        ),
    ] = None
    max_repairs: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.max_repairs),
            min=0,
            help="Unreadable replies that are sent back.",
            rich_help_panel=ASKING,
        ),
    ] = None
    tool_calls: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.tool_calls),
            help="auto, native or text: how tools are called; auto follows the model.",
            rich_help_panel=ASKING,
        ),
    ] = None
    coordinates: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.coordinates),
            help="auto, pixels or per_mille: how the model counts positions.",
            rich_help_panel=ASKING,
        ),
    ] = None
    structured: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.structured),
            help="auto, on or off: hold the provider to the answer's JSON schema.",
            rich_help_panel=ASKING,
        ),
    ] = None
    written_reasoning: Annotated[
        str | None,
        typer.Option(
            show_default=str(USUAL.written_reasoning),
            help="auto, on or off: write reasoning step by step first in a reply held to JSON; auto: by the model.",
            rich_help_panel=ASKING,
        ),
    ] = None
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Without it 0, where the model accepts it.", rich_help_panel=ASKING)
    ] = None
    max_output_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Longest reply, thinking included; without it the provider's own limit.", rich_help_panel=ASKING
        ),
    ] = None
    long_side: Annotated[
        int | None,
        typer.Option(
            show_default=str(USUAL.long_side),
            min=64,
            help="Longest side of a picture as sent; tools see every pixel.",
            rich_help_panel=ASKING,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            show_default=str(USUAL.timeout), min=0.1, help="Seconds to wait for one reply.", rich_help_panel=ASKING
        ),
    ] = None
    min_confidence: Annotated[
        float | None,
        typer.Option(
            show_default=str(USUAL.min_confidence),
            min=0,
            max=1,
            help="Leave weaker verdicts of `rules` unjudged.",
            rich_help_panel=ASKING,
        ),
    ] = None
    model: ModelOptions = ModelOptions()
    tools: ToolOptions = ToolOptions()
    tool_memory: int | None = None
    """Bytes the tools may remember in memory; no option, for whoever opens the judge to set."""
    plan: Plan | None = None
    """Who answers, read once: workers on other machines do not have the file."""
    shared_results: Path | None = None
    """Where judges that are opened one after the other share their tools' results, unless a folder is set; no option."""

    def open(self, **hooks: Any) -> Judge:
        """Return the judge these options describe."""
        return Judge(
            self.plan or self.judge,
            protocol=self.protocol,
            mode=cast(Mode, one_of("--mode", self.mode, get_args(Mode))) if self.mode else None,
            base_url=self.base_url,
            criteria=self.criteria,
            rubrics=self.rubrics or (),
            setup=self.chosen(),
            **hooks,
        )

    def with_plan(self) -> JudgeOptions:
        """Return the options with the judges read that answer together; the others as they are."""
        spec = self.named
        return replace(self, plan=plan_of(spec, self.base_url)) if spec and is_combined(spec) else self

    def chosen(self) -> Setup:
        """Return the set-up that was named, or the default one, with the single options in their places."""
        named, given = find_setup(self.setup), self.tools.given()
        memory = {} if self.tool_memory is None else {"memory_bytes": self.tool_memory}
        chosen = named.but(judging=self.given(), tools={**given, **memory})
        return chosen if self.shared_results is None else chosen.sharing(self.shared_results)

    def settings(self) -> JudgeSettings:
        """Return how the judge is asked."""
        return self.chosen().judge_settings()

    def given(self) -> dict[str, Any]:
        """Return the settings of judging that were given."""
        closed = {
            "tool_calls": ("auto", "native", "text"),
            "coordinates": ("auto", "pixels", "per_mille"),
            "structured": ("auto", "on", "off"),
            "written_reasoning": ("auto", "on", "off"),
            "differences": ("model", "tool"),
            "target_crop": get_args(TargetCrop),
        }
        given = {name: getattr(self, name) for name in JudgeSettings.model_fields if hasattr(self, name)}
        given = {name: value for name, value in given.items() if value is not None} | self.model.given()
        for name, choices in closed.items():
            if name in given:
                one_of(f"--{name.replace('_', '-')}", given[name], choices)
        return {**given, "tells": _tells(self.tells)} if self.tells is not None else given

    @property
    def named(self) -> str | None:
        """The judge that was named, by the option or by the variable; None where neither names one."""
        return self.judge or os.environ.get(JUDGE_VARIABLE) or None

    def announce(self) -> None:
        """Say on stderr that the embedded judge is used where no judge was named."""
        if not self.named:
            tell("no --judge given: judged by the embedded `rules`, a rule-based baseline that needs no key")


def _tells(given: str) -> tuple[Telling, ...]:
    """Read what is told; an empty text tells nothing."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    return tuple(cast(Telling, one_of("--tells", word, get_args(Telling))) for word in words)


def _headers(texts: Sequence[str]) -> dict[str, str]:
    """Read headers given as NAME=VALUE; what is wrong is told without the value, which may be a secret."""
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise UserError("--header takes NAME=VALUE, such as --header X-Team=vision")
        found[name] = value
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError("""--extra-body takes a JSON object, such as --extra-body '{"top_k": 1}'""")
    return found
