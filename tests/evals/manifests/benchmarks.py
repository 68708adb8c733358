"""Benchmarks in the layouts their papers publish, with the outputs of several models: small, and made on the spot."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


def touch(*paths: Path) -> None:
    """Write a picture of one pixel at each of these places."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PIXEL)


WISEEDIT_SUBSETS = {
    "Awareness_1": "WiseEdit/Awareness",
    "Interpretation_1": "WiseEdit/Interpretation",
    "Imagination_2": "WiseEdit/Imagination",
    "WiseEdit_Complex_2": "WiseEdit-Complex",
}
NO_CASES: Mapping[str, int] = {}


def write_wiseedit(
    data: Path, chinese: bool = True, subsets: Mapping[str, str] = WISEEDIT_SUBSETS, cases: Mapping[str, int] = NO_CASES
) -> Path:
    """Write subsets of three cases each, 1 to 3, or as many as `cases` says, with a column of knowledge types."""
    for subset, task in subsets.items():
        folder = data / task / subset
        inputs = int(subset[-1])
        names = [f"{task}/{subset}/imgs/{n}.png" for n in range(inputs)]
        touch(*(data / name for name in names))
        with (folder / f"{subset}.csv").open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["idx", "prompt", "promptcn", *(f"input_{n + 1}" for n in range(inputs)), "knowledge_type"])
            kinds = ("declarative", "procedural", "metacognitive")[: cases.get(subset, 3)]
            for number, knowledge in enumerate(kinds, start=1):
                writer.writerow([number, f"Do {number}", f"做 {number}" if chinese else "", *names, knowledge])
    return data


def write_wiseedit_results(folder: Path, subsets: Iterable[str], languages: Iterable[str], left_out: Any = ()) -> Path:
    """Write a model's outputs of these subsets in these languages, but for the `(subset, language, number)` left out."""
    places = [(subset, language, number) for subset in subsets for language in languages for number in (1, 2, 3)]
    touch(*(folder / subset / language / f"{number}.png" for subset, language, number in places
            if (subset, language, number) not in left_out))  # fmt: skip
    return folder


def write_compass(data: Path) -> Path:
    """Write three tasks of two items each, with their booleans and a column of their own."""
    for place in ("Part1/ADD", "Part3/Chemical", "Part6/Complex_Instruction"):
        items = []
        for number in ("a", "b"):
            touch(data / place / f"image/{number}.png")
            items.append(
                {
                    "save_id": number,
                    "source_image": f"{place}/image/{number}.png",
                    "prompt_en": f"Do {number}",
                    "prompt_cn": f"做 {number}",
                    "difficulty": "hard" if number == "b" else "easy",
                    **{flag: flag != "IC" for flag in ("IF", "WA", "URC", "IC", "VQ")},
                }
            )
        (data / place / f"{Path(place).name}.json").write_text(json.dumps(items), "utf-8")
    return data


VIBE_TASKS = {"Addition": "Level-1-Deictic", "Removal": "Level-1-Deictic", "Billiards": "Level-3-Causal"}


def write_vibe(data: Path) -> Path:
    """Write three tasks of two samples each, with a column of their own."""
    for task, level in VIBE_TASKS.items():
        folder = data / "Tasks" / level / task
        samples = []
        for number in (1, 2):
            touch(folder / f"imgs/{number}.png", folder / f"target/{number}.png")
            paths = {"source": f"imgs/{number}.png", "target": f"target/{number}.png"}
            samples.append(
                {
                    "id": f"{task}_{number:04d}",
                    "file_paths": paths,
                    "text_prompt": {"input_prompt": f"Do {number}"},
                    "scene": "kitchen",
                }
            )
        (folder / f"{task}.json").write_text(json.dumps(samples), "utf-8")
    return data


def write_vibe_results(
    folder: Path, tasks: Iterable[str], levels: bool = True, numbers: Iterable[int] = (1, 2)
) -> Path:
    """Write a model's outputs of these tasks, in folders of levels or without them."""
    for task in tasks:
        place = folder / VIBE_TASKS[task] / task if levels else folder / task
        touch(*(place / "imgs" / f"{task}_{number:04d}.png" for number in numbers))
    return folder
