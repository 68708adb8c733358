"""Requests to Chat Completions, put together with less work than the openai package takes for each of them.

What goes over the wire is the package's own: address, headers and time-outs are taken from a request that it built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PATH = "/chat/completions"
_LENGTH = "content-length"


class PlainCompletions:
    """Stands for the openai package's completions: sends the body as it is, and gives back what came as plain values.

    Errors, time-outs and headers are the package's own. It would check the body against its type hints before, and build a tree
    of records of the reply after, of which langchain-openai makes plain values again: a tenth of the event loop's work.
    """

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client
        client._build_request = LikeTheFirst(client)  # type: ignore[method-assign]

    @property
    def with_raw_response(self) -> PlainCompletions:
        """The same: what is given back has to be asked for its value."""
        return self

    async def create(self, *, extra_body: Mapping[str, Any] | None = None, **body: Any) -> PlainReply:
        """Ask for a completion."""
        whole = {**body, **(extra_body or {})}
        options: Any = {"security": {"bearer_auth": True}}
        return PlainReply(await self._client.post(PATH, cast_to=object, body=whole, options=options))


@dataclass(frozen=True)
class PlainReply:
    """A reply as it came."""

    value: Any

    def parse(self) -> Any:
        """Return it."""
        return self.value


class LikeTheFirst:
    """Builds requests for completions after the pattern of one that the openai package built; any other is left to it.

    The package puts address and headers together anew for every request, a fifteenth of the event loop's work, and they are the
    same each time. Whether they are is looked at: two requests with different bodies are built in its way and compared.
    """

    def __init__(self, client: AsyncOpenAI) -> None:
        self._usual = client._build_request
        self._pattern: Any = None
        self._repeats: bool | None = None
        """Whether one request is like another; None until it was looked at."""

    def __call__(self, options: Any, *, retries_taken: int = 0) -> Any:
        """Return the request for these options."""
        if retries_taken or self._repeats is False or not _is_plain(options):
            return self._usual(options, retries_taken=retries_taken)
        if self._repeats is None:
            built = self._usual(options)
            self._pattern = self._pattern_of(built, options)
            self._repeats = self._pattern is not None
            return built
        return self._pattern.request(options.json_data)

    def _pattern_of(self, built: Any, options: Any) -> _Pattern | None:
        """Return the pattern of a request; None where another one differs in more than its body."""
        try:
            other = self._usual(options.model_copy(update={"json_data": {"n": 2}, "idempotency_key": "another"}))
            pattern = _Pattern(built)
            again = pattern.request(options.json_data)
            alike = _without_length(built) == _without_length(other) == _without_length(again)
            whole = built.headers.get(_LENGTH) == again.headers.get(_LENGTH) and built.read() == again.read()
        except Exception:  # another version may be built otherwise; its own way works
            return None
        return pattern if alike and whole else None


class _Pattern:
    """What all requests have in common."""

    def __init__(self, request: Any) -> None:
        from openai._utils._json import openapi_dumps

        self._as_json = openapi_dumps
        self._request, self._stream = type(request), type(request.stream)
        self._method, self._url = request.method, request.url
        self._headers, self._extensions = request.headers.copy(), dict(request.extensions)

    def request(self, body: Any) -> Any:
        """Return the request with this body."""
        content = self._as_json(body)
        stream, extensions = self._stream(content), self._extensions
        made = self._request(self._method, self._url, headers=self._headers, stream=stream, extensions=extensions)
        made.headers[_LENGTH] = str(len(content))
        return made


def _is_plain(options: Any) -> bool:
    """True where a request is nothing but a body for completions."""
    more = ("headers", "params", "files", "content", "extra_json", "timeout")
    return options.method == "post" and options.url == PATH and not any(getattr(options, name) for name in more)


def _without_length(request: Any) -> tuple[Any, ...]:
    """Return what tells requests apart beside their bodies."""
    headers = [(name, value) for name, value in request.headers.multi_items() if name != _LENGTH]
    return request.method, request.url, headers, request.extensions
