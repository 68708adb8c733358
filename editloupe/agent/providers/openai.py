"""OpenAI and every server with its Chat Completions API, such as vLLM, LM Studio and LiteLLM's proxy."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.provider import (
    FALLBACK,
    ROUTE,
    Client,
    ErrorForm,
    ImageClient,
    ImageReply,
    Opening,
    Profile,
    Provider,
    read_finish_reason,
)
from editloupe.agent.replies.finish_reasons import BROKEN_OFF
from editloupe.agent.transport.attachments import PictureForm, data_url, data_url_parts
from editloupe.agent.transport.batch_files import BatchHttp, BatchResult, BatchState, ListedJob
from editloupe.agent.transport.http import BodyForm, load_certificates, repair_usage
from editloupe.types import Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel, LanguageModelInput
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_openai import ChatOpenAI

NATIVE_BLOCKS = frozenset({"text", "image_url"})
"""Content blocks that Chat Completions accepts unchanged."""
SENT_AS_IS = ("messages", "tools")
"""Fields moved to `extra_body`, which the openai package sends without walking it."""


def open_fast_client(plain: type[ChatOpenAI], settings: Mapping[str, Any]) -> ChatOpenAI:
    """Open a client that sends the same requests as the given class, with less work per request.

    It overrides a private method of langchain-openai. If the installed version builds a different request with the
    override, the client is of the given class itself.
    """
    client: ChatOpenAI = _build_class(plain)(**settings)
    return client if _builds_same_request(client, plain) else plain(**settings)


@cache
def _build_class(plain: type[ChatOpenAI]) -> type[ChatOpenAI]:
    class FastPayloadChatOpenAI(plain):  # type: ignore[valid-type, misc]
        """ChatOpenAI that leaves native content blocks untranslated."""

        def _get_request_payload(
            self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
        ) -> dict[str, Any]:
            messages = self._convert_input(input_).to_messages()
            if self._use_responses_api({**self._default_params, **kwargs}):
                payload: dict[str, Any] = super()._get_request_payload(messages, stop=stop, **kwargs)
                return payload
            light = [m.model_copy(update={"content": ""}) if _is_native(m) else m for m in messages]
            payload = super()._get_request_payload(light, stop=stop, **kwargs)
            for message, record in zip(messages, payload["messages"], strict=True):
                if _is_native(message):
                    record["content"] = message.content
            body = {name: payload.pop(name) for name in SENT_AS_IS if name in payload}
            return {**payload, "messages": [], "extra_body": {**(payload.get("extra_body") or {}), **body}}

    return FastPayloadChatOpenAI


def _is_native(message: BaseMessage) -> bool:
    blocks = message.content
    return (
        message.type == "human"
        and isinstance(blocks, list)
        and all(isinstance(block, dict) and block.get("type") in NATIVE_BLOCKS for block in blocks)
    )


def _builds_same_request(client: ChatOpenAI, plain: type[ChatOpenAI]) -> bool:
    """Build a request from a conversation with every kind of message in both ways, and compare them."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    call = {"name": "look", "args": {"at": [1, 2]}, "id": "call_1", "type": "tool_call"}
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}}
    messages = [
        SystemMessage("a"),
        HumanMessage([{"type": "text", "text": "b"}, picture]),
        AIMessage("c", tool_calls=[call]),
        ToolMessage("d", tool_call_id="call_1"),
        HumanMessage("e"),
    ]
    try:
        expected = plain._get_request_payload(client, messages, tools=tools)
        payload = client._get_request_payload(messages, tools=tools)
        return _flatten_body(payload) == _flatten_body(expected)
    except Exception:  # another version's private method may fail in any way
        return False


def _flatten_body(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the body that the openai package sends."""
    return {**payload, **(payload.get("extra_body") or {}), "extra_body": None}


# Sources: the providers' model and vision guides. Compatible servers (vLLM, Ollama, LM Studio) need a flag for function
# calling, so the open families use the text protocol unless the user sets tool_calls.
PROFILES: tuple[Profile, ...] = (
    Profile(
        family="OpenAI reasoning",
        provider="openai",
        pattern=r"(gpt-[5-9]|o[1-9])",
        native_tools=True,
        temperature=False,
        structured_output=True,
    ),
    Profile(
        family="OpenAI chat",
        provider="openai",
        pattern=r"(gpt-4|chatgpt)",
        native_tools=True,
        structured_output=True,
        reasons=False,
    ),
    Profile(family="Qwen3-VL", provider="openai", pattern=r"qwen-?3", native_tools=False, per_mille=True),
    Profile(family="Qwen2.5-VL", provider="openai", pattern=r"qwen-?2", native_tools=False),
    Profile(family="InternVL", provider="openai", pattern=r"internvl", native_tools=False, per_mille=True),
    Profile(family="GLM-V", provider="openai", pattern=r"glm-", native_tools=False, per_mille=True),
    Profile(family="Gemma", provider="openai", pattern=r"gemma", native_tools=False, per_mille=True),
    Profile(family="OpenAI-compatible", provider="openai", pattern=r"", native_tools=False),
)

_OPENAI = re.compile(r"(?:.*/)?(?:gpt-(?!oss)|chatgpt|o\d)", re.IGNORECASE)
LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"
"""OpenAI's models take the first; Ollama, LM Studio and others only know the second and silently ignore the first."""


def _picture(text: str, media_type: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": text, "detail": "high"}}


PICTURES = PictureForm(_picture, data_url, mark="editloupe-picture:", fields=("url", "image_url"), sent=data_url_parts)


@cache
def hide_address(plain: type[ChatOpenAI]) -> type[ChatOpenAI]:
    """Return a client class that hides the server's address from tracers, because it may contain a key."""

    class ShownChatOpenAI(plain):  # type: ignore[valid-type, misc]
        """ChatOpenAI without the server's address in traces."""

        @property
        def lc_secrets(self) -> dict[str, str]:
            """Name what LangChain keeps out of traces."""
            return {**super().lc_secrets, "openai_api_base": "OPENAI_BASE_URL"}

    return ShownChatOpenAI


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate."""
    from langchain_openai import ChatOpenAI
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

    # The SDK's default client is shared by the whole process.
    http = DefaultAsyncHttpxClient(**opening.http_options(PICTURES.attach))
    settings = {
        "http_async_client": http,
        # Never used, but LangChain's default would load the certificates again.
        "http_client": DefaultHttpxClient(verify=load_certificates()),
        "disable_streaming": True,  # also inside a streaming graph, because streams report no tokens
        "http_socket_options": (),  # avoids a warning if a proxy is configured
        "model": opening.model,
        "api_key": opening.key,
        "base_url": opening.base_url,
        "max_retries": 0,
        "timeout": opening.timeout,
        # Compatible servers have Chat Completions; for OpenAI itself the client knows which models need the Responses API.
        "use_responses_api": False if opening.base_url else None,
        **opening.parameters,
    }
    if OLD_LIMIT in settings and not _OPENAI.match(opening.model):
        settings["extra_body"] = {OLD_LIMIT: settings.pop(OLD_LIMIT)}  # langchain-openai would rename it to LIMIT
    return Client(open_fast_client(hide_address(ChatOpenAI), settings), http.aclose)


def build_schema_parameters(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that enforce a schema on a reply.

    The Chat Completions and Responses interfaces spell them differently, and only the client's private
    `_use_responses_api` says which of them it will use.
    """
    form = {"name": "answer", "strict": True, "schema": dict(schema)}
    asks_responses = getattr(client, "_use_responses_api", None)
    if asks_responses and asks_responses({}):
        return {"text": {"format": {"type": "json_schema", **form}}}
    # With response_format outside extra_body the client would parse the reply and raise if it is cut off.
    body = getattr(client, "extra_body", None) or {}
    return {"extra_body": {**body, "response_format": {"type": "json_schema", "json_schema": form}}}


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body; if the server does not know the name of the limit, use the older one."""
    for name in names:
        if name == LIMIT and name in body and OLD_LIMIT not in names:
            body[OLD_LIMIT] = body.pop(name)
        for field in (name, *((LIMIT,) if name == OLD_LIMIT else ())):
            body.pop(field, None)


def finish(message: AIMessage) -> str:
    """Return the finish reason; the Responses API gives a reason for an incomplete reply, or only a status."""
    facts = message.response_metadata
    why = facts.get("incomplete_details") or {}
    reason = why.get("reason") if isinstance(why, dict) else None
    status = str(facts.get("status") or "")
    return str(reason or read_finish_reason(message) or (status if status in BROKEN_OFF else ""))


def refusal(message: AIMessage) -> str | None:
    """Return the model's own refusal, which has a field of its own."""
    words = message.additional_kwargs.get("refusal")
    return f"the model declined to answer: {words}" if words else None


ROUTE_HEADERS = ("x-litellm-model-region", "x-portkey-provider")
"""Headers in which proxies name the region or provider that answered."""
_PROVIDER = re.compile(rb'[{,]\s*"provider"\s*:\s*"([^"\\]{1,80})"')
"""OpenRouter's name of the host that answered; in a model's own text the quotes would be escaped."""
SHORT_ID = 8
"""Characters of a deployment's id that follow its readable name."""


def route(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """Return the deployment of a proxy that answered, and the model of its fallback, as far as they are reported.

    >>> route({"x-litellm-model-id": "2b6a77c0fe12", "x-litellm-model-name": "openai/gpt-4.1"}, b"{}")
    {'route': 'openai/gpt-4.1 2b6a77c0'}
    """
    name, identifier = headers.get("x-litellm-model-name", ""), headers.get("x-litellm-model-id", "")
    parts = [name, identifier[:SHORT_ID] if name else identifier, *(headers.get(each, "") for each in ROUTE_HEADERS)]
    if match := _PROVIDER.search(body):
        parts.append(match[1].decode("utf-8", "replace"))
    reported = {ROUTE: " ".join(filter(None, parts))}
    if headers.get("x-litellm-attempted-fallbacks", "0").strip() not in ("", "0"):
        reported[FALLBACK] = headers.get("x-litellm-model-group") or name or "another model"
    return {key: value for key, value in reported.items() if value}


ADDRESS = "https://api.openai.com/v1"
PAGE = 100
"""Jobs per page of the list, the most that are allowed."""
MARK = "editloupe"
"""The field of a job's metadata that identifies it."""
OVER = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches:
    """OpenAI's batch API (`/files` and `/batches`)."""

    def __init__(self, opening: Opening) -> None:
        self._base = (opening.base_url or ADDRESS).rstrip("/")
        self._http = BatchHttp(opening, {"Authorization": f"Bearer {opening.key}"})

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file; the body is inserted unchanged."""
        head = json.dumps({"custom_id": key, "method": "POST", "url": _endpoint(path)})
        return head[:-1].encode() + b', "body": ' + body.replace(b"\n", b" ") + b"}\n"

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and start a job."""
        with file.open("rb") as content:
            uploaded = await self._http.json(
                "POST",
                f"{self._base}/files",
                data={"purpose": "batch"},
                files={"file": (f"{mark}.jsonl", content, "application/jsonl")},
            )
        job = {
            "input_file_id": uploaded["id"],
            "endpoint": _endpoint(path),
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return str((await self._http.json("POST", f"{self._base}/batches", json=job))["id"])

    async def list_jobs(self, cursor: str | None) -> tuple[list[ListedJob], str | None]:
        """Return a page of the account's jobs and the cursor of the next page."""
        params = {"limit": PAGE, **({"after": cursor} if cursor else {})}
        page = await self._http.json("GET", f"{self._base}/batches", params=params)
        jobs = [
            ListedJob(str(job["id"]), (job.get("metadata") or {}).get(MARK), job.get("created_at"))
            for job in page.get("data") or []
        ]
        more = page.get("has_more", len(jobs) >= PAGE)
        return jobs, jobs[-1].name if jobs and more else None

    async def state(self, job: str) -> BatchState:
        """Return the progress of a job."""
        answer = await self._http.json("GET", f"{self._base}/batches/{job}")
        status, counts = str(answer.get("status")), answer.get("request_counts") or {}
        files = tuple(str(answer[name]) for name in ("output_file_id", "error_file_id") if answer.get(name))
        problems = [str(problem.get("message")) for problem in ((answer.get("errors") or {}).get("data") or [])]
        done = f", {counts.get('completed', 0)} of {counts['total']} done" if counts.get("total") else ""
        sentence = f"{status}{done}" + (f": {problems[0]}" if problems else "")
        over = status in OVER
        return BatchState(over, sentence, files if over else (), failed=over and not files)

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""
        await self._http.save(f"{self._base}/files/{name}/content", to)

    def result(self, line: bytes) -> BatchResult | None:
        """Parse a line of results."""
        record: Any = json.loads(line)
        key, response, error = record.get("custom_id"), record.get("response"), record.get("error")
        if not isinstance(key, str):
            return None
        if isinstance(response, dict) and isinstance(response.get("status_code"), int):
            return BatchResult(key, response["status_code"], json.dumps(response.get("body")).encode())
        message = f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else "no reply"
        return BatchResult(key, 0, message.encode())

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job."""
        return f'curl -X POST {self._base}/batches/{job}/cancel -H "Authorization: Bearer $OPENAI_API_KEY"'

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _endpoint(path: str) -> str:
    """Return the path of a request as a file names it, from its version on."""
    return "/v1" + path[path.rfind("/v1") + 3 :] if "/v1" in path else path


ALWAYS_BASE64 = "gpt-image"
"""Models of this family accept no `response_format`; others return a URL unless base64 is requested."""


def open_image_client(opening: Opening) -> ImageClient:
    """Open a client that sends pictures through the gate."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(**opening.http_options())
    client = AsyncOpenAI(
        api_key=opening.key, base_url=opening.base_url, max_retries=0, timeout=opening.timeout, http_client=http
    )
    settings = dict(opening.parameters)
    if not opening.model.startswith(ALWAYS_BASE64):
        settings.setdefault("response_format", "b64_json")

    async def edit(picture: bytes, instruction: str) -> ImageReply:
        reply: Any = await client.images.edit(
            model=opening.model, image=("crop.png", picture, "image/png"), prompt=instruction, n=1, **settings
        )
        first = reply.data[0] if reply.data else None
        data = _image_file(first)
        comment = "" if data or not getattr(first, "url", None) else "it gave an address in place of a picture"
        return ImageReply(data, _image_usage(reply.usage), comment)

    return ImageClient(edit, http.aclose)


def _image_file(item: Any) -> bytes | None:
    """Return the decoded picture; a URL is not fetched, because it may point anywhere."""
    text = getattr(item, "b64_json", None)
    url = getattr(item, "url", None)
    if not text and isinstance(url, str) and url.startswith("data:image/"):
        text = url.partition(",")[2]
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _image_usage(tokens: Any) -> Usage:
    return Usage(
        requests=1,
        input_tokens=int(getattr(tokens, "input_tokens", 0) or 0),
        output_tokens=int(getattr(tokens, "output_tokens", 0) or 0),
    )


PROVIDER = Provider(
    name="openai",
    listed_as="openai",
    keys=("OPENAI_API_KEY",),
    base_url="OPENAI_BASE_URL",
    packages=("langchain-openai",),
    example="openai:gpt-5.1",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=build_schema_parameters,
    takes=frozenset({"reasoning_effort", "seed", "top_p", "service_tier", "headers", "extra_body"}),
    bodies=BodyForm(leave_out, reply_fields=("choices",), mended=repair_usage(), route=route),
    errors=ErrorForm(versioned_path="/chat/completions"),
    finish=finish,
    refusal=refusal,
    loggers=("openai._base_client",),
    batches=OpenAIBatches,
    edit_images=open_image_client,
)
