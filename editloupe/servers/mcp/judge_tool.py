"""The MCP tools `judge_edit` and `read_trace`, and the store of judgements that `read_trace` reads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult
from pydantic import Field, ValidationError

from editloupe._util.text import one_line, shorten
from editloupe.evals.runs.export.tables import skip_repeated_verdicts
from editloupe.evals.runs.run_folder import ABOUT, FILE
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.writer import save_judgement
from editloupe.judge import Judge
from editloupe.judge.edit_score import explain_outcome
from editloupe.pictures.decode import Album, open_picture
from editloupe.rubrics.registry import make_type_reader
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.servers.http.access import check_text_lengths
from editloupe.servers.mcp.results import (
    MOST_PICTURES,
    JudgeResult,
    SeenNote,
    ShownPicture,
    StepNote,
    TraceNote,
    TraceResult,
    UnitNote,
    VerdictNote,
    build_result,
    error_result,
)
from editloupe.servers.mcp.visual_tools import PictureGate, PictureText
from editloupe.types import Edit, Judgement, Outcome, Step, StopAtFirst, Trace, Unjudged, Usage, UserError

REMEMBERED = 32
"""Judgements kept in memory, without pictures: a few kilobytes each."""
FORGOTTEN = "an earlier judgement has this id; read_trace now returns this one"


class JudgementStore:
    """Stores judgements in a run, or the latest ones in memory if there is no run. Thread-safe."""

    def __init__(self, judge: Judge, out: Path | None) -> None:
        self.out = out
        self._judge = judge
        self._run = Run.write(out) if out is not None else None
        self._recent: OrderedDict[str, Judgement] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, judgement: Judgement, album: Album) -> tuple[str, list[str]]:
        """Store a judgement. Return the name that `read_trace` finds it by, and notes for the client."""
        edit_id = judgement.edit.id
        with self._lock:
            if self._run is None:
                older = self._recent.pop(edit_id, None)
                self._recent[edit_id] = _drop_pictures(judgement)
                while len(self._recent) > REMEMBERED:
                    self._recent.popitem(last=False)
                return edit_id, [FORGOTTEN] if older is not None else []
            try:
                name = save_judgement(self._run, self._judge, judgement, album).name
            except UserError as error:  # the client still gets the verdicts if the disk fails
                return edit_id, [f"this judgement could not be kept in the run: {error}"]
            return name, describe_namesakes(self._run, edit_id)

    def recent(self, edit_id: str) -> Judgement:
        """Return a judgement from memory; raise UserError if it is not there."""
        with self._lock:
            if (judgement := self._recent.get(edit_id)) is not None:
                return judgement
            names = ", ".join(f'"{name}"' for name in list(self._recent)[-5:]) or "none"
        raise UserError(
            f'no edit "{edit_id}" was judged here lately (there are: {names}); pass the folder of the run that holds it as `run`'
        )

    def close(self) -> None:
        """Close the run."""
        with self._lock:
            if self._run is not None:
                self._run.close()


def describe_namesakes(run: Run, edit_id: str) -> list[str]:
    """Return a note with the names of the edits that have an id, if there are several."""
    names = run.names_of(edit_id)
    if len(names) < 2:
        return []
    listed = ", ".join(f'"{name}"' for name in names)
    return [f"different edits have this id; for read_trace they are called, oldest first: {listed}"]


def _drop_pictures(judgement: Judgement) -> Judgement:
    """Return a judgement without the edit's pictures, which may hold megabytes in memory."""
    gone: dict[str, Any] = {"source": Path(), "edited": Path(), "reference": None, "more_images": {}}
    return judgement.model_copy(update={"edit": judgement.edit.model_copy(update=gone)})


T = TypeVar("T")


class JudgeTool:
    """Provides `judge_edit`."""

    def __init__(self, judge: Judge, gate: PictureGate, store: JudgementStore, result_bytes: int, at_once: int) -> None:
        self._judge = judge
        self._gate = gate
        self._store = store
        self._result_bytes = result_bytes
        self._slots = asyncio.Semaphore(at_once)

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

        The judge uses visual tools and gives a rubric label for every criterion. A criterion that could not be judged is
        reported as unjudged, with the reason. It has no score, which is not the same as a low score.
        """
        notes: list[str] = []
        try:
            check_text_lengths(instruction=instruction, instruction_type=instruction_type, hint=hint)
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
            edit = make_type_reader(self._judge.protocol, notes.append)(edit)
            async with self._slots:
                return await _finish_before_cancelling(self._judge_and_store(edit, criteria, ctx, notes))
        except UserError as error:
            return error_result(str(error))

    async def _judge_and_store(
        self, edit: Edit, criteria: Sequence[str], ctx: Context, notes: Sequence[str]
    ) -> CallToolResult:
        album, progress = Album(), _ProgressReporter(ctx)
        try:
            judgement = await self._judge.ajudge(edit, criteria=criteria, watcher=progress, strict=True, album=album)
            name, store_notes = await asyncio.to_thread(self._store.keep, judgement, album)
            return await asyncio.to_thread(self._build_result, judgement, name, album, [*notes, *store_notes])
        finally:
            await progress.finish()
            album.clear()

    def _edit(self, **fields: Any) -> Edit:
        try:
            return Edit(**fields)
        except ValidationError as error:
            raise UserError(describe_validation_error(error, record="")) from None

    def _build_result(self, judgement: Judgement, name: str, album: Album, notes: Sequence[str]) -> CallToolResult:
        verdicts = [describe_outcome(outcome) for outcome in judgement.verdicts]
        edit_score = self._judge.score(judgement.edit, judgement.verdicts) if judgement.judged else None
        usage = sum((outcome.usage for outcome in judgement.verdicts), Usage())
        result = JudgeResult(
            edit_id=name,
            status="judged" if judgement.judged else "unjudged",
            score_100=edit_score,
            judge=judgement.judge,
            protocol=judgement.protocol,
            mode=judgement.mode,
            verdicts=[VerdictNote(**outcome) for outcome in verdicts],
            usage=usage.model_dump(),
            notes=[*judgement.notes, *notes],
        )
        head = f"{result.judge} · {result.protocol} · {result.mode} mode · edit {result.edit_id}"
        score = [] if edit_score is None else [f"Score of the edit by the protocol's formula: {edit_score:.1f} of 100"]
        text = "\n".join([*(explain_outcome(outcome) for outcome in judgement.verdicts), *score, head])
        return build_result(text, result, find_tool_pictures(judgement.traces, album), self._result_bytes)


def find_tool_pictures(traces: Sequence[Trace], album: Album) -> list[ShownPicture]:
    """Return the pictures that tools showed the judge, without repeats, in the order of the steps."""
    captions: dict[str, str] = {}
    observations = [observation for trace in traces for step in trace.steps for observation in step.observations]
    for observation in observations:
        for sha, caption in zip(observation.pictures, observation.captions, strict=False):
            captions.setdefault(sha, f"{observation.tool}: {caption}")
    return [ShownPicture(album[sha], caption) for sha, caption in captions.items()]


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return the fields of a `VerdictNote` for an outcome."""
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


async def _finish_before_cancelling(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; if the request is cancelled, cancel the coroutine once and wait until it has ended.

    When a client disconnects, anyio cancels the request again at every await. That would interrupt a graph while it ends its
    tasks and leave some of them running.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        raise


class _ProgressReporter:
    """Reports every step to the client; some clients give up after a minute without news."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._count = 0
        self._reports: set[asyncio.Task[None]] = set()

    def step(self, trace: Trace, step: Step) -> None:
        """Report a step."""
        self._count += 1
        did = ", ".join(call.name for call in step.calls) or ("answered" if step.answer is not None else "thought")
        task = asyncio.create_task(self._report(self._count, one_line(shorten(f"{trace.criterion}: {did}", 200))))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _report(self, count: int, message: str) -> None:
        await self._ctx.report_progress(count, message=message)

    async def finish(self) -> None:
        """Wait until all reports were sent; errors of a disconnected client are ignored."""
        await asyncio.gather(*self._reports, return_exceptions=True)


class TraceTool:
    """Provides `read_trace`."""

    def __init__(self, gate: PictureGate, store: JudgementStore, result_bytes: int) -> None:
        self._gate = gate
        self._store = store
        self._result_bytes = result_bytes

    async def read_trace(
        self,
        edit_id: Annotated[str, Field(description="The edit's id, as judge_edit or the run calls it.")],
        run: Annotated[
            str, Field(description="The folder of a run inside the server's roots; empty for what was judged here.")
        ] = "",
        criterion: Annotated[str, Field(description="Only this criterion; empty for all.")] = "",
        repeat: Annotated[int, Field(description="Only this repeat, counted from 0; -1 for all.", ge=-1)] = -1,
    ) -> Annotated[CallToolResult, TraceResult]:
        """Read what a judge thought, which tools it called and what it saw on the way to its verdicts."""
        try:
            return await asyncio.to_thread(self._read, edit_id, run, criterion, repeat)
        except UserError as error:
            return error_result(str(error))

    def _read(self, edit_id: str, run: str, criterion: str, repeat: int) -> CallToolResult:
        folder = self._gate.path(run) if run else self._store.out
        if folder is None:
            result, pictures = _describe_judgement(self._store.recent(edit_id)), list[ShownPicture]()
        else:
            if run:
                for name in (FILE, ABOUT):  # a link could lead out of the roots
                    self._gate.path(str(folder / name))
            result, pictures = _describe_run(folder, edit_id)
        wanted = [unit for unit in result.units if criterion in ("", unit.criterion) and repeat in (-1, unit.repeat)]
        if not wanted:
            have = ", ".join(f"{unit.criterion} (repeat {unit.repeat})" for unit in result.units) or "none"
            raise UserError(f'edit "{edit_id}" has no such verdict; it has {have}')
        result = result.model_copy(update={"units": wanted})
        captions = {caption for unit in wanted for caption in _list_captions(unit)}
        return build_result(
            _format_trace(result),
            result,
            [picture for picture in pictures if picture.caption in captions],
            self._result_bytes,
        )


def _describe_judgement(judgement: Judgement) -> TraceResult:
    units = []
    for outcome in judgement.verdicts:
        traces = [trace for trace in judgement.traces if trace.criterion == outcome.criterion]
        units.append(_describe_unit(outcome, traces, 0, judgement.judge, judgement.protocol, judgement.mode))
    notes = ["the pictures of the steps are kept only if the server was started with --out"] if judgement.traces else []
    return TraceResult(edit_id=judgement.edit.id, instruction=judgement.edit.instruction, units=units, notes=notes)


def _describe_run(folder: Path, edit_id: str) -> tuple[TraceResult, list[ShownPicture]]:
    with Run.open(folder) as run:
        name = run.resolve_name(edit_id)
        edit = run.edit(name).edit
        units, seen = [], dict[str, str]()
        for unit in skip_repeated_verdicts(run.units(name)):
            traces = run.load_trace(name, unit.criterion, unit.repeat, unit.asked)
            units.append(_describe_unit(unit.outcome, traces, unit.repeat, unit.judge, unit.protocol, unit.mode))
            for trace in traces:
                seen.update(_list_pictures(trace))
        notes, pictures = [*run.damage.sentences(), *describe_namesakes(run, edit.id)], list[ShownPicture]()
        for sha, caption in list(seen.items())[:MOST_PICTURES]:
            path = run.pictures.find(sha)
            if path is None or not path.resolve().is_relative_to(folder.resolve()):  # a link could lead anywhere
                continue
            try:
                pictures.append(ShownPicture(open_picture(path), caption))
            except UserError as error:
                notes.append(str(error))
        return TraceResult(edit_id=name, instruction=edit.instruction, units=units, notes=notes), pictures


def _describe_unit(
    outcome: Outcome, traces: Sequence[Trace], repeat: int, judge: str, protocol: str, mode: str
) -> UnitNote:
    noted = [
        TraceNote(target=trace.target, notes=list(trace.notes), steps=[_describe_step(step) for step in trace.steps])
        for trace in traces
    ]
    return UnitNote(**describe_outcome(outcome), repeat=repeat, judge=judge, protocol=protocol, mode=mode, traces=noted)


def _describe_step(step: Step) -> StepNote:
    return StepNote(
        index=step.index,
        thought=step.thought,
        calls=[{"name": call.name, "parameters": dict(call.parameters)} for call in step.calls],
        observations=[
            SeenNote(
                tool=observation.tool,
                text=observation.text,
                failed=observation.failed,
                captions=list(observation.captions),
            )
            for observation in step.observations
        ],
        answer=step.answer,
        problem=step.problem,
    )


def _list_pictures(trace: Trace) -> Iterator[tuple[str, str]]:
    for observation in (observation for step in trace.steps for observation in step.observations):
        yield from zip(observation.pictures, observation.captions, strict=False)


def _list_captions(unit: UnitNote) -> Iterator[str]:
    for trace in unit.traces:
        for step in trace.steps:
            for observation in step.observations:
                yield from observation.captions


def _format_trace(result: TraceResult) -> str:
    lines = [f"Edit {result.edit_id}: {result.instruction}"]
    for unit in result.units:
        again = f", repeat {unit.repeat}" if unit.repeat else ""
        lines.append(f"\n{unit.criterion}{again} ({unit.judge} · {unit.protocol} · {unit.mode} mode)")
        for trace in unit.traces:
            lines += [f"target {trace.target + 1}"] if trace.target is not None else []
            lines += [f"note: {note}" for note in trace.notes]
            lines += [line for step in trace.steps for line in _format_step(step)]
        lines.append(_format_outcome(unit))
    return "\n".join(lines)


def _format_step(step: StepNote) -> Iterator[str]:
    yield f"step {step.index + 1}"
    if step.thought:
        yield f"  thought: {step.thought}"
    for call in step.calls:
        yield f"  called {call['name']}({json.dumps(call['parameters'], ensure_ascii=False, default=str)})"
    for observation in step.observations:
        yield f"  {'failed' if observation.failed else 'saw'}: {observation.text}"
    if step.problem:
        yield f"  not usable: {step.problem}"
    if step.answer is not None:
        yield f"  answered: {step.answer}"


def _format_outcome(unit: UnitNote) -> str:
    if unit.status == "unjudged":
        return f"unjudged ({unit.reason}): {unit.detail}"
    score = "" if unit.score_100 is None else f", {unit.score_100:.1f} of 100"
    return f"verdict: {unit.label or unit.values}{score}"
