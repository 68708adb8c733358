"""Opens the judge of a fork with the settings of the parent's judge, except for those that are changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from editloupe.agent.chat_interface import ReplyStore
from editloupe.agent.providers.registry import find_provider
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import split_spec
from editloupe.agent.transport.secrets import PLACEHOLDER, redact_url
from editloupe.evals.forks.fork_store import StoredTrace
from editloupe.graphs.forking import StepChange
from editloupe.judge import Judge
from editloupe.judge.settings import JudgeSettings, Setup, find_setup, read_setup, setup_names
from editloupe.rubrics.registry import OWN
from editloupe.types import Mode, UserError


@dataclass(frozen=True)
class JudgeChange:
    """Changes of the judge. What is None or empty is taken from the parent.

    Args:
        judge: The judge's spec, such as `openai:gpt-5.1`.
        base_url: The address of the provider.
        protocol: The protocol that is asked.
        mode: `tools`, `oracle` or `plain`.
        setup: A preset, by name, file or value.
        rubrics: Files that reword the rubric, or the user's own rubric.
        judging: Fields of `JudgeSettings`.
        tools: Fields of `ToolSettings`; they apply to calls after the fork.
        address_of_run: Whether the address in the run may be used if it is on this machine. If False, only `base_url` is used.
    """

    judge: str | None = None
    base_url: str | None = None
    protocol: str | None = None
    mode: Mode | None = None
    setup: str | Path | Setup | None = None
    rubrics: Sequence[str | Path] = ()
    judging: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    address_of_run: bool = True


def reopen_judge(stored: StoredTrace, other: JudgeChange, change: StepChange, replies: ReplyStore | None) -> Judge:
    """Return the judge that continues a trace; raise UserError if it cannot be opened as it was."""
    spec = other.judge or stored.judge
    if split_spec(spec)[0] == RULES and (change.thought is not None or change.pictures):
        raise UserError(
            f"the embedded judge `{RULES}` decides from measured numbers and reads neither thoughts nor tools' pictures; "
            "name a model with --judge, or drop an observation, give other boxes or another mode"
        )
    protocol = other.protocol or stored.protocol
    if protocol == OWN and not other.rubrics:
        raise UserError("this trace was judged by a rubric of your own; name its file with --rubric")
    return Judge(
        spec,
        protocol=None if protocol == OWN else protocol,
        mode=other.mode or cast(Mode, stored.mode),
        base_url=other.base_url or (_address(stored, spec) if other.address_of_run else None),
        criteria=[stored.parent.criterion],
        rubrics=other.rubrics,
        setup=_setup(stored, other),
        replies=replies,
    )


def _address(stored: StoredTrace, spec: str) -> str | None:
    """Return the address of the parent's judge; None if another judge continues.

    The run may come from another person, and the API key is sent to the address. So an address that is neither on this machine
    nor in the user's environment has to be given again.
    """
    address = stored.described.get("base_url")
    if spec != stored.judge or not isinstance(address, str) or not address:
        return None
    own = os.environ.get(find_provider(split_spec(spec)[0]).base_url, "")
    if redact_url(own) == address if own else False:
        return own
    if PLACEHOLDER in address or not _is_here(address):
        raise UserError(f"this judge was asked at {address}; give the address to use now with --base-url")
    return address


def _is_here(address: str) -> bool:
    """True for an address on this machine."""
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _setup(stored: StoredTrace, other: JudgeChange) -> Setup:
    """Return the parent's settings with the changes; settings of the machine are not stored in a run."""
    described = stored.described.get("setup")
    if other.setup is not None or not isinstance(described, Mapping):
        setup = find_setup(other.setup)
    else:
        name = str(described.get("name"))
        same = (
            find_setup(name)
            if name in setup_names()
            else read_setup({**described, "name": name}, "the stored settings")
        )
        settings = stored.described.get("settings")
        judging = dict(settings if isinstance(settings, Mapping) else described.get("judging") or {})
        setup = same.with_settings(judging=_usable(judging), tools=dict(described.get("tools") or {}))
    if not other.judging and not other.tools:
        return setup
    return setup.with_settings(judging=other.judging, tools=other.tools)


def _usable(judging: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that can be used again. The values of headers are not stored."""
    fields = {
        name: value for name, value in judging.items() if name in JudgeSettings.model_fields and name != "headers"
    }
    return {name: value for name, value in fields.items() if value is not None and PLACEHOLDER not in str(value)}
