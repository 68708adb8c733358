"""Load edits with known truth for fitting and checking the embedded judge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from editloupe.agent.rules import instruction_following, regions
from editloupe.agent.rules.instruction_following import TextReading, read_edited
from editloupe.agent.rules.instructions import ChangeRequest, parse_instruction
from editloupe.pictures.decode import Album
from editloupe.rubrics.case import EDITED, REFERENCE, SOURCE, Case
from editloupe.rubrics.registry import get_protocol
from editloupe.tools.compare.difference import compare
from editloupe.types import Edit

IF_LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
VC_LABELS = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")


@dataclass(frozen=True)
class Known:
    """An edit with its true labels."""

    edit: Edit
    scene: str
    """Edits of one scene share the source and the instruction: they are resampled together."""
    following: int
    consistency: int
    noise: str
    part: str
    own_boxes: tuple[tuple[int, ...], ...]
    """Regions that really changed because of the target."""


def folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders with a manifest: the given ones and their subfolders."""
    return [
        f.parent for folder in paths for f in sorted([*folder.glob("manifest.jsonl"), *folder.glob("*/manifest.jsonl")])
    ]


def load(paths: Sequence[Path]) -> Iterator[Known]:
    """Read manifests whose edits carry `truth`, `scene` and `changed_boxes`."""
    for number, folder in enumerate(folders(paths)):
        for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            names = ("source", "edited", "reference")
            common = {key: row[key] for key in ("id", "instruction", "instruction_type", "target_boxes")}
            edit = Edit(**common, **{name: folder / row[name] for name in names})
            pairs = zip(row["changed_boxes"], row["changed_kinds"], strict=True)
            yield Known(
                edit=edit,
                scene=f"{number}/{row['scene']}",
                following=IF_LABELS.index(row["truth"]["instruction_following"]),
                consistency=VC_LABELS.index(row["truth"]["visual_consistency"]),
                noise=row["noise"]["kind"],
                part=folder.name,
                own_boxes=tuple(tuple(box) for box, kind in pairs if kind.startswith("target")),
            )


@dataclass
class Measured:
    """What the judge measures for one edit, in oracle mode and in whole pictures."""

    known: Known
    request: ChangeRequest
    crops: list[dict[str, float]] = field(default_factory=list)
    """One set of numbers for each target judged on its own."""
    regions: tuple[regions.MeasuredRegion, ...] = ()
    masked: dict[str, Any] = field(default_factory=dict)
    """Differences with the targets painted white."""
    own: tuple[tuple[int, ...], ...] = ()
    """Where, away from the white boxes, the reference differs from the source."""
    whole: dict[str, Any] = field(default_factory=dict)
    text: TextReading = field(default_factory=TextReading)


def measure(known: Known) -> Measured:
    """Measure one edit with the judge's own functions; raises where its instruction is not understood."""
    request = parse_instruction(known.edit.instruction, known.edit.instruction_type)
    if request is None:
        raise ValueError(f"edit {known.edit.id}: the instruction is not understood: {known.edit.instruction}")
    album, dlebench = Album(), get_protocol("dlebench")
    following, consistency = (dlebench.rubric(name) for name in ("instruction_following", "visual_consistency"))
    result = Measured(known, request)
    for case in dlebench.make_cases(known.edit, following, "oracle", album):
        text = read_edited(case, album, request) if request.kind == "text" else TextReading()
        result.crops.append(instruction_following.measure_crops(case, album, request, text))
    case = dlebench.make_cases(known.edit, consistency, "oracle", album)[0]
    result.masked = differences(case, album, EDITED)
    if request.kind == "count":
        result.own = tuple(tuple(region["box"]) for region in differences(case, album, REFERENCE)["regions"])
    case = dlebench.make_cases(known.edit, following, "tools", album)[0]
    result.whole = differences(case, album, EDITED)
    result.regions = instruction_following.measure_regions(case, album, request, result.whole)
    if request.kind == "text":
        result.text = read_edited(case, album, request)
    return result


def differences(case: Case, album: Album, other: str) -> dict[str, Any]:
    """Compare the source with another picture as the `localize_differences` tool does."""
    first, second = album[case.pictures[SOURCE]], album[case.pictures[other]]
    return asdict(compare(first.pixels, second.pixels)) | {"size": list(first.size)}
