"""A third provider in one file, with a chat model that sends plain JSON over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult

from editloupe.agent.providers.provider import Client, ErrorForm, Opening, Profile, Provider
from editloupe.agent.transport.attachments import PictureForm, data_url


class ParrotChat(BaseChatModel):
    """Posts a conversation to a server's Chat Completions, without an SDK."""

    model: str
    key: str
    address: str
    timeout: float
    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return asyncio.run(self._agenerate(messages, stop, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        parameters = {name: value for name, value in sampling.items() if value is not None}
        body = {"model": self.model, "messages": convert_to_openai_messages(messages), **parameters, **kwargs}
        async with httpx.AsyncClient(
            timeout=self.timeout
        ) as http:  # it follows no redirect, which could take the key along
            response = await http.post(
                f"{self.address}/chat/completions", json=body, headers={"Authorization": f"Bearer {self.key}"}
            )
        response.raise_for_status()
        choice = json.loads(response.text)["choices"][0]
        message = AIMessage(choice["message"]["content"], response_metadata={"finish_reason": choice["finish_reason"]})
        return ChatResult(generations=[ChatGeneration(message=message)])


def open_client(opening: Opening) -> Client:
    """Open the client; it opens its connections as it needs them."""

    async def nothing_open() -> None:
        pass

    address = opening.base_url or "https://parrot.invalid/v1"
    model = ParrotChat(
        model=opening.model, key=opening.key, address=address, timeout=opening.timeout, **opening.parameters
    )
    return Client(model, nothing_open, attaches=False)


def picture(text: str, media_type: str) -> dict[str, Any]:
    """Return a picture as a block."""
    return {"type": "image_url", "image_url": {"url": text}}


def structured(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Hold a reply to a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}}


def status(error: BaseException) -> Any:
    """Return the status of httpx's errors, which have it in their response."""
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None


PROVIDER = Provider(
    name="parrot",
    keys=("PARROT_KEY",),
    base_url="PARROT_URL",
    packages=("httpx",),
    example="parrot:grey",
    profiles=(Profile(family="Parrot", provider="parrot", pattern="", native_tools=False, structured_output=True),),
    open=open_client,
    pictures=PictureForm(picture, data_url),
    structured=structured,
    errors=ErrorForm(status=status),
)
