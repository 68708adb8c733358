"""Edit pictures with a provider's image model, with retries and redacted errors."""

from __future__ import annotations

import asyncio
import random

from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.open_model import prepare_opening
from editloupe.agent.providers.provider import ImageClient, ImageReply, Provider, format_error
from editloupe.agent.providers.registry import PROVIDERS, find_provider
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import split_spec
from editloupe.agent.transport.errors import ModelFailed, classify, clean
from editloupe.types import Reason, Usage, UserError

SECONDS = 180.0
"""Timeout per picture: image models take up to a minute, and longer under load."""


_NOTHING, _USUAL = Usage(), RetryPolicy()


class EditRefused(Exception):
    """The editor returned no picture and would not for the same request again; the message says why."""

    def __init__(self, sentence: str, usage: Usage = _NOTHING) -> None:
        super().__init__(sentence)
        self.usage = usage
        """Tokens of the reply without a picture."""


class ImageEditor:
    """An image model that edits a picture by an instruction; belongs to one event loop."""

    def __init__(
        self, name: str, provider: Provider, client: ImageClient, timeout: float, retry: RetryPolicy = _USUAL
    ) -> None:
        self.name = name
        self._provider, self._client, self._timeout, self._retry = provider, client, timeout, retry

    async def edit(self, picture: bytes, instruction: str) -> ImageReply:
        """Return the edited picture.

        Args:
            picture: A PNG file.
            instruction: The change to make.

        Raises:
            EditRefused: The editor declines, or sends text instead of a picture.
            ModelFailed: The server could not be reached.
            ModelRejected: Retrying would not change anything.
        """
        lost = 0
        for attempt in range(1, self._retry.max_attempts + 1):
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._client.edit(picture, instruction)
                break
            except Exception as error:
                fault = classify(error, self.name, self._timeout, self._provider.errors)
                lost += fault.paid
                if fault.fatal:
                    raise fault.fatal from error
                if fault.reason == Reason.REFUSED:
                    raise EditRefused(fault.sentence) from error
                spent = attempt >= (
                    self._retry.timeout_attempts if fault.reason == Reason.TIMEOUT else self._retry.max_attempts
                )
                wait = fault.retry_after or self._retry.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1)
                if not fault.again or spent or wait > self._retry.longest_retry_after:
                    raise ModelFailed(fault.reason, fault.sentence, Usage(requests=lost), attempt) from error
                await asyncio.sleep(min(wait, self._retry.longest_wait) if not fault.retry_after else wait)
        if reply.data is None:
            comment = clean(" ".join(reply.comment.split()))[:200]
            raise EditRefused(f"{self.name} gave no picture" + (f" ({comment})" if comment else ""), reply.usage)
        return reply

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def open_editor(
    spec: str, base_url: str | None = None, timeout: float = SECONDS, retry: RetryPolicy = _USUAL
) -> ImageEditor:
    """Open the image model of a spec.

    Args:
        spec: `provider:model`.
        base_url: Address of the server; None uses the provider's own.
        timeout: Seconds to wait for a picture.
        retry: How failed requests are retried.

    Raises:
        UserError: The key is missing, or the provider has no image models.
    """
    named, model = split_spec(spec)
    names = [candidate.name for candidate in PROVIDERS if candidate.edit_images]
    provider = find_provider(named) if named != RULES else None
    if provider is None or provider.edit_images is None:
        raise UserError(
            f"{spec} cannot edit pictures; use {' or '.join(f'{name}:MODEL' for name in names)}, or a folder"
        )
    opening = prepare_opening(provider, spec, model, base_url, timeout)
    try:
        return ImageEditor(spec, provider, provider.edit_images(opening), timeout, retry)
    except Exception as error:  # clients raise errors of any type
        raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None
