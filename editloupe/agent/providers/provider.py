"""The records that describe a provider, its models and its clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from editloupe._util.json_safe import sanitize_text
from editloupe.agent.transport.attachments import PictureForm
from editloupe.agent.transport.http import BodyForm, Gate, load_certificates
from editloupe.agent.transport.secrets import redact_text
from editloupe.types import Record, Served, Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage

    from editloupe.agent.transport.batch_files import BatchFiles


class Profile(Record):
    """Properties of a model family; part of the keys of the units it judges."""

    family: str
    provider: str
    """The provider whose API serves the model."""
    pattern: str
    """Matched against the model's name without its owner, ignoring case."""
    native_tools: bool
    """Whether the family calls tools by its provider's function calling; else by the papers' text protocol."""
    per_mille: bool = False
    """Positions in thousandths of each side instead of pixels of the picture as sent."""
    temperature: bool = True
    """Whether temperature 0 is accepted; reasoning models refuse it."""
    max_image_bytes: int = 15_000_000
    """Maximum size of an encoded picture."""
    max_long_side: int | None = None
    """Maximum long side of a picture in pixels; None: only the user's setting counts."""
    max_request_bytes: int | None = None
    """Maximum size of all pictures of one request, in base64; None: no relevant limit."""
    structured_output: bool = False
    """Whether the provider can enforce a JSON schema."""
    reasons: bool = True
    """Whether the family reasons by itself; else a JSON reply begins with written reasoning."""


RULES_PROFILE = Profile(family="Embedded rules", provider="rules", pattern=r"", native_tools=True)
"""Profile of the embedded judge, which has no provider."""


@dataclass(frozen=True)
class Opening:
    """The settings with which a client is opened."""

    model: str
    key: str
    base_url: str | None
    """The server's address without credentials and query, which the gate adds."""
    parameters: Mapping[str, Any]
    """Parameters of the client: `temperature`, `max_tokens`, and those of the provider's `takes` that were set."""
    timeout: float
    gate: Gate
    """Its hooks see every request and reply of the client."""
    transport: Any = None
    """Receives the client's HTTP requests; None sends them over the network."""

    def http_options(self, attach: Callable[[bytes], list[bytes]] | None = None) -> dict[str, Any]:
        """Return the options of an HTTP client that sends through the gate and follows no redirect.

        Args:
            attach: Inserts the pictures into the body of a request; see `Gate.hooks`.
        """
        return {
            "timeout": self.timeout,
            "follow_redirects": False,
            "event_hooks": self.gate.hooks(attach),
            "headers": {"Accept-Encoding": "identity"},
            "verify": load_certificates(),
            **({} if self.transport is None else {"transport": self.transport}),
        }


def format_error(error: Exception) -> str:
    """Return an error on one line without secrets."""
    return redact_text(f"{type(error).__name__}: {error}".splitlines()[0])


def read_finish_reason(message: AIMessage) -> str:
    """Return the finish reason, as most clients report it."""
    facts = message.response_metadata
    return str(facts.get("finish_reason") or facts.get("stop_reason") or "")


ROUTE = "route"
"""Key of a reply's metadata with the deployment that answered; the gate reads it from the response."""
FALLBACK = "fallback"
"""Key of a reply's metadata with the model that a proxy asked instead; the gate reads it from the response."""
LONGEST_NAME = 120
"""Maximum length of a recorded version: a server may send anything."""


def read_served(message: AIMessage) -> Served:
    """Return the version, fingerprint, service tier, route and fallback that answered, as most clients report them."""
    facts = message.response_metadata

    def text(name: str) -> str:
        value = facts.get(name)
        return sanitize_text(" ".join(value.split())[:LONGEST_NAME]) if isinstance(value, str) else ""

    return Served(
        model=text("model_name") or text("model"),
        fingerprint=text("system_fingerprint"),
        tier=text("service_tier"),
        route=text(ROUTE),
        fallback=text(FALLBACK),
    )


def no_refusal(message: AIMessage) -> str | None:
    """Return None, for providers without a refusal of their own."""
    return None


def build_response_format(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter by which LangChain's clients enforce a schema on a reply."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}}


@dataclass(frozen=True)
class ErrorForm:
    """How to read the errors of a provider's client, beyond their `status_code` and `body`."""

    status: Callable[[BaseException], Any] = lambda error: None
    """Returns the HTTP status if it has another name."""
    body: Callable[[BaseException], Any] = lambda error: None
    """Returns the server's message if it has another name."""
    headers: Callable[[BaseException], Any] = lambda error: None
    """Returns the headers of the response if they are not in its `response`."""
    versioned_path: str = ""
    """The path that the client appends to an address, which at most servers ends with a version such as /v1."""


@dataclass(frozen=True)
class Client:
    """A LangChain chat client and the function that closes its connections."""

    model: BaseChatModel
    aclose: Callable[[], Awaitable[None]]
    attaches: bool = True
    """Whether a hook inserts the pictures into its requests; else they are written into its messages."""
    notes: tuple[str, ...] = ()
    """What a user should know about how this client was opened."""


@dataclass(frozen=True)
class ImageReply:
    """The result of an image editor."""

    data: bytes | None
    """The edited picture's file; None if there is none."""
    usage: Usage
    comment: str = ""
    """Text that came with a picture or instead of one."""


@dataclass(frozen=True)
class ImageClient:
    """A client that edits pictures and the function that closes its connections."""

    edit: Callable[[bytes, str], Awaitable[ImageReply]]
    """Sends a PNG file and an instruction; raises the errors of the provider's client."""
    aclose: Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Provider:
    """An API through which models are asked; each is declared in a file of its own and listed in the registry."""

    name: str
    """Prefix of a judge's spec."""
    keys: tuple[str, ...]
    """Environment variables with the key."""
    base_url: str
    """Environment variable with the server's address."""
    packages: tuple[str, ...]
    """Packages whose versions a run records."""
    example: str
    """A spec to suggest."""
    profiles: tuple[Profile, ...]
    """The first match wins; one profile has no pattern and applies to all other models."""
    open: Callable[[Opening], Client]
    """Opens a client, one per event loop."""
    pictures: PictureForm
    structured: Callable[[BaseChatModel, Mapping[str, Any]], dict[str, Any]]
    """Returns the parameters that enforce a schema on a reply."""
    call_options: Mapping[str, Any] = field(default_factory=dict)
    """Options passed to the client with every request."""
    extra: str = ""
    """The extra of EditLoupe that installs the client; empty if it is always installed."""
    needs_key: bool = True
    """False if the provider's own server may work without a key, or the client finds its credentials by itself."""
    own_server: bool = True
    """Whether an address may be a user's own server, which needs no key."""
    without_key: str = ""
    """What happens without a key, for a list of what is ready."""
    no_calls: Mapping[str, Any] | None = field(default_factory=lambda: {"tool_choice": "none"})
    """Options that forbid tool calls; empty if the provider cannot forbid them, None if the tools are left out instead."""
    takes: frozenset[str] = frozenset()
    """Parameters, besides temperature and maximum output tokens, that may be set for its models, by the client's names."""
    bodies: BodyForm = BodyForm()
    errors: ErrorForm = ErrorForm()
    finish: Callable[[AIMessage], str] = read_finish_reason
    """Returns the provider's finish reason; empty if it gives none."""
    refusal: Callable[[AIMessage], str | None] = no_refusal
    """Returns why the provider or the model declined, if it says so other than by the finish reason."""
    limits: frozenset[str] = frozenset({"max_tokens", "max_completion_tokens"})
    """Names that an error may use for the maximum output tokens, if these can be left out of a request."""
    batches: Callable[[Opening], BatchFiles] | None = None
    """Opens the provider's batch interface, if it has one."""
    served: Callable[[AIMessage], Served] = read_served
    """Returns what the provider reports about the model that answered."""
    loggers: tuple[str, ...] = ()
    """Loggers of the client that log addresses or headers."""
    edit_images: Callable[[Opening], ImageClient] | None = None
    """Opens a client that edits pictures, if the provider has such models."""
    in_spans: str = ""
    """The provider's name in OpenTelemetry's conventions, if it differs."""
    listed_as: str = ""
    """The provider's name in genai-prices; empty if its models have no list price, such as those of a local server."""
