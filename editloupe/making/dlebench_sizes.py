"""Measure the target sizes of other benchmarks (DLEBench, Appendix 11, Table 6).

A model names the target of each instruction, and a detector finds it. The published benchmarks in the comparison have
no boxes. Manifests with boxes are counted directly.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from editloupe._util.files import atomic_text_file, make_folder, safe_file_name
from editloupe._util.text import for_json, quote_lines
from editloupe.agent.asker import Asker
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies, Tick, ignore_tally, work_through
from editloupe.evals.manifests.columns import Naming
from editloupe.evals.manifests.datasets import build_edit
from editloupe.evals.manifests.readers import Row, find_reader
from editloupe.evals.manifests.stats import ManifestStats, manifest_stats
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.dlebench_metadata import load_prompts
from editloupe.making.folder import StageFile
from editloupe.making.records import Boxes, LeftOutSample, SampleRecord, content_key
from editloupe.making.reviews import DETECTOR, Detector
from editloupe.pictures.decode import declared_size, hash_file, open_picture
from editloupe.types import Box, Edit, Usage, UserError

TARGETS, FOUND = "targets.jsonl", "found.jsonl"
WHOLE = "image"
"""The model's answer for an instruction about the whole picture."""
LONGEST_NAME = 12
"""Words; a longer answer does not name an object."""
TOKENS_A_REPLY = 12
_RESULT = re.compile(r"^\W*\[result\]\W*:?\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)


class Target(SampleRecord):
    """The target of an instruction, in `targets.jsonl`. Its id is the instruction's hash, so that each instruction is
    asked once.
    """

    key: str
    instruction: str
    target: str
    by: str
    at: str
    usage: Usage = Usage()


@dataclass(frozen=True)
class _Asked:
    """An instruction to ask about, or an object to find in a picture."""

    id: str
    text: str
    source: Path | None = None


def read_target(text: str) -> str:
    """Return the object that a reply names.

    Raises:
        ValueError: If the reply names none, with a sentence for the model.

    >>> read_target("[Result]: the red car.")
    'red car'
    """
    results = _RESULT.findall(text)
    if len(results) != 1:
        raise ValueError(
            "The reply has no line that begins with [Result]:" if not results else "The reply has several results."
        )
    name = re.sub(r"^(?:a|an|the)\s+", "", str(results[0]).strip(" .\"'`*<>"), flags=re.IGNORECASE)
    if not name or len(name.split()) > LONGEST_NAME:
        raise ValueError("The result must be a noun or a short phrase.")
    return name


@dataclass
class SizeFinder:
    """Name and find targets. Answers and boxes are stored in `out` and reused by the next session."""

    out: Path
    asker: Asker | None = None
    detector: Detector | None = None
    kept: TemporaryReplies | None = None
    concurrency: int = 8
    limit: int | None = None
    tick: Tick = ignore_tally
    tallies: list[ItemTally] = field(default_factory=list)
    named_before: int = 0
    """Instructions whose target was named in an earlier session."""

    def __post_init__(self) -> None:
        make_folder(self.out)
        self.targets: StageFile[Target | LeftOutSample] = StageFile(
            self.out / TARGETS, TypeAdapter(Target | LeftOutSample)
        )
        self.box_file: StageFile[Boxes | LeftOutSample] = StageFile(
            self.out / FOUND, TypeAdapter(Boxes | LeftOutSample)
        )

    def instructions(self, manifests: dict[Path, Naming | None]) -> list[str]:
        """Return the distinct instructions without a known target."""
        wanted: dict[str, str] = {}
        named = set()
        for path, naming in manifests.items():
            for edit in self._edits(path, naming):
                name = content_key(edit.instruction)
                if edit.target_boxes:
                    continue
                if self.targets.get(name) is None:
                    wanted[name] = edit.instruction
                else:
                    named.add(name)
        self.named_before = len(named)
        return list(wanted.values())

    async def run(self, manifests: dict[Path, Naming | None], names: dict[Path, str]) -> list[ManifestStats]:
        """Name and find the targets, write each manifest with its boxes, and return the statistics of the manifests."""
        async with AsyncExitStack() as stack:
            if self.asker is not None:
                await stack.enter_async_context(aclosing(self.asker.chat))
            await self._name(self.instructions(manifests))
        await self._find(manifests)
        return [self._written(path, naming, names[path]) for path, naming in manifests.items()]

    async def _name(self, instructions: list[str]) -> None:
        tally = ItemTally("targets", total=len(instructions) + self.named_before, held=self.named_before)
        self.tallies.append(tally)
        asker = self.asker
        if asker is None:
            tally.waiting = len(instructions)
            return
        texts = load_prompts()["targets"]

        async def ask(item: _Asked) -> None:
            answered = await asker.ask(
                system=texts["system"],
                task=str(texts["task"]).format(instruction=quote_lines(item.text)),
                read=read_target,
                repair=lambda problem: str(texts["repair"]).format(problem=problem),
            )
            self.targets.add(
                Target(
                    id=item.id,
                    key=item.id,
                    instruction=item.text,
                    target=answered.value,
                    by=asker.name,
                    at=timestamp(),
                    usage=answered.usage,
                )
            )

        def give_up(item: _Asked, why: str) -> None:
            self.targets.add(LeftOutSample(id=item.id, key=item.id, left_out=why, by=asker.name, at=timestamp()))

        items = [_Asked(content_key(text), text) for text in instructions]
        await _await_work(work_through(items, ask, tally, self.concurrency, self.tick, self.kept, give_up))

    async def _find(self, manifests: dict[Path, Naming | None]) -> None:
        wanted: dict[str, _Asked] = {}
        for path, naming in manifests.items():
            for edit in self._edits(path, naming):
                target = self.targets.get(content_key(edit.instruction))
                if edit.target_boxes or not isinstance(target, Target) or target.target == WHOLE:
                    continue
                if self.box_file.get(name := self._place(edit, target.target)) is None:
                    wanted[name] = _Asked(name, target.target, Path(str(edit.source)))
        tally = ItemTally("boxes", total=len(wanted))
        self.tallies.append(tally)
        detector = self.detector
        if detector is None:
            tally.waiting = len(wanted)
            return

        async def find(item: _Asked) -> None:
            assert item.source is not None
            picture = await asyncio.to_thread(open_picture, item.source)
            hits = await asyncio.to_thread(detector.detect, picture.pixels, item.text)
            boxes, scores = tuple(hit.box for hit in hits[:1]), tuple(round(hit.score, 4) for hit in hits[:1])
            self.box_file.add(
                Boxes(id=item.id, key=item.id, boxes=boxes, confirmed=False, scores=scores, by=DETECTOR, at=timestamp())
            )

        def give_up(item: _Asked, why: str) -> None:
            self.box_file.add(LeftOutSample(id=item.id, key=item.id, left_out=why, by=DETECTOR, at=timestamp()))

        await _await_work(work_through(wanted.values(), find, tally, 1, self.tick, give_up=give_up))

    def _written(self, path: Path, naming: Naming | None, name: str) -> ManifestStats:
        """Write a manifest with its boxes, and return its statistics."""
        file = self.out / f"{safe_file_name(name)}.jsonl"
        with atomic_text_file(file) as out:
            for edit in self._edits(path, naming):
                target = self.targets.get(content_key(edit.instruction))
                boxes = edit.target_boxes or self._boxes(edit, target.target if isinstance(target, Target) else None)
                row = {
                    "id": edit.id,
                    "source": os.path.relpath(str(edit.source), str(self.out.resolve())),
                    "instruction": edit.instruction,
                    "instruction_type": edit.instruction_type,
                    "target_boxes": [list(box) for box in boxes],
                    "target_object": target.target if isinstance(target, Target) else None,
                }
                out.write(for_json({key: value for key, value in row.items() if value is not None}) + "\n")
        return manifest_stats(file, None, True, name)

    def _boxes(self, edit: Edit, target: str | None) -> tuple[Box, ...]:
        if target is None:
            return ()
        if target == WHOLE:
            width, height = declared_size(Path(str(edit.source)))
            return (Box(x1=0, y1=0, x2=width, y2=height),)
        record = self.box_file.get(self._place(edit, target))
        return record.boxes if isinstance(record, Boxes) else ()

    def _place(self, edit: Edit, target: str) -> str:
        try:
            return content_key(hash_file(Path(str(edit.source))), target)
        except UserError:
            return content_key(str(edit.source), target)

    def _edits(self, path: Path, naming: Naming | None) -> Iterator[Edit]:
        """Yield the samples of a manifest, one per source and instruction, regardless of the number of models."""
        folder = (path if path.is_dir() else path.parent).resolve()
        seen: set[str] = set()
        for row in find_reader(path)(path):
            values = dict(naming(row.values) if naming else row.values)
            values.setdefault("edited", values.get("source"))
            edit = build_edit(Row(row.where, values), folder, True)
            assert isinstance(edit.source, Path), "a manifest names files"
            facts = content_key(str(edit.source), edit.instruction)
            if facts in seen:
                continue
            seen.add(facts)
            if self.limit is not None and len(seen) > self.limit:
                return
            yield edit


async def _await_work(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
