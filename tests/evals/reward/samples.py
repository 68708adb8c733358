"""Pairs of bright and dark pictures, and a scripted judge that goes by brightness."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from editloupe import Judge
from tests.drawn_pictures import save, textured
from tests.scripted import Request, ScriptedServer, say

FOUR = (("IA", "preference"), ("VC", "preference"), ("VQ", "preference"), ("IA", "tie"))


def picture(path: Path, seed: int, level: int) -> Path:
    """Write a picture of this brightness."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save((textured(40, 30, seed) // 8 + level).clip(0, 255).astype("uint8"), path)
    return path


def write_pairs(folder: Path, wanted: Sequence[tuple[str, str]] = FOUR, **fields: Any) -> Path:
    """Write pairs whose winners are bright and whose losers are dark, those of ties bright as well."""
    lines = []
    for number, (dimension, label) in enumerate(wanted):
        picture(folder / f"winner{number}.png", number, 220)
        picture(folder / f"loser{number}.png", number + 20, 40 if label == "preference" else 220)
        save(textured(40, 30, 50), folder / f"source{number}.png")
        lines.append(
            {
                "source_image": f"source{number}.png",
                "prompt": "Make it brighter",
                "winner": f"winner{number}.png",
                "loser": f"loser{number}.png",
                "dimension": dimension,
                "label": label,
                "task": "ADD",
                **fields,
            }
        )
    path = folder / "pairs.json"
    path.write_text(json.dumps(lines), "utf-8")
    return path


def brightness(request: Request, name: str) -> float:
    """Return the mean level of the picture announced under a name."""
    texts = [t for one in request.messages for t in one.text.splitlines() if t.endswith("pixels):")]
    place = next(i for i, text in enumerate(texts) if text.startswith(name))
    return float(np.asarray(Image.open(io.BytesIO(request.images[place].data))).mean())


def fair(request: Request) -> Any:
    """Answer by brightness, the same in every order."""
    if "List of differences" in request.system:
        return say('{"differences": "it is brighter"}')
    if "Candidate A" in request.text:
        a, b = brightness(request, "Candidate A"), brightness(request, "Candidate B")
        better = "tie" if abs(a - b) < 10 else "A" if a > b else "B"
        return say(json.dumps({"reason": "brighter", "better": better}))
    return say(json.dumps({"reason": "level", "score": 5 if brightness(request, "Edited Image") > 120 else 2}))


def open_judge(server: ScriptedServer, **options: Any) -> Judge:
    options = {"protocol": "editreward-compass", **options}
    return Judge("openai:gpt-4.1", base_url=server.openai_url, **options)


def asked(server: ScriptedServer) -> list[str]:
    """The options that name this server as the judge."""
    return ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url]
