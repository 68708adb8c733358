"""Render the traces of an edit as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from PIL import Image

from editloupe._util.text import for_html, number_of, verb
from editloupe.evals.report.html_renderer import (
    PICTURES,
    encode_jpeg,
    format_json,
    make_address,
    render_call,
    render_document,
    render_figure,
    render_label,
)
from editloupe.evals.runs.edit_rows import StoredEdit
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import ImageError
from editloupe.types import Observation, Sha, Step, Trace, Usage, Verdict

LARGEST = 600_000
"""Size in bytes up to which a picture is embedded unchanged; larger ones are shrunk."""
LONG_SIDE = 1400
QUALITY = 88
_KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".gif": "gif"}
Story = tuple[Unit, Sequence[Trace]]


class _EmbeddedPicture(NamedTuple):
    address: str
    size: tuple[int, int]


class EditStory(NamedTuple):
    """An edit with some of its verdicts.

    Args:
        stored: The edit and its pictures.
        stories: Units with their traces.
        people: Human labels by criterion.
    """

    stored: StoredEdit
    stories: Sequence[Story]
    people: Mapping[str, str] = {}


def render_trace_html(run: Run, story: EditStory, beside: EditStory | None = None) -> str:
    """Return one page with the traces of an edit. All text of models and manifests is escaped.

    Args:
        run: The run that holds the edit.
        story: The edit and its verdicts.
        beside: Another edit of the run, which is shown in a second column.
    """
    page = _Page(run)
    columns = ["\n".join(page.render(*each)) for each in (story, beside) if each is not None]
    body = "\n".join(f"<main>\n{column}\n</main>" for column in columns)
    body = f'<div class="beside">\n{body}\n</div>' if beside else body
    return render_document(f"{story.stored.edit.id} · trace", "trace.css", body)


class _Page:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._inside: dict[Sha, _EmbeddedPicture | None] = {}
        self._noted: set[str] = set()
        self._traces = 0

    def render(self, stored: StoredEdit, stories: Iterable[Story], people: Mapping[str, str]) -> Iterator[str]:
        edit = stored.edit
        yield f"<h1>{for_html(edit.instruction)}</h1>"
        about = (edit.id, edit.instruction_type, edit.model, f"from the run {self._run.folder.resolve().name}")
        yield f'<p class="soft">{for_html(" · ".join(filter(None, about)))}</p>'
        roles = [(role, sha) for role, shas in stored.pictures.items() for sha in shas]
        ordered = sorted(roles, key=lambda item: {"source": 0, "edited": 1}.get(item[0], 2))
        yield self._pictures([(sha, role.capitalize()) for role, sha in ordered], "pictures pair")
        for unit, traces in stories:
            yield from self._story(unit, traces, people.get(unit.criterion))

    def _story(self, unit: Unit, traces: Sequence[Trace], human: str | None) -> Iterator[str]:
        outcome = unit.outcome
        yield f"<h2>{for_html(unit.criterion.replace('_', ' ').capitalize())}</h2>"
        who = f"{unit.judge} · {unit.protocol} · {unit.mode} mode" + (
            f", repeat {unit.repeat + 1}" if unit.repeat else ""
        )
        parts = [f'<p class="soft">{for_html(who)}</p>']
        if isinstance(outcome, Verdict):
            score = "" if outcome.score_100 is None else f"{outcome.score_100:.0f} of 100"
            number = "see values" if outcome.score is None else f"{outcome.score:g}"
            label = number if outcome.label is None else outcome.label
            sure = "" if outcome.confidence is None else f", confidence {outcome.confidence:.2f}"
            chip = render_label(label, outcome.score_100)
            parts.append(f'<p class="label">{chip} <span class="soft">{score}{sure}</span></p>')
            if outcome.values:
                parts.append(f"<pre>{for_html(format_json(outcome.values))}</pre>")
            parts.append(f'<p class="thought">{for_html(outcome.rationale)}</p>' if outcome.rationale else "")
        else:
            chip, reason = render_label("Unjudged", None, judged=False), outcome.reason.value.replace("_", " ")
            parts.append(f'<p class="label">{chip} <span class="soft">{reason}</span></p>')
            parts.append(f"<p>{for_html(outcome.detail)}</p>")
            parts.append(_render_details("The reply that could not be read", outcome.raw))
        differs = isinstance(outcome, Verdict) and outcome.label not in (None, human)
        apart = ' class="apart"' if differs else ""
        parts.append(f"<p{apart}>People: <strong>{for_html(human)}</strong></p>" if human else "")
        facts = ["1 step" if outcome.steps == 1 else f"{outcome.steps} steps", _format_tokens(outcome.usage)]
        facts += [f"${unit.cost:.4f}"] if unit.cost else []
        parts.append(f'<p class="soft">{" · ".join(filter(None, facts))}</p>')
        yield f'<section class="card">{"".join(parts)}</section>'
        rationale = outcome.rationale if isinstance(outcome, Verdict) else ""
        for trace in traces:
            yield from self._trace(trace, rationale.strip())
        if not traces:
            yield '<p class="soft">It ended before its first step.</p>'

    def _trace(self, trace: Trace, rationale: str) -> Iterator[str]:
        self._traces += 1
        if trace.target is not None:
            yield f"<h3>Target {trace.target + 1}</h3>"
        notes = [note for note in trace.notes if note not in self._noted]
        self._noted.update(notes)  # notes on this machine's tools are the same for every criterion
        yield from (f'<p class="soft">Note: {for_html(note)}</p>' for note in notes)
        yield _render_details("The prompt", "\n\n".join(trace.prompt))
        steps = "".join(self._step(step, number, rationale) for number, step in enumerate(trace.steps, start=1))
        yield f"<ol>{steps}</ol>"

    def _step(self, step: Step, number: int, rationale: str) -> str:
        anchor = f"trace-{self._traces}-step-{number}"
        facts = " · ".join(filter(None, (f"{step.seconds:.1f} s", _format_tokens(step.usage))))
        parts = [f'<h3><a href="#{anchor}">Step {number}</a> <span class="soft">{facts}</span></h3>']
        if step.sent:
            pictures = self._pictures(
                [(picture.sha, f"Shown: {picture.name}, {picture.size[0]}×{picture.size[1]}") for picture in step.sent]
            )
            count = len(step.sent)
            summary = f"{number_of(count, 'picture')} {verb(count, 'was', 'were')} shown"
            parts.append(f"<details><summary>{summary}</summary>{pictures}</details>")
        if rationale and step.thought.strip() == rationale:
            parts.append('<p class="soft">The rationale above.</p>')
        elif step.thought:
            parts.append(f'<p class="thought">{for_html(step.thought)}</p>')
        parts += [f"<p>{render_call(call)}</p>" for call in step.calls]
        parts += [self._observation(observation) for observation in step.observations]
        parts.append(f'<p class="problem">Not usable: {for_html(step.problem)}</p>' if step.problem else "")
        parts.append(f"<p>Answer: <strong>{for_html(step.answer)}</strong></p>" if step.answer is not None else "")
        parts.append(_render_details("The reply as it came", step.raw) if step.raw != step.thought else "")
        return f'<li class="step" id="{anchor}">{"".join(parts)}</li>'

    def _observation(self, observation: Observation) -> str:
        captions = [*observation.captions, *["picture"] * len(observation.pictures)]
        pictures = self._pictures(list(zip(observation.pictures, captions, strict=False)))
        kind = "seen problem" if observation.failed else "seen"
        timing = "from memory" if observation.cached else f"{observation.seconds * 1000:.0f} ms"
        return f'<div class="{kind}"><p>{for_html(observation.text)} <span class="soft">{timing}</span></p>{pictures}</div>'

    def _pictures(self, captioned: Sequence[tuple[Sha, str]], kind: str = "pictures") -> str:
        figures = []
        for sha, caption in captioned:
            if (picture := self._picture(sha)) is None:
                figures.append(f'<p class="soft">{for_html(caption)}: missing from the run, or damaged.</p>')
            else:
                figures.append(render_figure(picture.address, picture.size, caption))
        return f'<div class="{kind}">{"".join(figures)}</div>' if figures else ""

    def _picture(self, sha: Sha) -> _EmbeddedPicture | None:
        if sha not in self._inside:
            self._inside[sha] = self._read(sha)
        return self._inside[sha]

    def _read(self, sha: Sha) -> _EmbeddedPicture | None:
        path = self._run.pictures.find(sha)
        try:
            if path is None:
                raise ImageError("it is gone")
            picture = Image.fromarray(open_picture(path).pixels)
            data = path.read_bytes()
        except (ImageError, OSError):
            self._run.damage.add(PICTURES, sha)
            return None
        kind = _KINDS.get(path.suffix.lower())
        if kind is None or len(data) > LARGEST:
            picture.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.LANCZOS)
            data, kind = encode_jpeg(picture, QUALITY), "jpeg"
        return _EmbeddedPicture(make_address(kind, data), picture.size)


def _render_details(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary><pre>{for_html(text)}</pre></details>" if text else ""


def _format_tokens(usage: Usage) -> str:
    is_known = usage.input_tokens or usage.output_tokens
    return f"{usage.input_tokens} + {usage.output_tokens} tokens" if is_known else ""
