"""Run the stages that turn questions into benchmark samples.

Every stage makes what is missing and stores it at once. The rest waits for the next session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from editloupe.agent.asker import Asker
from editloupe.agent.transport.usage import CHARACTERS_PER_TOKEN
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies, Tick, ignore_tally, work_through
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.run_folder import RunLock
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.folder import Ledger, MakingFolder, Sample, boxes_key, question_key, reference_key
from editloupe.making.questions import read_questions
from editloupe.making.records import LeftOutSample, Metadata, PictureQuestion
from editloupe.making.references import ReferenceMaker, WaitingCrop, write_crop, write_todo
from editloupe.making.reviews import DETECTOR, Detector, find_given_boxes, is_outdated, propose_boxes
from editloupe.types import Usage

LOCK = ".lock"
AGAIN = ("metadata", "boxes", "references")
"""Stages whose left-out samples can be tried again."""


class MetadataSource(Protocol):
    """Interface of a maker of metadata."""

    async def make(self, question: PictureQuestion) -> Metadata:
        """Return the metadata of a question."""


@dataclass
class Pipeline:
    """One session on a benchmark in the making. Samples wait at a stage whose worker is None.

    Args:
        folder: The folder of the benchmark.
        ledger: Its costs.
        maker: Makes metadata of questions.
        asker: The model whose connections are closed at the end.
        detector: Proposes target boxes.
        detector_name: The name of the detector in records.
        trust_detector: Accept proposed boxes without confirmation by a person.
        references: Makes references.
        kept: Stores replies until their sample is complete.
        concurrency: The most samples at the same time.
        limit: Only the first samples.
        again: Stages whose left-out samples are tried again.
        tick: Called after each sample, for progress.
        tallies: What each stage did.
    """

    folder: MakingFolder
    ledger: Ledger
    maker: MetadataSource | None = None
    asker: Asker | None = None
    detector: Detector | None = None
    detector_name: str = DETECTOR
    trust_detector: bool = False
    references: ReferenceMaker | None = None
    kept: TemporaryReplies | None = None
    concurrency: int = 8
    limit: int | None = None
    again: frozenset[str] = frozenset()
    tick: Tick = ignore_tally
    tallies: list[ItemTally] = field(default_factory=list)

    def read(self, path: Path, source: str | None, licence: str | None, pictures: Path | None) -> ItemTally:
        """Read a question set into the folder. Unchanged questions stay.

        Args:
            path: The file or folder of the question set.
            source: Its name for the data card.
            licence: The licence of its pictures.
            pictures: The folder of its pictures, if they are not next to it.
        """
        tally = ItemTally("questions")
        self.tallies.append(tally)
        for index, row in enumerate(read_questions(path, self.folder.path, source, licence, pictures)):
            if self.limit is not None and index >= self.limit:
                break
            tally.total += 1
            record = self._own(row, path.stem, tally)
            existing = self.folder.questions.get(record.id)
            same = isinstance(existing, type(record)) and _without_time(existing) == _without_time(record)
            if isinstance(record, LeftOutSample):
                tally.left_out[record.id] = record.left_out
            elif same:
                tally.held += 1
            else:
                tally.made += 1
            if not same:
                self.folder.questions.add(record)
            self.tick(tally)
        return tally

    def _own(
        self, record: PictureQuestion | LeftOutSample, stem: str, tally: ItemTally
    ) -> PictureQuestion | LeftOutSample:
        """Return a question under a unique id. An id of another question set gets the set's name as prefix."""
        for name in (record.id, f"{stem}-{record.id}", f"{stem}-{record.question_set[-6:]}-{record.id}"):
            existing = self.folder.questions.get(name)
            if (
                isinstance(existing, PictureQuestion)
                and isinstance(record, PictureQuestion)
                and _asks_the_same(existing, record)
            ):
                return (
                    existing if existing.question_set != record.question_set else record.model_copy(update={"id": name})
                )
            if existing is None or existing.question_set == record.question_set:
                break
        if name != record.id:
            tally.note = f'another question set uses the same ids: these samples are called "{stem}-" and their id'
        return record.model_copy(update={"id": name})

    async def run(self) -> list[ItemTally]:
        """Do everything that can be done now, and return what each stage did."""
        async with AsyncExitStack() as stack:
            if self.asker is not None:
                await stack.enter_async_context(aclosing(self.asker.chat))
            await self._metadata()
            await self._boxes()
            await self._references()
        return self.tallies

    async def _metadata(self) -> None:
        maker = self.maker

        async def make(sample: Sample) -> None:
            assert maker is not None
            self.folder.metadata.add(await maker.make(sample.question))

        def give_up(item: Sample, why: str) -> None:
            name, key = self.asker.name if self.asker else "", question_key(item.question)
            self.folder.metadata.add(LeftOutSample(id=item.id, key=key, left_out=why, by=name, at=timestamp()))

        await self._stage("metadata", lambda sample: sample.metadata is None, make if maker else None, give_up)

    async def _boxes(self) -> None:
        detector = self.detector

        async def find(item: Sample) -> None:
            boxes = find_given_boxes(item)
            if boxes is None and detector is not None:
                boxes = await asyncio.to_thread(
                    propose_boxes, item, self.folder.path, detector, self.trust_detector, self.detector_name
                )
            if boxes is None:
                raise _Waits
            self.folder.boxes.add(boxes)

        def give_up(item: Sample, why: str) -> None:
            assert item.metadata is not None
            key = boxes_key(item.question, item.metadata)
            self.folder.boxes.add(
                LeftOutSample(id=item.id, key=key, left_out=why, by=self.detector_name, at=timestamp())
            )

        def wanted(sample: Sample) -> bool:
            return sample.metadata is not None and (sample.boxes is None or is_outdated(sample))

        await self._stage("boxes", wanted, find, give_up)

    async def _references(self) -> None:
        maker = self.references
        waiting: list[WaitingCrop] = []

        async def make(item: Sample) -> None:
            assert maker is not None
            if maker.by_hand is not None:
                name = maker.name_file(item, maker.next_attempt(item))
                if maker.by_hand.find(name) is None:
                    waiting.append(await asyncio.to_thread(write_crop, self.folder.path, item, name))
                    raise _Waits
            await maker.make(item)

        def give_up(item: Sample, why: str) -> None:
            assert item.metadata is not None
            assert item.boxes is not None
            key = reference_key(item.question, item.metadata, item.boxes)
            name = maker.editor.name if maker and maker.editor else ""
            unusable = maker.unusable.pop(item.id, 0) if maker else 0
            self.folder.references.add(
                LeftOutSample(id=item.id, key=key, left_out=why, by=name, at=timestamp(), attempts=unusable)
            )

        def wanted(sample: Sample) -> bool:
            ready = sample.boxes is not None and (sample.boxes.confirmed or self.trust_detector)
            return ready and (sample.reference is None or sample.step == "regenerate")

        await self._stage("references", wanted, make if maker else None, give_up)
        if maker is not None and maker.by_hand is not None:
            write_todo(self.folder.path, waiting)

    async def _stage(
        self,
        name: str,
        wanted: Callable[[Sample], bool],
        do: Callable[[Sample], Awaitable[None]] | None,
        give_up: Callable[[Sample, str], None],
    ) -> None:
        """Process the samples that need a stage. Left-out samples are skipped unless they should be tried again."""
        tally = ItemTally(name)
        self.tallies.append(tally)
        todo = []
        for index, sample in enumerate(self.folder.samples()):
            if self.limit is not None and index >= self.limit:
                break
            if not wanted(sample):
                tally.held += _has_result(sample, name)
            elif sample.step == "left out" and name not in self.again:
                tally.left_out[sample.id] = sample.why
            elif do is None:
                tally.waiting += 1
            else:
                todo.append(sample)
        tally.total = tally.done + len(todo)
        if do is None or not todo:
            return

        async def run_item(item: Sample) -> None:
            try:
                await do(item)
            except _Waits:
                tally.waiting += 1
                tally.made -= 1

        try:
            await work_through(todo, run_item, tally, self.concurrency, self.tick, self.kept, give_up)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def forecast(
        self, price: Price | None, editor_price: float | None, task: Callable[[PictureQuestion], str]
    ) -> list[StageForecast]:
        """Estimate the requests and the cost of the missing samples, before anything is sent."""
        samples = list(self.folder.samples())[: self.limit]
        questions = [sample.question for sample in samples if sample.step == "metadata"]
        read = sum(len(task(question)) // CHARACTERS_PER_TOKEN for question in questions)
        usage = Usage(requests=len(questions), input_tokens=read, output_tokens=len(questions) * TOKENS_A_REPLY)
        waiting = [sample for sample in samples if sample.step in ("reference", "regenerate")]
        later = [sample for sample in samples if sample.step in ("metadata", "boxes", "confirm boxes")]
        pictures = len(waiting) + len(later)
        return [
            StageForecast("metadata", len(questions), usage, price.cost(usage) if price else None),
            StageForecast(
                "references",
                pictures,
                Usage(requests=pictures),
                None if editor_price is None else pictures * editor_price,
            ),
        ]


TOKENS_A_REPLY = 160
"""Assumed for metadata: six short strings."""


@dataclass(frozen=True)
class StageForecast:
    """The estimated cost of a stage."""

    stage: str
    samples: int
    usage: Usage
    dollars: float | None
    """None if the price is unknown."""


class _Waits(Exception):
    """A sample waits for people."""


def _has_result(sample: Sample, stage: str) -> bool:
    """Return whether a sample has the result of a stage."""
    record = {"metadata": sample.metadata, "boxes": sample.boxes, "references": sample.reference}[stage]
    return record is not None


def _asks_the_same(question: PictureQuestion, other: PictureQuestion) -> bool:
    return (question.sha, question_key(question)) == (other.sha, question_key(other))


def _without_time(record: PictureQuestion | LeftOutSample) -> dict[str, object]:
    return record.model_dump(exclude={"at"})


def lock_folder(folder: Path) -> RunLock:
    """Lock a folder, so that a second session does not pay for the same."""
    return RunLock(folder / LOCK)
