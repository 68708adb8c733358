"""How much work one edit of a batch is: steps of the graphs, requests, decoded pictures. Seconds are the machine's affair."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from editloupe.pictures import decode as decoding
from editloupe.pictures.decode import Picture
from tests.conftest import StartServer
from tests.evals.batch.test_batch import LABELS, batch, criterion_of, run
from tests.scripted import Answer, Request, call, final

EDITS = 3
PAIR = {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}


class Steps(BaseCallbackHandler):
    """Counts the nodes of the graphs that are run."""

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()

    def on_chain_start(self, serialized: Any, inputs: Any, **facts: Any) -> None:
        node = (facts.get("metadata") or {}).get("langgraph_node")
        if node and facts.get("name") == node:
            self.nodes[node] += 1


_STEPS: ContextVar[Steps | None] = ContextVar("steps", default=None)
register_configure_hook(_STEPS, inheritable=True)


@pytest.fixture
def steps() -> Iterator[Steps]:
    token = _STEPS.set(Steps())
    yield _STEPS.get() or Steps()
    _STEPS.reset(token)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the pictures that this process decodes whole, and those it only reads through."""
    counted: Counter[str] = Counter()
    decode = decoding.decode

    def watched(data: bytes, name: str, lazily: bool = False) -> Picture:
        picture = decode(data, name, lazily)
        counted["whole" if picture.decoded else "read through"] += 1
        return picture

    monkeypatch.setattr(decoding, "decode", watched)
    return counted


def photographs(folder: Path) -> Path:
    """Write a few edits of photograph-like JPEGs."""
    rng = np.random.default_rng(3)
    lines = []
    for number in range(EDITS):
        coarse = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        source = cv2.resize(coarse, (320, 240), interpolation=cv2.INTER_CUBIC)
        edited = source.copy()
        cv2.circle(edited, (160, 120), 20, (40, 40, 220), -1)
        files = {"source": f"s{number}.jpg", "edited": f"e{number}.jpg"}
        for name, pixels in zip(files.values(), (source, edited), strict=True):
            cv2.imwrite(str(folder / name), pixels)
        lines.append(json.dumps({"id": f"e{number}", **files, "instruction": f"Paint ball {number} red"}))
    manifest = folder / "manifest.jsonl"
    manifest.write_text("\n".join(lines))
    return manifest


def looks_once(request: Request) -> Answer:
    looked = any(message["role"] == "assistant" for message in request.body["messages"])
    return final(LABELS[criterion_of(request)]) if looked else call("localize_differences", **PAIR)


@pytest.mark.long
def test_an_edit_that_is_compared_takes_four_requests_twelve_steps_and_no_whole_picture_here(
    tmp_path: Path, scripted: StartServer, steps: Steps, decodes: Counter[str]
) -> None:
    server = scripted(looks_once)
    ended = run(batch(server, photographs(tmp_path), tmp_path / "run", judge={"mode": "tools"}))

    assert ended.tally.judged == 2 * EDITS
    assert server.served == 4 * EDITS
    an_edit = {"prepare": 1, "judge_by_loop": 2, "decide": 1, "think": 4, "act": 2, "observe": 2}
    assert steps.nodes == {node: count * EDITS for node, count in an_edit.items()}
    assert decodes == {"read through": 2 * EDITS}


@pytest.mark.long
def test_an_edit_that_is_only_shown_takes_two_requests_and_six_steps(
    tmp_path: Path, scripted: StartServer, steps: Steps, decodes: Counter[str]
) -> None:
    server = scripted(lambda request: final(LABELS[criterion_of(request)]))
    ended = run(batch(server, photographs(tmp_path), tmp_path / "run"))

    assert ended.tally.judged == 2 * EDITS
    assert server.served == 2 * EDITS
    assert steps.nodes == {
        node: count * EDITS for node, count in {"prepare": 1, "judge_by_loop": 2, "decide": 1, "think": 2}.items()
    }
    assert decodes == {"read through": 2 * EDITS}
