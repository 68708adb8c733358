"""One request as every test reads it, whichever provider's wire it came over."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from .replies import Answer, Call, Fault

_SECRET = frozenset({"authorization", "x-goog-api-key", "x-api-key", "api-key", "cookie", "proxy-authorization"})
_SIGNATURES = (
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
)


class Headers(Mapping[str, str]):
    """Headers by lower-case name, whose repr does not show keys."""

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = {name.lower(): value for name, value in pairs.items()}

    def __getitem__(self, name: str) -> str:
        return self._pairs[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return repr({k: "(redacted)" if k in _SECRET else v for k, v in self._pairs.items()})


@dataclass(frozen=True)
class Image:
    """One picture of a request; `encoded` is its base64 text, empty where only an address was sent."""

    mime: str
    encoded: str = field(repr=False)
    detail: str | None = None
    address: str | None = None

    @cached_property
    def data(self) -> bytes:
        """The file's bytes; raises `binascii.Error` where they are not base64."""
        return binascii.a2b_base64(self.encoded, strict_mode=True)

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return len(self.data)

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height, read from a PNG's or JPEG's header."""
        data = self.data
        if data.startswith(b"\x89PNG"):
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        at = 2
        while data.startswith(b"\xff\xd8") and at + 9 < len(data):
            marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                height, width = struct.unpack(">HH", data[at + 5 : at + 9])
                return width, height
            at += 2 + length
        raise ValueError(f"cannot read the size of a {self.mime} picture")

    def defect(self) -> str | None:
        """Say what keeps the picture from decoding: `base64`, `format` (unknown or not whole), `mime`, or None.

        The whole file is read once for its base64; of the picture only the first and last bytes are looked at, so that
        a truncated file is caught without the price of decompressing it.
        """
        try:
            data = binascii.a2b_base64(self.encoded, strict_mode=True)
        except (binascii.Error, ValueError):
            return "base64"
        found = next((mime for mime, start in _SIGNATURES if data.startswith(start)), None)
        whole = {
            "image/png": data[-8:-4] == b"IEND",
            "image/jpeg": b"\xff\xd9" in data[-64:],
            "image/gif": data[-1:] == b";",
            "image/webp": data[8:12] == b"WEBP" and len(data) >= 8 + int.from_bytes(data[4:8], "little"),
        }
        if found is None or not whole[found]:
            return "format"
        return None if found == self.mime else "mime"


@dataclass(frozen=True)
class ToolResult:
    """The text that answers one tool call."""

    call_id: str | None
    name: str | None
    text: str


@dataclass(frozen=True)
class Message:
    """One message; the role is `user`, `assistant` or `tool` on either wire."""

    role: str
    texts: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    calls: tuple[Call, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def text(self) -> str:
        """All texts, one a line."""
        return "\n".join(self.texts)


@dataclass(frozen=True)
class Conversation:
    """What a body says, in words both providers share."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    tool_choice: str | None
    """`auto`, `any`, `none`, the name of the one tool asked for, or None where nothing was said."""
    temperature: float | None
    """None where the request has no temperature."""


class Memory(Protocol):
    """What a wire remembers of its own replies between requests."""

    signatures: dict[str, set[str]]


class Wire(Protocol):
    """How one provider reads requests, checks them, and writes replies; the modules `*_wire` are such."""

    NAME: str

    def read(self, body: dict[str, Any]) -> Conversation:
        """Read a body."""

    def check(self, request: Request, memory: Memory) -> Fault | None:
        """Return the provider's refusal where the request breaks its rules."""

    def write(self, answer: Answer, request: Request, memory: Memory) -> dict[str, Any] | Fault:
        """Write an answer as the provider's JSON."""

    def write_stream(self, answer: Answer, request: Request, memory: Memory) -> list[bytes] | Fault:
        """Write an answer as server-sent events."""

    def write_fault(self, fault: Fault, request: Request) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Write an error as status, headers and JSON."""


@dataclass(frozen=True)
class Request:
    """One request to a model; the parts are read from the body when first asked for."""

    index: int
    """Its place in `server.requests`, counted from 0."""
    provider: str
    model: str
    path: str
    stream: bool
    in_flight: int
    """Requests being served when this one came, itself included."""
    headers: Headers
    body: dict[str, Any] = field(repr=False)
    wire: Wire = field(repr=False, compare=False)

    @cached_property
    def conversation(self) -> Conversation:
        """The body in provider-neutral words."""
        return self.wire.read(self.body)

    @property
    def system(self) -> str:
        """The system text."""
        return self.conversation.system

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, without the system's."""
        return self.conversation.messages

    @property
    def last(self) -> Message:
        """The last message."""
        return self.messages[-1]

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools offered."""
        return self.conversation.tools

    @property
    def tool_choice(self) -> str | None:
        """Which tool must be called, see `Conversation`."""
        return self.conversation.tool_choice

    @property
    def temperature(self) -> float | None:
        """The temperature, None where none was sent."""
        return self.conversation.temperature

    @property
    def images(self) -> tuple[Image, ...]:
        """All pictures, in order."""
        return tuple(image for message in self.messages for image in message.images)

    @property
    def text(self) -> str:
        """All text there is: system, messages and tool results, one a line."""
        lines = [self.system]
        for message in self.messages:
            lines += [*message.texts, *(result.text for result in message.results)]
        return "\n".join(lines)


def data_url(url: str, detail: str | None = None) -> Image:
    """Read an image address; anything but a base64 data URL is kept as an address."""
    head, comma, encoded = url.partition(",")
    if not url.startswith("data:") or not comma or not head.endswith(";base64"):
        return Image(mime="", encoded="", detail=detail, address=url)
    return Image(mime=head[5 : -len(";base64")], encoded=encoded, detail=detail)


def as_data_url(data: bytes, mime: str = "image/png") -> str:
    """Write bytes as a data URL."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
