"""Who can be asked: the one interface of the embedded judge and of models, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from langchain_core.messages import AIMessage, AnyMessage

from editloupe.agent.profiles import Profile
from editloupe.agent.replies.finish_reasons import ReplyFacts
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import WireLimits
from editloupe.rubrics.case import Case
from editloupe.types import Record, Usage

LOOK_AGAIN = 0.1
"""Seconds between two looks at whether the request that tries the server after a pause has ended."""


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


class LimitPauses:
    """Pauses all requests to one judge while its server limits requests without saying how long to wait.

    The requests that are refused together begin one pause. After a pause a single request goes out: if it is admitted, all
    others go out too and the next pause is the first one again; if it is refused, the next, longer pause begins. Used from any
    event loop.
    """

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float] = monotonic) -> None:
        self._pauses, self._patience, self._clock = policy.limit_pauses, policy.limit_patience, clock
        self._next = 0
        """The place of the next pause; 0 while the server admits requests."""
        self._began = self._until = float("-inf")
        self._refused_since: float | None = None
        """When the first refusal since the last reply came."""
        self._trial: float | None = None
        """When the single request went out that tries the server after a pause."""
        self._last_request = float("-inf")
        """When the last request went out or ended."""

    @property
    def seconds_left(self) -> float:
        """How long a request has to wait now; 0 if it may go out."""
        now = self._clock()
        if self._given_up(now):
            return 0.0
        if now < self._until:
            return self._until - now
        return LOOK_AGAIN if self._next and self._trial is not None else 0.0

    def sent(self) -> float:
        """Note that a request goes out and return the time; `ended` must follow."""
        now = self._clock()
        if (
            now - max(self._last_request, self._until) > self._pauses[-1]
        ):  # no request was waiting: the patience begins again
            self._next, self._refused_since, self._trial = 0, None, None
        self._last_request = now
        if self._next:
            self._trial = now
        return now

    def ended(self, sent: float) -> None:
        """Note that a request has ended, in whatever way."""
        self._last_request = self._clock()
        if self._trial == sent:
            self._trial = None

    def admitted(self, sent: float, replied: bool) -> None:
        """Note that the server did not refuse a request; one that went out before the pause shows nothing about the limit."""
        if sent > self._began:
            self._next = 0
        if replied:
            self._refused_since = None

    def refused(self, sent: float) -> float | None:
        """Note a 429 without a time to wait.

        Args:
            sent: When the refused request went out, as `sent` returned it.

        Returns:
            The seconds of the pause that begins with it, 0 if the pause had begun already, or None if no reply has come for
            so long that the refusal counts as an attempt.
        """
        now = self._clock()
        if self._given_up(now):
            return None
        if sent <= self._began:
            return 0.0
        if self._refused_since is None:
            self._refused_since = now
        seconds = self._pauses[min(self._next, len(self._pauses) - 1)]
        self._next, self._began, self._until = self._next + 1, now, now + seconds
        return seconds

    def _given_up(self, now: float) -> bool:
        return self._refused_since is not None and now - self._refused_since >= self._patience


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
