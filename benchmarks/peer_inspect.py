"""Do the same work with inspect_ai (same pictures, replies and crops) and print its judging time.

Run by `batch.py --peer PYTHON`; needs inspect_ai, openai and Pillow for that interpreter, nothing of EditLoupe.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ContentImage, ContentText
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool
from PIL import Image

CRITERIA = {
    "visual_consistency": (
        "Scene Collapse, Multiple Anomalies, Single Anomaly or Perfect Consistency",
        "Single Anomaly",
    ),
    "instruction_following": ("Localization Failure … Flawless Execution", "Flawless Execution"),
}
FOLDER = Path()
LONG_SIDE = 512


def crop(box: tuple[int, ...]) -> list[ContentImage]:
    """Return a crop at the size and in the format EditLoupe shows it."""
    cut = Image.open(FOLDER / "e0.jpg").crop(box)
    factor = LONG_SIDE / max(cut.size)
    data = io.BytesIO()
    cut.resize((round(cut.width * factor), round(cut.height * factor)), Image.Resampling.BICUBIC).save(
        data, "JPEG", quality=95, subsampling=0
    )
    return [ContentImage(image=f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}")]


@tool
def zoom_in_image() -> Tool:
    async def execute(bbox_2d: list[int], target_image: str) -> list[ContentImage]:
        """Zoom in.

        Args:
            bbox_2d: The box.
            target_image: The picture.
        """
        return await asyncio.to_thread(crop, tuple(bbox_2d))

    return execute


@tool
def localize_differences() -> Tool:
    async def execute(comparison_image_1: str, comparison_image_2: str) -> list[ContentImage]:
        """Find differences.

        Args:
            comparison_image_1: One picture.
            comparison_image_2: The other.
        """
        return await asyncio.to_thread(crop, (100, 100, 300, 300))

    return execute


def main() -> None:
    global FOLDER
    manifest, url, concurrency = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    FOLDER = manifest.parent
    os.environ["OPENAI_BASE_URL"] = url
    samples = []
    for line in manifest.read_text().splitlines():
        edit = json.loads(line)
        for criterion, (labels, target) in CRITERIA.items():
            blocks = [
                ContentText(text="Source Image:"),
                ContentImage(image=str(FOLDER / edit["source"])),
                ContentText(text="Edited Image:"),
                ContentImage(image=str(FOLDER / edit["edited"])),
                ContentText(text=edit["instruction"]),
            ]
            system = ChatMessageSystem(content=f"You judge edits. Answer with one of: {labels}. " * 40)
            samples.append(
                Sample(id=f"{edit['id']}-{criterion}", input=[system, ChatMessageUser(content=blocks)], target=target)
            )
    solver = [use_tools(zoom_in_image(), localize_differences()), generate()]
    task = Task(dataset=MemoryDataset(samples), solver=solver, scorer=includes())
    with tempfile.TemporaryDirectory() as logs:
        started = time.perf_counter()
        (log,) = eval(
            task,
            model="openai/bench",
            model_args={"responses_api": False},
            max_connections=concurrency,
            max_samples=2 * concurrency,
            log_dir=logs,
            display="none",
        )
        seconds = time.perf_counter() - started
    if log.status != "success" or log.results is None or log.results.completed_samples != len(samples):
        raise SystemExit(f"inspect_ai did not finish: {log.status} {log.error}")
    print(json.dumps({"judging": seconds}))


if __name__ == "__main__":
    main()
