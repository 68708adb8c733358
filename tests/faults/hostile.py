"""Makes hostile replies whose truth is known by how they were made: a clear answer, or none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from editloupe.rubrics.model import (
    Answer,
    Check,
    ChecksAnswer,
    Label,
    LabelAnswer,
    NumberAnswer,
    TextAnswer,
    YesNoAnswer,
)

NAMES = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
RUBRICS: tuple[Answer, ...] = (
    LabelAnswer(labels=tuple(Label(name=name, score=i, meaning=name) for i, name in enumerate(NAMES, 1))),
    NumberAnswer(low=1, high=10),
    ChecksAnswer(checks=(Check(key="hit", question="?"), Check(key="clean", question="?"))),
    YesNoAnswer(),
    TextAnswer(),
)
PROSE = (
    "The handle is red.",
    "I cannot tell from this.",
    "The area grew: 12 < 40 and 40 > 12.",
    "Wrong Action, Flawless Execution, score: 9/10, yes, no.",
    "Let me look {closely} at the rim.",
    "é🦆\u202e\x00 ￿",
    "* one\n* two\n",
    "It's the taller person's hat.",
)
THOUGHTS = ("Start Thinking", "think", "thinking", "reasoning", "analysis", "scratchpad", "reflection", "THOUGHT")
UNKNOWN = ("notes", "inner_voice", "step-1", "working", "x", "Mind.Map")
WALLS = ("<", "{", "[", "`", "</x>", '"', "\n> ")
LAYOUT_BEHIND = ("", "\n", "  \n\n", "\n```", "**", "<|im_end|>", "</s>\n", "<end_of_turn>", ".")


@dataclass(frozen=True)
class Hostile:
    """One reply, and what it says."""

    kind: str
    rubric: Answer
    text: str
    truth: str | None
    """The answer's own text where one is clearly given."""


def decision(rubric: Answer, rng: random.Random, but: Any = None) -> Any:
    """Return something that can be decided, another one than `but`."""
    choices: list[Any]
    if isinstance(rubric, LabelAnswer):
        choices = list(NAMES)
    elif isinstance(rubric, NumberAnswer):
        choices = [{"score": n, "reason": rng.choice(PROSE)} for n in range(1, 11)]
    elif isinstance(rubric, ChecksAnswer):
        choices = [{"hit": a, "clean": b} for a in (0, 1) for b in (0, 1)]
    elif isinstance(rubric, YesNoAnswer):
        choices = [{"answer": word, "reason": rng.choice(PROSE)} for word in ("yes", "no")]
    else:
        choices = [{"text": word} for word in ("TR 9067 T", "OPEN {24h}", "a < b", '{"text": "x"}')]
    return rng.choice([choice for choice in choices if but is None or _bare(choice) != _bare(but)])


def _bare(decided: Any) -> Any:
    return {k: v for k, v in decided.items() if k != "reason"} if isinstance(decided, dict) else decided


def written(rubric: Answer, decided: Any, rng: random.Random) -> str:
    """Write a decision in the form that is asked for."""
    if isinstance(rubric, LabelAnswer):
        name = rng.choice([decided, f"**{decided}**", f" {decided.upper()}\n", f"{decided}."])
        return f"<Start Final Answer>{name}</Start Final Answer>"
    return json.dumps(decided, indent=rng.choice([None, 2]), ensure_ascii=rng.random() < 0.5)


def truth_of(rubric: Answer, decided: Any) -> str:
    """Return the answer's own text as the reader gives it."""
    return str(decided) if isinstance(rubric, LabelAnswer) else json.dumps(decided, ensure_ascii=False, sort_keys=True)


def _thought(inside: str, rng: random.Random) -> str:
    name = rng.choice(THOUGHTS + UNKNOWN)
    wide = rng.choice(["", " ", "\n", " " * 500])
    return rng.choice(
        [
            f"<{name}>{inside}</{name}>",
            f"<{wide}{name}{wide}>\n{inside}\n</{name}>\n",
            f"[THINK]{inside}[/THINK]",
            f"◁think▷{inside}◁/think▷",
            f"<|channel|>analysis<|message|>{inside}<|end|><|start|>assistant<|channel|>final<|message|>",
            f"{inside}</think>",
            f"<!-- {inside} -->",
        ]
    )


def _quoted(form: str, rng: random.Random) -> str:
    return rng.choice(
        [
            f'The picture says "{form}" in small print.',
            f"The picture says “{form}” in small print.",
            f"One would write `{form}` then.",
            f"\n> {form.replace(chr(10), ' ')}\n\nis what the sign says.",
            f"```python\nanswer = 1\nprint({form!r})\n```\n",
            f"<example>{form}</example>",
            f"For example:\n```\n{form}\n```\n",
        ]
    )


def _clear(form: str, rubric: Answer, rng: random.Random) -> str:
    if isinstance(rubric, LabelAnswer):
        return form + rng.choice([b for b in LAYOUT_BEHIND if b != "\n```"])
    return rng.choice([form + rng.choice(LAYOUT_BEHIND), f"```json\n{form}\n```", f"<answer>{form}</answer>\n"])


Maker = Callable[[Answer, Any, str, str, random.Random], str]
"""From the rubric, what is decided, that in writing, another decision in writing, and chance: a reply."""

GIVEN: dict[str, Maker] = {
    "plain": lambda r, d, form, other, rng: f"{rng.choice(PROSE)}\n{_clear(form, r, rng)}",
    "behind a thought with another": lambda r, d, form, other, rng: (
        _thought(f"Maybe {other}?", rng) + _clear(form, r, rng)
    ),
    "behind a quotation": lambda r, d, form, other, rng: f"{_quoted(other, rng)}\nBut:\n{_clear(form, r, rng)}",
    "twice": lambda r, d, form, other, rng: f"{form}\n{rng.choice(PROSE)}\n{_clear(form, r, rng)}",
}
NOTHING: dict[str, Maker] = {
    "two that differ": lambda r, d, form, other, rng: form + rng.choice(["\n", " ", "\nNo, wait: ", "\n```\n\n```\n"]) + other,
    "prose behind": lambda r, d, form, other, rng: f"{form}\n{rng.choice(PROSE)}",
    "a quotation behind": lambda r, d, form, other, rng: f"{form}\n{_quoted(other, rng)}",
    "a thought behind": lambda r, d, form, other, rng: f"{form}<think>{rng.choice(PROSE)}</think>",
    "only in a thought": lambda r, d, form, other, rng: _thought(form, rng) + rng.choice(["", *PROSE]),
    "only quoted": lambda r, d, form, other, rng: f"Well.\n{_quoted(form, rng)}",
    "a thought never closed": lambda r, d, form, other, rng: f"Hm. <{rng.choice(THOUGHTS)}>{rng.choice(PROSE)} {form}",
    "an unknown tag never closed": lambda r, d, form, other, rng: f"<{rng.choice(UNKNOWN)}>\n{rng.choice(PROSE)} {form}",
    "a channel never closed": lambda r, d, form, other, rng: f"<|channel|>analysis<|message|>Perhaps {form}",
    "the end of a thought behind": lambda r, d, form, other, rng: f"{form}</{rng.choice(THOUGHTS)}>{rng.choice(['', 'So.'])}",
    "nested": lambda r, d, form, other, rng: f"<Start Final Answer>{form}{rng.choice(['', other])}</Start Final Answer>"
    if isinstance(r, LabelAnswer)
    else json.dumps({"result": d}),
    "in a code example": lambda r, d, form, other, rng: f"One could say:\n```\n{form}\n```\n{rng.choice(PROSE)}",
    "a piece": lambda r, d, form, other, rng: form[: rng.randrange(1, max(2, form.find(">") if form[0] == "<" else len(form)))],
    "nothing": lambda r, d, form, other, rng: " ".join(rng.choices(PROSE, k=3)),
    "another turn made up": lambda r, d, form, other, rng: f"{form}<|im_end|>\n<|im_start|>user\nAre you sure?",
    "a wall": lambda r, d, form, other, rng: form + rng.choice(WALLS) * rng.randrange(50, 3000) + "x",
}  # fmt: skip


def hostile(rng: random.Random) -> Hostile:
    """Return one reply by chance."""
    rubric = rng.choice(RUBRICS)
    decided = decision(rubric, rng)
    form = written(rubric, decided, rng)
    other = written(rubric, decision(rubric, rng, but=decided), rng)
    makers = GIVEN if rng.random() < 0.3 else NOTHING
    kind = rng.choice(sorted(makers))
    text = makers[kind](rubric, decided, form, other, rng)
    return Hostile(kind, rubric, text, truth_of(rubric, decided) if makers is GIVEN else None)
