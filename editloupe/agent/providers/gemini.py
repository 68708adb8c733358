"""Gemini, through Google's own API, with batches and image output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.provider import (
    Client,
    ErrorForm,
    ImageClient,
    ImageReply,
    Opening,
    Profile,
    Provider,
    format_error,
    read_finish_reason,
)
from editloupe.agent.transport.attachments import PictureForm, base64_block, base64_text
from editloupe.agent.transport.batch_files import BatchHttp, BatchResult, BatchState, ListedJob
from editloupe.agent.transport.http import BodyForm, load_certificates
from editloupe.pictures.encode import EncodedPicture
from editloupe.types import Usage, UserError

if TYPE_CHECKING:
    import httpx
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_google_genai import ChatGoogleGenerativeAI

PROFILES: tuple[Profile, ...] = (
    Profile(
        family="Gemini 3",
        provider="google_genai",
        pattern=r"gemini-[3-9]",
        native_tools=True,
        per_mille=True,
        temperature=False,
        structured_output=True,
    ),
    Profile(
        family="Gemini 2.5",
        provider="google_genai",
        pattern=r"gemini-2\.5",
        native_tools=True,
        per_mille=True,
        structured_output=True,
    ),
    Profile(
        family="Gemini",
        provider="google_genai",
        pattern=r"gemini",
        native_tools=True,
        per_mille=True,
        structured_output=True,
        reasons=False,
    ),
    Profile(family="Gemma", provider="google_genai", pattern=r"", native_tools=False, per_mille=True),
)

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
"""The client encodes bytes in the URL-safe alphabet."""
_NO_COUNT = re.compile(rb'((?<!\\)"\w*TokenCount"\s*:)(?!\s*\d+\s*[,}])[^,}\]]+')
"""A token count that is not a whole number, for which Google's SDK would reject the whole reply."""
_FIELDS = {
    "temperature": ("temperature",),
    "top_p": ("topP",),
    "seed": ("seed",),
    "max_tokens": ("maxOutputTokens",),
    "response_format": ("responseMimeType", "responseSchema", "responseJsonSchema"),
}
"""Names of the parameters in a body's `generationConfig`."""


def _sent(wire: EncodedPicture) -> tuple[bytes]:
    return (wire.base64.translate(_URL_SAFE),)


PICTURES = PictureForm(
    base64_block,
    base64_text,
    # The client decodes and re-encodes base64; 16 letters and a hash of 32 survive that unchanged.
    mark="EditLoupePicture",
    fields=("data",),
    sent=_sent,
)


@cache
def hide_address(plain: type[ChatGoogleGenerativeAI]) -> type[ChatGoogleGenerativeAI]:
    """Return a client class that hides the server's address from tracers, because it may contain a key."""

    class ShownChatGemini(plain):  # type: ignore[valid-type, misc]
        """ChatGoogleGenerativeAI without the server's address and connection options in traces."""

        @property
        def lc_secrets(self) -> dict[str, str]:
            """Name what LangChain keeps out of traces."""
            return {**super().lc_secrets, "base_url": "GOOGLE_GEMINI_BASE_URL", "client_args": "client_args"}

    return ShownChatGemini


def open_client(opening: Opening) -> Client:
    """Open a client that sends through the gate; if it does not accept our HTTP client, raise and send nothing."""
    import httpx
    from langchain_google_genai import ChatGoogleGenerativeAI

    parameters = dict(opening.parameters)
    if tier := parameters.pop("service_tier", None):  # LangChain's class lacks this parameter of the API
        gate = opening.gate
        gate.additions = replace(gate.additions, body={"serviceTier": tier, **gate.additions.body})
    model = hide_address(ChatGoogleGenerativeAI)(
        disable_streaming=True,
        model=opening.model,
        google_api_key=opening.key,
        base_url=opening.base_url,
        max_retries=1,  # one request, no retries by the client
        timeout=opening.timeout,
        client_args={
            "verify": load_certificates(),
            "ssl": load_certificates(),
            "follow_redirects": False,
        },  # the SDK uses either name
        **parameters,
    )
    http = httpx.AsyncClient(
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
        **opening.http_options(PICTURES.attach),
    )
    try:
        _speak_through(model, http, opening)
    except Exception as error:  # other versions raise other errors
        raise UserError(
            "the installed langchain-google-genai does not accept the HTTP client that keeps keys and pictures from following "
            f"redirects: pip install 'langchain-google-genai>=4.4,<5' ({format_error(error)})"
        ) from None
    return Client(model, http.aclose)


def _speak_through(model: ChatGoogleGenerativeAI, http: httpx.AsyncClient, opening: Opening) -> None:
    """Give the model our HTTP client: LangChain's class accepts none, but the SDK's client does.

    The SDK would otherwise use aiohttp if it is installed, and follow redirects.
    """
    from google.genai import Client as GeminiClient
    from google.genai.types import HttpOptions

    options = HttpOptions(
        base_url=opening.base_url,
        httpx_async_client=http,
        client_args={"verify": load_certificates()},
        async_client_args={"ssl": load_certificates()},
    )
    client = GeminiClient(api_key=opening.key, http_options=options)
    model.client = client
    if getattr(model, "async_client", None) is not client.aio:
        raise AttributeError("requests do not go through the model's `client`")


def build_schema_parameters(client: BaseChatModel, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that enforce a schema on a reply."""
    return {"response_mime_type": "application/json", "response_json_schema": dict(schema)}


def leave_out(body: dict[str, Any], names: set[str]) -> None:
    """Remove parameters from a request's body."""
    settings: dict[str, Any] = body.get("generationConfig") or {}
    for name in names:
        if name == "tool_choice":
            body.pop("toolConfig", None)
        for field in _FIELDS.get(name, ()):
            settings.pop(field, None)


def repair_token_counts(body: bytes) -> bytes:
    """Return a reply whose token counts are all whole numbers."""
    return _NO_COUNT.sub(rb"\g<1>0", body) if b'TokenCount"' in body else body


def refusal(message: AIMessage) -> str | None:
    """Return a sentence if the request itself was refused, so that there is no reply."""
    blocked = (message.response_metadata.get("prompt_feedback") or {}).get("block_reason")
    return "the provider's content filter refused the request" if blocked and not read_finish_reason(message) else None


def _code(error: BaseException) -> Any:
    """Return the status of Google's errors, which also have `details`; in other errors `code` may be anything."""
    return getattr(error, "code", None) if hasattr(error, "details") else None


def _details(error: BaseException) -> Any:
    return getattr(error, "details", None)


ADDRESS = "https://generativelanguage.googleapis.com"
OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")


class GeminiBatches:
    """Gemini's batch API (`files` and `batches`)."""

    def __init__(self, opening: Opening) -> None:
        self._base = (opening.base_url or ADDRESS).rstrip("/")
        self._model = opening.model.removeprefix("models/")
        self._http = BatchHttp(opening, {"x-goog-api-key": opening.key})

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file; the body is inserted unchanged."""
        head = json.dumps({"key": key})
        return head[:-1].encode() + b', "request": ' + body.replace(b"\n", b" ") + b"}\n"

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and start a job."""
        size = file.stat().st_size
        started = await self._http.send(
            "POST",
            f"{self._base}/upload/v1beta/files",
            json={"file": {"display_name": mark}},
            headers={
                "X-Goog-Upload-Protocol": "resumable",
                "X-Goog-Upload-Command": "start",
                "X-Goog-Upload-Header-Content-Length": str(size),
                "X-Goog-Upload-Header-Content-Type": "application/jsonl",
            },
        )
        uploaded = await self._http.json(
            "POST",
            started.headers["x-goog-upload-url"],
            content=file.read_bytes(),
            headers={"X-Goog-Upload-Offset": "0", "X-Goog-Upload-Command": "upload, finalize"},
        )
        job = {"batch": {"display_name": mark, "input_config": {"file_name": uploaded["file"]["name"]}}}
        url = f"{self._base}/v1beta/models/{self._model}:batchGenerateContent"
        return str((await self._http.json("POST", url, json=job))["name"])

    async def list_jobs(self, cursor: str | None) -> tuple[list[ListedJob], str | None]:
        """Return a page of the account's jobs and the cursor of the next page."""
        params = {"pageSize": 100, **({"pageToken": cursor} if cursor else {})}
        page = await self._http.json("GET", f"{self._base}/v1beta/batches", params=params)
        jobs = []
        for job in page.get("operations") or []:
            facts = job.get("metadata") or {}
            jobs.append(ListedJob(str(job["name"]), facts.get("displayName"), _seconds(facts.get("createTime"))))
        return jobs, page.get("nextPageToken") or None

    async def state(self, job: str) -> BatchState:
        """Return the progress of a job."""
        answer = await self._http.json("GET", f"{self._base}/v1beta/{job}")
        facts = answer.get("metadata") or {}
        word = str(facts.get("state") or "").removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
        counts = facts.get("batchStats") or {}
        done = f", {counts.get('successfulRequestCount', 0)} of {counts['requestCount']} done" if counts else ""
        file = (answer.get("response") or {}).get("responsesFile") or (facts.get("output") or {}).get("responsesFile")
        over = word in OVER or bool(answer.get("done"))
        problem = (answer.get("error") or {}).get("message")
        sentence = f"{word.lower()}{done}" + (f": {problem}" if problem else "")
        return BatchState(over, sentence, (str(file),) if over and file else (), failed=over and not file)

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""
        await self._http.save(f"{self._base}/download/v1beta/{name}:download?alt=media", to)

    def result(self, line: bytes) -> BatchResult | None:
        """Parse a line of results."""
        record: Any = json.loads(line)
        key, error = record.get("key"), record.get("error") or record.get("status")
        if not isinstance(key, str):
            return None
        if isinstance(record.get("response"), dict):
            return BatchResult(key, 200, json.dumps(record["response"]).encode())
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and 400 <= code < 600:
            return BatchResult(key, code, json.dumps({"error": error}).encode())
        message = error.get("message") if isinstance(error, dict) else None
        return BatchResult(key, 0, str(message or "no reply").encode())

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job."""
        return f'curl -X POST {self._base}/v1beta/{job}:cancel -H "x-goog-api-key: $GEMINI_API_KEY"'

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _seconds(text: Any) -> float | None:
    """Return a UTC timestamp in seconds since 1970, to the second; None if it is not one."""
    try:
        return datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()
    except (TypeError, ValueError):
        return None


def open_image_client(opening: Opening) -> ImageClient:
    """Open a client that sends pictures through the gate."""
    import httpx
    from google.genai import Client
    from google.genai.types import GenerateContentConfig, HttpOptions, Part

    http = httpx.AsyncClient(**opening.http_options())
    options = HttpOptions(
        base_url=opening.base_url, httpx_async_client=http, client_args={"verify": load_certificates()}
    )
    client = Client(api_key=opening.key, http_options=options)
    config = GenerateContentConfig(response_modalities=["TEXT", "IMAGE"], **opening.parameters)

    async def edit(picture: bytes, instruction: str) -> ImageReply:
        reply = await client.aio.models.generate_content(
            model=opening.model,
            contents=[Part.from_bytes(data=picture, mime_type="image/png"), Part.from_text(text=instruction)],  # type: ignore[arg-type]
            config=config,
        )
        return _read_image(reply)

    return ImageClient(edit, http.aclose)


def _read_image(reply: Any) -> ImageReply:
    """Return the last picture of a reply; the model may send drafts before it."""
    candidate = (reply.candidates or [None])[0]
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    pictures = [
        part.inline_data.data for part in parts if part.inline_data and part.inline_data.data and not part.thought
    ]
    comment = " ".join(part.text for part in parts if part.text and not part.thought)
    blocked = getattr(reply.prompt_feedback, "block_reason", None)
    if not pictures and not comment:
        why = blocked or getattr(candidate, "finish_reason", None)
        comment = f"it ended with {getattr(why, 'value', why)}" if why else ""
    tokens = reply.usage_metadata
    usage = Usage(
        requests=1,
        input_tokens=int(getattr(tokens, "prompt_token_count", 0) or 0),
        output_tokens=int(getattr(tokens, "candidates_token_count", 0) or 0)
        + int(getattr(tokens, "thoughts_token_count", 0) or 0),
    )
    return ImageReply(pictures[-1] if pictures else None, usage, comment)


PROVIDER = Provider(
    name="google_genai",
    listed_as="google",
    in_spans="gcp.gemini",
    keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    base_url="GOOGLE_GEMINI_BASE_URL",
    packages=("langchain-google-genai",),
    example="google_genai:gemini-3-pro",
    profiles=PROFILES,
    open=open_client,
    pictures=PICTURES,
    structured=build_schema_parameters,
    takes=frozenset({"thinking_level", "thinking_budget", "seed", "top_p", "service_tier", "headers", "extra_body"}),
    bodies=BodyForm(leave_out, reply_fields=("candidates",), mended=repair_token_counts),
    errors=ErrorForm(status=_code, body=_details),
    refusal=refusal,
    batches=GeminiBatches,
    edit_images=open_image_client,
)
