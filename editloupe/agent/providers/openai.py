"""OpenAI, and every server that speaks its Chat Completions: vLLM, Ollama, LM Studio, LiteLLM's proxy, OpenRouter and more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from editloupe.agent.profiles import Profile
from editloupe.agent.providers.openai_batches import OpenAIBatches
from editloupe.agent.providers.openai_images import open_image_client
from editloupe.agent.providers.openai_requests import PlainCompletions
from editloupe.agent.providers.provider import ErrorForm, Opening, Provider, finish_reason, in_a_line
from editloupe.agent.replies.finish_reasons import BROKEN_OFF
from editloupe.agent.transport.attachments import PictureForm, data_url, sent_data_url
from editloupe.agent.transport.clients import Client
from editloupe.agent.transport.http import BodyForm, trust

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel, LanguageModelInput
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatResult
    from langchain_openai import ChatOpenAI
    from openai import BaseModel as OpenAIModel

# Sources: the providers' model and vision guides. Compatible servers (vLLM, Ollama, LM Studio) need a flag for function
# calling, so the open families use the text protocol unless the user asks otherwise.
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

NATIVE = frozenset({"text", "image_url"})
"""Blocks that Chat Completions takes as they are."""
IN_THE_BODY = ("messages", "tools")
"""Fields given as `extra_body` are sent as they are."""
_OPENAI = re.compile(r"(?:.*/)?(?:gpt-(?!oss)|chatgpt|o\d)", re.IGNORECASE)
LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"
"""OpenAI's models take the first; Ollama, LM Studio and others know the second only, and pass over the first in silence."""


def _picture(text: str, media_type: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": text, "detail": "high"}}


PICTURES = PictureForm(_picture, data_url, mark="editloupe-picture:", fields=("url", "image_url"), sent=sent_data_url)


@cache
def addressless(plain: type[ChatOpenAI]) -> type[ChatOpenAI]:
    """Return the client as it may be shown to a tracer: its server's address, too, may carry a key."""

    class ShownChatOpenAI(plain):  # type: ignore[valid-type, misc]
        """Speaks as ChatOpenAI does; a tracer is not told the server's address."""

        @property
        def lc_secrets(self) -> dict[str, str]:
            """Name what LangChain keeps out of traces."""
            return {**super().lc_secrets, "openai_api_base": "OPENAI_BASE_URL"}

    return ShownChatOpenAI


@cache
def lean(plain: type[ChatOpenAI]) -> type[ChatOpenAI]:
    """Return the client with less work per request; what goes over the wire is the same, but for one name on other servers.

    Two steps on the way out look at every block of every message and find nothing to change in ours: langchain-openai asks of
    each content block whether it is of a kind it would have to translate, and the openai package walks messages and tool schemas
    against its type hints. In a conversation with pictures the two take about as much CPU as all the rest of a request.
    """

    class LeanChatOpenAI(addressless(plain)):  # type: ignore[misc]
        """Sends the same body as ChatOpenAI; only the way it takes through the clients is shorter."""

        def _get_request_payload(
            self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
        ) -> dict[str, Any]:
            if self._use_responses_api({**self._default_params, **kwargs}):
                whole: dict[str, Any] = super()._get_request_payload(input_, stop=stop, **kwargs)
                return whole
            messages = self._convert_input(input_).to_messages()
            light = [m.model_copy(update={"content": ""}) if _is_native(m) else m for m in messages]
            payload: dict[str, Any] = super()._get_request_payload(light, stop=stop, **kwargs)
            for message, sent in zip(messages, payload["messages"], strict=True):
                if _is_native(message):
                    sent["content"] = message.content
            if LIMIT in payload and not _OPENAI.match(self.model_name):
                payload[OLD_LIMIT] = payload.pop(LIMIT)
            body = {name: payload.pop(name) for name in IN_THE_BODY if name in payload}
            return {**payload, "messages": [], "extra_body": {**(payload.get("extra_body") or {}), **body}}

        async def _agenerate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: AsyncCallbackManagerForLLMRun | None = None,
            **kwargs: Any,
        ) -> ChatResult:
            """Ask, and read the reply here: a small dictionary is read sooner than it is handed to a thread and back."""
            completions = self.async_client
            if not isinstance(completions, PlainCompletions) or self._use_responses_api(
                {**self._default_params, **kwargs}
            ):
                usual: ChatResult = await super()._agenerate(messages, stop, run_manager, **kwargs)
                return usual
            reply = await completions.create(**self._get_request_payload(messages, stop=stop, **kwargs))
            return self._create_chat_result(reply.parse(), {})

        def _create_chat_result(
            self, response: dict[str, Any] | OpenAIModel, generation_info: dict[str, Any] | None = None
        ) -> ChatResult:
            result: ChatResult = super()._create_chat_result(response, generation_info)
            if isinstance(response, dict) and result.generations:
                said = response["choices"][0]["message"].get("refusal")
                result.generations[0].message.additional_kwargs["refusal"] = said
            return result

    return LeanChatOpenAI


def _is_native(message: BaseMessage) -> bool:
    blocks = message.content
    return (
        message.type == "human"
        and isinstance(blocks, list)
        and all(isinstance(block, dict) and block.get("type") in NATIVE for block in blocks)
    )


def check_same_request(client: ChatOpenAI, plain: type[ChatOpenAI]) -> None:
    """Raise where the lean client does not fit its version: what it overrides is private, and may have another shape there.

    A conversation with every kind of message is made into a request in both ways.
    """
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    call = {"name": "look", "args": {"at": [1, 2]}, "id": "call_1", "type": "tool_call"}
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    messages = [
        SystemMessage("a"),
        HumanMessage([{"type": "text", "text": "b"}, _picture("data:image/png;base64,AAAA", "image/png")]),
        AIMessage("c", tool_calls=[call]),
        ToolMessage("d", tool_call_id="call_1"),
        HumanMessage("e"),
    ]
    usual: dict[str, Any] = plain._get_request_payload(client, messages, tools=tools)
    short: dict[str, Any] = client._get_request_payload(messages, tools=tools)
    body = {**short, **short.get("extra_body", {})}
    body.pop("extra_body", None)
    if OLD_LIMIT in body:
        body[LIMIT] = body.pop(OLD_LIMIT)
    if body != usual:
        raise ValueError("it puts another request together")
    _check_same_reply(client, plain)


def _check_same_reply(client: ChatOpenAI, plain: type[ChatOpenAI]) -> None:
    """Raise where a reply as plain values is read otherwise than one in the openai package's records."""
    from openai.types.chat import ChatCompletion

    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "content": "a"}}
    choice["message"] |= {"tool_calls": [call], "refusal": "b"}  # type: ignore[operator]
    tokens = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    came = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": tokens}
    (usual,) = plain._create_chat_result(client, ChatCompletion.model_validate(came)).generations
    (short,) = client._create_chat_result(came).generations
    parts = ("content", "tool_calls", "usage_metadata", "additional_kwargs")
    if any(getattr(usual.message, part) != getattr(short.message, part) for part in parts):
        raise ValueError("it reads another reply")


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate; the plain one where the lean one does not fit its version."""
    from langchain_openai import ChatOpenAI
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

    http = DefaultAsyncHttpxClient(  # one of its own, since the SDK's default one is shared by the whole process
        timeout=opening.timeout,
        follow_redirects=False,
        event_hooks=opening.gate.hooks(PICTURES.attach),
        headers={"Accept-Encoding": "identity"},
        verify=trust(),
    )
    settings = {
        "http_async_client": http,
        # Never used; one of LangChain's own would read the certificates again.
        "http_client": DefaultHttpxClient(verify=trust()),
        "disable_streaming": True,  # also where a graph that streams would have it otherwise: streams report no tokens
        "http_socket_options": (),  # else a warning where a proxy is configured
        "model": opening.model,
        "api_key": opening.key,
        "base_url": opening.base_url,
        "max_retries": 0,
        "timeout": opening.timeout,
        # Compatible servers speak chat completions; at OpenAI itself the client knows which models need the other interface.
        "use_responses_api": False if opening.base_url else None,
        **opening.parameters,
    }
    try:
        model = lean(ChatOpenAI)(**settings)
        check_same_request(model, ChatOpenAI)
        model.async_client = PlainCompletions(model.root_async_client)
        return Client(model, http.aclose, http=http)
    except Exception as error:
        why = in_a_line(error)
    if OLD_LIMIT in opening.parameters and not _OPENAI.match(opening.model):
        opening.gate.left_out.add(LIMIT)  # the gate then writes the older name
    note = f"the installed langchain-openai is not one EditLoupe's faster client knows, so its own is used ({why})"
    return Client(addressless(ChatOpenAI)(**settings), http.aclose, http=http, notes=(note,))


def structured(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that hold a reply to a schema; the two interfaces spell them differently."""
    form = {"name": "answer", "strict": True, "schema": dict(schema)}
    asks_responses = getattr(client, "_use_responses_api", None)
    if asks_responses and asks_responses({}):
        return {"text": {"format": {"type": "json_schema", **form}}}
    # In extra_body, the client sends it on without parsing the reply itself, which would raise where a reply is cut off.
    return {"extra_body": {"response_format": {"type": "json_schema", "json_schema": form}}}


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body; a server that does not know the name of the limit is given the older one."""
    for name in names:
        if name == LIMIT and name in body and OLD_LIMIT not in names:
            body[OLD_LIMIT] = body.pop(name)
        for field in (name, *((LIMIT,) if name == OLD_LIMIT else ())):
            body.pop(field, None)


def finish(message: AIMessage) -> str:
    """Return how a reply ended; the Responses interface gives a reason for an incomplete one, or a status alone."""
    facts = message.response_metadata
    why = facts.get("incomplete_details") or {}
    said = why.get("reason") if isinstance(why, dict) else None
    status = str(facts.get("status") or "")
    return str(said or finish_reason(message) or (status if status in BROKEN_OFF else ""))


def refusal(message: AIMessage) -> str | None:
    """Return the model's own refusal, which has a field beside the text."""
    said = message.additional_kwargs.get("refusal")
    return f"the model declined to answer: {said}" if said else None


ROUTE_HEADERS = ("x-litellm-model-id", "x-litellm-model-region", "x-portkey-provider")
"""Headers in which proxies say which deployment answered."""
_PROVIDER = re.compile(rb'[{,]\s*"provider"\s*:\s*"([^"\\]{1,80})"')
"""OpenRouter's word for who answered; inside a model's own text the quotes would be escaped."""


def route(headers: Mapping[str, str], body: bytes) -> str:
    """Return which deployment behind a proxy answered, as far as it says so."""
    told = [value for name in ROUTE_HEADERS if (value := headers.get(name))]
    if found := _PROVIDER.search(body):
        told.append(found[1].decode("utf-8", "replace"))
    return " ".join(told)


PROVIDER = Provider(
    name="openai",
    keys=("OPENAI_API_KEY",),
    base_url="OPENAI_BASE_URL",
    packages=("langchain-openai",),
    example="openai:gpt-5.1",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=structured,
    takes=frozenset({"reasoning_effort", "seed", "top_p", "service_tier", "headers", "extra_body"}),
    bodies=BodyForm(leave_out, reply_fields=("choices",), route=route),
    errors=ErrorForm(versioned_path="/chat/completions"),
    finish=finish,
    refusal=refusal,
    loggers=("openai._base_client",),
    batches=OpenAIBatches,
    edit_images=open_image_client,
)
