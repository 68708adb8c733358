"""References: the crop around the targets edited by an image editor or by hand, and put back into its picture."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from editloupe.agent.asking import Unanswered
from editloupe.agent.faults import ModelFailed
from editloupe.agent.image_editing import EditRefused
from editloupe.agent.providers.provider import ImageReply
from editloupe.evals.making.costs import Ledger
from editloupe.evals.making.folder import MakingFolder, Sample, reference_key
from editloupe.evals.making.paste import Frame, WrongShape, checked_shape, cut, framed, pasted
from editloupe.evals.making.records import Reference, file_name
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.records import timestamp
from editloupe.images import ImageError, Picture, decode, encode, hash_pixels, open_picture
from editloupe.rubrics.target_pictures import crop_box, union
from editloupe.safe_text import visible
from editloupe.types import Box, Usage
from editloupe.whole_files import make_folder, whole_file

CROPS, EDITS, REFERENCES = "crops", "edits", "references"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
TRIES = 4
"""Pictures that are asked for where what comes back cannot be used: the first and three more."""
USUAL_PICTURE = Usage(requests=1, input_tokens=1500, output_tokens=1500)
"""What a picture is taken for before it is paid by its tokens."""
PROMPT = (
    "{instruction} Change nothing else: keep the framing, the size and position of everything, the light, the colors and the "
    "texture of the rest of the picture exactly as they are."
)


class Editor(Protocol):
    """Somebody who edits pictures."""

    name: str

    async def edit(self, picture: bytes, instruction: str) -> ImageReply:
        """Return the edited picture of a PNG file."""


@dataclass(frozen=True)
class HandFolder:
    """Crops edited by hand: one picture a sample, called as its crop is."""

    path: Path

    @property
    def name(self) -> str:
        """What records call it."""
        return "by hand"

    def find(self, name: str) -> Path | None:
        """Return the edited crop of a sample, if it is there."""
        return next((path for suffix in SUFFIXES if (path := self.path / f"{name}{suffix}").is_file()), None)


@dataclass(frozen=True)
class ReferenceMaker:
    """Who edits, what that costs, and where the pictures go."""

    folder: MakingFolder
    ledger: Ledger
    editor: Editor | None = None
    by_hand: HandFolder | None = None
    price: float | None = None
    """Dollars a picture."""
    token_price: Price | None = None

    async def make(self, sample: Sample) -> None:
        """Make a sample's reference and write it down; raises Unanswered where no usable picture can be got."""
        assert sample.metadata is not None
        assert sample.boxes is not None
        key = reference_key(sample.question, sample.metadata, sample.boxes)
        attempt = sample.reference.attempt + 1 if sample.reference else 1
        source = await asyncio.to_thread(self._source, sample)
        crop = crop_box(union(sample.boxes.boxes), *source.size)
        problem = ""
        for _ in range(TRIES):
            name = f"{file_name(sample.id)}-{key[:6]}-{attempt}"
            try:
                file, part, usage, cost = await self._edited(sample, name, source, crop)
                made = await asyncio.to_thread(self._paste, sample, name, source, crop, part)
            except (WrongShape, ImageError) as error:
                if self.editor is None:
                    raise Unanswered(str(error)) from None
                problem = str(error)
                attempt += 1
                continue
            self.folder.references.add(
                made.model_copy(
                    update={"key": key, "attempt": attempt, "edited_crop": file, "usage": usage, "cost": cost}
                )
            )
            return
        raise Unanswered(f"{TRIES} pictures of the editor could not be used: {problem}")

    def _source(self, sample: Sample) -> Picture:
        source = open_picture(self.folder.path / sample.question.picture)
        if source.sha != sample.question.sha:
            raise ImageError(f"{sample.question.picture} is not the picture it was any more")
        return source

    async def _edited(
        self, sample: Sample, name: str, source: Picture, crop: Box
    ) -> tuple[str, Frame | None, Usage, float | None]:
        """Return the name of the edited crop's file; a picture that was paid for and is on disk is not asked for again."""
        file = f"{EDITS}/{name}.png"
        if self.by_hand is not None:
            found = self.by_hand.find(file_name(sample.id))
            assert found is not None, "only samples with an edited crop are begun"
            await asyncio.to_thread(_write, self.folder.path / file, found.read_bytes())
            return file, None, Usage(), None
        assert self.editor is not None
        assert sample.metadata is not None
        frame = await asyncio.to_thread(framed, cut(source.pixels, crop))
        if (self.folder.path / file).is_file():
            return file, frame, Usage(), None
        expected = self._cost(USUAL_PICTURE) or 0.0
        self.ledger.reserve(expected)
        try:
            instruction = PROMPT.format(instruction=_sentence(sample.metadata.edit_instruction))
            sent = await asyncio.to_thread(encode, frame.pixels)
            reply = await self.editor.edit(sent, instruction)
            assert reply.data is not None
            await asyncio.to_thread(_write, self.folder.path / file, reply.data)
            cost = self._cost(reply.usage)
            self.ledger.pay(sample.id, "reference", self.editor.name, reply.usage, cost)
        except EditRefused as refused:
            if refused.usage.requests:
                self.ledger.pay(sample.id, "reference", self.editor.name, refused.usage, self._cost(refused.usage))
            raise Unanswered(str(refused)) from None
        except ModelFailed as failed:
            for _ in range(failed.usage.requests):  # replies that came and could not be read are paid for all the same
                self.ledger.pay(sample.id, "reference", self.editor.name, Usage(requests=1), self.price)
            raise
        finally:
            self.ledger.release(expected)
        return file, frame, reply.usage, cost

    def _cost(self, usage: Usage) -> float | None:
        if self.price is not None:
            return self.price
        return self.token_price.cost(usage) if self.token_price and usage.output_tokens else None

    def _paste(self, sample: Sample, name: str, source: Picture, crop: Box, frame: Frame | None) -> Reference:
        """Put the edited crop back and write the reference; nothing is written where it does not fit."""
        assert sample.boxes is not None
        path = self.folder.path / EDITS / f"{name}.png"
        edited = decode(path.read_bytes(), f"the edited crop {path.name}").pixels
        part = frame.crop_of(edited) if frame else checked_shape(edited, crop)
        pixels, facts = pasted(source.pixels, part, crop, sample.boxes.boxes)
        file = f"{REFERENCES}/{name}.png"
        _write(self.folder.path / file, encode(pixels))
        return Reference(
            id=sample.id,
            key="",
            attempt=1,
            crop=crop,
            edited_crop="",
            reference=file,
            sha=hash_pixels(pixels),
            by=self.editor.name if self.editor else "by hand",
            at=timestamp(),
            facts=facts,
        )


def write_crop(folder: Path, sample: Sample) -> Path:
    """Write the crop of a sample, for somebody to edit by hand; one that is there is left."""
    assert sample.boxes is not None
    path = folder / CROPS / f"{file_name(sample.id)}.png"
    if not path.exists():
        source = open_picture(folder / sample.question.picture)
        crop = crop_box(union(sample.boxes.boxes), *source.size)
        _write(path, encode(cut(source.pixels, crop)))
    return path


def _sentence(instruction: str) -> str:
    text = visible(" ".join(instruction.split()))
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _write(path: Path, data: bytes) -> None:
    make_folder(path.parent)
    with whole_file(path) as part:
        part.write_bytes(data)
