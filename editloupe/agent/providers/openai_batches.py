"""OpenAI's batch interface: a file of requests is uploaded, worked on within a day, and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from editloupe.agent.providers.batch_http import BatchHttp
from editloupe.agent.providers.provider import Opening
from editloupe.agent.transport.batch_files import BatchResult, BatchState

ADDRESS = "https://api.openai.com/v1"
MARK = "editloupe"
"""The field of a job's metadata by which it is found again."""
OVER = ("completed", "failed", "expired", "cancelled")


class OpenAIBatches:
    """Speaks to `/files` and `/batches`."""

    def __init__(self, opening: Opening) -> None:
        self._base = (opening.base_url or ADDRESS).rstrip("/")
        self._http = BatchHttp(opening, {"Authorization": f"Bearer {opening.key}"})

    def line(self, key: str, path: str, body: bytes) -> bytes:
        """Return a request as a line of a file; the body is put in as it is."""
        head = json.dumps({"custom_id": key, "method": "POST", "url": _endpoint(path)})
        return head[:-1].encode() + b', "body": ' + body.replace(b"\n", b" ") + b"}\n"

    async def submit(self, mark: str, path: str, file: Path) -> str:
        """Upload a file and have it worked on."""
        with file.open("rb") as held:
            uploaded = await self._http.json(
                "POST",
                f"{self._base}/files",
                data={"purpose": "batch"},
                files={"file": (f"{mark}.jsonl", held, "application/jsonl")},
            )
        wanted = {
            "input_file_id": uploaded["id"],
            "endpoint": _endpoint(path),
            "completion_window": "24h",
            "metadata": {MARK: mark},
        }
        return str((await self._http.json("POST", f"{self._base}/batches", json=wanted))["id"])

    async def find(self, mark: str) -> str | None:
        """Return the job with this mark, among the latest hundred."""
        listed = await self._http.json("GET", f"{self._base}/batches?limit=100")
        found = (job["id"] for job in listed.get("data") or [] if (job.get("metadata") or {}).get(MARK) == mark)
        return next(found, None)

    async def state(self, job: str) -> BatchState:
        """Ask how a job is getting on."""
        said = await self._http.json("GET", f"{self._base}/batches/{job}")
        status, counts = str(said.get("status")), said.get("request_counts") or {}
        files = tuple(str(said[name]) for name in ("output_file_id", "error_file_id") if said.get(name))
        problems = [str(one.get("message")) for one in ((said.get("errors") or {}).get("data") or [])]
        done = f", {counts.get('completed', 0)} of {counts['total']} done" if counts.get("total") else ""
        sentence = f"{status}{done}" + (f": {problems[0]}" if problems else "")
        over = status in OVER
        return BatchState(over, sentence, files if over else (), failed=over and not files)

    async def download(self, name: str, to: Path) -> None:
        """Write a file of results."""
        await self._http.save(f"{self._base}/files/{name}/content", to)

    def result(self, line: bytes) -> BatchResult | None:
        """Read a line of results."""
        said: Any = json.loads(line)
        key, response, error = said.get("custom_id"), said.get("response"), said.get("error")
        if not isinstance(key, str):
            return None
        if isinstance(response, dict) and isinstance(response.get("status_code"), int):
            return BatchResult(key, response["status_code"], json.dumps(response.get("body")).encode())
        told = f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else "no reply"
        return BatchResult(key, 0, told.encode())

    def how_to_cancel(self, job: str) -> str:
        """Return a command that cancels a job."""
        return f'curl -X POST {self._base}/batches/{job}/cancel -H "Authorization: Bearer $OPENAI_API_KEY"'

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _endpoint(path: str) -> str:
    """Return which interface a request is for, as a file names it: without what stands before the version."""
    return "/v1" + path[path.rfind("/v1") + 3 :] if "/v1" in path else path
