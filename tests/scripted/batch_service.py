"""The batch interfaces of OpenAI and Gemini as their services keep them: files are uploaded, jobs created, polled and read back.

Every line of a file is given to the server's script as if it had come as a request; what the script answers is the line's result.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import gemini_wire, openai_wire
from .replies import Answer, Fault, Garbage, Reply
from .request import Headers, Request, Wire

LARGEST, MOST = 200 * 10**6, 50_000


@dataclass
class Job:
    """A file that is being worked on."""

    name: str
    file: str
    model: str
    mark: str
    polls: int = 0
    """How often it was asked after."""
    created: int = field(default_factory=lambda: int(time.time()))
    cancelled: bool = False
    results: list[str] = field(default_factory=list)
    """Names of the files with its results, once it is over."""


class BatchService:
    """Keeps files and jobs; a job is over at its `polls_needed`-th poll."""

    def __init__(self, answer: Callable[[Request], Reply], polls_needed: int = 1) -> None:
        self._answer = answer
        self.signatures: dict[str, set[str]] = {}
        self.polls_needed = polls_needed
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, Job] = {}
        self.expired: set[int] = set()
        """Places of lines that no reply comes to in time."""
        self.refuse: list[Fault] = []
        """What the next requests to create a job are answered with."""
        self.lose_next_creation = False
        """The next job is created and nobody hears of it."""
        self.query: dict[str, str] = {}
        """The query of the request that is being served."""
        self.endless = False
        """Every page of the list of jobs is followed by the same one."""
        self.asked = 0
        """Lines that were answered."""

    def handles(self, path: str) -> bool:
        """True where a path belongs to the batch interfaces."""
        return bool(re.match(r"/v1/(files|batches)|/(upload|download)/|/v1beta/batches", path)) or path.endswith(
            ":batchGenerateContent"
        )

    def serve(self, method: str, path: str, headers: Headers, raw: bytes, url: str) -> Reply | None:
        """Answer a request; None where the connection is to be dropped."""
        if not (headers.get("x-goog-api-key") or headers.get("authorization")):
            return _json({"error": {"message": "no key"}}, 401)
        return (
            self._openai(method, path, headers, raw)
            if path.startswith("/v1/")
            else self._gemini(method, path, raw, url)
        )

    def _openai(self, method: str, path: str, headers: Headers, raw: bytes) -> Reply | None:
        if (method, path) == ("POST", "/v1/files"):
            boundary = headers["content-type"].partition("boundary=")[2].encode()
            parts = raw.split(b"--" + boundary)
            assert any(b'name="purpose"' in part and b"batch" in part for part in parts)
            content = next(part for part in parts if b'name="file"' in part).partition(b"\r\n\r\n")[2][:-2]
            return _json({"id": self._keep(content), "object": "file", "purpose": "batch"})
        if (method, path) == ("POST", "/v1/batches"):
            if self.refuse:
                status, _, body = openai_wire.write_fault(self.refuse.pop(0), _request({}, openai_wire, "", 0))
                return _json(body, status)
            said = json.loads(raw)
            assert said["completion_window"] == "24h"
            lines = [json.loads(line) for line in self.files[said["input_file_id"]].splitlines()]
            assert all(line["url"] == said["endpoint"] and line["method"] == "POST" for line in lines)
            job = self._create(
                said["input_file_id"], lines[0]["body"]["model"], said["metadata"]["editloupe"], "batch_"
            )
            return None if job is None else _json(self._shown(job))
        if (method, path) == ("GET", "/v1/batches"):
            jobs, more = self._page(self.query.get("after"), int(self.query.get("limit", 20)))
            return _json({"data": [self._shown(job) for job in jobs], "has_more": more})
        if path.endswith("/content"):
            return Garbage(self.files[path.split("/")[3]], content_type="application/octet-stream")
        job = self.jobs[path.split("/")[3]]
        if path.endswith("/cancel"):
            job.cancelled = True
            return _json(self._shown(job))
        self._polled(job, self._openai_results)
        return _json(self._shown(job))

    def _shown(self, job: Job) -> dict[str, Any]:
        over = bool(job.results) or job.polls >= self.polls_needed
        facts: dict[str, Any] = {
            "id": job.name,
            "object": "batch",
            "status": "completed" if over else "in_progress",
            "created_at": job.created,
            "metadata": {"editloupe": job.mark},
            "request_counts": {"total": self.files[job.file].count(b"\n"), "completed": 0, "failed": 0},
        }
        names = ("output_file_id", "error_file_id")
        return facts | {name: file for name, file in zip(names, job.results, strict=False) if file}

    def _openai_results(self, job: Job) -> list[bytes]:
        good, bad = [], []
        for place, line in enumerate(self._lines(job)):
            if place in self.expired:
                error = {
                    "code": "batch_expired",
                    "message": "This request could not be executed before the completion window expired.",
                }
                bad.append({"id": f"r{place}", "custom_id": line["custom_id"], "response": None, "error": error})
                continue
            status, body = self._reply(line["body"], openai_wire, job.model)
            response = {"status_code": status, "request_id": f"req_{place}", "body": body}
            (good if status == 200 else bad).append(
                {"id": f"r{place}", "custom_id": line["custom_id"], "response": response, "error": None}
            )
        return [_lines(good), _lines(bad)]

    def _gemini(self, method: str, path: str, raw: bytes, url: str) -> Reply | None:
        if path == "/upload/v1beta/files":
            return Garbage(b"{}", headers={"x-goog-upload-url": f"{url}/upload/v1beta/files/put"})
        if path == "/upload/v1beta/files/put":
            name = self._keep(raw)
            return _json({"file": {"name": f"files/{name}", "state": "ACTIVE"}})
        if path.endswith(":batchGenerateContent"):
            said = json.loads(raw)["batch"]
            file = said["input_config"]["file_name"].removeprefix("files/")
            model = path.split("/")[3].partition(":")[0]
            job = self._create(file, model, said["display_name"], "batches/")
            return None if job is None else _json(self._operation(job))
        if path.startswith("/download/"):
            return Garbage(self.files[path.split("/")[4].partition(":")[0]], content_type="application/jsonl")
        if path == "/v1beta/batches":
            jobs, more = self._page(self.query.get("pageToken"), int(self.query.get("pageSize", 50)))
            token = {"nextPageToken": jobs[-1].name} if more else {}
            return _json({"operations": [self._operation(job) for job in jobs], **token})
        job = self.jobs[path.removeprefix("/v1beta/").partition(":")[0]]
        if path.endswith(":cancel"):
            job.cancelled = True
            return _json({})
        self._polled(job, self._gemini_results)
        return _json(self._operation(job))

    def _operation(self, job: Job) -> dict[str, Any]:
        over = bool(job.results)
        state = "BATCH_STATE_SUCCEEDED" if over else "BATCH_STATE_RUNNING"
        created = datetime.fromtimestamp(job.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.123456789Z")
        facts = {"state": state, "displayName": job.mark, "batchStats": {"requestCount": "1"}, "createTime": created}
        shown: dict[str, Any] = {"name": job.name, "metadata": facts, "done": over}
        return shown | ({"response": {"responsesFile": f"files/{job.results[0]}"}} if over else {})

    def _gemini_results(self, job: Job) -> list[bytes]:
        lines: list[dict[str, Any]] = []
        for place, line in enumerate(self._lines(job)):
            if place in self.expired:
                lines.append({"key": line["key"], "error": {"code": 4, "message": "The batch expired."}})
                continue
            status, body = self._reply(line["request"], gemini_wire, job.model)
            good = status == 200
            lines.append({"key": line["key"], **({"response": body} if good else {"error": body["error"]})})
        return [_lines(lines)]

    def _keep(self, content: bytes) -> str:
        assert len(content) <= LARGEST
        assert content.count(b"\n") <= MOST
        name = f"file{len(self.files)}"
        self.files[name] = content
        return name

    def _create(self, file: str, model: str, mark: str, prefix: str) -> Job | None:
        job = Job(f"{prefix}{len(self.jobs)}", file, model, mark)
        self.jobs[job.name] = job
        if self.lose_next_creation:
            self.lose_next_creation = False
            return None
        return job

    def _page(self, after: str | None, limit: int) -> tuple[list[Job], bool]:
        """Return a page of jobs, latest first, and whether more follow."""
        jobs = list(reversed(self.jobs.values()))
        if self.endless:
            return jobs[:limit], True
        start = next((index + 1 for index, job in enumerate(jobs) if job.name == after), 0)
        return jobs[start : start + limit], start + limit < len(jobs)

    def add_jobs(self, count: int) -> None:
        """Add jobs of other programs in the same account, which are over."""
        for _ in range(count):
            gemini = any(name.startswith("batches/") for name in self.jobs)
            job = Job(f"{'batches/' if gemini else 'batch_'}{len(self.jobs)}", self._keep(b""), "", "another")
            self.jobs[job.name] = job

    def _polled(self, job: Job, results: Callable[[Job], list[bytes]]) -> None:
        job.polls += 1
        if job.polls >= self.polls_needed and not job.results:
            job.results = [self._keep(content) if content else "" for content in results(job)]

    def _lines(self, job: Job) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.files[job.file].splitlines()]
        names = [line.get("custom_id") or line.get("key") for line in lines]
        assert len(set(names)) == len(names), "the names of requests are told apart"
        return lines

    def _reply(self, body: dict[str, Any], wire: Wire, model: str) -> tuple[int, dict[str, Any]]:
        request = _request(body, wire, model, self.asked)
        self.asked += 1
        memory: Any = self
        refused = wire.check(request, memory)
        reply = refused or self._answer(request)
        written = wire.write(reply, request, memory) if isinstance(reply, Answer) else reply
        if isinstance(written, Fault):
            status, _, said = wire.write_fault(written, request)
            return status, said
        assert isinstance(written, dict)
        return 200, written


def _request(body: dict[str, Any], wire: Wire, model: str, index: int) -> Request:
    return Request(index, wire.NAME, model, "", False, 1, Headers({}), body, wire)


def _json(body: dict[str, Any], status: int = 200) -> Garbage:
    return Garbage(json.dumps(body).encode(), status)


def _lines(results: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(result).encode() + b"\n" for result in results)
