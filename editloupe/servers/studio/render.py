"""Renders templates. Every text is escaped unless a template made it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from starlette.responses import HTMLResponse, Response

from editloupe.agent.transport.secrets import Secrets
from editloupe.evals.labels.label_form import find_rubric
from editloupe.evals.report.html_renderer import score_level
from editloupe.judge.panels import format_opinions
from editloupe.rubrics.model import LabelAnswer, Rubric
from editloupe.servers.studio.traces.trace_view import KINDS

HERE = Path(__file__).parent


def title_of(criterion: str, protocol: str = "") -> str:
    """Return a criterion's title.

    >>> from editloupe.rubrics.registry import DEFAULT
    >>> title_of("visual_consistency", DEFAULT.name), title_of("colour_fit")
    ('Visual Consistency', 'Colour fit')
    """
    rubric = find_rubric(protocol, criterion)
    return rubric.title if rubric else criterion.replace("_", " ").capitalize()


def meaning_of(label: str | None, criterion: str, protocol: str, rubric: Rubric | None = None) -> str:
    """Return what a label means in the words of a rubric, by default the protocol's."""
    rubric = rubric or find_rubric(protocol, criterion)
    labels = rubric.answer.labels if rubric and isinstance(rubric.answer, LabelAnswer) else ()
    return next((rubric_label.meaning.strip() for rubric_label in labels if rubric_label.name == label), "")


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(0.0421), format_duration(2.5), format_duration(75), format_duration(7300)
    ('42 ms', '2.5 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def format_number(value: float) -> str:
    """Format a count with thin spaces between thousands."""
    return f"{value:,.0f}".replace(",", "\u202f")


def capitalize_sentence(sentence: str) -> str:
    """Return a sentence with a capital first letter."""
    return sentence[:1].upper() + sentence[1:]


def escape_address(text: str) -> str:
    """Percent-encode a text for an address; lone surrogates are replaced.

    >>> escape_address("a/b c&d"), escape_address("\\ud800")
    ('a/b%20c%26d', '%3F')
    """
    return quote(text, errors="replace")


class _Compiled(BytecodeCache):
    """Compiled templates, shared by all studios of this process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if (code := self._kept.get((bucket.key, bucket.checksum))) is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


class Pages:
    """Renders pages and parts of pages."""

    def __init__(self, common: Mapping[str, Any], secrets: Secrets) -> None:
        self.redact = secrets.in_value
        self._environment = Environment(
            # Every value passes before it is escaped: a key with a sign that HTML escapes is found, too.
            finalize=lambda value: secrets.in_value(value) if isinstance(value, str) else value,
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            bytecode_cache=_COMPILED,
        )
        self._environment.filters.update(
            duration=format_duration,
            number=format_number,
            level=score_level,
            urlencode=escape_address,
            opening=capitalize_sentence,
        )
        self._environment.globals.update(
            title_of=title_of, meaning_of=meaning_of, opinion_lines=format_opinions, KINDS=KINDS, **common
        )

    def warm(self) -> None:
        """Compile all templates, so that the first page is fast."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def text(self, template: str, **values: Any) -> str:
        """Render a template."""
        return self._environment.get_template(template).render(**values)

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page; characters that cannot be encoded are replaced."""
        return HTMLResponse(self.text(template, **values).encode("utf-8", "replace"), status)

    def json(self, content: Any, status: int = 200) -> Response:
        """Return JSON for the page's scripts."""
        text = json.dumps(self.redact(content), ensure_ascii=False, separators=(",", ":"))
        return Response(text.encode("utf-8", "replace"), status, media_type="application/json")
