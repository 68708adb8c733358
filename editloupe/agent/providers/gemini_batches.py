"""Gemini's batch interface: a file of requests is uploaded, worked on within a day, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from editloupe.agent.providers.batch_http import BatchHttp
from editloupe.agent.providers.provider import Opening
from editloupe.agent.transport.batch_files import BatchResult, BatchState

ADDRESS = "https://generativelanguage.googleapis.com"
OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED")


class GeminiBatches:
    """Speaks to `files` and `batches`."""

    def __init__(self, opening: Opening) -> None:
        self._base = (opening.base_url or ADDRESS).rstrip("/")
        self._model = opening.model.removeprefix("models/")
        self._http = BatchHttp(opening, {"x-goog-api-key": opening.key})

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file; the body is put in as it is."""
        head = json.dumps({"key": key})
        return head[:-1].encode() + b', "request": ' + body.replace(b"\n", b" ") + b"}\n"

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and have it worked on."""
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
        wanted = {"batch": {"display_name": mark, "input_config": {"file_name": uploaded["file"]["name"]}}}
        url = f"{self._base}/v1beta/models/{self._model}:batchGenerateContent"
        return str((await self._http.json("POST", url, json=wanted))["name"])

    async def find(self, mark: str) -> str | None:
        """Return the job with this mark, among the latest hundred."""
        listed = await self._http.json("GET", f"{self._base}/v1beta/batches?pageSize=100")
        jobs = listed.get("operations") or []
        found = (job["name"] for job in jobs if (job.get("metadata") or {}).get("displayName") == mark)
        return next(found, None)

    async def state(self, job: str) -> BatchState:
        """Ask how a job is getting on."""
        said = await self._http.json("GET", f"{self._base}/v1beta/{job}")
        facts = said.get("metadata") or {}
        word = str(facts.get("state") or "").removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
        counts = facts.get("batchStats") or {}
        done = f", {counts.get('successfulRequestCount', 0)} of {counts['requestCount']} done" if counts else ""
        file = (said.get("response") or {}).get("responsesFile") or (facts.get("output") or {}).get("responsesFile")
        over = word in OVER or bool(said.get("done"))
        problem = (said.get("error") or {}).get("message")
        sentence = f"{word.lower()}{done}" + (f": {problem}" if problem else "")
        return BatchState(over, sentence, (str(file),) if over and file else (), failed=over and not file)

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""
        await self._http.save(f"{self._base}/download/v1beta/{name}:download?alt=media", to)

    def result(self, line: bytes) -> BatchResult | None:
        """Read a line of results."""
        said: Any = json.loads(line)
        key, error = said.get("key"), said.get("error") or said.get("status")
        if not isinstance(key, str):
            return None
        if isinstance(said.get("response"), dict):
            return BatchResult(key, 200, json.dumps(said["response"]).encode())
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and 400 <= code < 600:
            return BatchResult(key, code, json.dumps({"error": error}).encode())
        told = error.get("message") if isinstance(error, dict) else None
        return BatchResult(key, 0, str(told or "no reply").encode())

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job."""
        return f'curl -X POST {self._base}/v1beta/{job}:cancel -H "x-goog-api-key: $GEMINI_API_KEY"'

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()
