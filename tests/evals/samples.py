"""Small edits and judgements the tests of runs share."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.pictures.decode import Album
from editloupe.types import (
    Edit,
    Judgement,
    Observation,
    Reason,
    SentPicture,
    Step,
    ToolCall,
    Trace,
    Unjudged,
    Usage,
    Verdict,
)


def write_picture(path: Path, seed: int, size: tuple[int, int] = (48, 32)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_manifest(folder: Path, count: int, size: tuple[int, int] = (48, 32), shared_source: bool = False) -> Path:
    """Write `count` edits with pictures of their own and return the manifest."""
    lines = []
    for number in range(count):
        source = "img/source.png" if shared_source else f"img/s{number}.png"
        if not (folder / source).exists():
            write_picture(folder / source, 10_000 + number, size)
        write_picture(folder / f"img/e{number}.png", number, size)
        row = {"id": f"e{number}", "source": source, "edited": f"img/e{number}.png", "instruction": f"Do {number}"}
        lines.append(json.dumps(row))
    manifest = folder / "manifest.jsonl"
    manifest.write_text("\n".join(lines) + "\n", "utf-8")
    return manifest


def judgement(folder: Path, edit_id: str = "e0", thought: str = "I look.") -> tuple[Judgement, Album]:
    """A judgement with one verdict, one unjudged criterion, and a trace with a tool's picture."""
    album = Album()
    source = album.open(write_picture(folder / "src.png", 1))
    edited = album.open(write_picture(folder / "edt.png", 2))
    crop = album.add(np.zeros((8, 8, 3), np.uint8))
    words = "Paint the [bold]cup[/bold] red"
    edit = Edit(id=edit_id, source=folder / "src.png", edited=folder / "edt.png", instruction=words)
    sent = SentPicture(
        name="Source Image", sha=source.sha, original_size=(48, 32), size=(48, 32), format="png", bytes=9, scale=1.0
    )
    seen = Observation(
        call_id="c1", tool="zoom_in_image", text="The cup.", pictures=(crop.sha,), captions=("the cup, enlarged",)
    )
    call = ToolCall(id="c1", name="zoom_in_image", parameters={"bbox_2d": [1, 2, 3, 4]})
    usage = Usage(requests=1, input_tokens=100, output_tokens=10)
    steps = (
        Step(index=1, thought=thought, calls=(call,), observations=(seen,), sent=(sent,), usage=usage, seconds=0.25),
        Step(index=2, answer="Wrong Action", usage=usage, seconds=0.5),
    )
    facts = {"edit_id": edit_id, "protocol": "dlebench", "mode": "tools", "judge": "openai:gpt-5.1"}
    trace = Trace(criterion="instruction_following", prompt=("system", f"task of {edit_id}"), steps=steps, **facts)  # type: ignore[arg-type]
    verdict = Verdict(
        criterion="instruction_following",
        label="Wrong Action",
        score=2,
        score_100=100 / 3,
        usage=usage + usage,
        steps=2,
        rationale="It is green.",
    )
    unjudged = Unjudged(criterion="visual_consistency", reason=Reason.UNREADABLE, detail="No label.", raw="hm\x1b[2J")
    assert edited.sha != source.sha
    outcomes = (verdict, unjudged)
    whole = Judgement(
        edit=edit, protocol="dlebench", mode="tools", judge="openai:gpt-5.1", verdicts=outcomes, traces=(trace,)
    )
    return whole, album
