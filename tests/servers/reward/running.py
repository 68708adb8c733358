"""A reward server in a thread of the test's own process, and what trainers send to it."""

from __future__ import annotations

import base64
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from PIL import Image

from editloupe import Judge
from editloupe.servers.http.server import listen
from editloupe.servers.reward import EditScorer, RewardServerSettings, create_app
from editloupe.servers.reward.app import KEEP_ALIVE
from editloupe.servers.reward.scoring import JudgementRun
from tests.drawn_pictures import textured
from tests.scripted import Request, ScriptedServer, final

INSTRUCTION = "Change the color of the patch to red"


@dataclass(frozen=True)
class Running:
    """A server that runs."""

    url: str
    scorer: EditScorer
    client: httpx.Client

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """Send JSON, or bytes as they are."""
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self.client.post(path, **sent, **options)

    def metric(self, name: str, **labels: str) -> float:
        """Return a counter as `/metrics` tells it."""
        told = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        head = f"editloupe_{name}{{{told}}} " if told else f"editloupe_{name} "
        lines = self.client.get("/metrics").text.splitlines()
        return next((float(line.removeprefix(head)) for line in lines if line.startswith(head)), 0.0)


@contextmanager
def running(judge: Judge, headers: dict[str, str] | None = None, **settings: Any) -> Iterator[Running]:
    """Serve until the block ends."""
    with judge, listen("127.0.0.1", 0, "the test") as listener:
        chosen = RewardServerSettings(port=listener.getsockname()[1], **settings)
        run = JudgementRun(chosen.out, judge) if chosen.out else None
        scorer = EditScorer(judge, chosen, run)
        config = uvicorn.Config(
            create_app(scorer),
            log_level="error",
            access_log=False,
            ws="none",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{chosen.port}"
        try:
            with httpx.Client(base_url=url, timeout=60, headers=headers, trust_env=False) as client:
                yield Running(url, scorer, client)
        finally:
            server.should_exit = True
            thread.join(20)
            if run is not None:
                run.close()


def free_port() -> int:
    """Return a port nobody listens on at the moment."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def png(seed: int = 0, size: tuple[int, int] = (48, 40)) -> bytes:
    """Return a small picture, another one for every seed."""
    file = io.BytesIO()
    Image.fromarray(textured(*size, seed)).save(file, "PNG")
    return file.getvalue()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def own(seed: int = 1, **more: Any) -> dict[str, Any]:
    """Return an edit of our own dialect."""
    return {"source": b64(png(0)), "edited": b64(png(seed)), "instruction": INSTRUCTION, **more}


def labelled(request: Request) -> Any:
    """Answer every question: the instruction was followed, the rest was not kept."""
    return final("Scene Collapse" if "Perfect Consistency" in request.system else "Flawless Execution")


def asking(server: ScriptedServer, **options: Any) -> Judge:
    """Open a judge that asks a scripted server."""
    return Judge("openai:gpt-4.1", base_url=server.openai_url, mode="plain", **options)
