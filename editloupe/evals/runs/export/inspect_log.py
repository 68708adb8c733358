"""Export a run as a log that `inspect view` opens, with one sample per unit.

The file is a zip in Inspect's own layout (`header.json`, `samples/`, `summaries.json`, a journal). Samples are written one after
another, and Inspect itself is not needed.
"""

from __future__ import annotations

import json
import math
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from editloupe._util.files import atomic_write
from editloupe._util.json_safe import finite_number, sanitize, sanitize_text
from editloupe.evals.runs.configurations import format_list, match_configurations
from editloupe.evals.runs.export.tables import skip_repeated_verdicts
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.types import Edit, Observation, SentPicture, Sha, Step, Trace, Usage, UserError, Verdict

LOG_VERSION = 2
"""Version of Inspect's log format."""
Json = dict[str, Any]
ATTACHMENT = "attachment://"


@dataclass
class _Tally:
    """Counts of a criterion's scores for the header."""

    scored: int = 0
    unscored: int = 0
    numbers: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Count and sum of the numeric scores."""

    def add(self, score: Json) -> None:
        value = score["value"]
        if isinstance(value, float) and math.isnan(value):
            self.unscored += 1
            return
        self.scored += 1
        if isinstance(value, (int, float)):
            self.numbers = [self.numbers[0] + 1, self.numbers[1] + value]

    def record(self, criterion: str) -> Json:
        count, total = self.numbers
        metrics = {"mean": {"name": "mean", "value": total / count, "params": {}}} if count else {}
        return {
            "name": criterion,
            "scorer": criterion,
            "scored_samples": self.scored,
            "unscored_samples": self.unscored,
            "params": {},
            "metrics": metrics,
        }


class Conversation:
    """Messages and events of a unit's traces, one conversation after another."""

    def __init__(self, run: Run, unit: Unit, started: datetime) -> None:
        self._run, self._unit = run, unit
        self._clock = started
        self.messages: list[Json] = []
        self.events: list[Json] = []
        self.pictures: set[Sha] = set()

    def add(self, trace: Trace) -> None:
        """Add a trace. A rubric with two questions has two openings."""
        openings = list(zip(trace.prompt[::2], trace.prompt[1::2], strict=False))
        begin = len(self.messages)
        for number, step in enumerate(trace.steps):
            if openings and (number == 0 or trace.steps[number - 1].answer is not None):
                begin = len(self.messages)
                self._open(*openings.pop(0), step.sent)
            self._step(step, begin)

    def _open(self, system: str, task: str, sent: Sequence[SentPicture]) -> None:
        self._say("system", system)
        self._say(
            "user",
            [*(block for picture in sent for block in self._picture_blocks(picture.name, picture.sha)), _text(task)],
        )

    def _step(self, step: Step, begin: int) -> None:
        call_ids = {call.id for call in step.calls}
        calls = [
            {"id": call.id, "function": call.name, "arguments": sanitize(dict(call.parameters)), "type": "function"}
            for call in step.calls
        ]
        reply: Json = {"content": step.raw or step.thought, **({"tool_calls": calls} if calls else {})}
        end = len(self.messages)
        message = self._say("assistant", reply.pop("content"), **reply, model=self._unit.judge, source="generate")
        self._model_event(step, message, [begin, end])
        for call in calls:
            for seen in (observation for observation in step.observations if observation.call_id == call["id"]):
                self._tool_event(call, seen)
        for seen in (observation for observation in step.observations if observation.call_id not in call_ids):
            self._say("user", self._content_blocks(seen))
        if step.problem and not step.calls:
            self._say("user", step.problem)

    def _model_event(self, step: Step, message: Json, refs: list[int]) -> None:
        model, usage = self._unit.judge, usage_of(step.usage)
        output = {
            "model": model,
            "choices": [{"message": message, "stop_reason": "tool_calls" if step.calls else "stop"}],
            "completion": step.raw,
            "usage": usage,
            "time": step.seconds,
        }
        self._event(
            "model",
            step.seconds,
            model=model,
            input=[],
            input_refs=[refs],
            tools=[],
            tool_choice="auto",
            config={},
            output=output,
            retries=max(0, step.attempts - 1),
        )

    def _tool_event(self, call: Json, seen: Observation) -> None:
        content = self._content_blocks(seen)
        error = {"error": {"type": "unknown", "message": seen.text}} if seen.failed else {}
        self._say("tool", content, tool_call_id=call["id"], function=call["function"], **error)
        self._event(
            "tool",
            seen.seconds,
            type="function",
            id=call["id"],
            function=call["function"],
            arguments=call["arguments"],
            result=content,
            **error,
        )

    def _event(self, kind: str, seconds: float, **facts: Any) -> None:
        number = len(self.events)
        self.events.append(
            {
                "uuid": f"{self._unit.name}-{self._unit.criterion}-{number}",
                "timestamp": self._clock.isoformat(),
                "working_start": 0.0,
                "event": kind,
                **facts,
                "completed": (self._clock + timedelta(seconds=seconds)).isoformat(),
                "working_time": seconds,
            }
        )
        self._clock += timedelta(seconds=seconds)

    def _say(self, role: str, content: Any, **more: Any) -> Json:
        message = {"id": f"m{len(self.messages)}", "role": role, "content": content, **more}
        self.messages.append(message)
        return message

    def _content_blocks(self, seen: Observation) -> list[Json]:
        pairs = zip(seen.pictures, seen.captions, strict=False)
        return [_text(seen.text), *(block for sha, caption in pairs for block in self._picture_blocks(caption, sha))]

    def _picture_blocks(self, name: str, sha: Sha) -> Iterator[Json]:
        if self._run.find_picture(sha) is None:
            yield _text(f"{name} (this picture is not kept in the run)")
            return
        self.pictures.add(sha)
        yield _text(name)
        yield {"type": "image", "image": f"{ATTACHMENT}{sha}", "detail": "auto"}

    def attachments(self) -> dict[Sha, str]:
        """Return the pictures as data URLs by hash."""
        pictures = {sha: self._run.read_picture(sha) for sha in sorted(self.pictures)}
        return {sha: picture.data_url for sha, picture in pictures.items() if picture}


def score_of(unit: Unit) -> Json:
    """Return the outcome as a score: 0 to 100, or the label if there is no number. Unjudged is unscored, never 0."""
    outcome = unit.outcome
    if not isinstance(outcome, Verdict):
        return {
            "value": math.nan,
            "reason": outcome.reason.value,
            "answer": None,
            "explanation": outcome.detail,
            "metadata": {"raw": sanitize(outcome.raw)},
            "history": [],
        }
    number = finite_number(outcome.score_100)
    value: Any = number if number is not None else finite_number(outcome.score)
    return {
        "value": value if value is not None else outcome.label if outcome.label is not None else math.nan,
        "answer": outcome.label,
        "explanation": outcome.rationale,
        "metadata": {
            "score": finite_number(outcome.score),
            "confidence": finite_number(outcome.confidence),
            "values": sanitize(dict(outcome.values)),
            "targets": list(outcome.targets),
        },
        "history": [],
    }


def sample_of(run: Run, edit: Edit | None, unit: Unit, traces: Sequence[Trace]) -> tuple[Json, Json]:
    """Return a unit as a sample, and its summary for lists."""
    ended = _time(unit.finished_at)
    started = ended - timedelta(seconds=unit.seconds)
    conversation = Conversation(run, unit, started)
    for trace in traces:
        conversation.add(trace)
    instruction = edit.instruction if edit else "(this edit cannot be read: the run is damaged)"
    about = {
        "edit": unit.name,
        "criterion": unit.criterion,
        "model": unit.model,
        "instruction_type": edit.instruction_type if edit else None,
        "protocol": unit.protocol,
        "mode": unit.mode,
        "cost": unit.cost,
    }
    usage = {unit.judge: usage_of(unit.outcome.usage)}
    summary: Json = {
        "id": sample_id(unit),
        "epoch": unit.repeat + 1,
        "input": instruction,
        "target": _target(edit, unit.criterion),
        "metadata": {name: value for name, value in about.items() if value is not None},
        "scores": {unit.criterion: score_of(unit)},
        "model_usage": usage,
        "started_at": started.isoformat(),
        "completed_at": ended.isoformat(),
        "total_time": unit.seconds,
        "working_time": unit.seconds,
    }
    answer = next((m["content"] for m in reversed(conversation.messages) if m["role"] == "assistant"), "")
    score_event = {
        "uuid": f"{unit.name}-{unit.criterion}-score",
        "timestamp": ended.isoformat(),
        "working_start": unit.seconds,
        "event": "score",
        "score": score_of(unit),
        "target": summary["target"],
        "intermediate": False,
        "scorer": unit.criterion,
    }
    sample: Json = {
        **summary,
        "messages": conversation.messages,
        "output": {"model": unit.judge, "choices": _choices(conversation.messages), "completion": answer},
        "store": {},
        "events": [*conversation.events, score_event],
        "attachments": conversation.attachments(),
        "events_data": {"messages": conversation.messages, "calls": []},
    }
    return sample, {**summary, "completed": True, "message_count": len(conversation.messages)}


def sample_id(unit: Unit) -> str:
    """Return the id of a unit's sample."""
    return f"{unit.name} · {unit.criterion}"


def usage_of(usage: Usage) -> Json:
    """Return tokens as Inspect counts them: cached tokens are not part of the input tokens."""
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens),
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens_cache_read": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }


def _target(edit: Edit | None, criterion: str) -> str | list[str]:
    """Return the human labels; several annotators give several targets."""
    labels: Any = edit.human.get(criterion, "") if edit else ""
    return labels if isinstance(labels, str) else list(labels)


def _choices(messages: Sequence[Mapping[str, Any]]) -> list[Json]:
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    return [{"message": last, "stop_reason": "stop"}] if last else []


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def to_inspect(run: Run, path: Path, configuration: str | None = None) -> int:
    """Write an `.eval` log of one configuration; return the number of samples.

    Args:
        run: The run.
        path: The file to write.
        configuration: The configuration's name; needed if the run has several.
    """
    name = _choose_configuration(run, configuration)
    started = _start(run, name)
    tallies: dict[str, _Tally] = {}
    count, ended = 0, started["eval"]["created"]
    with (
        atomic_write(path) as part,
        zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as log,
        tempfile.TemporaryFile("w+", encoding="utf-8") as summaries,
    ):
        log.writestr("_journal/start.json", _to_json(started))
        summaries.write("[")
        for edit, unit in _units(run, name):
            traces = run.load_trace(unit.name, unit.criterion, unit.repeat, unit.asked)
            sample, summary = sample_of(run, edit, unit, traces)
            log.writestr(f"samples/{sample_id(unit)}_epoch_{unit.repeat + 1}.json", _to_json(sample))
            summaries.write(("," if count else "") + _to_json(summary))
            tallies.setdefault(unit.criterion, _Tally()).add(summary["scores"][unit.criterion])
            count, ended = count + 1, max(ended, str(summary["completed_at"]))
        summaries.write("]")
        summaries.seek(0)
        with log.open("summaries.json", "w") as out:
            while block := summaries.read(1 << 20):
                out.write(block.encode())
        log.writestr("header.json", _to_json(_header(started, ended, tallies, count)))
    return count


def _units(run: Run, configuration: str | None) -> Iterator[tuple[Edit | None, Unit]]:
    for name, units in groupby(
        skip_repeated_verdicts(run.units(configuration=configuration)), key=lambda unit: unit.name
    ):
        try:
            edit: Edit | None = run.edit(name).edit
        except UserError:  # noted by the run as damaged
            edit = None
        for unit in units:
            yield edit, unit


def _choose_configuration(run: Run, text: str | None) -> str:
    """Return the configuration to export. A log has one model, so a run with several configurations needs a name."""
    configurations = run.configurations()
    if not configurations:
        raise UserError(f"the run {run.folder.name} has no verdicts, so there is nothing to write")
    fitting = configurations if text is None else match_configurations(configurations, text)
    if not fitting:
        have = format_list(configurations)
        raise UserError(f'the run {run.folder.name} has no configuration "{text}"; it has: {have}')
    if len(fitting) > 1:
        raise UserError(
            f"the run {run.folder.name} has several judges, but a log has one; choose it with --configuration: "
            f"{format_list(fitting)}"
        )
    return fitting[0].name


def _start(run: Run, configuration: str | None) -> Json:
    about = run.about()
    own = next((own for own in run.configurations() if own.name == configuration), None)
    described: Json = next((entry for entry in about["configurations"] if entry["name"] == configuration), {})
    protocol, judge = (own.protocol, own.judge) if own else ("", "")
    facts = {"mode": own.mode if own else None, "protocol": protocol, "configuration": configuration}
    return {
        "version": LOG_VERSION,
        "eval": {
            "eval_id": f"{run.folder.name}-{configuration}",
            "run_id": str(configuration),
            "created": str(about.get("created", "1970-01-01T00:00:00Z")).replace("Z", "+00:00"),
            "task": f"editloupe/{protocol}",
            "task_id": protocol,
            "task_version": 0,
            "task_attribs": {},
            "task_args": {name: value for name, value in facts.items() if value is not None},
            "task_args_passed": {},
            "solver_args_passed": {},
            "dataset": {"name": run.folder.name},
            "model": judge.replace(":", "/", 1),
            "model_generate_config": {},
            "model_args": {},
            "config": {},
            "packages": {"editloupe": version("editloupe")},
            "metadata": {"settings": described.get("settings", {}), "tools": described.get("tools", {})},
        },
        "plan": {"name": "editloupe", "steps": [], "config": {}},
    }


def _header(start: Json, ended: str, tallies: dict[str, _Tally], count: int) -> Json:
    scored = sum(tally.scored for tally in tallies.values())
    dataset = {**start["eval"]["dataset"], "samples": count}
    return {
        **start,
        "eval": {**start["eval"], "dataset": dataset},
        "status": "success",
        "results": {
            "total_samples": count,
            "completed_samples": scored,
            "scores": [tally.record(criterion) for criterion, tally in tallies.items()],
        },
        "stats": {"started_at": start["eval"]["created"], "completed_at": ended, "model_usage": {}, "role_usage": {}},
    }


def _to_json(value: Any) -> str:
    """Return JSON with NaN for unscored values, as Inspect writes and reads it."""
    return sanitize_text(json.dumps(value, ensure_ascii=False, default=str))
