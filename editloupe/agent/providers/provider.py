"""What a provider is: everything the rest of the package must know to ask a model behind its interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from editloupe._util.json_safe import storable_text
from editloupe.agent.transport.attachments import PictureForm
from editloupe.agent.transport.http import BodyForm, Gate
from editloupe.agent.transport.secrets import redact_text
from editloupe.types import Record, Served, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage

    from editloupe.agent.transport.batch_files import BatchFiles


class Profile(Record):
    """The habits of one model family; a part of the keys of the units it judges."""

    family: str
    provider: str
    """Whose interface the model is asked by."""
    pattern: str
    """Matched against the model's name, ignoring case; a name may have an owner before a slash."""
    native_tools: bool
    """Whether the family calls tools by its provider's function calling; else by the papers' text protocol."""
    per_mille: bool = False
    """Positions in thousandths of each side instead of pixels of the picture as sent."""
    temperature: bool = True
    """Whether temperature 0 is accepted; reasoning models refuse it."""
    max_image_bytes: int = 15_000_000
    """Largest encoded picture that is sent."""
    max_long_side: int | None = None
    """Longest side of a picture in pixels, however many others are in the request; None where only the user's setting counts."""
    max_request_bytes: int | None = None
    """What the pictures of one request may come to, in base64; None where the provider sets no limit worth watching."""
    structured_output: bool = False
    """Whether the provider can be told to answer in JSON."""
    reasons: bool = True
    """Whether the family reasons by itself before it replies; else a reply held to JSON begins with written reasoning."""


RULES_PROFILE = Profile(family="Embedded rules", provider="rules", pattern=r"", native_tools=True)
"""Of the embedded judge, which no provider has."""


@dataclass(frozen=True)
class Opening:
    """With what a client is opened."""

    model: str
    key: str
    base_url: str | None
    """The server's place alone; what else the address carries is added by the gate."""
    parameters: Mapping[str, Any]
    """What the client is told of how to answer: `temperature` and `max_tokens`, and what of the provider's `takes` was set."""
    timeout: float
    gate: Gate
    """Its hooks see every request and reply of the client."""
    transport: Any = None
    """Receives the client's HTTP requests; None sends them over the network."""

    @property
    def http_options(self) -> dict[str, Any]:
        """Options of the HTTP client beyond the usual ones."""
        return {} if self.transport is None else {"transport": self.transport}


def format_error(error: Exception) -> str:
    """Return what is wrong in one line without secrets, for a note."""
    return redact_text(f"{type(error).__name__}: {error}".splitlines()[0])


def read_finish_reason(message: AIMessage) -> str:
    """Return the word by which most clients say how a reply ended."""
    facts = message.response_metadata
    return str(facts.get("finish_reason") or facts.get("stop_reason") or "")


ROUTE = "route"
"""Where a reply keeps which of several deployments answered; the gate reads it off the response."""
LONGEST_NAME = 120
"""Letters of a version that are kept: a server may say anything."""


def read_served(message: AIMessage) -> Served:
    """Return what most clients know of who answered: version, fingerprint, service tier and route."""
    facts = message.response_metadata

    def text(name: str) -> str:
        value = facts.get(name)
        return storable_text(" ".join(value.split())[:LONGEST_NAME]) if isinstance(value, str) else ""

    return Served(
        model=text("model_name") or text("model"),
        fingerprint=text("system_fingerprint"),
        tier=text("service_tier"),
        route=text(ROUTE),
    )


def no_refusal(message: AIMessage) -> str | None:
    """Say nothing: the provider has no way of its own to decline."""
    return None


@dataclass(frozen=True)
class ErrorForm:
    """How the errors of a provider's client are read, beyond their `status_code` and `body`."""

    status: Callable[[BaseException], Any] = lambda error: None
    """The HTTP status, where it has another name."""
    body: Callable[[BaseException], Any] = lambda error: None
    """What the server said, where it has another name."""
    headers: Callable[[BaseException], Any] = lambda error: None
    """The headers of the response, where they are not in its `response`."""
    versioned_path: str = ""
    """What the client adds to an address that ends with a version such as /v1 at most servers."""


@dataclass(frozen=True)
class Client:
    """A LangChain chat client, and how its connections are closed."""

    model: BaseChatModel
    aclose: Callable[[], Awaitable[None]]
    attaches: bool = True
    """Whether a hook puts the pictures into its requests on their way; else they are written into its messages."""
    notes: tuple[str, ...] = ()
    """What a user should know about how this client was opened."""


@dataclass(frozen=True)
class ImageReply:
    """What an image editor gave back for one picture."""

    data: bytes | None
    """The edited picture's file; None where there is none."""
    usage: Usage
    said: str = ""
    """What it said beside a picture, or in place of one."""


@dataclass(frozen=True)
class ImageClient:
    """A client that edits pictures, and how its connections are closed."""

    edit: Callable[[bytes, str], Awaitable[ImageReply]]
    """Sends a PNG file and an instruction; raises what the provider's client raises."""
    aclose: Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Provider:
    """One interface models are asked by; each is declared once, in a file of its own, and listed in the registry."""

    name: str
    """What a judge's spec begins with."""
    keys: tuple[str, ...]
    """The environment variables a key is looked for in."""
    base_url: str
    """The environment variable with the server's address."""
    packages: tuple[str, ...]
    """The packages whose versions a run records."""
    example: str
    """A judge's spec to propose."""
    profiles: tuple[Profile, ...]
    """First match wins; one has no pattern and is that of all other models."""
    open: Callable[[Opening], Client]
    """Open a client; for every event loop one of its own."""
    pictures: PictureForm
    structured: Callable[[BaseChatModel, Mapping[str, Any]], dict[str, Any]]
    """What is bound to a client so that it holds its reply to a schema."""
    call_options: Mapping[str, Any] = field(default_factory=dict)
    """Options passed to the client with every request."""
    extra: str = ""
    """The extra of EditLoupe that installs its client; empty where it comes with every installation."""
    needs_key: bool = True
    """False where the provider's own server may want none, or the client finds its credentials by itself."""
    own_server: bool = True
    """Whether an address may be that of somebody's own server, which wants no key."""
    without_key: str = ""
    """What is done without one, for a list of what is ready."""
    no_calls: Mapping[str, Any] | None = field(default_factory=lambda: {"tool_choice": "none"})
    """What is bound beside the tools so that none is called; nothing where the provider cannot forbid it, None where the
    tools are left out instead."""
    takes: frozenset[str] = frozenset()
    """Parameters beyond temperature and the longest reply that may be set for its models, by the names its client has."""
    bodies: BodyForm = BodyForm()
    errors: ErrorForm = ErrorForm()
    finish: Callable[[AIMessage], str] = read_finish_reason
    """The provider's word for how a reply ended; empty where it says nothing."""
    refusal: Callable[[AIMessage], str | None] = no_refusal
    """Why the provider or the model declined to answer, where it says so otherwise than by the finish reason."""
    limits: frozenset[str] = frozenset({"max_tokens", "max_completion_tokens"})
    """The names a refusal may have for the longest reply, where it can be left out of a request."""
    batches: Callable[[Opening], BatchFiles] | None = None
    """Speaks to the provider's batch interface, where it has one."""
    served: Callable[[AIMessage], Served] = read_served
    """What the provider says answered."""
    loggers: tuple[str, ...] = ()
    """Loggers of the client that write down addresses or headers."""
    edit_images: Callable[[Opening], ImageClient] | None = None
    """Open a client that edits pictures, where the provider has models that do."""
    in_spans: str = ""
    """What OpenTelemetry's conventions call the provider, where that is not its name."""
