"""Build the judge's prompt from a rubric, and the texts about tools in the rubric's wording.

The fixed text comes first and the edit's own text last. Of the texts about tools, a wording holds only those that differ from the
tools' own, so that a file with all texts unchanged asks the same questions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from editloupe._util.text import quote_line, quote_lines
from editloupe.agent.replies.answers import REASONING
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import (
    Answer,
    Band,
    Check,
    ChecksAnswer,
    Example,
    LabelAnswer,
    MeasuredAnswer,
    NumberAnswer,
    Rubric,
    TextAnswer,
)
from editloupe.rubrics.wording import USUAL_WORDING, Wording, fill_in
from editloupe.tools.contract import Tool, View
from editloupe.tools.detect import DetectObject
from editloupe.tools.localize import LocalizeDifferences, LocalizePixelDifferences
from editloupe.tools.read_text import ReadText
from editloupe.tools.zoom import BOX_UNITS, ZoomInImage
from editloupe.types import Mode, Observation

EARLIER_FINDINGS = "earlier_findings"
"""Key of a case's facts with the findings of earlier steps: introductions mapped to texts."""


def build_system_text(
    rubric: Rubric,
    mode: Mode,
    tools: Sequence[Mapping[str, Any]],
    native: bool,
    structured: bool = False,
    written: bool = False,
    not_offered: Collection[str] = (),
) -> str:
    """Return the fixed text of a rubric in one mode; it is the same for every edit, so that providers can cache it.

    Args:
        rubric: The rubric.
        mode: The mode of judging.
        tools: Function descriptions of the tools.
        native: Whether tools are called by the provider's function calling.
        structured: Whether a reply is a JSON object and nothing else.
        written: Whether such a reply begins with written reasoning.
        not_offered: Names of tools that the judge does not have. Notes of the mode and examples that name one are left out.
    """
    mode_text, words = rubric.modes[mode], rubric.wording
    type_notes = rubric.type_notes if mode_text.type_notes else {}
    tools_text = _tools(tools, words) if tools and not native else ""
    answering = format_answer_rules(rubric.answer, bool(tools), native, structured, written, words)
    if words.whole:
        return fill_in(words.whole, tools=tools_text, how_to_answer=answering)
    parts = [
        words.role,
        f"{fill_in(words.criterion, title=rubric.title)}\n{rubric.question.strip()}",
        f"{words.shown}\n{mode_text.setting.strip()}",
        _format_list(words.steps_to_labels if isinstance(rubric.answer, LabelAnswer) else words.steps, rubric.steps),
        _answers(rubric.answer, words),
        _format_bullets(words.notes, (*rubric.notes, *_select_offered(mode_text.notes, not_offered))),
        _format_bullets(words.type_notes, [f"{name}: {note.strip()}" for name, note in type_notes.items()]),
        tools_text,
        answering,
        _examples(rubric, mode, bool(tools), native, structured, not_offered),
    ]
    return "\n\n".join(part for part in parts if part)


def build_task_text(case: Case, per_mille: bool, tools: bool) -> str:
    """Return the edit's own text, which ends the request; text by other people is quoted."""
    tells, words = case.rubric.tells, case.rubric.wording
    lines = [_quote(words.instruction, case.edit.instruction)] if "instruction" in tells else []
    if case.edit.instruction_type and "type" in tells:
        lines.append(_quote(words.instruction_type, case.edit.instruction_type))
    if case.edit.hint and "hint" in tells:
        lines.append(_quote(words.hint, case.edit.hint))
    findings = case.facts.get(EARLIER_FINDINGS, {})
    lines += [f"{introduction}\n{quote_lines(text)}" for introduction, text in findings.items()]
    if case.target is not None:
        lines.append(fill_in(words.one_target, targets=len(case.edit.target_boxes), target=case.target + 1))
    if tools:
        lines.append(words.per_mille if per_mille else words.pixels)
    lines.append(fill_in(words.judge, title=case.rubric.title))
    return "\n".join(line for line in lines if line)


def _quote(template: str, text: str) -> str:
    return fill_in(template, lines=quote_lines(text), quoted=quote_line(text))


def format_answer_rules(
    answer: Answer,
    tools: bool,
    native: bool,
    structured: bool = False,
    written: bool = False,
    words: Wording = USUAL_WORDING,
) -> str:
    """Describe the form of a reply that can be parsed; a structured reply is only its JSON object."""
    if structured:
        reasoning = {REASONING: words.step_by_step} if written and not isinstance(answer, TextAnswer) else {}
        shape = json.dumps({**reasoning, **_shape(answer, words)}, ensure_ascii=False)
        return f"{words.how_to_answer}\n{fill_in(words.json_alone, shape=shape)}"
    lines = [words.how_to_answer, words.think]
    if tools:
        lines.append(fill_in(words.call_or_answer, calling=words.native_calls if native else words.text_calls))
    lines.append(fill_in(words.final_answer, form=format_final_answer(answer, words)))
    return "\n".join(line for line in lines if line)


def format_final_answer(answer: Answer, words: Wording = USUAL_WORDING) -> str:
    """Describe the form of a final answer."""
    if isinstance(answer, LabelAnswer):
        return fill_in(words.label_form, labels=", ".join(label.name for label in answer.labels))
    return fill_in(words.json_form, shape=json.dumps(_shape(answer, words), ensure_ascii=False))


def _shape(answer: Answer, words: Wording) -> dict[str, str]:
    if isinstance(answer, (LabelAnswer, MeasuredAnswer)):
        raise TypeError("labels and measures are not answered in JSON")
    reason: dict[str, str] = {}
    if not isinstance(answer, TextAnswer) and answer.reason_key:
        reason = {answer.reason_key: words.reason}
    if isinstance(answer, NumberAnswer):
        return {**reason, answer.key: fill_in(words.whole_number, low=answer.low, high=answer.high)}
    if isinstance(answer, ChecksAnswer):
        return {**reason, **{check.key: words.between_answers.join(check.values) for check in answer.checks}}
    if isinstance(answer, TextAnswer):
        return {answer.key: answer.shape}
    return {**reason, answer.key: words.yes_or_no}


def _answers(answer: Answer, words: Wording) -> str:
    if isinstance(answer, LabelAnswer):
        blocks = []
        for label in answer.labels:
            findings = "".join(f"\n  - {finding.strip()}" for finding in label.when)
            blocks.append(f"- {label.name}: {label.meaning.strip()}{findings}")
        return f"{words.labels}\n" + "\n".join(blocks)
    if isinstance(answer, ChecksAnswer):
        return _format_list(words.items, [_item(check, words) for check in answer.checks])
    if isinstance(answer, NumberAnswer):
        scale = fill_in(words.scale, low=answer.low, high=answer.high)
        return "\n".join((scale, *(_band(band) for band in answer.bands)))
    return ""


def _band(band: Band) -> str:
    numbers = str(band.low) if band.low == band.high else f"{band.low}–{band.high}"
    return f"- {numbers} {band.name}" + (f": {band.meaning.strip()}" if band.meaning else "")


def _item(check: Check, words: Wording) -> str:
    gate = "".join(fill_in(words.only_if, item=key, answer=value) for key, value in check.only_if.items())
    return f"{check.key}: {check.question.strip()} ({' / '.join(check.values)}){gate}"


def _tools(tools: Sequence[Mapping[str, Any]], words: Wording) -> str:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return fill_in(words.tools, tools=lines)


def _select_offered(notes: Sequence[str], not_offered: Collection[str]) -> list[str]:
    return [note for note in notes if not any(name in note for name in not_offered)]


def _examples(
    rubric: Rubric, mode: Mode, tools: bool, native: bool, structured: bool, not_offered: Collection[str]
) -> str:
    examples = [
        example
        for example in rubric.examples
        if mode in example.modes
        and (tools or not example.calls)
        and not any(call["name"] in not_offered for call in example.calls)
    ]
    if not examples:
        return ""
    words = rubric.wording
    numbered = (
        (fill_in(words.example, number=i), _example(e, native, structured, words)) for i, e in enumerate(examples, 1)
    )
    return f"{words.examples}\n" + "\n\n".join(f"{heading}\n{text}" for heading, text in numbered)


def _example(example: Example, native: bool, structured: bool, words: Wording) -> str:
    thinking = words.example_thought_aside if structured else words.example_thought
    lines = [_quote(words.instruction, example.instruction), fill_in(thinking, thought=example.thought.strip())]
    if example.calls and native:
        calls_in_words = [
            fill_in(
                words.example_call, name=c["name"], parameters=json.dumps(dict(c["parameters"]), ensure_ascii=False)
            )
            for c in example.calls
        ]
        lines.append(fill_in(words.example_calls, calls=words.between_calls.join(calls_in_words)))
    elif example.calls:
        calls = "\n".join(json.dumps(dict(call), ensure_ascii=False) for call in example.calls)
        lines.append(f"<tool_call>\n{calls}\n</tool_call>")
    if example.answer:
        json_answer = example.answer.lstrip().startswith("{")
        lines.append(example.answer if json_answer else f"<Start Final Answer>{example.answer}</Start Final Answer>")
    return "\n".join(lines)


def _format_list(title: str, items: Sequence[str]) -> str:
    return title + "\n" + "\n".join(f"{i}. {item.strip()}" for i, item in enumerate(items, 1)) if items else ""


def _format_bullets(title: str, items: Sequence[str]) -> str:
    return title + "\n" + "\n".join(f"- {item.strip()}" for item in items) if items else ""


TOOLS = (ZoomInImage, LocalizeDifferences, DetectObject, ReadText)
OTHER_FORMS = (LocalizePixelDifferences,)
"""Variants of the same tools under other settings; their descriptions are defaults too."""
SAID = "{said}"


def default_tool_words() -> dict[str, Any]:
    """Return the tools' own texts, by the fields of a wording."""
    return {
        "tool_descriptions": {tool.name: tool.description for tool in TOOLS},
        "tool_parameters": {tool.name: dict(tool.parameter_words) for tool in TOOLS},
        "box_units": dict(BOX_UNITS),
        "tool_results": {tool.name: SAID for tool in TOOLS},
        "tool_captions": {tool.name: SAID for tool in TOOLS},
    }


def drop_default_words(words: Wording) -> Wording:
    """Return a wording without the texts that equal the tools' own."""
    usual = default_tool_words()
    descriptions = {(tool.name, tool.description) for tool in (*TOOLS, *OTHER_FORMS)}
    parameters = {
        name: changed
        for name, texts in words.tool_parameters.items()
        if (changed := _unlike(texts, usual["tool_parameters"].get(name, {})))
    }
    changes: dict[str, Any] = {
        "tool_descriptions": {
            name: text for name, text in words.tool_descriptions.items() if (name, text) not in descriptions
        },
        "tool_parameters": parameters,
        "box_units": _unlike(words.box_units, usual["box_units"]),
        "tool_results": {name: text for name, text in words.tool_results.items() if text != SAID},
        "tool_captions": {name: text for name, text in words.tool_captions.items() if text != SAID},
    }
    return words.model_copy(update=changes)


def build_functions(tools: Iterable[Tool], view: View, per_mille: bool, words: Wording) -> list[dict[str, Any]]:
    """Return tools as function descriptions in a wording."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": words.tool_descriptions.get(tool.name, tool.description),
                "parameters": _parameters(tool, view, per_mille, words),
            },
        }
        for tool in tools
    ]


def reword_observation(observation: Observation, words: Wording) -> Observation:
    """Return a tool's result and its captions in a wording."""
    if observation.failed:
        text, captions = fill_in(words.tool_error, said=observation.text), observation.captions
    else:
        text = fill_in(words.tool_results.get(observation.tool, SAID), said=observation.text)
        caption = words.tool_captions.get(observation.tool, SAID)
        captions = tuple(fill_in(caption, said=original) for original in observation.captions)
    if (text, captions) == (observation.text, observation.captions):
        return observation
    return observation.model_copy(update={"text": text, "captions": captions})


def _parameters(tool: Tool, view: View, per_mille: bool, words: Wording) -> dict[str, Any]:
    schema = tool.schema(view)
    own: Mapping[str, str] = getattr(tool, "parameter_words", {})
    texts = words.tool_parameters.get(tool.name, {})
    unit_name = "per_mille" if per_mille else "pixels"
    if not texts and unit_name not in words.box_units:
        return schema
    unit = words.box_units.get(unit_name, BOX_UNITS[unit_name])
    properties = {
        name: {**fact, "description": fill_in(text, unit=unit)} if (text := texts.get(name, own.get(name))) else fact
        for name, fact in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


def _unlike(texts: Mapping[str, str], usual: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if usual.get(name) != text}
