"""The HTTP side of batch interfaces: no redirect is followed, a refusal is one sentence, and a key never comes back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editloupe.agent.providers.provider import Opening
from editloupe.agent.transport.errors import clean
from editloupe.agent.transport.http import trust
from editloupe.types import UserError

PART = 2**20


class BatchRefused(UserError):
    """The provider did not take a request about a file or a job."""

    def __init__(self, sentence: str, passing: bool) -> None:
        super().__init__(sentence)
        self.passing = passing
        """Whether it may go away by itself: a limit, an error of the server, no connection."""


class BatchHttp:
    """Sends with the key, and says what is wrong."""

    def __init__(self, opening: Opening, headers: Mapping[str, str]) -> None:
        import httpx

        self._model = opening.model
        self._http = httpx.AsyncClient(
            timeout=max(opening.timeout, 300.0), follow_redirects=False, headers=dict(headers), verify=trust()
        )
        self._gate = opening.gate

    async def json(self, method: str, url: str, **content: Any) -> dict[str, Any]:
        """Return what the server says."""
        response = await self.send(method, url, **content)
        try:
            said = response.json()
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise BatchRefused(f"the batch interface for {self._model} sent something that is no JSON", passing=True)
        return said

    async def send(self, method: str, url: str, **content: Any) -> Any:
        """Return a response; one that is none raises."""
        import httpx

        try:
            response = await self._http.request(method, url, **content)
        except httpx.HTTPError as error:
            why = clean(f"{type(error).__name__}: {error}")
            raise BatchRefused(f"the batch interface for {self._model} could not be reached ({why})", True) from None
        self._check(response.status_code, response.text if response.status_code != 200 else "")
        return response

    async def save(self, url: str, to: Path) -> None:
        """Write what the server sends into a file, piece by piece; the file is there only when it is whole."""
        import httpx

        part = to.with_suffix(".part")
        try:
            async with self._http.stream("GET", url) as response:
                if response.status_code != 200:
                    self._check(response.status_code, (await response.aread()).decode("utf-8", "replace"))
                with part.open("wb") as file:
                    async for piece in response.aiter_bytes(PART):
                        file.write(piece)
        except httpx.HTTPError as error:
            why = clean(f"{type(error).__name__}: {error}")
            raise BatchRefused(f"results for {self._model} could not be read ({why})", True) from None
        part.replace(to)

    def _check(self, status: int, said: str) -> None:
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise BatchRefused(
                f"the batch interface for {self._model} redirects ({status}), which is not followed", False
            )
        passing = status == 429 or status >= 500
        raise BatchRefused(f"the batch interface for {self._model} answered {status}: {clean(said)}", passing)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
