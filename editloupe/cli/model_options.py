"""The options about a provider's own parameters, for every command that asks a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from editloupe.cli.options import ASKING
from editloupe.types import UserError


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
