"""What a scripted model answers: one frozen record a kind of reply, and short builders for them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Usage:
    """Token counts as a provider reports them; cached is a part of input, reasoning a part of output."""

    input: int = 100
    output: int = 20
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Call:
    """One tool call of the model; an id is made up by the wire where none is given."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None
    """The arguments as OpenAI's wire carries them, where they are not valid JSON; params is then empty."""


@dataclass(frozen=True)
class Answer:
    """A reply with status 200 in the provider's own shape; without text and calls it is an empty one.

    `finish` is `stop`, `length`, `content_filter`, `blocked` (the prompt itself was refused; on the OpenAI wire an HTTP
    400), or a provider's own word such as `MALFORMED_FUNCTION_CALL`, which is sent as it is.
    """

    text: str | None = None
    calls: tuple[Call, ...] = ()
    usage: Usage | None = Usage()
    finish: str = "stop"
    refusal: str | None = None
    """OpenAI's `refusal` field; Gemini has none and sends it as text."""
    signature: str | None = None
    """Gemini's thought signature (base64) on the first function call; it must come back with the history."""
    delay: float = 0.0
    served: str | None = None
    """The version the provider says it served; without it the model's name."""
    fingerprint: str | None = None
    """OpenAI's `system_fingerprint`."""

    def after(self, seconds: float) -> Answer:
        """Return the same answer, sent this much later."""
        return replace(self, delay=seconds)

    def but(self, **changes: Any) -> Answer:
        """Return the same answer with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Fault:
    """An HTTP error in the provider's own JSON; message and code default to the provider's usual ones."""

    status: int
    message: str | None = None
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None
    """OpenAI: the Retry-After header. Gemini: RetryInfo in the error's details, as the real service does."""
    kind: Literal["", "wrong_key", "quota"] = ""
    """`wrong_key` is 401 at OpenAI and 400 at Gemini; `quota` is the 429 that waiting does not cure."""
    delay: float = 0.0


@dataclass(frozen=True)
class Drop:
    """The connection closes without a reply, or in the middle of the reply's body."""

    half: bool = False
    delay: float = 0.0


@dataclass(frozen=True)
class Hang:
    """Nothing is sent for so many seconds, then the connection closes."""

    seconds: float
    delay: float = 0.0


@dataclass(frozen=True)
class Garbage:
    """A body that is not what the provider would send."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    """What the Content-Length header says, where that is not the body's length; the connection closes after it."""
    delay: float = 0.0


@dataclass(frozen=True)
class Drip:
    """A good answer whose body comes a few bytes at a time, for so many seconds."""

    seconds: float
    answer: Answer
    delay: float = 0.0


Reply = Answer | Fault | Drop | Hang | Garbage | Drip


def say(text: str, **changes: Any) -> Answer:
    """Answer with this text; keyword arguments set other fields of `Answer`."""
    return Answer(text=text, **changes)


def call(name: str, /, **params: Any) -> Answer:
    """Answer with one native tool call."""
    return Answer(calls=(Call(name, params),))


def broken_call(name: str, arguments: str) -> Answer:
    """Answer with a call whose arguments are not JSON; Gemini reports such a call as its finish reason instead."""
    return Answer(calls=(Call(name, raw=arguments),))


def calls(*answers: Answer, text: str | None = None, **changes: Any) -> Answer:
    """Answer with several native tool calls, each made by `call`, and optionally with text beside them."""
    return Answer(text=text, calls=tuple(c for answer in answers for c in answer.calls), **changes)


def empty(**changes: Any) -> Answer:
    """Answer with no text and no calls."""
    return Answer(**changes)


def think_and_call_text(thought: str, *answers: Answer) -> Answer:
    """Answer in DLEBench's text protocol: a thought, then one block with the tool calls."""
    blocks = [json.dumps({"name": c.name, "parameters": dict(c.params)}) for answer in answers for c in answer.calls]
    body = "\n".join(blocks)
    return say(f"<Start Thinking>{thought}</Start Thinking>\n<tool_call>\n{body}\n</tool_call>")


def final(label: str, thought: str = "The pictures show it.") -> Answer:
    """Answer in DLEBench's text protocol: a thought, then the label."""
    return say(f"<Start Thinking>{thought}</Start Thinking>\n<Start Final Answer>{label}</Start Final Answer>")


def fault(status: int, message: str | None = None, **changes: Any) -> Fault:
    """Answer with an HTTP error, such as `fault(429, retry_after=0.1)`."""
    return Fault(status, message, **changes)


def wrong_key() -> Fault:
    """Answer as the provider does to a key it does not know: OpenAI with 401, Gemini with 400 and API_KEY_INVALID."""
    return Fault(401, kind="wrong_key")


def out_of_quota() -> Fault:
    """Answer with the 429 of an account without credit, which no waiting cures."""
    return Fault(429, kind="quota")


def drop(half: bool = False) -> Drop:
    """Close the connection without a reply, or after half of the body."""
    return Drop(half)


def hang(seconds: float) -> Hang:
    """Send nothing for so many seconds, then close the connection."""
    return Hang(seconds)


def not_json(body: bytes = b"<html><body>502 Bad Gateway</body></html>", content_type: str = "text/html") -> Garbage:
    """Answer 200 with a body that is not JSON, as a proxy in between would."""
    return Garbage(body, content_type=content_type)


def wrong_shape(value: Any = None) -> Garbage:
    """Answer 200 with JSON that has none of the fields a client looks for."""
    return Garbage(json.dumps({"unexpected": True} if value is None else value).encode())


def redirect(target: str, status: int = 307) -> Garbage:
    """Send the client elsewhere."""
    return Garbage(b"", status, "text/plain", {"location": target})


def packed(body: bytes, packing: str = "gzip") -> Garbage:
    """Answer 200 with a body that says it is packed, which it may not be."""
    return Garbage(body, headers={"content-encoding": packing})


def wrong_length(body: bytes, more: int) -> Garbage:
    """Answer 200 with a body that is not as long as its header says."""
    return Garbage(body, length=len(body) + more)


def drip(seconds: float, answer: Answer) -> Drip:
    """Send an answer's body a few bytes at a time."""
    return Drip(seconds, answer)


_TAGS = (
    "<Start Thinking>",
    "</Start Thinking>",
    "<tool_call>",
    "</tool_call>",
    "< tool_call>",
    "<Start Final Answer>",
    "</Start Final Answer>",
    "<Start Final Answer",
    "```json",
    "**",
)
_SCRAPS = (
    "Wrong Action",
    "Flawless Execution",
    "scene collapse",
    "Single Anomaly or Multiple Anomalies",
    "score: 3",
    '{"score": NaN}',
    '{"name": "zoom_in_image", "parameters": {"bbox_2d": [9, 9, 1, 1]}}',
    '{"name": "zoom_in_image"',
    '{"name": 5, "parameters": []}',
    "[1, 2",
    "null",
    "“quotes”",
    "\u202ertl",
    "\x00\x07",
    "é" * 40,
    "🦆",
    "\n\n",
)
_NAMES = ("zoom_in_image", "localize_differences", "detect_object", "rm", "")
_KEYS = ("bbox_2d", "target_image", "comparison_image_1", "?")
_VALUES: tuple[Any, ...] = (None, -1, 1e308, "x" * 300, [], {}, [5, 5, 5], [0, 0, 10, 10], ["a"], True, "Source Image")


def noise(seed: int) -> Answer:
    """Answer as a badly confused model would; the same seed gives the same answer, always a well-formed HTTP 200."""
    rng = random.Random(seed)
    words = rng.choices(_TAGS + _SCRAPS, k=rng.randint(0, 9))
    text = rng.choice((" ", "", "\n")).join(words)
    made_up = [
        Call(rng.choice(_NAMES), {rng.choice(_KEYS): rng.choice(_VALUES) for _ in range(rng.randint(0, 3))})
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 5)))
    ]
    return Answer(
        text=None if rng.random() < 0.1 else text,
        calls=tuple(made_up),
        usage=None if rng.random() < 0.1 else Usage(rng.randint(0, 5000), rng.randint(0, 500)),
        finish=rng.choice(("stop", "stop", "stop", "length", "content_filter")),
    )
