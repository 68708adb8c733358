"""`read_trace` for clients: the steps behind verdicts, from a run or from what was judged here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from mcp_types import CallToolResult
from pydantic import Field

from editloupe.evals.runs.export.tables import each_once
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import open_picture
from editloupe.servers.mcp.judging import verdict_note
from editloupe.servers.mcp.kept_judgements import KeptJudgements
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.records import SeenNote, StepNote, TraceNote, TraceResult, UnitNote
from editloupe.servers.mcp.results import MOST_PICTURES, Shown, failure, success
from editloupe.types import Judgement, Outcome, Step, Trace, UserError


class Tracing:
    """Reads traces for clients."""

    def __init__(self, gate: PictureGate, kept: KeptJudgements, result_bytes: int) -> None:
        self._gate = gate
        self._kept = kept
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
            return failure(str(error))

    def _read(self, edit_id: str, run: str, criterion: str, repeat: int) -> CallToolResult:
        folder = self._gate.path(run) if run else self._kept.out
        if folder is None:
            told, pictures = _of_judgement(self._kept.recent(edit_id)), list[Shown]()
        else:
            told, pictures = _of_run(folder, edit_id)
        wanted = [unit for unit in told.units if criterion in ("", unit.criterion) and repeat in (-1, unit.repeat)]
        if not wanted:
            have = ", ".join(f"{unit.criterion} (repeat {unit.repeat})" for unit in told.units) or "none"
            raise UserError(f'edit "{edit_id}" has no such verdict; it has {have}')
        told = told.model_copy(update={"units": wanted})
        shown = {caption for unit in wanted for caption in _captions(unit)}
        return success(_story(told), told, [one for one in pictures if one.caption in shown], self._result_bytes)


def _of_judgement(judgement: Judgement) -> TraceResult:
    units = []
    for outcome in judgement.verdicts:
        traces = [trace for trace in judgement.traces if trace.criterion == outcome.criterion]
        units.append(_unit(outcome, traces, 0, judgement.judge, judgement.protocol, judgement.mode))
    notes = (
        ["the pictures of the steps are kept only where the server was started with --out"] if judgement.traces else []
    )
    return TraceResult(edit_id=judgement.edit.id, instruction=judgement.edit.instruction, units=units, notes=notes)


def _of_run(folder: Path, edit_id: str) -> tuple[TraceResult, list[Shown]]:
    with Run.open(folder) as run:
        name = run.name_of(edit_id)
        edit = run.edit(name).edit
        units, seen = [], dict[str, str]()
        for one in each_once(run.units(name)):
            traces = run.load_trace(name, one.criterion, one.repeat, one.asked)
            units.append(_unit(one.outcome, traces, one.repeat, one.judge, one.protocol, one.mode))
            for trace in traces:
                seen.update(_pictures(trace))
        notes, pictures = list(run.damage.sentences()), list[Shown]()
        for sha, caption in list(seen.items())[:MOST_PICTURES]:
            path = run.pictures.find(sha)
            if path is None or not path.resolve().is_relative_to(folder.resolve()):  # a link could lead anywhere
                continue
            try:
                pictures.append(Shown(open_picture(path), caption))
            except UserError as error:
                notes.append(str(error))
        return TraceResult(edit_id=name, instruction=edit.instruction, units=units, notes=notes), pictures


def _unit(outcome: Outcome, traces: Sequence[Trace], repeat: int, judge: str, protocol: str, mode: str) -> UnitNote:
    noted = [
        TraceNote(target=trace.target, notes=list(trace.notes), steps=[_step(step) for step in trace.steps])
        for trace in traces
    ]
    return UnitNote(**verdict_note(outcome), repeat=repeat, judge=judge, protocol=protocol, mode=mode, traces=noted)


def _step(step: Step) -> StepNote:
    return StepNote(
        index=step.index,
        thought=step.thought,
        calls=[{"name": call.name, "parameters": dict(call.parameters)} for call in step.calls],
        observations=[
            SeenNote(tool=one.tool, text=one.text, failed=one.failed, captions=list(one.captions))
            for one in step.observations
        ],
        answer=step.answer,
        problem=step.problem,
    )


def _pictures(trace: Trace) -> Iterator[tuple[str, str]]:
    for seen in (one for step in trace.steps for one in step.observations):
        yield from zip(seen.pictures, seen.captions, strict=False)


def _captions(unit: UnitNote) -> Iterator[str]:
    for trace in unit.traces:
        for step in trace.steps:
            for seen in step.observations:
                yield from seen.captions


def _story(told: TraceResult) -> str:
    lines = [f"Edit {told.edit_id}: {told.instruction}"]
    for unit in told.units:
        again = f", repeat {unit.repeat}" if unit.repeat else ""
        lines.append(f"\n{unit.criterion}{again} ({unit.judge} · {unit.protocol} · {unit.mode} mode)")
        for trace in unit.traces:
            lines += [f"target {trace.target + 1}"] if trace.target is not None else []
            lines += [f"note: {note}" for note in trace.notes]
            lines += [line for step in trace.steps for line in _step_lines(step)]
        lines.append(_ending(unit))
    return "\n".join(lines)


def _step_lines(step: StepNote) -> Iterator[str]:
    yield f"step {step.index + 1}"
    if step.thought:
        yield f"  thought: {step.thought}"
    for call in step.calls:
        yield f"  called {call['name']}({json.dumps(call['parameters'], ensure_ascii=False, default=str)})"
    for seen in step.observations:
        yield f"  {'failed' if seen.failed else 'saw'}: {seen.text}"
    if step.problem:
        yield f"  not usable: {step.problem}"
    if step.answer is not None:
        yield f"  answered: {step.answer}"


def _ending(unit: UnitNote) -> str:
    if unit.status == "unjudged":
        return f"unjudged ({unit.reason}): {unit.detail}"
    score = "" if unit.score_100 is None else f", {unit.score_100:.1f} of 100"
    return f"verdict: {unit.label or unit.values}{score}"
