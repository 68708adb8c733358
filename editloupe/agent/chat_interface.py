"""The interface of chat backends, its requests and replies, and the hooks of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage
from pydantic import Field

from editloupe.agent.providers.provider import Profile
from editloupe.agent.replies.finish_reasons import ReplyFacts
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from editloupe.rubrics.case import Case
from editloupe.types import Record, Step, Trace, Usage

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RetryPolicy(Record):
    """How often a request is retried and how long it waits."""

    max_attempts: int = 6
    timeout_attempts: int = 2
    """Attempts after a time-out: a server that was silent for a whole timeout is asked once more, not five times."""
    first_wait: float = 0.5
    longest_wait: float = 20.0
    longest_retry_after: float = 120.0
    """If a server asks to wait longer, the request is given up: its quota is a daily one."""
    limit_pauses: Annotated[tuple[Seconds, ...], Field(min_length=1)] = (5.0, 15.0, 30.0, 60.0)
    """Seconds that all requests to a judge pause after a 429 without a time to wait, one after another; the last is repeated."""
    limit_patience: float = 180.0
    """Seconds without any reply after which such a 429 counts as an attempt."""
    limit_window: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """Seconds of the period for which a server's rate limit holds."""


@dataclass
class RetryBudget:
    """Retries left for one edit, shared by all its cases, so that a failing server is not asked forever."""

    left: int = 24

    def take(self) -> bool:
        """Use up one retry; return False if none is left."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class ChatRequest:
    """One request: the conversation and the settings of its reply."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Mapping[str, Any]] = ()
    case: Case | None = None
    """The case that is judged; the embedded judge decides from it. None for a question without a case."""
    album: Album = field(default_factory=Album)
    limits: EncodingLimits = EncodingLimits()
    repeat: int = 0
    budget: RetryBudget = field(default_factory=RetryBudget)
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the reply, if the provider can enforce one."""
    may_call: bool = True
    """False: tools are described as before, which keeps the cached prefix of the conversation, but must not be called."""


@dataclass(frozen=True)
class Reply:
    """The model's reply with its tokens and times."""

    message: AIMessage
    usage: Usage
    seconds: float
    """Duration of the requests without waiting for a slot; for a stored reply, when it was first requested."""
    attempts: int = 1
    kept: bool = False
    """True if the reply came from the run's store and nothing was sent."""
    facts: ReplyFacts = ReplyFacts()
    waited: float = 0.0
    """Seconds spent waiting for a slot, for limits and before retries."""
    key: str = ""
    """Key of the exact request, under which a run stores the reply; empty without a run."""


class Chat(Protocol):
    """Interface of a chat backend: a model, or the embedded judge."""

    @property
    def profile(self) -> Profile:
        """How this model calls tools, counts positions and accepts pictures."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the requests, such as parameters left out or tokens estimated."""

    async def reply(self, request: ChatRequest) -> Reply:
        """Send a request.

        Args:
            request: The conversation and its settings.

        Raises:
            ModelFailed: No reply could be got; the case stays unjudged.
            ModelRejected: The user must change something, such as the key.
        """

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""

    def drop(self) -> None:
        """Ask all loops to close their connections; do not wait for it."""


class ReplyStore(Protocol):
    """Stores every model reply by its exact request, so that nothing is paid for twice."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the reply stored for this request, if any."""

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Store a reply; called before anything is decided from it."""


class StepWatcher(Protocol):
    """Receives every step as it happens."""

    def step(self, trace: Trace, step: Step) -> None:
        """Handle a completed step.

        Args:
            trace: Identifies the edit and the criterion; its own steps may be empty.
            step: The completed step.
        """
