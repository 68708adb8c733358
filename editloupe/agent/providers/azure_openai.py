"""OpenAI's models on Azure, where the model name is that of a deployment."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers import openai
from editloupe.agent.providers.provider import Client, ErrorForm, Opening
from editloupe.agent.transport.http import load_certificates
from editloupe.types import UserError

if TYPE_CHECKING:
    from langchain_openai import AzureChatOpenAI

VERSION = "OPENAI_API_VERSION"
USUAL_VERSION = "2024-10-21"
"""The latest dated version of the API that is not a preview."""
ADDRESS = "AZURE_OPENAI_ENDPOINT"

PROFILES = tuple(profile.model_copy(update={"provider": "azure_openai"}) for profile in openai.PROFILES)


@cache
def hide_address(plain: type[AzureChatOpenAI]) -> type[AzureChatOpenAI]:
    """Return a client class that hides the endpoint from tracers."""

    class ShownAzureChatOpenAI(plain):  # type: ignore[valid-type, misc]
        """AzureChatOpenAI without its endpoint in traces."""

        @property
        def lc_secrets(self) -> dict[str, str]:
            """Name what LangChain keeps out of traces."""
            hidden = {"openai_api_base": ADDRESS, "azure_endpoint": ADDRESS}
            return {**super().lc_secrets, **hidden}

        def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> Any:
            """Return a filtered reply too, whose finish reason says so. AzureChatOpenAI raises, and it would be asked again."""
            try:
                return super()._create_chat_result(response, generation_info)
            except ValueError as error:
                if "content filter" not in str(error):
                    raise
                return super(plain, self)._create_chat_result(response, generation_info)  # type: ignore[misc]

    return ShownAzureChatOpenAI


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate."""
    from langchain_openai import AzureChatOpenAI
    from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

    if opening.base_url is None:
        raise UserError(
            f"azure_openai:{opening.model} needs the address of your resource: set {ADDRESS}, or give --base-url"
        )
    http = DefaultAsyncHttpxClient(**opening.http_options(openai.PICTURES.attach))
    settings = {
        "http_async_client": http,
        "http_client": DefaultHttpxClient(verify=load_certificates()),  # never used
        "disable_streaming": True,
        "http_socket_options": (),
        "azure_deployment": opening.model,
        "model": opening.model,
        "azure_endpoint": opening.base_url,
        "api_version": os.environ.get(VERSION) or USUAL_VERSION,
        "api_key": opening.key,
        "max_retries": 0,
        "timeout": opening.timeout,
        "use_responses_api": False,
        **opening.parameters,
    }
    return Client(hide_address(AzureChatOpenAI)(**settings), http.aclose)


PROVIDER = replace(
    openai.PROVIDER,
    name="azure_openai",
    listed_as="azure",
    keys=("AZURE_OPENAI_API_KEY",),
    base_url=ADDRESS,
    own_server=False,
    example="azure_openai:gpt-5.1",
    profiles=PROFILES,
    open=open_client,
    batches=None,
    takes=frozenset({"reasoning_effort", "seed", "top_p", "headers", "extra_body"}),
    errors=ErrorForm(),
    in_spans="azure.ai.openai",
)
