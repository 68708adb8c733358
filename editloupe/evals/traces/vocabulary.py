"""What a filter can speak of: the fields of a verdict and the functions over its trace, in one list each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "number", "truth", "time", "column"]
"""What a value is; a column of the manifest may hold anything."""


@dataclass(frozen=True)
class Field:
    """A value every verdict has, or has not."""

    kind: Kind
    sql: str
    """Where it stands: v is the verdict, e its edit, u what its trace amounts to, p the people, n the notes."""
    meaning: str


FIELDS: Mapping[str, Field] = {
    "label": Field("text", "v.label", "the judge's label; the number where a criterion takes numbers"),
    "score": Field("number", "v.score", "on the rubric's own scale"),
    "score_100": Field("number", "v.score_100", "from 0 to 100"),
    "confidence": Field("number", "v.confidence", "from 0 to 1, where the judge gave one"),
    "status": Field("text", "v.status", "judged or unjudged"),
    "reason": Field("text", "v.reason", "why it is unjudged, such as unreadable_answer"),
    "human": Field("text", "p.label", "what people said, by the rule of `editloupe agree`"),
    "human_score": Field("number", "p.score", "the same on the rubric's scale"),
    "people": Field("number", "p.people", "how many people labelled it"),
    "agrees": Field("truth", "(v.score = p.score)", "whether judge and people gave the same"),
    "criterion": Field("text", "v.criterion", "such as instruction_following"),
    "protocol": Field("text", "v.protocol", "the set of rubrics that was asked"),
    "model": Field("text", "e.model", "the editing model"),
    "judge": Field("text", "v.judge", "who judged"),
    "mode": Field("text", "v.mode", "tools, oracle or plain"),
    "configuration": Field("text", "v.configuration", "the run's name for judge and settings"),
    "edit": Field("text", "e.edit_id", "the edit's id"),
    "name": Field("text", "e.name", "the edit's name, unique in its run: the id, or id@model"),
    "instruction": Field("text", "e.instruction", "what was asked of the editing model"),
    "instruction_type": Field("text", "e.instruction_type", "such as Change Color"),
    "turn": Field("number", "e.turn", "of an edit that is one of a chain"),
    "rationale": Field("text", "u.rationale", "the reason the judge gave"),
    "turns": Field("number", "u.turns", "replies that could be used"),
    "repairs": Field("number", "u.repairs", "replies that could not"),
    "steps": Field("number", "v.steps", "all replies"),
    "cost": Field("number", "v.cost", "in dollars, where the price is known"),
    "seconds": Field("number", "v.seconds", "from the first request to the verdict"),
    "requests": Field("number", "v.requests", "requests that were made"),
    "input_tokens": Field("number", "v.input_tokens", "of all requests together"),
    "output_tokens": Field("number", "v.output_tokens", "of all replies together"),
    "cached_tokens": Field("number", "v.cached_tokens", "those of the input that the provider remembered"),
    "reasoning_tokens": Field("number", "v.reasoning_tokens", "those of the output that were thought"),
    "repeat": Field("number", "v.repeat", "counted from 0"),
    "finished_at": Field("time", "v.finished_at", 'when it was judged, as text: finished_at > "2026-11-01"'),
    "note": Field("text", "n.note", "what somebody noted about the trace in the studio"),
}
COUNTS: Mapping[str, tuple[str, str]] = {
    "tool": ("calls", 'how often a tool was called: tool("zoom_in_image"); tool() of any'),
    "failed": ("failed", "how often it failed"),
    "cached": ("cached", "how often its answer came from memory"),
}
"""Functions that count, with their column; a tool's name is given, or none."""
SEARCHES: Mapping[str, tuple[str, str]] = {
    "said": ("", "these words, one after the other, anywhere in the trace"),
    "thought": ("thought", "the same in the judge's thoughts"),
    "called": ("called", "in its calls: names and parameters"),
    "observed": ("observed", "in what the tools answered"),
    "replied": ("replied", "in the raw replies"),
}
"""Functions that search texts, with their column."""
COLUMN, TAGGED = "column", "tagged"
FUNCTIONS = (*COUNTS, *SEARCHES, COLUMN, TAGGED)
EXAMPLES: tuple[tuple[str, str], ...] = (
    ('label = "Over Modification" and tool("zoom_in_image") = 0 and human != label', "never looked closely, and erred"),
    ("human != label and confidence >= 0.9", "sure and wrong"),
    ("failed() > 0 or repairs > 0", "something went wrong on the way"),
    ('status = "unjudged" and reason in ("unreadable_answer", "truncated")', "no verdict for these reasons"),
    ('thought("looks identical") and not observed("no difference")', "words of the judge, not of a tool"),
    ('model ~ "flux" and instruction_type = "Remove Object" and turns > 5', "long stories about one model"),
)
