"""Turn a question, its options and its answer into edit metadata with a model (DLEBench, Section 3.1, Table 15).

The published prompt contradicts itself in places. These are our choices, and what can be set (`MakingSettings`):

- Text questions have the operation `alter_text` in one rule and `text_flip` in a later rule about them alone. The
  latter is used.
- Count questions have the operation `add_object`, but the prompt's own example goes from 7 to 5. The operation is
  `add_object` as in the rule, or with `count_operation=by_number` the one that fits the numbers.
- The operation and the instruction are lists in the rules and strings in the output format. Strings are requested, and
  a list with one entry is accepted.
- The target's phrase should occur unchanged in both captions, which is impossible if it contains the asked value (a
  text, a color). It must occur in the first caption.
- The wrong option is selected first, but is not one of the six keys. It is searched in the model's text.
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

from editloupe._util.text import quote_line, quote_lines
from editloupe.agent.asker import Asker
from editloupe.agent.replies.answers import parse_object
from editloupe.evals.runs.unit_rows import timestamp
from editloupe.making.folder import MakingSettings, question_key
from editloupe.making.records import METADATA_KEYS, NOT_SHOWN, Metadata, PictureQuestion
from editloupe.rubrics.dlebench import QUESTIONS
from editloupe.rubrics.rubric_files import load_bundled_yaml

LONGEST_INSTRUCTION = 60
"""Words; the prompt requests a short sentence."""
ALIKE = 0.5
"""The least similarity of the two captions; those of removals may differ more."""
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in METADATA_KEYS},
    "required": list(METADATA_KEYS),
    "additionalProperties": False,
}


@cache
def load_prompts() -> dict[str, Any]:
    """Return the texts of the prompts."""
    content: dict[str, Any] = load_bundled_yaml(files(__package__) / "dlebench_prompts.yaml")
    return content


def operations(settings: MakingSettings) -> dict[str, tuple[str, ...]]:
    """Return the operations per question type, the usual one first."""
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
    """Make metadata by asking a model."""

    asker: Asker
    settings: MakingSettings = MakingSettings()

    async def make(self, question: PictureQuestion) -> Metadata:
        """Return the metadata of a question.

        Raises:
            NoAnswer: If the model gives no usable answer.
        """
        texts = load_prompts()["metadata"]
        drawn_option = draw_option(question, self.settings)
        answered = await self.asker.ask(
            system=texts["system"],
            task=build_task(question, self.settings, drawn_option),
            read=lambda text: read_metadata(parse_object(text), question, self.settings, drawn_option),
            repair=lambda problem: str(texts["repair"]).format(problem=problem),
            schema=SCHEMA,
        )
        facts = answered.value
        return Metadata(
            id=question.id,
            key=question_key(question),
            **facts,
            instruction_type=QUESTIONS[facts["q_type"]],
            wrong_option=drawn_option or find_wrong_option(facts, question),
            by=self.asker.name,
            at=timestamp(),
            usage=answered.usage,
        )


def build_task(question: PictureQuestion, settings: MakingSettings, drawn_option: str | None) -> str:
    """Return the task for the model about a question."""
    texts = load_prompts()["metadata"]
    by_kind = ", ".join(f"{kind} {' or '.join(names)}" for kind, names in operations(settings).items())
    options = "\n".join(quote_lines(option) for option in question.options) or "> (none)"
    wrong = (
        str(texts["drawn"]).format(wrong_option=quote_line(drawn_option)) if drawn_option else str(texts["by_model"])
    )
    return str(texts["task"]).format(
        question=quote_lines(question.question),
        options=options,
        answer=quote_lines(question.answer),
        wrong=wrong,
        operations=by_kind,
    )


def draw_option(question: PictureQuestion, settings: MakingSettings) -> str | None:
    """Return a wrong option chosen by the seed, if that is set. Options that no edit can lead to are never chosen."""
    wrong = [option for option in question.options if option != question.answer and not NOT_SHOWN.search(option)]
    if settings.wrong_option != "drawn" or not wrong:
        return None
    return random.Random(f"{settings.seed}:{question.id}").choice(wrong)


def read_metadata(
    reply: Mapping[str, Any], question: PictureQuestion, settings: MakingSettings, drawn_option: str | None = None
) -> dict[str, str]:
    """Return the six values of a reply.

    Raises:
        ValueError: If a value is missing or wrong, with a sentence for the model.
    """
    if missing := [name for name in METADATA_KEYS if name not in reply]:
        raise ValueError(f"The JSON object lacks {', '.join(missing)}.")
    if more := [str(name) for name in reply if name not in METADATA_KEYS]:
        raise ValueError(f"The JSON object has {', '.join(more[:6])}, which nobody asked for.")
    facts = {}
    for name in METADATA_KEYS:
        value = reply[name]
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
        names = " or ".join(allowed[facts["q_type"]])
        raise ValueError(f'"edit_ops" must be {names} where "q_type" is {facts["q_type"]}.')
    _check_captions(facts)
    if len(facts["edit_instruction"].split()) > LONGEST_INSTRUCTION:
        raise ValueError('"edit_instruction" must be one short sentence.')
    wrong = drawn_option if facts["q_type"] != "location" else None
    if wrong and _plain(wrong) not in _plain(facts["prompt_adv"] + " " + facts["edit_instruction"]):
        raise ValueError(
            f'"prompt_adv" and "edit_instruction" must lead to the wrong answer that is settled: {quote_line(wrong)}.'
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
    """Return the longest wrong option in the second caption or the instruction, or None."""
    text = f" {_plain(facts['prompt_adv'])} {_plain(facts['edit_instruction'])} "
    wrong = [option for option in question.options if option != question.answer and f" {_plain(option)} " in text]
    return max(wrong, key=len, default=None)


def _plain(text: str) -> str:
    """Return the words only, in lower case, without articles and punctuation.

    >>> _plain("There is a 'STOP' sign.")
    'there is stop sign'
    """
    words = re.findall(r"\w+(?:[-']\w+)*", text.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))
