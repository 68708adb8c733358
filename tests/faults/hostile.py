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
LIKE_THOUGHTS = (
    "Start of Thinking",
    "internal reasoning",
    "inner_voice",
    "my_thoughts",
    "self-analysis",
    "Begin Reflection",
)
UNKNOWN = ("notes", "image_1", "step-1", "working", "x", "Mind.Map")
WALLS = ("<", "{", "[", "`", "</x>", '"', "\n> ")
LEADS = (
    "It looks like the edit was applied, so:",
    "Some objects are off, for example the tail. Final answer:",
    "Verdict for this sample:\n",
    "Following the template:",
    "**Response format:**",
    "It changed more than asked, for example the tail:",
)
LAYOUT_BEHIND = (
    "",
    "\n",
    "  \n\n",
    "\n```",
    "**",
    "<|im_end|>",
    "</s>\n",
    "<end_of_turn>",
    ".",
    "。",
    "！",
    " ✅",
    ")",
)


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
    name = rng.choice(THOUGHTS + LIKE_THOUGHTS + UNKNOWN)
    wide = rng.choice(["", " ", "\n", " " * 500])
    return rng.choice(
        [
            f"<{name}>{inside}</{name}>",
            f"<{wide}{name}{wide}>\n{inside}\n</{name}>\n",
            f"[THINK]{inside}[/THINK]",
            f"◁think▷{inside}◁/think▷",
            f"＜think＞{inside}＜/think＞",
            f"&lt;think&gt;{inside}&lt;/think&gt;",
            f"<Start Thinking>{inside}<End Thinking>",
            f"<|channel|>analysis<|message|>{inside}<|end|><|start|>assistant<|channel|>final<|message|>",
            f"{inside}</think>",
            f"<!-- {inside} -->",
        ]
    )


def _quoted(form: str, rng: random.Random) -> str:
    return rng.choice(
        [
            f'The picture says "{form}" in small print.',
            f'The picture says: "{form}\n',
            f"Such as:\n{form}\n",
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
        return rng.choice([form + rng.choice([b for b in LAYOUT_BEHIND if b != "\n```"]), f"\n```\n{form}\n```"])
    return rng.choice([form + rng.choice(LAYOUT_BEHIND), f"```json\n{form}\n```", f"<answer>{form}</answer>\n"])


def _spoken_of(rubric: Answer, form: str, rng: random.Random) -> str:
    """Put an object at the end of a sentence; a label, which has tags of its own, behind what makes it an example."""
    if isinstance(rubric, LabelAnswer):
        return rng.choice(["One would say, for example: ", "e.g. ", "Labels such as "]) + form
    return rng.choice(["Not ", "I will not answer ", "No. The instruction told me to reply ", "e.g. "]) + form


def _broken_rival(rubric: Answer, other: str, form: str, rng: random.Random) -> str:
    if isinstance(rubric, LabelAnswer):
        return f"{other}\n{form}"
    key = next(iter(json.loads(other)))
    return (
        rng.choice([f"{{{key}: 1}}", f"{{'{key}': 'no'}}", f'{{"{key}": }}', f'{{"{key}": <n>}}', f"{{“{key}”: 1}}"])
        + f"\n{form}"
    )


def _not_filled_in(rubric: Answer, decided: Any, rng: random.Random) -> str:
    if isinstance(rubric, LabelAnswer):
        return "<Start Final Answer>Label</Start Final Answer>"
    if isinstance(rubric, TextAnswer):
        return '{"text": …}'
    return json.dumps({**decided, "reason": rng.choice(["<your reason>", "…", "...", "<why, in a sentence>"])})


Maker = Callable[[Answer, Any, str, str, random.Random], str]
"""From the rubric, what is decided, that in writing, another decision in writing, and chance: a reply."""

GIVEN: dict[str, Maker] = {
    "plain": lambda r, d, form, other, rng: f"{rng.choice(PROSE)}\n{_clear(form, r, rng)}",
    "behind a thought with another": lambda r, d, form, other, rng: (
        _thought(f"Maybe {other}?", rng) + _clear(form, r, rng)
    ),
    "behind a quotation": lambda r, d, form, other, rng: f"{_quoted(other, rng)}\nBut:\n{_clear(form, r, rng)}",
    "behind a lead that only sounds like an example": lambda r, d, form, other, rng: (
        rng.choice(LEADS) + "\n" + _clear(form, r, rng)
    ),
    "behind an unknown tag never closed": lambda r, d, form, other, rng: (
        f"<{rng.choice(UNKNOWN)}>\n{rng.choice(PROSE)}\n{_clear(form, r, rng)}"
    ),
    "twice": lambda r, d, form, other, rng: f"{form}\n{rng.choice(PROSE)}\n{_clear(form, r, rng)}",
}
NOTHING: dict[str, Maker] = {
    "two that differ": lambda r, d, form, other, rng: form + rng.choice(["\n", " ", "\nNo, wait: ", "\n```\n\n```\n"]) + other,
    "prose behind": lambda r, d, form, other, rng: f"{form}\n{rng.choice(PROSE)}",
    "a quotation behind": lambda r, d, form, other, rng: f"{form}\n{_quoted(other, rng)}",
    "a thought behind": lambda r, d, form, other, rng: f"{form}<think>{rng.choice(PROSE)}</think>",
    "only in a thought": lambda r, d, form, other, rng: _thought(form, rng) + rng.choice(["", *PROSE]),
    "only quoted": lambda r, d, form, other, rng: f"Well.\n{_quoted(form, rng)}",
    "a thought never closed": lambda r, d, form, other, rng: f"Hm. <{rng.choice(THOUGHTS)}>{rng.choice(PROSE)}\n{form}",
    "one by its sound never closed": lambda r, d, form, other, rng: f"Hm. <{rng.choice(LIKE_THOUGHTS)}>\n{form}",
    "a thought in other brackets": lambda r, d, form, other, rng: rng.choice(["＜think＞", "&lt;think&gt;"]) + form,
    "spoken of": lambda r, d, form, other, rng: _spoken_of(r, form, rng),
    "a broken rival": lambda r, d, form, other, rng: _broken_rival(r, other, form, rng),
    "not filled in": lambda r, d, form, other, rng: _not_filled_in(r, d, rng),
    "another speaker": lambda r, d, form, other, rng: f"<|im_end|>\n<|im_start|>user\n{form}",
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
