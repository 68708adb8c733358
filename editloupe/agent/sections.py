"""Splits a reply in the papers' text protocol into thought, tool-call blocks and final answers.

The slips of published transcripts are survived: a missing slash in a closing tag, a space inside a tag, other capitals, a tag
that is never closed. What stands between the tags is not interpreted here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = re.compile(
    r"<\s*(/?)\s*(start\s+thinking|start\s+final\s+answer|tool[\s_]?calls?|think)\s*(/?)\s*>", re.IGNORECASE
)
_KINDS = {"start thinking": "thought", "think": "thought", "start final answer": "answer"}


@dataclass(frozen=True)
class Sections:
    """The parts of one reply."""

    thought: str
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    outside: str = ""
    """Text between the tags; part of the thought, and where JSON answers stand."""


@dataclass(frozen=True)
class _Tag:
    kind: str
    closing: bool
    start: int
    end: int


def split(text: str) -> Sections:
    """Split a reply into its sections.

    >>> split("<Start Thinking>Looks red.<Start Thinking><Start Final Answer >**Wrong Action**</Start Final Answer>").answers
    ('**Wrong Action**',)
    """
    tags = [_tag(match) for match in _TAG.finditer(text)]
    found: dict[str, list[str]] = {"thought": [], "call": [], "answer": [], "outside": []}
    open_tag: _Tag | None = None
    position = 0
    for index, tag in enumerate(tags):
        if open_tag is None:
            between = text[position : tag.start]
            if tag.closing and tag.kind == "thought":
                found["thought"].append(between)
            else:
                found["outside"].append(between)
                open_tag = None if tag.closing else tag
            position = tag.end
        elif tag.kind == open_tag.kind:
            found[open_tag.kind].append(text[position : tag.start])
            open_tag, position = None, tag.end
        elif open_tag.kind == "thought" and _closed_later(tags[index + 1 :]):
            continue  # a tag merely spoken of inside a thought that is closed further on
        else:
            found[open_tag.kind].append(text[position : tag.start])
            open_tag, position = (None if tag.closing else tag), tag.end
    found[open_tag.kind if open_tag else "outside"].append(text[position:])
    outside = "\n".join(part.strip() for part in found["outside"] if part.strip())
    thoughts = [part.strip() for part in found["thought"] if part.strip()]
    return Sections(
        thought="\n".join(thoughts) or outside,
        calls=tuple(found["call"]),
        answers=tuple(found["answer"]),
        outside=outside,
    )


def _closed_later(tags: list[_Tag]) -> bool:
    return next((tag.closing for tag in tags if tag.kind == "thought"), False)


def _tag(match: re.Match[str]) -> _Tag:
    word = " ".join(match[2].lower().split())
    return _Tag(_KINDS.get(word, "call"), bool(match[1] or match[3]), match.start(), match.end())
