"""Models on Amazon Bedrock, through its Converse API and AWS's own credentials."""

from __future__ import annotations

import asyncio
import base64
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.anthropic import LARGEST_PICTURE
from editloupe.agent.providers.provider import Client, ErrorForm, Opening, Profile, Provider, build_response_format
from editloupe.agent.transport.attachments import PictureForm, base64_block, base64_text, current_pictures
from editloupe.agent.transport.http import MAX_REPLY_BYTES, BrokenReply, Gate, Redirected, repair_usage
from editloupe.agent.transport.secrets import Secrets, remember_secrets
from editloupe.types import UserError

if TYPE_CHECKING:
    from langchain_aws import ChatBedrockConverse
    from langchain_core.messages import AIMessage

THREADS = 64
"""Maximum requests in flight: the client is synchronous, so each takes a thread."""
LONG_SIDE = 8000
_WHERE = r"(?:[a-z-]+\.)*"
"""A name may begin with the region that serves it, such as `us.`."""
_CLAUDE = Profile(
    family="Claude on Bedrock",
    provider="bedrock",
    pattern=rf"{_WHERE}anthropic\.claude",
    native_tools=True,
    max_image_bytes=LARGEST_PICTURE,
    max_long_side=LONG_SIDE,
)
PROFILES: tuple[Profile, ...] = (
    _CLAUDE.model_copy(
        update={
            "family": "Claude on Bedrock without temperature",
            "pattern": rf"{_WHERE}anthropic\.claude-[a-z]+-(?:4-[7-9]|[5-9])(?!\d)",
            "temperature": False,
        }
    ),
    _CLAUDE,
    Profile(
        family="Nova",
        provider="bedrock",
        pattern=rf"{_WHERE}amazon\.nova",
        native_tools=True,
        per_mille=True,
        max_image_bytes=LARGEST_PICTURE,
    ),
    Profile(family="Bedrock", provider="bedrock", pattern=r"", native_tools=False, max_image_bytes=LARGEST_PICTURE),
)
_FIELDS = {"temperature": "temperature", "top_p": "topP", "max_tokens": "maxTokens"}
_DECLINED = ("content_filtered", "guardrail_intervened", "refusal")


# The client decodes base64; 16 letters and a hash of 32 survive that unchanged.
PICTURES = PictureForm(base64_block, base64_text, mark="EditLoupePicture")


@cache
def run_in_threads(plain: type[ChatBedrockConverse]) -> type[ChatBedrockConverse]:
    """Return a client class with threads of its own, because the event loop's few threads are for pictures."""

    class ThreadedChatBedrock(plain):  # type: ignore[valid-type, misc]
        """ChatBedrockConverse that runs its synchronous requests in threads."""

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            ask = partial(copy_context().run, self._generate, messages, stop, None, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(_threads(), ask)

    return ThreadedChatBedrock


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="bedrock")


def open_client(opening: Opening) -> Client:
    """Open a client whose event hooks do the work of the gate."""
    from langchain_aws import ChatBedrockConverse

    client = _runtime(opening)
    events = client.meta.events
    events.register("provide-client-params.bedrock-runtime.Converse", partial(_outgoing, gate=opening.gate))
    events.register("before-parse.bedrock-runtime.Converse", _incoming)
    model = run_in_threads(ChatBedrockConverse)(
        disable_streaming=True,
        client=client,
        bedrock_client=client,  # not used, but otherwise LangChain would open another one
        model=opening.model,
        **opening.parameters,
    )

    async def close() -> None:
        await asyncio.to_thread(client.close)

    return Client(model, close)


def _runtime(opening: Opening) -> Any:
    """Return the SDK's client: one request each, no retries, and AWS's usual credentials."""
    import boto3  # type: ignore[import-untyped, unused-ignore]
    from botocore.config import Config  # type: ignore[import-untyped, unused-ignore]
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped, unused-ignore]
    from langchain_aws.utils import create_aws_client
    from pydantic import SecretStr

    key = None if opening.key == "none" else opening.key
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    try:
        session = boto3.Session() if key is None or region is None else None
        credentials = session.get_credentials() if session and key is None else None
        if credentials:
            frozen = credentials.get_frozen_credentials()
            remember_secrets(frozen.secret_key, frozen.token)
        elif key is None:
            if opening.base_url is None:
                raise UserError(
                    f"bedrock:{opening.model} needs credentials: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                )
            key = "none"
        region = region or (session.region_name if session else None)
        if region is None and opening.base_url is None:
            raise UserError(f"bedrock:{opening.model} needs a region: set AWS_REGION")
        settings = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            read_timeout=opening.timeout,
            connect_timeout=min(opening.timeout, 60.0),
            max_pool_connections=THREADS,
        )
        return create_aws_client(
            "bedrock-runtime",
            region_name=region or "us-east-1",
            endpoint_url=opening.base_url,
            config=settings,
            api_key=SecretStr(key) if key else None,
        )
    except BotoCoreError as error:
        raise UserError(f"the client for bedrock:{opening.model} cannot be opened: {error}") from None


def _outgoing(params: dict[str, Any], gate: Gate, **_: Any) -> dict[str, Any]:
    """Insert the pictures into a request and remove the left-out parameters."""
    messages = [
        {**message, "content": [_fill(block) for block in message.get("content") or []]}
        for message in params.get("messages") or []
    ]
    body = {**params, "messages": messages}
    leave_out(body, gate.left_out)
    params.clear()
    params.update(body)
    return params


def _fill(block: dict[str, Any]) -> dict[str, Any]:
    data = (block.get("image") or {}).get("source", {}).get("bytes")
    pictures = current_pictures()
    name = base64.b64encode(data).decode() if isinstance(data, bytes) and len(data) < 64 else ""
    if pictures is None or not name.startswith(PICTURES.mark):
        return block
    album, limits = pictures
    wire = album[name.removeprefix(PICTURES.mark)].wire(limits)
    return {"image": {"format": wire.media_type.partition("/")[2], "source": {"bytes": base64.b64decode(wire.base64)}}}


def _incoming(response_dict: dict[str, Any], **_: Any) -> None:
    """Check a reply before it is parsed: no redirect, no key, limited size."""
    status, headers = response_dict["status_code"], response_dict["headers"]
    if 300 <= status < 400:
        raise Redirected(status, str(headers.get("location") or "another path of the same server").partition("?")[0])
    if len(response_dict["body"]) > MAX_REPLY_BYTES:
        raise BrokenReply(f"the reply is larger than {MAX_REPLY_BYTES // 2**20} MB")
    body = Secrets().in_body(response_dict["body"])
    response_dict["body"] = _repair_usage(body) if status == 200 else body


_repair_usage = repair_usage("inputTokens", "outputTokens", "totalTokens")


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body."""
    for name in names:
        if name in _FIELDS and "inferenceConfig" in body:
            body["inferenceConfig"] = {k: v for k, v in body["inferenceConfig"].items() if k != _FIELDS[name]}
        if name == "response_format":
            body.pop("outputConfig", None)
        if name == "tool_choice" and "toolConfig" in body:
            body["toolConfig"] = {k: v for k, v in body["toolConfig"].items() if k != "toolChoice"}


def finish(message: AIMessage) -> str:
    """Return the finish reason of a reply."""
    return str(message.response_metadata.get("stopReason") or "")


def refusal(message: AIMessage) -> str | None:
    """Return a sentence if a filter or guardrail stopped the reply."""
    word = finish(message)
    return f"the provider stopped the reply (stop reason {word})" if word in _DECLINED else None


def _error_response(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def _status(error: BaseException) -> Any:
    return _error_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")


def _headers(error: BaseException) -> Any:
    return _error_response(error).get("ResponseMetadata", {}).get("HTTPHeaders")


def _error_body(error: BaseException) -> Any:
    details = _error_response(error).get("Error") or {}
    return (
        {"error": {"code": details.get("Code"), "message": details.get("Message")}} if details.get("Message") else None
    )


PROVIDER = Provider(
    name="bedrock",
    listed_as="aws",
    keys=("AWS_BEARER_TOKEN_BEDROCK",),
    base_url="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
    packages=("langchain-aws",),
    example="bedrock:us.anthropic.claude-sonnet-4-6",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=build_response_format,
    extra="bedrock",
    needs_key=False,
    without_key="by AWS's own credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID, a role of the machine; AWS_REGION names the region",
    no_calls={},
    takes=frozenset({"top_p", "service_tier"}),
    errors=ErrorForm(status=_status, body=_error_body, headers=_headers),
    finish=finish,
    refusal=refusal,
    limits=frozenset({"max_tokens"}),
    in_spans="aws.bedrock",
    loggers=("langchain_aws.chat_models.bedrock_converse", "botocore.endpoint", "botocore.auth", "botocore.parsers"),
)
