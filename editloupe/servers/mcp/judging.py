"""`judge_edit` for clients: one edit, its verdicts and why, with what the judge looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import anyio
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field, ValidationError

from editloupe._util.text import one_line, shortened
from editloupe.judge import Judge
from editloupe.judge.edit_score import explain_outcome
from editloupe.pictures.decode import Album
from editloupe.rubrics.load import mistake
from editloupe.rubrics.registry import type_reader
from editloupe.servers.mcp.kept_judgements import KeptJudgements
from editloupe.servers.mcp.looking import PictureText
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.records import JudgeResult, VerdictNote
from editloupe.servers.mcp.results import Shown, failure, success
from editloupe.types import Edit, Judgement, Outcome, Step, StopAtFirst, Trace, Unjudged, Usage, UserError

T = TypeVar("T")


class Judging:
    """Judges edits for clients."""

    def __init__(self, judge: Judge, gate: PictureGate, kept: KeptJudgements, result_bytes: int, at_once: int) -> None:
        self._judge = judge
        self._gate = gate
        self._kept = kept
        self._result_bytes = result_bytes
        self._places = asyncio.Semaphore(at_once)

    async def judge_edit(
        self,
        source: PictureText,
        edited: PictureText,
        instruction: Annotated[str, Field(description="What was asked for.")],
        ctx: Context,
        instruction_type: Annotated[
            str, Field(description='One of the protocol\'s types, such as "Change Color".')
        ] = "",
        target_boxes: Annotated[
            list[Annotated[list[float], StopAtFirst()]],
            StopAtFirst(),
            Field(description="Annotated targets [x1, y1, x2, y2], in pixels of the source."),
        ] = [],  # noqa: B006
        reference: Annotated[str, Field(description="A picture of the edit done right, given like the others.")] = "",
        hint: Annotated[str, Field(description="A hint for the judge.")] = "",
        criteria: Annotated[list[str], StopAtFirst(), Field(description="Only these criteria; empty for all.")] = [],  # noqa: B006
        edit_id: Annotated[str, Field(description="A name for the edit, for read_trace.")] = "",
    ) -> Annotated[CallToolResult, JudgeResult]:
        """Judge an instruction-based image edit: source picture, instruction, edited picture.

        A judge looks closely with visual tools and ends in a label of a rubric for every criterion. What could not be judged
        is told as unjudged, with the reason; it has no score, and that is not a low one.
        """
        notes: list[str] = []
        try:
            edit = self._edit(
                id=edit_id,
                source=self._gate.picture(source, "source"),
                edited=self._gate.picture(edited, "edited"),
                reference=self._gate.picture(reference, "reference") if reference else None,
                instruction=instruction,
                instruction_type=instruction_type or None,
                target_boxes=target_boxes,
                hint=hint or None,
            )
            edit = type_reader(self._judge.protocol, notes.append)(edit)
            async with self._places:
                return await _undisturbed(self._judged(edit, criteria, ctx, notes))
        except UserError as error:
            return failure(str(error))

    async def _judged(self, edit: Edit, criteria: Sequence[str], ctx: Context, notes: Sequence[str]) -> CallToolResult:
        album, progress = Album(), _Progress(ctx)
        try:
            judgement = await self._judge.ajudge(edit, criteria=criteria, watcher=progress, strict=True, album=album)
            kept = await asyncio.to_thread(self._kept.keep, judgement, album)
            return await asyncio.to_thread(self._told, judgement, album, [*notes, *kept])
        finally:
            await progress.finish()
            album.clear()

    def _edit(self, **fields: Any) -> Edit:
        try:
            return Edit(**fields)
        except ValidationError as error:
            raise UserError(mistake(error, whole="")) from None

    def _told(self, judgement: Judgement, album: Album, notes: Sequence[str]) -> CallToolResult:
        verdicts = [verdict_note(outcome) for outcome in judgement.verdicts]
        whole = self._judge.score(judgement.edit, judgement.verdicts) if judgement.judged else None
        usage = sum((one.usage for one in judgement.verdicts), Usage())
        told = JudgeResult(
            edit_id=judgement.edit.id,
            status="judged" if judgement.judged else "unjudged",
            score_100=whole,
            judge=judgement.judge,
            protocol=judgement.protocol,
            mode=judgement.mode,
            verdicts=[VerdictNote(**one) for one in verdicts],
            usage=usage.model_dump(),
            notes=[*judgement.notes, *notes],
        )
        head = f"{told.judge} · {told.protocol} · {told.mode} mode · edit {told.edit_id}"
        score = [] if whole is None else [f"Score of the edit by the protocol's formula: {whole:.1f} of 100"]
        text = "\n".join([*(explain_outcome(one) for one in judgement.verdicts), *score, head])
        return success(text, told, looked_at(judgement.traces, album), self._result_bytes)


def looked_at(traces: Sequence[Trace], album: Album) -> list[Shown]:
    """Return the pictures that tools showed the judge, each once, in the order of the steps."""
    captions: dict[str, str] = {}
    for seen in (one for trace in traces for step in trace.steps for one in step.observations):
        for sha, caption in zip(seen.pictures, seen.captions, strict=False):
            captions.setdefault(sha, f"{seen.tool}: {caption}")
    return [Shown(album[sha], caption) for sha, caption in captions.items()]


def verdict_note(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as results hold it."""
    shared = {"criterion": outcome.criterion, "status": outcome.status, "steps": outcome.steps}
    if isinstance(outcome, Unjudged):
        return {**shared, "reason": outcome.reason.value, "detail": outcome.detail}
    return {
        **shared,
        "label": outcome.label,
        "score_100": outcome.score_100,
        "values": dict(outcome.values),
        "rationale": outcome.rationale,
        "confidence": outcome.confidence,
    }


async def _undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Do something that is cancelled once, and whose end is waited for.

    Where a client leaves, its request is cancelled again at every await, as anyio does it. A graph that is ending its tasks
    would be torn out of that and leave some running.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


class _Progress:
    """Tells the client of every step; clients that hear nothing for a minute give up."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._count = 0
        self._telling: set[asyncio.Task[None]] = set()

    def step(self, trace: Trace, step: Step) -> None:
        """Tell of a step."""
        self._count += 1
        did = ", ".join(call.name for call in step.calls) or ("answered" if step.answer is not None else "thought")
        task = asyncio.create_task(self._tell(self._count, one_line(shortened(f"{trace.criterion}: {did}", 200))))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, count: int, message: str) -> None:
        await self._ctx.report_progress(count, message=message)

    async def finish(self) -> None:
        """Wait until all was told; a client that is gone need not hear it."""
        await asyncio.gather(*self._telling, return_exceptions=True)
