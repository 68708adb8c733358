"""Metadata: a model turns a question, its options and its answer into what an edit is to do (DLEBench, Section 3.1, Table 15).

The published prompt contradicts itself in places. What is done, and what can be set (`MakingSettings`):

- Text questions have the operation `alter_text` in one rule and `text_flip` in a later one about them alone: the latter is taken.
- Count questions have the operation `add_object`, while the prompt's own example goes from 7 to 5: the operation is `add_object`
  as the rule says, or with `count_operation=by_number` the one that fits the numbers.
- The operation and the instruction stand in lists in the rules and as strings in the output format: strings are asked for, and a
  list of one is read as what it holds.
- The target's phrase shall stand unchanged in both captions, which cannot be where it holds the asked value (a text, a color): it
  must stand in the first caption.
- The wrong option is selected first, but is none of the six keys: it is looked for in what the model wrote.
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from editloupe._util.text import quoted, quoted_lines
from editloupe.agent.asker import Asker
from editloupe.agent.replies.answers import parse_object
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.folder import question_key
from editloupe.making.records import METADATA_KEYS, NOT_SHOWN, Metadata, PictureQuestion
from editloupe.making.settings import MakingSettings
from editloupe.rubrics.dlebench.paper import QUESTIONS
from editloupe.rubrics.rubric_files import bundled_yaml

LONGEST_INSTRUCTION = 60
"""Words; a short sentence is asked for."""
ALIKE = 0.5
"""Captions of one pattern share at least this much; those of removals may differ in more."""
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in METADATA_KEYS},
    "required": list(METADATA_KEYS),
    "additionalProperties": False,
}


@cache
def load_prompts() -> dict[str, Any]:
    """Return the texts of the prompts."""
    content: dict[str, Any] = bundled_yaml(files(__package__) / "dlebench_prompts.yaml")
    return content


def operations(settings: MakingSettings) -> dict[str, tuple[str, ...]]:
    """Return the operations each type of question may have, the usual one first."""
    count = ("add_object", "remove_object") if settings.count_operation == "by_number" else ("add_object",)
    return {
        "location": ("remove_object",),
        "color": ("alter_color",),
        "material": ("alter_material",),
        "count": count,
        "shape": ("alter_shape",),
        "object": ("replace_object",),
        "ocr": (settings.ocr_operation,),
    }


@dataclass(frozen=True)
class MetadataMaker:
    """Who is asked, and by which rules."""

    asker: Asker
    settings: MakingSettings = MakingSettings()

    async def make(self, question: PictureQuestion) -> Metadata:
        """Return the metadata of a question; raises NoAnswer where the model cannot be got to give any."""
        texts = load_prompts()["metadata"]
        drawn = draw_option(question, self.settings)
        answered = await self.asker.ask(
            system=texts["system"],
            task=build_task(question, self.settings, drawn),
            read=lambda text: read_metadata(parse_object(text), question, self.settings, drawn),
            repair=lambda problem: str(texts["repair"]).format(problem=problem),
            schema=SCHEMA,
        )
        facts = answered.value
        return Metadata(
            id=question.id,
            key=question_key(question),
            **facts,
            instruction_type=QUESTIONS[facts["q_type"]],
            wrong_option=drawn or find_wrong_option(facts, question),
            by=self.asker.name,
            at=timestamp(),
            usage=answered.usage,
        )


def build_task(question: PictureQuestion, settings: MakingSettings, drawn: str | None) -> str:
    """Return what the model is asked about a question."""
    texts = load_prompts()["metadata"]
    named = ", ".join(f"{kind} {' or '.join(names)}" for kind, names in operations(settings).items())
    listed = "\n".join(quoted_lines(option) for option in question.options) or "> (none)"
    wrong = str(texts["drawn"]).format(wrong_option=quoted(drawn)) if drawn else str(texts["by_model"])
    return str(texts["task"]).format(
        question=quoted_lines(question.question),
        options=listed,
        answer=quoted_lines(question.answer),
        wrong=wrong,
        operations=named,
    )


def draw_option(question: PictureQuestion, settings: MakingSettings) -> str | None:
    """Return the wrong option chance picks, where that is wanted; the same seed picks the same, none that no edit leads to."""
    wrong = [option for option in question.options if option != question.answer and not NOT_SHOWN.search(option)]
    if settings.wrong_option != "drawn" or not wrong:
        return None
    return random.Random(f"{settings.seed}:{question.id}").choice(wrong)


def read_metadata(
    given: Mapping[str, Any], question: PictureQuestion, settings: MakingSettings, drawn: str | None = None
) -> dict[str, str]:
    """Return the six values; raises ValueError with a sentence for the model where they are not what was asked for."""
    if missing := [name for name in METADATA_KEYS if name not in given]:
        raise ValueError(f"The JSON object lacks {', '.join(missing)}.")
    if more := [str(name) for name in given if name not in METADATA_KEYS]:
        raise ValueError(f"The JSON object has {', '.join(more[:6])}, which nobody asked for.")
    facts = {}
    for name in METADATA_KEYS:
        value = given[name]
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f'"{name}" must be a string that says something.')
        facts[name] = " ".join(value.split())
    facts["q_type"] = facts["q_type"].lower()
    allowed = operations(settings)
    if facts["q_type"] not in allowed:
        raise ValueError(f'"q_type" must be one of {", ".join(allowed)}.')
    facts["edit_ops"] = facts["edit_ops"].lower()
    if facts["edit_ops"] not in allowed[facts["q_type"]]:
        wanted = " or ".join(allowed[facts["q_type"]])
        raise ValueError(f'"edit_ops" must be {wanted} where "q_type" is {facts["q_type"]}.')
    _check_captions(facts)
    if len(facts["edit_instruction"].split()) > LONGEST_INSTRUCTION:
        raise ValueError('"edit_instruction" must be one short sentence.')
    wrong = drawn if facts["q_type"] != "location" else None
    if wrong and _plain(wrong) not in _plain(facts["prompt_adv"] + " " + facts["edit_instruction"]):
        raise ValueError(
            f'"prompt_adv" and "edit_instruction" must lead to the wrong answer that is settled: {quoted(wrong)}.'
        )
    return facts


def _check_captions(facts: Mapping[str, str]) -> None:
    clean, changed = _plain(facts["prompt_clean"]), _plain(facts["prompt_adv"])
    if clean == changed:
        raise ValueError('"prompt_clean" and "prompt_adv" say the same; they must differ in the asked attribute.')
    if _plain(facts["modified_object"]) not in clean:
        raise ValueError('"prompt_clean" must contain "modified_object" word for word.')
    alike = difflib.SequenceMatcher(None, clean.split(), changed.split(), autojunk=False).ratio()
    if facts["q_type"] != "location" and alike < ALIKE:
        raise ValueError(
            '"prompt_clean" and "prompt_adv" must be one sentence that differs in the asked attribute only.'
        )


def find_wrong_option(facts: Mapping[str, str], question: PictureQuestion) -> str | None:
    """Return the wrong option the second caption or the instruction leads to; the longest where several stand in them."""
    said = f" {_plain(facts['prompt_adv'])} {_plain(facts['edit_instruction'])} "
    wrong = [one for one in question.options if one != question.answer and f" {_plain(one)} " in said]
    return max(wrong, key=len, default=None)


def _plain(text: str) -> str:
    """Return words alone: without case, articles and marks.

    >>> _plain("There is a 'STOP' sign.")
    'there is stop sign'
    """
    words = re.findall(r"\w+(?:[-']\w+)*", text.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))
