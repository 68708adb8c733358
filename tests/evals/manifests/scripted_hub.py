"""A hub on loopback that serves a folder as a data set, in the protocol of the real client."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

REVISION = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serve_hub(folder: Path, name: str = "lab/edits") -> Iterator[tuple[str, list[str]]]:
    """Serve a folder as a data set; yield the address, and the list of the files that are downloaded."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    downloaded: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = unquote(self.path.partition("?")[0])
            if path in (f"/api/datasets/{name}", f"/api/datasets/{name}/revision/{REVISION}"):
                listed = [{"rfilename": file} for file in files]
                facts = {"id": name, "sha": REVISION, "siblings": listed, "tags": [], "private": False}
                self._send(200, json.dumps(facts).encode(), with_body, "application/json")
            elif path == f"/api/datasets/{name}/tree/{REVISION}":
                tree = [
                    {"type": "file", "oid": "0", "size": place.stat().st_size, "path": file}
                    for file, place in files.items()
                ]
                self._send(200, json.dumps(tree).encode(), with_body, "application/json")
            elif path.startswith(start := f"/datasets/{name}/resolve/{REVISION}/"):
                file = path.removeprefix(start)
                if with_body:
                    downloaded.append(file)
                self._send(200, (folder / file).read_bytes(), with_body, "application/octet-stream")
            else:
                self._send(404, b"{}", with_body, "application/json", {"X-Error-Code": "RepoNotFound"})

        def _send(
            self, status: int, body: bytes, with_body: bool, kind: str, headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            etag = hashlib.sha1(body).hexdigest()
            usual = {"Content-Type": kind, "Content-Length": str(len(body)), "ETag": f'"{etag}"'}
            for key, value in {**usual, "X-Repo-Commit": REVISION, **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", downloaded
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
