"""Make reference images by editing the crop around the targets and pasting it back.

A provider's image model, with retries and redacted errors, or a person edits the crop.
"""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from editloupe._util.files import make_folder, safe_file_name, write_bytes, write_text
from editloupe._util.text import escape_invisible, for_csv
from editloupe.agent.asker import NoAnswer
from editloupe.agent.chat_interface import RetryPolicy
from editloupe.agent.open_model import prepare_opening
from editloupe.agent.providers.provider import ImageClient, ImageReply, Provider, format_error
from editloupe.agent.providers.registry import PROVIDERS, find_provider
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import split_spec
from editloupe.agent.transport.errors import ModelFailed, classify, clean
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.folder import Ledger, MakingFolder, Sample, reference_key
from editloupe.making.paste import EditorFrame, WrongShape, check_shape, frame_crop, paste_crop
from editloupe.making.records import LeftOutSample, ReferenceImage, content_key
from editloupe.pictures.decode import Picture, decode, open_picture
from editloupe.pictures.encode import encode
from editloupe.pictures.pixels import ImageError, hash_pixels
from editloupe.rubrics.case_pictures import compute_crop, union_box
from editloupe.tools import drawing
from editloupe.tools.contract import ToolError
from editloupe.types import Box, Reason, Usage, UserError

SECONDS = 180.0
"""Timeout per picture: image models take up to a minute, and longer under load."""


_NOTHING, _USUAL = Usage(), RetryPolicy()


class EditRefused(Exception):
    """The editor returned no picture and would not for the same request again; the message says why."""

    def __init__(self, sentence: str, usage: Usage = _NOTHING) -> None:
        super().__init__(sentence)
        self.usage = usage
        """Tokens of the reply without a picture."""


class ImageEditor:
    """An image model that edits a picture by an instruction; belongs to one event loop."""

    def __init__(
        self, name: str, provider: Provider, client: ImageClient, timeout: float, retry: RetryPolicy = _USUAL
    ) -> None:
        self.name = name
        self._provider, self._client, self._timeout, self._retry = provider, client, timeout, retry

    async def edit(self, picture: bytes, instruction: str) -> ImageReply:
        """Return the edited picture.

        Args:
            picture: A PNG file.
            instruction: The change to make.

        Raises:
            EditRefused: The editor declines, or sends text instead of a picture.
            ModelFailed: The server could not be reached.
            ModelRejected: Retrying would not change anything.
        """
        lost = 0
        for attempt in range(1, self._retry.max_attempts + 1):
            try:
                async with asyncio.timeout(self._timeout):
                    reply = await self._client.edit(picture, instruction)
                break
            except Exception as error:
                fault = classify(error, self.name, self._timeout, self._provider.errors)
                lost += fault.paid
                if fault.fatal:
                    raise fault.fatal from error
                if fault.reason == Reason.REFUSED:
                    raise EditRefused(fault.sentence) from error
                spent = attempt >= (
                    self._retry.timeout_attempts if fault.reason == Reason.TIMEOUT else self._retry.max_attempts
                )
                wait = fault.retry_after or self._retry.first_wait * 2 ** (attempt - 1) * random.uniform(0.5, 1)
                if not fault.again or spent or wait > self._retry.longest_retry_after:
                    raise ModelFailed(fault.reason, fault.sentence, Usage(requests=lost), attempt) from error
                await asyncio.sleep(min(wait, self._retry.longest_wait) if not fault.retry_after else wait)
        if reply.data is None:
            comment = clean(" ".join(reply.comment.split()))[:200]
            raise EditRefused(f"{self.name} gave no picture" + (f" ({comment})" if comment else ""), reply.usage)
        return reply

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def open_editor(
    spec: str, base_url: str | None = None, timeout: float = SECONDS, retry: RetryPolicy = _USUAL
) -> ImageEditor:
    """Open the image model of a spec.

    Args:
        spec: `provider:model`.
        base_url: Address of the server; None uses the provider's own.
        timeout: Seconds to wait for a picture.
        retry: How failed requests are retried.

    Raises:
        UserError: The key is missing, or the provider has no image models.
    """
    provider_name, model = split_spec(spec)
    names = [candidate.name for candidate in PROVIDERS if candidate.edit_images]
    provider = find_provider(provider_name) if provider_name != RULES else None
    if provider is None or provider.edit_images is None:
        raise UserError(
            f"{spec} cannot edit pictures; use {' or '.join(f'{name}:MODEL' for name in names)}, or a folder"
        )
    opening = prepare_opening(provider, spec, model, base_url, timeout)
    try:
        return ImageEditor(spec, provider, provider.edit_images(opening), timeout, retry)
    except Exception as error:  # clients raise errors of any type
        raise UserError(f"the client for {spec} cannot be opened: {format_error(error)}") from None


EDITS, REFERENCES = "edits", "references"
TRIES = 4
"""The most pictures per sample that are requested if the returned ones cannot be used."""
USUAL_PICTURE = Usage(requests=1, input_tokens=1500, output_tokens=1500)
"""The assumed usage of a picture before it is paid by its tokens."""
PROMPT = (
    "{instruction} Change nothing else: keep the framing, the size and position of everything, the light, the colors and the "
    "texture of the rest of the picture exactly as they are."
)


class NothingChanged(ValueError):
    """The returned picture is the unchanged crop."""


class Editor(Protocol):
    """Interface of an image editor."""

    name: str

    async def edit(self, picture: bytes, instruction: str) -> ImageReply:
        """Return the edited picture of a PNG file."""


@dataclass(frozen=True)
class ReferenceMaker:
    """Make references with an editor or from crops that were edited by hand."""

    folder: MakingFolder
    ledger: Ledger
    editor: Editor | None = None
    by_hand: HandFolder | None = None
    price: float | None = None
    """Dollars per picture."""
    token_price: Price | None = None
    unusable: dict[str, int] = field(default_factory=dict)
    """Unusable pictures per sample that is being given up."""

    @property
    def name(self) -> str:
        """The name of the editor in records."""
        return self.editor.name if self.editor else BY_HAND

    async def make(self, sample: Sample) -> None:
        """Make the reference of a sample and store it.

        Raises:
            NoAnswer: If no usable picture can be made.
        """
        assert sample.boxes is not None
        attempt = self.next_attempt(sample)
        source = await asyncio.to_thread(self._source, sample)
        crop = compute_crop(union_box(sample.boxes.boxes), *source.size)
        problem = ""
        for _ in range(TRIES):
            name = self.name_file(sample, attempt)
            self.unusable[sample.id] = attempt - 1
            try:
                file, part, usage, cost = await self._edited(sample, name, source, crop)
                reference = await asyncio.to_thread(self._paste, sample, name, source, crop, part)
            except (WrongShape, NothingChanged, ImageError) as error:
                if self.editor is None:
                    raise ToolError(f"{error}; put another one in its place") from None
                problem = str(error)
                attempt += 1
                continue
            more = {"key": _find_key(sample), "attempt": attempt, "edited_crop": file, "usage": usage, "cost": cost}
            more["made_anew"] = sample.reference.made_anew + 1 if sample.reference else 0
            self.folder.references.add(reference.model_copy(update=more))
            del self.unusable[sample.id]
            return
        self.unusable[sample.id] = attempt - 1
        raise NoAnswer(f"{TRIES} pictures of the editor could not be used: {problem}")

    def next_attempt(self, sample: Sample) -> int:
        """Return the number of a sample's next picture, after refused and unusable ones."""
        if sample.reference is not None:
            return sample.reference.attempt + 1
        existing = self.folder.references.get(sample.id)
        return existing.attempts + 1 if isinstance(existing, LeftOutSample) and existing.key == _find_key(sample) else 1

    def name_file(self, sample: Sample, attempt: int) -> str:
        """Return the file name of an edited crop, from sample, task, editor and attempt."""
        return f"{safe_file_name(sample.id)}-{content_key(_find_key(sample), self.name)[:6]}-{attempt}"

    def _source(self, sample: Sample) -> Picture:
        source = open_picture(self.folder.path / sample.question.picture)
        if source.sha != sample.question.sha:
            raise ImageError(f"{sample.question.picture} has changed since it was read")
        return source

    async def _edited(
        self, sample: Sample, name: str, source: Picture, crop: Box
    ) -> tuple[str, EditorFrame | None, Usage, float | None]:
        """Return the file of the edited crop, its frame, usage and cost. A picture on disk is not requested again."""
        file = f"{EDITS}/{name}.png"
        if self.by_hand is not None:
            edited_file = self.by_hand.find(name)
            assert edited_file is not None, "only samples with an edited crop are begun"
            await asyncio.to_thread(write_bytes, self.folder.path / file, edited_file.read_bytes())
            return file, None, Usage(), None
        assert self.editor is not None
        assert sample.metadata is not None
        frame = await asyncio.to_thread(frame_crop, drawing.crop(source.pixels, crop))
        if (self.folder.path / file).is_file():
            return file, frame, Usage(), None
        expected = self._cost(USUAL_PICTURE) or 0.0
        self.ledger.reserve(expected)
        try:
            instruction = PROMPT.format(instruction=_end_sentence(sample.metadata.edit_instruction))
            sent = await asyncio.to_thread(encode, frame.pixels)
            reply = await self.editor.edit(sent, instruction)
            assert reply.data is not None
            await asyncio.to_thread(write_bytes, self.folder.path / file, reply.data)
            cost = self._cost(reply.usage)
            self.ledger.pay(sample.id, "reference", self.editor.name, reply.usage, cost)
        except EditRefused as refused:
            if refused.usage.requests:
                self.ledger.pay(sample.id, "reference", self.editor.name, refused.usage, self._cost(refused.usage))
            raise NoAnswer(str(refused)) from None
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

    def _paste(
        self, sample: Sample, name: str, source: Picture, crop: Box, frame: EditorFrame | None
    ) -> ReferenceImage:
        """Paste the edited crop and write the reference. If it does not fit, nothing is written."""
        assert sample.boxes is not None
        path = self.folder.path / EDITS / f"{name}.png"
        edited = decode(path.read_bytes(), f"the edited crop {path.name}").pixels
        part = frame.extract_crop(edited) if frame else check_shape(edited, crop)
        pixels, facts = paste_crop(source.pixels, part, crop, sample.boxes.boxes)
        if np.array_equal(pixels, source.pixels):
            raise NothingChanged(f"the edited crop {path.name} is the crop as it was")
        file = f"{REFERENCES}/{name}.png"
        write_bytes(self.folder.path / file, encode(pixels))
        return ReferenceImage(
            id=sample.id,
            key="",
            attempt=1,
            crop=crop,
            edited_crop="",
            reference=file,
            sha=hash_pixels(pixels),
            by=self.name,
            at=timestamp(),
            facts=facts,
        )


def _find_key(sample: Sample) -> str:
    assert sample.metadata is not None
    assert sample.boxes is not None
    return reference_key(sample.question, sample.metadata, sample.boxes)


def _end_sentence(instruction: str) -> str:
    text = escape_invisible(" ".join(instruction.split()))
    return text if text.endswith((".", "!", "?")) else f"{text}."


CROPS, TODO_LIST = "crops", "todo.csv"
BY_HAND = "by hand"
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


@dataclass(frozen=True)
class HandFolder:
    """A folder of crops edited by hand, one picture per sample under the name of its crop."""

    path: Path

    def find(self, name: str) -> Path | None:
        """Return an edited crop, or None."""
        return next((path for suffix in SUFFIXES if (path := self.path / f"{name}{suffix}").is_file()), None)


@dataclass(frozen=True)
class WaitingCrop:
    """A crop that waits for a person to edit it."""

    name: str
    instruction: str
    target: str
    boxes: str
    """The targets in pixels of the crop."""


def write_crop(folder: Path, sample: Sample, name: str) -> WaitingCrop:
    """Write the crop of a sample for editing by hand. An existing file is kept."""
    assert sample.metadata is not None
    assert sample.boxes is not None
    crop = compute_crop(union_box(sample.boxes.boxes), *sample.question.size)
    path = folder / CROPS / f"{name}.png"
    if not path.exists():
        write_bytes(path, encode(drawing.crop(open_picture(folder / sample.question.picture).pixels, crop)))
    inside = ([box.x1 - crop.x1, box.y1 - crop.y1, box.x2 - crop.x1, box.y2 - crop.y1] for box in sample.boxes.boxes)
    boxes = " ".join(",".join(map(str, box)) for box in inside)
    return WaitingCrop(name, sample.metadata.edit_instruction, sample.metadata.modified_object, boxes)


def write_todo(folder: Path, waiting: Sequence[WaitingCrop]) -> None:
    """Rewrite the list of waiting crops; it is empty if none waits."""
    if not waiting and not (folder / CROPS / TODO_LIST).exists():
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("file", "instruction", "target", "target_boxes"))
    table.writerows(map(for_csv, (f"{crop.name}.png", crop.instruction, crop.target, crop.boxes)) for crop in waiting)
    make_folder(folder / CROPS)
    write_text(folder / CROPS / TODO_LIST, text.getvalue())
