"""From questions to a benchmark: every stage does what is missing and writes it down at once; the rest waits for next time."""

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
from editloupe.making.boxes import DETECTOR, Detector, find_given_boxes, is_outdated, propose_boxes
from editloupe.making.folder import Ledger, MakingFolder, Sample, boxes_key, question_key, reference_key
from editloupe.making.questions import read_questions
from editloupe.making.records import LeftOutSample, Metadata, PictureQuestion
from editloupe.making.references import ReferenceMaker, WaitingCrop, write_crop, write_todo
from editloupe.types import Usage

LOCK = ".lock"
AGAIN = ("metadata", "boxes", "references")
"""Stages whose samples that were left out can be tried again."""


class MetadataSource(Protocol):
    """Makes metadata of questions."""

    async def make(self, question: PictureQuestion) -> Metadata:
        """Return the metadata of a question."""


@dataclass
class Pipeline:
    """One session on a benchmark in the making; whoever is None leaves the stage's samples waiting."""

    folder: MakingFolder
    ledger: Ledger
    maker: MetadataSource | None = None
    asker: Asker | None = None
    """Whose connections are closed at the end."""
    detector: Detector | None = None
    detector_name: str = DETECTOR
    """What records call it."""
    trust_detector: bool = False
    """Take what the detector proposes without a person's look."""
    references: ReferenceMaker | None = None
    kept: TemporaryReplies | None = None
    concurrency: int = 8
    limit: int | None = None
    """Only the first samples."""
    again: frozenset[str] = frozenset()
    """Stages whose samples that were left out are tried once more."""
    tick: Tick = ignore_tally
    tallies: list[ItemTally] = field(default_factory=list)

    def read(self, path: Path, source: str | None, licence: str | None, pictures: Path | None) -> ItemTally:
        """Read a question set into the folder; questions that are there as they are stay."""
        tally = ItemTally("questions")
        self.tallies.append(tally)
        for place, row in enumerate(read_questions(path, self.folder.path, source, licence, pictures)):
            if self.limit is not None and place >= self.limit:
                break
            tally.total += 1
            one = self._own(row, path.stem, tally)
            known = self.folder.questions.get(one.id)
            same = isinstance(known, type(one)) and _without_time(known) == _without_time(one)
            if isinstance(one, LeftOutSample):
                tally.left_out[one.id] = one.left_out
            elif same:
                tally.held += 1
            else:
                tally.made += 1
            if not same:
                self.folder.questions.add(one)
            self.tick(tally)
        return tally

    def _own(
        self, one: PictureQuestion | LeftOutSample, stem: str, tally: ItemTally
    ) -> PictureQuestion | LeftOutSample:
        """Return a question under an id of its own: one that another question set uses has the set's name before it."""
        for name in (one.id, f"{stem}-{one.id}", f"{stem}-{one.question_set[-6:]}-{one.id}"):
            known = self.folder.questions.get(name)
            if isinstance(known, PictureQuestion) and isinstance(one, PictureQuestion) and _asks_the_same(known, one):
                return known if known.question_set != one.question_set else one.model_copy(update={"id": name})
            if known is None or known.question_set == one.question_set:
                break
        if name != one.id:
            tally.note = (
                f'ids of another question set stand here already: these samples are called "{stem}-" and their id'
            )
        return one.model_copy(update={"id": name})

    async def run(self) -> list[ItemTally]:
        """Do everything that can be done now."""
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

        await self._stage("metadata", lambda one: one.metadata is None, make if maker else None, give_up)

    async def _boxes(self) -> None:
        detector = self.detector

        async def find(item: Sample) -> None:
            found = find_given_boxes(item)
            if found is None and detector is not None:
                found = await asyncio.to_thread(
                    propose_boxes, item, self.folder.path, detector, self.trust_detector, self.detector_name
                )
            if found is None:
                raise _Waits
            self.folder.boxes.add(found)

        def give_up(item: Sample, why: str) -> None:
            assert item.metadata is not None
            key = boxes_key(item.question, item.metadata)
            self.folder.boxes.add(
                LeftOutSample(id=item.id, key=key, left_out=why, by=self.detector_name, at=timestamp())
            )

        def wanted(one: Sample) -> bool:
            return one.metadata is not None and (one.boxes is None or is_outdated(one))

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

        def wanted(one: Sample) -> bool:
            ready = one.boxes is not None and (one.boxes.confirmed or self.trust_detector)
            return ready and (one.reference is None or one.step == "regenerate")

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
        """Work through the samples that need a stage; those it gave up before are passed over unless asked for again."""
        tally = ItemTally(name)
        self.tallies.append(tally)
        todo = []
        for place, sample in enumerate(self.folder.samples()):
            if self.limit is not None and place >= self.limit:
                break
            if not wanted(sample):
                tally.held += _is_past(sample, name)
            elif sample.step == "left out" and name not in self.again:
                tally.left_out[sample.id] = sample.why
            elif do is None:
                tally.waiting += 1
            else:
                todo.append(sample)
        tally.total = tally.done + len(todo)
        if do is None or not todo:
            return

        async def one(item: Sample) -> None:
            try:
                await do(item)
            except _Waits:
                tally.waiting += 1
                tally.made -= 1

        try:
            await work_through(todo, one, tally, self.concurrency, self.tick, self.kept, give_up)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def forecast(
        self, price: Price | None, editor_price: float | None, task: Callable[[PictureQuestion], str]
    ) -> list[StageForecast]:
        """Estimate what is missing, before anything is sent: what stages would take that have all they need."""
        samples = list(self.folder.samples())[: self.limit]
        asked = [one.question for one in samples if one.step == "metadata"]
        read = sum(len(task(question)) // CHARACTERS_PER_TOKEN for question in asked)
        usage = Usage(requests=len(asked), input_tokens=read, output_tokens=len(asked) * TOKENS_A_REPLY)
        waiting = [one for one in samples if one.step in ("reference", "regenerate")]
        later = [one for one in samples if one.step in ("metadata", "boxes", "confirm boxes")]
        pictures = len(waiting) + len(later)
        return [
            StageForecast("metadata", len(asked), usage, price.cost(usage) if price else None),
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
    """What a stage would take."""

    stage: str
    samples: int
    usage: Usage
    dollars: float | None
    """None where the price is not known."""


class _Waits(Exception):
    """A sample waits for people."""


def _is_past(sample: Sample, stage: str) -> bool:
    """True where a sample has what a stage makes."""
    record = {"metadata": sample.metadata, "boxes": sample.boxes, "references": sample.reference}[stage]
    return record is not None


def _asks_the_same(one: PictureQuestion, other: PictureQuestion) -> bool:
    return (one.sha, question_key(one)) == (other.sha, question_key(other))


def _without_time(record: PictureQuestion | LeftOutSample) -> dict[str, object]:
    return record.model_dump(exclude={"at"})


def lock_folder(folder: Path) -> RunLock:
    """Hold a folder, so that no second session pays for the same."""
    return RunLock(folder / LOCK)
