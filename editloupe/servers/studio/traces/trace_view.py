"""Prepares a trace for its page: steps, boxes, raw requests and replies, and verdicts to compare it with."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from editloupe._util.text import number_of
from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit, find_step_reply
from editloupe.graphs.forking import find_box_parameter
from editloupe.judge.question_key import tabulate_settings
from editloupe.rubrics.case import EDITED, SOURCE
from editloupe.tools.contract import Frame
from editloupe.types import Box, Observation, RequestMessage, SentPicture, Sha, Step, ToolCall, Trace, UserError

if TYPE_CHECKING:
    from editloupe.servers.studio.run_catalog import OpenRun, RunCatalog

ROLES = {SOURCE: "source", EDITED: "edited"}
KINDS: Mapping[str, str] = {
    "target": "Target",
    "asked": "Asked for",
    "shown": "Shown to the judge",
    "difference": "Difference found",
    "object": "Object found",
    "text": "Text found",
}
"""Kinds of boxes."""
MOST_DIFFERENCES = 20
FINDINGS = (("regions", "difference"), ("objects", "object"), ("lines", "text"))
"""Lists in a tool's data, and what their entries are called."""
Block = dict[str, Any]
EARLIER = "This run keeps no requests; this one is put together from the trace, without the words of repairs and further stages."
Judged = tuple["OpenRun", Unit]
CONTEXT = 2
"""Equal lines around the differences of two prompts."""


@dataclass(frozen=True)
class Mark:
    """A box in one of the two pictures, in that picture's pixels."""

    picture: str
    box: Box
    kind: str
    step: int | None
    """Position of the step in its trace; None for the targets."""
    side: str = ""
    """The trace of the step, if two are compared."""
    text: str = ""

    def record(self) -> dict[str, Any]:
        """Return the mark as the viewer reads it."""
        return {**vars(self), "box": list(self.box)}


@dataclass(frozen=True)
class CallView:
    """A call and its observation; either may be missing."""

    call: ToolCall | None
    seen: Observation | None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call.name if self.call else self.seen.tool if self.seen else ""

    @property
    def parameters(self) -> str:
        """The call's parameters as one line."""
        parameters = self.call.parameters if self.call else {}
        return ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in parameters.items())

    @property
    def pictures(self) -> list[tuple[str, str]]:
        """Hash and caption of every returned picture."""
        shas = self.seen.pictures if self.seen else ()
        captions = self.seen.captions if self.seen else ()
        return [(sha, captions[n] if n < len(captions) else "picture") for n, sha in enumerate(shas)]


@dataclass(frozen=True)
class SentView:
    """A picture as it was sent to the judge."""

    sha: str
    name: str
    words: str
    """Its size and format as sent, and whether it was scaled down."""


@dataclass(frozen=True)
class StepView:
    """One step with its calls and boxes."""

    step: Step
    position: int
    calls: tuple[CallView, ...]
    marks: tuple[Mark, ...]
    sent: tuple[SentView, ...] = ()
    """Pictures that were sent with the step and that no tool of this trace returned."""
    served: str = ""
    """The version that answered, if it is not the one of the step before."""

    @property
    def act(self) -> str:
        """What the judge did, in a few words: the tools it called, or how the step ended."""
        if self.step.answer is not None:
            return "answer"
        names = dict.fromkeys(call.name for call in self.calls)
        return ", ".join(names) or ("not usable" if self.step.problem else "thought")

    @property
    def seconds(self) -> float:
        """Seconds of the reply and of the tools it called."""
        return self.step.seconds + sum(seen.seconds for seen in self.step.observations if not seen.cached)

    @property
    def found(self) -> str:
        """What its tools found and returned, such as `1 difference, 2 pictures`."""
        parts = []
        for seen in self.step.observations:
            parts += [number_of(len(_entries(seen.data[key])), word) for key, word in FINDINGS if key in seen.data]
            parts += [number_of(len(seen.pictures), "picture")] if seen.pictures else []
            parts += ["failed"] if seen.failed else []
        return ", ".join(parts)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The marks as the viewer reads them."""
        return [mark.record() for mark in self.marks]


def find_kinds(steps: Iterable[StepView]) -> set[str]:
    """Return the kinds of boxes that steps have, for the legend."""
    return {mark.kind for step in steps for mark in step.marks}


def build_steps(trace: Trace, pictures: Mapping[str, str], side: str = "") -> tuple[StepView, ...]:
    """Return the steps of a trace; `pictures` are the hashes of the whole pictures by role, for the boxes."""
    roles = find_roles(trace, pictures)
    returned = {sha for step in trace.steps for seen in step.observations for sha in seen.pictures}
    views, before = [], ""
    for position, step in enumerate(trace.steps):
        view = build_step(step, position, roles, side, returned)
        views.append(replace(view, served="" if view.served == before else view.served))
        before = view.served
    return tuple(views)


def build_step(
    step: Step, position: int, roles: Mapping[str, str], side: str = "", returned: Collection[str] = ()
) -> StepView:
    """Return one step; `roles` maps the judge's picture names to roles, `returned` are pictures of the tools."""
    calls = tuple(_call_views(step))
    marks = [mark for call in calls if call.seen for mark in _marks(call.seen, position, roles, side)]
    sent = tuple(
        SentView(picture.sha, picture.name, _as_sent(picture)) for picture in step.sent if picture.sha not in returned
    )
    return StepView(step, position, calls, tuple(marks), sent, step.served.summary if step.served else "")


def _as_sent(sent: SentPicture) -> str:
    shrunk = "" if sent.scale == 1 else f", shrunk from {sent.original_size[0]} × {sent.original_size[1]}"
    return f"{sent.size[0]} × {sent.size[1]} {sent.format}{shrunk}"


def first_pictures(pictures: Mapping[str, Sequence[Sha]]) -> dict[str, str]:
    """Return the first picture of every role that has one."""
    return {role: hashes[0] for role, hashes in pictures.items() if hashes}


def find_roles(trace: Trace, pictures: Mapping[str, str]) -> dict[str, str]:
    """Return the roles of the judge's picture names that are whole pictures, not crops or masked copies."""
    sent = {sent.name: sent.sha for step in trace.steps[:1] for sent in step.sent}
    by_sha = {sha: role for role, sha in pictures.items() if role in ROLES.values()}
    if not sent:
        return dict(ROLES)
    return {name: by_sha[sha] for name, sha in sent.items() if sha in by_sha}


@dataclass(frozen=True)
class DrawnBox:
    """The box of a call, on the whole picture that it is about."""

    name: str
    """The judge's name of the picture."""
    sha: str
    other: str
    """The picture to compare it with."""
    units: tuple[float, float]
    """Pixels of the picture per unit of the judge's coordinates, across and down."""
    box: tuple[float, ...]
    """In pixels of the picture."""


def find_drawn_box(trace: Trace, call: ToolCall, pictures: Mapping[str, str], per_mille: bool) -> DrawnBox | None:
    """Return where the box of a call is; None if it has no box, or is not about a whole picture.

    Args:
        trace: The trace of the call.
        call: The call.
        pictures: The hashes of source and edited picture by role.
        per_mille: Whether the judge counts in thousandths of a side.
    """
    parameter = find_box_parameter(call)
    roles = find_roles(trace, pictures)
    name = next((value for value in call.parameters.values() if isinstance(value, str) and value in roles), None)
    sent = {each.name: each for each in trace.steps[0].sent}.get(name or "") if trace.steps else None
    if parameter is None or name is None or sent is None or len(pictures.keys() & ROLES.values()) < 2:
        return None
    frame = Frame(sent.original_size, sent.size, per_mille)
    unit = frame.to_original((1, 1, 1, 1))
    other = next(sha for role, sha in pictures.items() if role in ROLES.values() and role != roles[name])
    return DrawnBox(name, sent.sha, other, unit[:2], frame.to_original(tuple(call.parameters[parameter])))


def find_parting(left: Trace, right: Trace) -> int | None:
    """Return the position of the first step at which two traces differ; None if they do not.

    Only calls with their parameters and the answer are compared: the words of replies always differ.
    """
    for position in range(max(len(left.steps), len(right.steps))):
        acts = [_act(trace.steps[position]) if position < len(trace.steps) else None for trace in (left, right)]
        if acts[0] != acts[1]:
            return position
    return None


def describe_parting(left: Trace, right: Trace, position: int | None) -> str:
    """Describe where two traces differ."""
    if position is None:
        return "Both made the same calls and gave the same answer."
    actions = [_did(trace.steps[position]) if position < len(trace.steps) else "had ended" for trace in (left, right)]
    return f"They differ from step {position + 1} on: A {actions[0]}, B {actions[1]}."


def _act(step: Step) -> tuple[Any, ...]:
    calls = [(call.name, json.dumps(dict(call.parameters), sort_keys=True, default=str)) for call in step.calls]
    return calls, step.answer, step.problem is not None


def _did(step: Step) -> str:
    if step.answer is not None:
        return f"answered “{step.answer}”"
    if step.calls:
        return "called " + " and ".join(
            f"{call.name}({', '.join(json.dumps(v, ensure_ascii=False) for v in call.parameters.values())})"
            for call in step.calls
        )
    return "gave a reply that could not be used" if step.problem else "only thought"


def _call_views(step: Step) -> Iterator[CallView]:
    unanswered = {seen.call_id: seen for seen in step.observations}
    for call in step.calls:
        yield CallView(call, unanswered.pop(call.id, None))
    for seen in unanswered.values():
        yield CallView(None, seen)


def _marks(seen: Observation, position: int, roles: Mapping[str, str], side: str) -> Iterator[Mark]:
    """Yield the boxes in a tool's data; they are in pixels of the original."""
    data = seen.data
    names = data.get("pictures") or [data.get("picture") or data.get("first")]
    first = str(names[0]) if names else ""
    for kind, entries in (
        ("difference", _entries(data.get("regions"))[:MOST_DIFFERENCES]),
        ("object", _entries(data.get("objects"))),
        ("text", _entries(data.get("lines"))),
    ):
        for number, entry in enumerate(entries, start=1):
            yield from _mark(entry.get("box"), first, kind, _mark_text(kind, number, entry), position, roles, side)
    yield from _mark(data.get("box"), first, "shown", seen.tool, position, roles, side)
    if data.get("asked") != data.get("box"):
        yield from _mark(data.get("asked"), first, "asked", seen.tool, position, roles, side)
    if len(names) > 1:
        yield from _mark(data.get("second_box"), str(names[1]), "shown", seen.tool, position, roles, side)


def _mark(
    box: Any, name: str, kind: str, text: str, position: int, roles: Mapping[str, str], side: str
) -> Iterator[Mark]:
    if box is None or name not in roles:
        return
    try:
        yield Mark(roles[name], Box.model_validate(box), kind, position, side, text)
    except ValidationError:
        return


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, (list, tuple)) else []


def _mark_text(kind: str, number: int, entry: Mapping[str, Any]) -> str:
    if kind == "text":
        return str(entry.get("text", ""))
    if kind == "object":
        return f"{entry.get('label', 'object')} {entry.get('confidence', '')}".strip()
    return f"difference {number}"


def format_request(trace: Trace, position: int) -> list[Block]:
    """Return the messages up to a step: texts as they were sent, pictures by name, hash and size.

    A trace of an earlier version has no requests: the conversation is rebuilt as far as possible (`describe_request_source`).
    """
    if not trace.steps[position].asked:
        return _put_together(trace, position)
    opened = (number for number in range(position, -1, -1) if _opens(trace.steps[number]))
    first = next(opened, 0)
    messages: list[Block] = []
    for number in range(first, position + 1):
        step = trace.steps[number]
        sizes = {sent.sha: sent for earlier in trace.steps[first : number + 1] for sent in earlier.sent}
        for message in step.asked:
            if message.role == "assistant":
                messages += [_reply(trace.steps[number - 1])] if number else []
            else:
                messages.append(_message(message, trace.prompt, sizes))
    return messages


def describe_request_source(trace: Trace, position: int) -> str | None:
    """Return a note if a request was rebuilt from the trace; None if it is as it was sent."""
    return None if trace.steps[position].asked else EARLIER


def format_reply(run: Run, trace: Trace, position: int) -> Any:
    """Return the reply of a step: the provider's message if the run stored it, else its text."""
    step = trace.steps[position]
    if reply := find_step_reply(run, trace.edit_id, step):
        return reply.reply
    calls = [{"name": call.name, "parameters": dict(call.parameters)} for call in step.calls]
    return {"text": step.raw, **({"calls": calls} if calls else {})}


def _opens(step: Step) -> bool:
    """True if a conversation begins: rubrics of two stages have two in one trace."""
    return bool(step.asked) and step.asked[0].role == "system"


def _message(message: RequestMessage, prompt: Sequence[str], sizes: Mapping[str, SentPicture]) -> Block:
    parts: list[Any] = []
    if message.prompt is not None:
        parts.append(prompt[message.prompt] if message.prompt < len(prompt) else "")
    for part in message.content:
        if isinstance(part, str):
            parts.append(part)
        elif part.sha in sizes:
            sent = sizes[part.sha]
            parts.append(_picture(part.picture, part.sha, sent.size, sent.format))
        else:
            parts.append({"picture": part.picture, "sha": part.sha})
    content = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    about = {"call_id": message.call_id, "name": message.name} if message.role == "tool" else {}
    return {"role": message.role, **about, "content": content}


def _reply(step: Step) -> Block:
    reply: Block = {"role": "assistant", "content": step.raw}
    if step.calls:
        reply["calls"] = [{"id": c.id, "name": c.name, "parameters": dict(c.parameters)} for c in step.calls]
    return reply


def _put_together(trace: Trace, position: int) -> list[Block]:
    steps = list(trace.steps[: position + 1])
    pictures = [_picture(sent.name, sent.sha, sent.size, sent.format) for step in steps[:1] for sent in step.sent]
    system, task = (*trace.prompt, "", "")[:2]
    messages: list[Block] = [{"role": "system", "content": system}, {"role": "user", "content": [task, *pictures]}]
    for step, following in pairwise(steps):
        messages += _exchange(step, following)
    return messages


def _exchange(step: Step, following: Step) -> Iterator[Block]:
    yield _reply(step)
    for seen in step.observations:
        yield {"role": "tool", "call_id": seen.call_id, "name": seen.tool, "content": seen.text}
    if step.problem:
        yield {"role": "user", "content": step.problem}
    if following.sent:
        yield {"role": "user", "content": [_picture(s.name, s.sha, s.size, s.format) for s in following.sent]}


def _picture(name: str, sha: str, size: tuple[int, int], format: str) -> Block:
    return {"picture": name, "sha": sha, "size": list(size), "format": format}


def find_comparable_verdicts(catalog: RunCatalog, own: OpenRun, unit: Unit) -> list[Judged]:
    """Return all other verdicts by the same criterion on the same pictures and instruction, in all open runs.

    Ids are not compared: two runs may use one id for different edits. If several edits of a run have the same content, each
    question is listed once, preferably of the edit with the same name.
    """
    verdicts: list[Judged] = []
    content = own.content(unit.name)
    for open_run in catalog.runs():
        same_run = open_run.key == own.key
        try:
            alike = [unit.name] if same_run else open_run.alike(content) if content else []
            names = sorted(alike, key=lambda name: name != unit.name)
            units = [other for name in names for other in open_run.units(name)]
        except UserError:  # its own pages say what is wrong with it
            continue
        seen = {(unit.asked, unit.repeat)} if same_run else set()
        for other in units:
            if other.criterion == unit.criterion and (other.asked, other.repeat) not in seen:
                seen.add((other.asked, other.repeat))
                verdicts.append((open_run, other))
    return verdicts


def describe_differences(left: Judged, right: Judged) -> list[str]:
    """Describe how the questions of two verdicts on the same content differ, apart from judge, mode and repeat."""
    return list(dict.fromkeys(_differences(left, right)))


def _differences(left: Judged, right: Judged) -> Iterator[str]:
    (open_run, first), (other, second) = left, right
    if first.protocol != second.protocol:
        yield f"A was asked by {first.protocol}, B by {second.protocol}: criteria of one name, but not one question"
    edit, same = open_run.edit(first.name).edit, other.edit(second.name).edit
    if edit.id != same.id:
        yield f"the run of B calls this edit {same.id}"
    if edit.model != same.model:
        yield f"the editing model is {edit.model or 'not named'} in A and {same.model or 'not named'} in B"
    for name, words in (
        ("target_boxes", "the targets of the edit differ"),
        ("instruction_type", "the type of the instruction differs"),
        ("hint", "the hint differs"),
        ("turn", "the turn differs"),
    ):
        if getattr(edit, name) != getattr(same, name):
            yield f"{words} between the two runs"
    if _further(open_run, first) != _further(other, second):
        yield "the further pictures of the edit, such as a reference, differ between the two runs"


def compare_settings(questions: Iterable[tuple[OpenRun, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the settings in which questions differ, each with its value in every question.

    Args:
        questions: The run and the key of each question.
    """
    return tabulate_settings([_question_facts(open_run, asked) for open_run, asked in questions])


def _question_facts(open_run: OpenRun, asked: str) -> Mapping[str, Any]:
    """Return the facts of a question; empty if the run does not have them."""
    with raise_run_damaged(open_run.name), open_run.run.reader() as reader:
        return reader.question_facts(asked)


@dataclass(frozen=True)
class DiffLine:
    """A line of two prompts compared."""

    kind: str
    """`same`, `removed`, `added`, or `gap` in place of equal lines."""
    text: str = ""


def diff_prompts(left: Trace | None, right: Trace | None) -> list[DiffLine]:
    """Return the lines in which the prompts of two traces differ, with a few equal ones around them.

    The list is empty if the prompts are equal, or a trace is missing.
    """
    if left is None or right is None:
        return []
    texts = ["\n".join(trace.prompt).splitlines() for trace in (left, right)]
    lines: list[DiffLine] = []
    for group in SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_grouped_opcodes(CONTEXT):
        lines += [DiffLine("gap")] if lines or group[0][1] else []
        for kind, a, b, c, d in group:
            if kind == "equal":
                lines += [DiffLine("same", text) for text in texts[0][a:b]]
            else:
                lines += [DiffLine("removed", text) for text in texts[0][a:b]]
                lines += [DiffLine("added", text) for text in texts[1][c:d]]
    return lines


def _further(open_run: OpenRun, unit: Unit) -> dict[str, list[str]]:
    pictures = open_run.edit(unit.name).pictures
    return {role: list(shas) for role, shas in pictures.items() if role not in ("source", "edited")}
