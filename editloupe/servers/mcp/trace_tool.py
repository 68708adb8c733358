"""The MCP tool `read_trace`, which returns the steps that led to a verdict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from mcp_types import CallToolResult
from pydantic import Field

from editloupe.evals.runs.export.tables import skip_repeated_verdicts
from editloupe.evals.runs.run_folder import ABOUT, FILE
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import open_picture
from editloupe.servers.mcp.judge_tool import JudgementStore, describe_namesakes, describe_outcome
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.results import (
    MOST_PICTURES,
    SeenNote,
    ShownPicture,
    StepNote,
    TraceNote,
    TraceResult,
    UnitNote,
    build_result,
    error_result,
)
from editloupe.types import Judgement, Outcome, Step, Trace, UserError


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
