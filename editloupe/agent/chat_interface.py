"""Who can be asked: the one interface of the embedded judge and of models, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage

from editloupe.agent.providers.provider import Profile
from editloupe.agent.replies.finish_reasons import ReplyFacts
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import WireLimits
from editloupe.rubrics.case import Case
from editloupe.types import Record, Step, Trace, Usage


class RetryPolicy(Record):
    """How often and how patiently a request is tried again."""

    max_attempts: int = 6
    timeout_attempts: int = 2
    """A server that took a whole timeout to say nothing is asked once more, not five times."""
    first_wait: float = 0.5
    longest_wait: float = 20.0
    longest_retry_after: float = 120.0
    """A longer Retry-After is honoured by giving up: the quota is a daily one."""
    limit_pauses: tuple[float, ...] = (5.0, 15.0, 30.0, 60.0)
    """Seconds all requests to a judge pause after a 429 without a time to wait, one after another; the last one is repeated."""
    limit_patience: float = 180.0
    """Seconds without any reply after which such a 429 counts as an attempt."""


@dataclass
class RetryBudget:
    """Retries left for one edit, shared by all its cases, so that a sick server is not asked for ever."""

    left: int = 24

    def take(self) -> bool:
        """Use up one retry; False where none is left."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class ChatRequest:
    """One request: the conversation, and what it is about."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Mapping[str, Any]] = ()
    case: Case | None = None
    """What is judged; the embedded judge decides from it. None for a question that is about no case."""
    album: Album = field(default_factory=Album)
    limits: WireLimits = WireLimits()
    repeat: int = 0
    budget: RetryBudget = field(default_factory=RetryBudget)
    schema: Mapping[str, Any] | None = None
    """What the reply must conform to, where the provider can be told."""
    may_call: bool = True
    """False: the tools are described as before, so that the conversation keeps its cached beginning, but must not be called."""


@dataclass(frozen=True)
class Reply:
    """What came back."""

    message: AIMessage
    usage: Usage
    seconds: float
    """The requests took, without waiting for their turn; of a kept one, when it was asked for."""
    attempts: int = 1
    kept: bool = False
    """True where the reply came from the run's store and nothing was asked."""
    facts: ReplyFacts = ReplyFacts()
    waited: float = 0.0
    """For a place among the requests under way, for limits, and before another try."""
    key: str = ""
    """Of the exact request, under which a run keeps the reply; empty where no run does."""


class Chat(Protocol):
    """Somebody who can be asked."""

    @property
    def profile(self) -> Profile:
        """How this model calls tools, counts positions, takes pictures."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about how the model was asked: parameters left out, tokens estimated."""

    async def reply(self, request: ChatRequest) -> Reply:
        """Ask once; raises ModelFailed or ModelRejected."""

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""

    def drop(self) -> None:
        """Have the connections of all loops closed without waiting for it."""


class ReplyStore(Protocol):
    """Keeps every model reply by the exact request, so that nothing is paid for twice."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply kept for this request, if any."""

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keep a reply; called before anything is decided from it."""


class StepWatcher(Protocol):
    """Is told about every step as it happens."""

    def step(self, trace: Trace, step: Step) -> None:
        """A step was completed; the trace says of which edit and criterion, its own steps may be empty."""
