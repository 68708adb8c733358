"""Export traces as conversations in chat format, with their pictures and a data card, to train judges on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from editloupe._util.files import atomic_folder, write_text
from editloupe._util.json_safe import finite_number
from editloupe._util.text import for_json, number_of, one_line
from editloupe.agent.messages import WRITTEN
from editloupe.agent.prompts import build_functions
from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.runs.configurations import list_recorded_rubrics
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import Album
from editloupe.rubrics.wording import Wording
from editloupe.tools.contract import Frame, Tool, View
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.registry import BUILT_IN
from editloupe.tools.settings import ToolSettings
from editloupe.types import RequestMessage, RequestPicture, Sha, Step, Trace

Json = dict[str, Any]
FILE, PICTURES = "train.jsonl", "images"
NO_MESSAGES = "without recorded messages"
NO_ANSWER = "ended without an answer"
OVERRULED = "gave another answer than the panel or cascade they belong to"
NO_PICTURE = "show a picture that the run does not have"


class ChosenVerdict(Protocol):
    """A verdict to export, such as a hit of a search."""

    @property
    def name(self) -> str:
        """The edit's name."""

    @property
    def criterion(self) -> str:
        """The criterion."""

    @property
    def repeat(self) -> int:
        """The number of the repeat."""

    @property
    def asked(self) -> str:
        """The key of the question."""

    @property
    def configuration(self) -> str | None:
        """The configuration's name."""

    @property
    def status(self) -> str:
        """`judged` or `unjudged`."""

    @property
    def label(self) -> str | None:
        """The label."""

    @property
    def score_100(self) -> float | None:
        """The score from 0 to 100."""

    @property
    def human(self) -> str | None:
        """People's label."""


class SftSelection(NamedTuple):
    """How the verdicts were chosen, for the data card.

    Args:
        where: The filter.
        human: Names of the files of human labels.
        whole: Number of verdicts in the run.
        configuration: Name of the only configuration that is exported.
    """

    where: str
    human: Sequence[str]
    whole: int
    configuration: str | None = None


@dataclass
class SftCounts:
    """What was exported and what was left out."""

    verdicts: int = 0
    """Verdicts that fit the selection."""
    conversations: int = 0
    unjudged: int = 0
    labelled: int = 0
    """Exported verdicts with a label by people."""
    agreeing: int = 0
    """Of those, verdicts with the same label."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Conversations that were left out, by reason."""
    by: dict[str, Counter[str]] = field(default_factory=dict)
    """Conversations by judge, by protocol and criterion, and by label."""
    pictures: int = 0
    unknown_tools: set[str] = field(default_factory=set)
    """Tools whose parameters are not known here, so that they are missing in the list of tools."""

    def add(self, row: Json) -> None:
        """Count a conversation."""
        self.conversations += 1
        for name, value in (
            ("judge", f"{row['judge']} · {row['mode']}"),
            ("criterion", f"{row['protocol']} · {row['criterion']}"),
            ("label", f"{row['criterion']} · {row['verdict'] or 'no label'}"),
        ):
            self.by.setdefault(name, Counter())[str(value)] += 1


def to_sft(run: Run, folder: Path, chosen: Iterable[ChosenVerdict], selection: SftSelection) -> SftCounts:
    """Write a folder with `train.jsonl`, the pictures and a data card. The same run and selection give the same bytes.

    Args:
        run: The run.
        folder: The folder, which must not exist or must be empty.
        chosen: The verdicts, in the order of the rows.
        selection: How they were chosen.

    Returns:
        The counts of the data card.
    """
    counts, tools, clean = SftCounts(), _ToolTexts(run), Secrets()
    with atomic_folder(folder) as part:
        with (part / FILE).open("w", encoding="utf-8", newline="") as out:
            for verdict in chosen:
                counts.verdicts += 1
                if verdict.status != "judged":
                    counts.unjudged += 1
                    continue
                before = counts.conversations
                for row in _build_rows(run, verdict, tools, counts):
                    row["images"] = [_copy_picture(run, sha, part, counts) for sha in row["images"]]
                    counts.add(row)
                    out.write(for_json(clean.in_value(row)) + "\n")
                if counts.conversations > before and verdict.human is not None:
                    counts.labelled += 1
                    counts.agreeing += verdict.human == verdict.label
        write_text(part / "README.md", clean(_build_card(run, selection, counts)))
    return counts


def _build_rows(run: Run, verdict: ChosenVerdict, tools: _ToolTexts, counts: SftCounts) -> Iterator[Json]:
    number = 0
    for trace in run.load_trace(verdict.name, verdict.criterion, verdict.repeat, verdict.asked):
        for steps in _split_conversations(trace):
            number += 1
            if why := _find_fault(run, trace, steps, verdict):
                counts.left_out[why] += 1
                continue
            pictures: list[Sha] = []
            yield {
                "id": f"{verdict.name}/{verdict.criterion}/{verdict.repeat}/{verdict.asked[:8]}/{number}",
                "messages": [*_build_messages(trace, steps, pictures)],
                "images": pictures,
                "tools": json.dumps(tools.build(verdict, trace, steps[0], counts.unknown_tools), ensure_ascii=False),
                "edit": verdict.name,
                "criterion": verdict.criterion,
                "protocol": trace.protocol,
                "judge": trace.judge,
                "mode": trace.mode,
                "part": trace.part,
                "verdict": verdict.label,
                "score_100": finite_number(verdict.score_100),
                "human": verdict.human,
                "repairs": sum(step.problem is not None for step in steps),
            }


def _split_conversations(trace: Trace) -> list[list[Step]]:
    """Return the steps of every conversation of a trace. A rubric with two questions has two."""
    conversations: list[list[Step]] = []
    for step in trace.steps:
        if not conversations or (step.asked and step.asked[0].role == "system"):
            conversations.append([])
        conversations[-1].append(step)
    return conversations


def _find_fault(run: Run, trace: Trace, steps: Sequence[Step], verdict: ChosenVerdict) -> str | None:
    """Return why a conversation cannot be exported."""
    if not all(step.asked for step in steps):
        return NO_MESSAGES
    if steps[-1].answer is None:
        return NO_ANSWER
    if trace.part and verdict.label is not None and steps[-1].answer != verdict.label:
        return OVERRULED
    shas = {part.sha for step in steps for message in step.asked for part in _pictures_of(message)}
    return NO_PICTURE if [sha for sha in shas if run.find_picture(sha) is None] else None


def _pictures_of(message: RequestMessage) -> Iterator[RequestPicture]:
    return (part for part in message.content if isinstance(part, RequestPicture))


def _build_messages(trace: Trace, steps: Sequence[Step], pictures: list[Sha]) -> Iterator[Json]:
    """Yield the messages as they were sent, and append the pictures that they show to a list."""
    called: set[str] = set()
    for step in steps:
        for message in step.asked:
            if message.role == "assistant":  # the reply of an earlier step
                continue
            pictures += [part.sha for part in _pictures_of(message)]
            answers_call = message.role == "tool" and message.call_id in called
            role = "user" if message.role == "tool" and not answers_call else message.role
            about = {"tool_call_id": message.call_id, "name": message.name} if answers_call else {}
            yield {"role": role, "content": _build_content(message, trace.prompt), **about}
        calls = [call for call in step.calls if not call.id.startswith(WRITTEN)]
        called.update(call.id for call in calls)
        functions = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dict(call.parameters)}}
            for call in calls
        ]
        content = [_text(step.raw)] if step.raw else []
        yield {"role": "assistant", "content": content, **({"tool_calls": functions} if functions else {})}


def _build_content(message: RequestMessage, prompt: Sequence[str]) -> list[Json]:
    """Return a message's texts and the places of its pictures.

    The opening of a conversation is stored as one text; a picture follows the line that names it.
    """
    if message.prompt is None:
        return [_text(part) if isinstance(part, str) else {"type": "image"} for part in message.content]
    lines = prompt[message.prompt].split("\n") if message.prompt < len(prompt) else []
    blocks: list[Json] = []
    for picture in _pictures_of(message):
        count = next((number for number, line in enumerate(lines) if line.startswith(picture.picture)), -1) + 1
        blocks += [_text("\n".join(lines[:count]))] if count else []
        blocks.append({"type": "image"})
        lines = lines[count:]
    return [*blocks, *([_text("\n".join(lines))] if lines else [])]


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _copy_picture(run: Run, sha: Sha, folder: Path, counts: SftCounts) -> str:
    """Copy a picture once; return its path in the folder."""
    source = run.pictures.find(sha)
    assert source is not None  # `_find_fault` looked
    name = f"{PICTURES}/{sha[:2]}/{source.name}"
    if not (folder / name).exists():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
        counts.pictures += 1
    return name


class _SentView(View):
    """A view without pixels: the descriptions of tools need only the names and sizes of pictures."""

    def frame(self, name: str) -> Frame:
        return self.frames[name]


class _ToolTexts:
    """The descriptions of the tools as a configuration offered them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._by_configuration: dict[str | None, tuple[dict[str, Tool], bool]] = {}

    @cached_property
    def _about(self) -> Mapping[str, Any]:
        return self._run.about()

    def build(self, verdict: ChosenVerdict, trace: Trace, first: Step, unknown: set[str]) -> list[Json]:
        """Return the functions that were offered in a conversation; none if the judge's calls are written as text."""
        if not trace.tools:
            return []
        entries = [entry for entry in self._about["configurations"] if entry.get("name") == verdict.configuration]
        entry: Mapping[str, Any] = entries[0] if entries else {}
        judge = next((own for own in entry.get("members", ()) if own.get("spec") == trace.judge), entry)
        profile = judge.get("profile") or entry.get("profile") or {}
        if not profile.get("native_tools", True) or entry.get("settings", {}).get("tool_calls") == "text":
            return []
        made = self._make_tools(entry)
        unknown.update(set(trace.tools) - set(made))
        per_mille = bool(profile.get("per_mille"))
        names = [sent.name for sent in first.sent]
        frames = {sent.name: Frame(sent.original_size, sent.size, per_mille) for sent in first.sent}
        view = _SentView(Album(), dict.fromkeys(names, ""), "", frames)
        offered = [made[name] for name in trace.tools if name in made]
        return build_functions(offered, view, per_mille, self._find_wording(entry, verdict.criterion))

    def _make_tools(self, entry: Mapping[str, Any]) -> dict[str, Tool]:
        """Return the tools by name, with the recorded settings that their descriptions depend on."""
        own = {item.name for item in fields(ToolSettings)} - {"enhancer"}
        recorded: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for facts in entry.get("tools", {}).values()
            for name, value in facts.items()
            if name in own
        }
        settings = ToolSettings(enhancer="fast")
        with suppress(TypeError, ValueError):  # settings of another version
            settings = ToolSettings(**{**recorded, "enhancer": "fast"})
        enhancer, _ = build_enhancer(ToolSettings(enhancer="fast"))
        return {item.name: item.make(settings, enhancer) for item in BUILT_IN}

    def _find_wording(self, entry: Mapping[str, Any], criterion: str) -> Wording:
        for rubric in list_recorded_rubrics(self._about, entry.get("protocol"), entry.get("name")):
            if rubric.get("criterion") == criterion:
                with suppress(ValidationError):
                    return Wording.model_validate(rubric.get("wording") or {})
        return Wording()


def _build_card(run: Run, selection: SftSelection, counts: SftCounts) -> str:
    """Return the data card: what was chosen, what was left out, and the counts."""
    left_out = [(f"{selection.whole - counts.verdicts} verdicts of the run", "not selected")]
    left_out += [(number_of(counts.unjudged, "verdict"), "unjudged")]
    left_out += [(number_of(count, "conversation"), why) for why, count in sorted(counts.left_out.items())]
    agreement = "none has a label by people"
    if counts.labelled:
        share = 100 * counts.agreeing / counts.labelled
        agreement = f"{counts.labelled} have a label by people; {counts.agreeing} ({share:.1f} %) have the same label"
    unknown = ", ".join(sorted(counts.unknown_tools))
    parts = [
        f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {FILE}\n---\n",
        f"# Traces of {_in_line(run.folder.resolve().name)}",
        f"{number_of(counts.conversations, 'conversation')} in which judges of image edits reached a verdict, one per line of "
        f"`{FILE}`, with {number_of(counts.pictures, 'picture')} in `{PICTURES}/`. Written by `editloupe export --format sft`.",
        "## Selection",
        f"- Filter: {f'`{_in_line(selection.where)}`' if selection.where else 'none'}\n"
        f"- Configuration: {_in_line(selection.configuration or 'all')}\n"
        f"- Files of human labels, in addition to the run's own: {_in_line(', '.join(selection.human)) or 'none'}\n"
        f"- Of the exported verdicts, {agreement}\n"
        + "\n".join(f"- Left out: {count}, {_in_line(why)}" for count, why in left_out),
        "## Counts",
        *(_build_counts(name, counts.by.get(name, Counter())) for name in ("judge", "criterion", "label")),
        "## Fields",
        "`messages` holds the conversation as it was sent and answered. Its content is always a list of texts and of places "
        'for pictures (`{"type": "image"}`); the files are in `images`, in the same order. `tools` is a JSON text with the '
        "functions that were offered; it is empty if the judge writes its calls as text. `verdict` and `score_100` are the "
        "outcome of the criterion, `human` is people's label, and `repairs` counts replies that had to be asked for again. "
        "`part` is the place of the judge in a panel or a cascade."
        + (f" The parameters of {_in_line(unknown)} are not known here, so `tools` lacks them." if unknown else ""),
        "## Pictures and texts",
        "The licences of the pictures, and of the instructions, are not recorded in a run and therefore not known: find out "
        "before you share them or a model trained on them. The terms of the provider of a judge may forbid training on its "
        "replies. Pictures are the files that were judged, with their metadata. A judge may have been sent a smaller copy; "
        "positions refer to the size stated before a picture.",
        "## Loading",
        "```python\nfrom datasets import Image, List, load_dataset\n\n"
        f'data = load_dataset("json", data_files="{FILE}", split="train")\n'
        'data = data.cast_column("images", List(Image()))  # paths are relative to this folder\n```',
    ]
    return "\n\n".join(parts) + "\n"


def _build_counts(name: str, counter: Counter[str]) -> str:
    rows = "\n".join(f"| {_in_line(value)} | {count} |" for value, count in sorted(counter.items()))
    return f"| {name} | conversations |\n|---|--:|\n{rows}"


def _in_line(text: str) -> str:
    return one_line(text).replace("|", "\\|")
