"""The judge of a fork: asked as the parent was, but for what is given otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from editloupe.agent.hooks import Replies
from editloupe.agent.secrets import PLACEHOLDER
from editloupe.agent.specs import RULES, split_spec
from editloupe.evals.forks.kept_trace import KeptTrace
from editloupe.graphs.fork_change import StepChange
from editloupe.judge import Judge
from editloupe.rubrics.registry import OWN
from editloupe.setups.setup import Setup, find_setup, read_setup, setup_names
from editloupe.types import Mode, UserError


@dataclass(frozen=True)
class JudgeChange:
    """What is other about the judge; what is None or empty is as the parent's."""

    judge: str | None = None
    base_url: str | None = None
    protocol: str | None = None
    mode: Mode | None = None
    setup: str | Path | Setup | None = None
    rubrics: Sequence[str | Path] = ()
    """Files with other words for the rubric, or the user's own rubric."""
    judging: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `JudgeSettings`."""
    tools: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `ToolSettings`; they hold for calls that are carried out after the fork."""


def reopened(kept: KeptTrace, other: JudgeChange, change: StepChange, replies: Replies | None) -> Judge:
    """Return the judge that goes on; what cannot be asked as it was is told in one sentence."""
    spec = other.judge or kept.judge
    if split_spec(spec)[0] == RULES and (change.thought is not None or change.pictures):
        raise UserError(
            f"the embedded judge `{RULES}` decides from measured numbers and reads neither thoughts nor tools' pictures; "
            "name a model with --judge, or drop an observation, give other boxes or another mode"
        )
    protocol = other.protocol or kept.protocol
    if protocol == OWN and not other.rubrics:
        raise UserError("this trace was judged by a rubric of your own; name its file with --rubric")
    return Judge(
        spec,
        protocol=None if protocol == OWN else protocol,
        mode=other.mode or cast(Mode, kept.mode),
        base_url=other.base_url or _address(kept, spec),
        criteria=[kept.parent.criterion],
        rubrics=other.rubrics,
        setup=_setup(kept, other),
        replies=replies,
    )


def _address(kept: KeptTrace, spec: str) -> str | None:
    """Return where the parent's judge was asked; another judge has its own place."""
    address = kept.described.get("base_url")
    if spec != kept.judge or not isinstance(address, str):
        return None
    if PLACEHOLDER in address:
        raise UserError("the address of this judge holds a secret that is not kept; give it again with --base-url")
    return address


def _setup(kept: KeptTrace, other: JudgeChange) -> Setup:
    """Return the parent's settings with the given ones in their places; the machine's own are not kept."""
    described = kept.described.get("setup")
    if other.setup is not None or not isinstance(described, Mapping):
        found = find_setup(other.setup)
    else:
        name = str(described.get("name"))
        same = (
            find_setup(name) if name in setup_names() else read_setup({**described, "name": name}, "the kept settings")
        )
        judging, tools = (dict(described.get(part) or {}) for part in ("judging", "tools"))
        found = same.but(judging=_without_secrets(judging), tools=tools)
    if not other.judging and not other.tools:
        return found
    return found.but(judging=other.judging, tools=other.tools)


def _without_secrets(judging: dict[str, Any]) -> dict[str, Any]:
    """Return settings that can be used again; headers are kept by name only."""
    return {name: value for name, value in judging.items() if name != "headers" and PLACEHOLDER not in str(value)}
