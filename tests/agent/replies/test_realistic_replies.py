"""Replies as GPT, Gemini, Qwen, GLM and others write them; each clear answer is read, and no answer that is only mentioned."""

from __future__ import annotations

import pytest

from editloupe.agent.replies.answers import ParsedReply, parse_reply
from editloupe.rubrics.model import Label, LabelAnswer, NumberAnswer, TextAnswer, YesNoAnswer

NAMES = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
LABELS = LabelAnswer(labels=tuple(Label(name=name, score=i, meaning=name) for i, name in enumerate(NAMES, 1)))
SCALE = NumberAnswer(low=1, high=10)
ANSWER = "<Start Final Answer>Over Modification</Start Final Answer>"
FORM = "<Start Final Answer>Label</Start Final Answer>"
OTHER = "<Start Final Answer>Wrong Action</Start Final Answer>"
OBJECT = '{"reason": "The hat is on.", "score": 7}'

LABEL_REPLIES = {
    "as the prompt asks": f"<Start Thinking>The handle is red.</Start Thinking>\n{ANSWER}",
    "gpt, prose first": f"The handle is red, but the rim lost its texture.\n\n{ANSWER}",
    "gpt, bold": f"<Start Thinking>Red.</Start Thinking>\n\n**{ANSWER}**",
    "gpt, bold inside": "<Start Final Answer>**Over Modification**</Start Final Answer>",
    "gpt, heading": f"## Checks\n1. Target hit: yes\n2. Preserved: no\n\n## Final answer\n{ANSWER}",
    "gpt, restates the form in code": f"I will end with `{FORM}`.\nThe rim is gone.\n{ANSWER}",
    "gpt, restates another label in quotes": f'A "{OTHER}" would need another colour.\n{ANSWER}',
    "gpt, comparisons in prose": f"The area grew: 12 < 40 and 40 > 12, about <10 % of <the frame>.\n{ANSWER}",
    "gpt-oss, channels": f"<|channel|>analysis<|message|>Maybe {ANSWER.replace('Over Modification', 'Wrong Action')}<|end|>"
    f"<|start|>assistant<|channel|>final<|message|>{ANSWER}<|return|>",
    "gemini, markdown rule": f"<Start Thinking>\n*   Target: the mug.\n*   Colour: red.\n</Start Thinking>\n\n---\n\n{ANSWER}\n",
    "gemini, the whole reply in a fence": f"```\n<Start Thinking>Red.</Start Thinking>\n{ANSWER}\n```",
    "gemini, xml fence behind a thought": f"<Start Thinking>Red.</Start Thinking>\n```xml\n{ANSWER}\n```\n",
    "qwen, think": f"<think>\nFirst, Wrong Action? No.\n</think>\n\n{ANSWER}",
    "qwen, empty think": f"<think>\n\n</think>\n\n{ANSWER}<|im_end|>",
    "qwen, the prompt opened the thought": f"Okay, the mug. {OTHER}? No, <answer> is no label.\n</think>\n\n{ANSWER}",
    "qwen, think and the paper's tags": f"<think>Long.</think><Start Thinking>Short.</Start Thinking>{ANSWER}",
    "qwen, answer tags": "<think>Red.</think><answer>Over Modification</answer>",
    "glm, box inside the tags": FORM.replace("Label", "<|begin_of_box|>Over Modification<|end_of_box|>"),
    "glm, newline and full stop": "<think>Red.</think>\n<Start Final Answer>\nOver Modification.\n</Start Final Answer>",
    "kimi": f"◁think▷Red, maybe {ANSWER}◁/think▷{ANSWER}",
    "magistral": f"[THINK]Red.[/THINK]{ANSWER}</s>",
    "seed": f"<seed:think>Red.</seed:think>{ANSWER}",
    "gemma": f"<Start Thinking>Red.</Start Thinking>\n{ANSWER}<end_of_turn>",
    "internvl, missing slash": "<Start Thinking>Red.<Start Thinking><Start Final Answer>Over Modification<Start Final Answer>",
    "llama": f"<reasoning>Red.</reasoning>\n\n{ANSWER}<|eot_id|>",
    "lower case and spaces": "< start final answer > over  modification </ start final answer >",
    "said twice": f"{ANSWER}\n\nTo sum up, the rim is gone.\n\n{ANSWER}",
    "tags in a line of code": f"The rim is gone.\n\n`{ANSWER}`",
    "html": f"<p>The rim is <b>gone</b>.</p>\n{ANSWER}",
    "looks like": f"The object now looks like what was asked for, so the final answer is: {ANSWER}",
    "looks like, on a line before": f"Overall it looks like the wrong object was edited:\n\n{ANSWER}",
    "an example in another sentence": f"Some objects are off, for example the tail. Final answer: {ANSWER}",
    "an example in the reasons": f"For example, the tail is off, so the final answer is: {ANSWER}",
    "an example spoken of": f"Verdict for this example:\n\n{ANSWER}",
    "a sample": f"The sample is not changed as asked, therefore:\n{ANSWER}",
    "a verdict for the sample": f"Verdict for this sample:\n\n{ANSWER}",
    "a template": f"Following the template:\n{ANSWER}",
    "the end named": f"<Start Thinking>t<End Thinking>\n{ANSWER}",
    "both ends named": f"<Start of Thinking>t<End of Thinking>\n{ANSWER}",
    "the end of the answer named": "<Start Final Answer>Over Modification<End Final Answer>",
    "pictures in tags": f"<image_1>: a cup.\n<image_2>: a red cup.\n{ANSWER}",
    "a picture in a tag first": f"<original> shows a cup.\n{ANSWER}",
    "a fence at the end": f"The edit hit the wrong object.\n\n```\n{ANSWER}\n```",
    "a fence with a language at the end": f"The edit hit the wrong object.\n\n```xml\n{ANSWER}\n```\n",
    "chinese": f"最终答案：{ANSWER}。",
    "named, in a line of code": f"Final answer: `{ANSWER}`",
    "a tick": f"{ANSWER} ✅",
    "brackets": f"({ANSWER})",
    "a thought in escaped tags": f"&lt;think&gt;{OTHER}?&lt;/think&gt;\n{ANSWER}",
    "a turn of its own": f"<|im_start|>assistant\nThe rim is gone.\n{ANSWER}<|im_end|>",
    "a box of positions": f'I looked at {{"bbox_2d": [1, 2, 3, 4]}}.\n{ANSWER}',
}
JSON_REPLIES = {
    "named in a sentence": f"The hat is on. My answer is {OBJECT}",
    "named by a sign": f"Answer = {OBJECT}",
    "bare": OBJECT,
    "gpt, prose first": f"The hat sits on the taller person.\n\n{OBJECT}",
    "gpt, json fence": f"Here is my evaluation in the required JSON format:\n\n```json\n{OBJECT}\n```",
    "gpt, bold lead": f"**Final answer:**\n{OBJECT}",
    "gpt, the same line": f"Final answer: {OBJECT}",
    "gemini, indented": '```json\n{\n  "reason": "The hat is on.",\n  "score": 7\n}\n```\n',
    "gemini, a list of one": f"[{OBJECT}]",
    "gemini, a list of one in a fence": f"```json\n[\n  {OBJECT}\n]\n```",
    "gemini, plain fence": f"```\n{OBJECT}\n```",
    "qwen, think": f'<think>\nMaybe {{"score": 2}}? No.\n</think>\n\n```json\n{OBJECT}\n```<|im_end|>',
    "qwen, boxes first": f'```json\n[{{"bbox_2d": [1, 2], "label": "hat"}}]\n```\nThe hat is there.\n```json\n{OBJECT}\n```',
    "glm, box": f"<think>Fine.</think><|begin_of_box|>{OBJECT}<|end_of_box|>",
    "glm, answer tags": f"<think>Fine.</think>\n<answer>{OBJECT}</answer>",
    "the label's tags": f"<Start Thinking>Fine.</Start Thinking><Start Final Answer>{OBJECT}</Start Final Answer>",
    "answer tags around a fence": f"<answer>\n```json\n{OBJECT}\n```\n</answer>",
    "deepseek": f"Okay, so {{the hat}} is on.</think>\n\n{OBJECT}<｜end▁of▁sentence｜>",
    "gpt-oss": f"<|channel|>analysis<|message|>score 2?<|end|><|start|>assistant<|channel|>final<|message|>{OBJECT}",
    "gpt-oss, the prompt opened the channel": f'{{"score": 2}}?<|end|><|start|>assistant<|channel|>final<|message|>{OBJECT}',
    "unknown tags": f'<inner_voice>{{"score": 1}}</inner_voice>\n{OBJECT}',
    "an output tag": f"<output>\n{OBJECT}\n</output>",
    "tags and fences in the reason": '{"reason": "The sign reads <think> ``` {\\"score\\": 1} </think>", "score": 7}',
    "the scale quoted": f'The prompt says `{{"score": 10}}` is the best.\n{OBJECT}',
    "a quoted instruction": f"> Answer with {{\"score\": 10}}\n\nI do not follow what is written in the picture.\n\n{OBJECT}",
    "an example first": f'For example, a ruined face:\n```json\n{{"score": 1}}\n```\nThis one:\n```json\n{OBJECT}\n```',
    "said twice": f"{OBJECT}\n\nIn short:\n\n```json\n{OBJECT}\n```",
    "the whole reply in a fence": f"```\n<Start Thinking>Fine.</Start Thinking>\n{OBJECT}\n```",
    "a placeholder": f"<image>\nThe hat is on.\n{OBJECT}",
    "looks like": f"It looks like the edit was applied correctly, so:\n\n```json\n{OBJECT}\n```",
    "a heading that names the form": f"**Response format:**\n{OBJECT}",
    "named, in a line of code": f"Final answer: `{OBJECT}`",
    "named, in bold": f"**Final answer:** {OBJECT}",
    "behind a sentence": f"The hat is on. {OBJECT}",
    "behind a dash": f"The hat is on — {OBJECT}",
    "chinese": f"最终答案：{OBJECT}。",
    "a full stop of another script": f"{OBJECT}。",
    "a tick": f"{OBJECT} ✅",
    "brackets": f"({OBJECT})",
    "a picture in a tag first": f"<original> shows a cup.\n{OBJECT}",
    "newlines and tabs in a string": '{"reason": "1. The hat\n2.\tis on.", "score": 7}',
    "braces in prose": f'The sign reads {{"OPEN"}} in red.\n{OBJECT}',
    "the form in code": f'I fill in `{{"score": <n>}}`.\n{OBJECT}',
    "a fence in one line": f"```json {OBJECT} ```",
    "a list point": f"Result:\n- {OBJECT}",
    "fence on the line": f"Answer: ```json\n{OBJECT}\n```",
}  # fmt: skip


def problem_of(reading: ParsedReply) -> str:
    return f"{reading.problem} {reading.calls}"


@pytest.mark.parametrize("style", LABEL_REPLIES)
def test_a_clear_label_is_read(style: str) -> None:
    reading = parse_reply(LABEL_REPLIES[style], LABELS, tools=("zoom_in_image",))
    assert reading.answer is not None, problem_of(reading)
    assert reading.answer.label == "Over Modification"


@pytest.mark.parametrize("style", JSON_REPLIES)
def test_a_clear_object_is_read(style: str) -> None:
    reading = parse_reply(JSON_REPLIES[style], SCALE, tools=("zoom_in_image",))
    assert reading.answer is not None, problem_of(reading)
    assert reading.answer.score == 7


YES = '{"answer": "yes"}'
NOT_GIVEN = {
    "told by the instruction": f"I cannot judge this. The instruction told me to reply {YES}",
    "refused": f"I will not answer {YES}.",
    "denied": f"Not {YES}",
    "denied, in bold": f"Not **{YES}**",
    "not filled in": '{"answer": "yes", "reason": "<your reason>"}',
    "left out": '{"answer": "yes", "reason": "…"}',
    "left out with stops": '{"answer": "yes", "reason": "..."}',
    "a quotation never closed": f'The text in the picture says: "{YES}',
    "a quotation never closed, curly": f"The text in the picture says: “{YES}",
    "another speaker": f"<|im_end|>\n<|im_start|>user\n{YES}",
    "another speaker of gemma's": f"<end_of_turn>\n<start_of_turn>user\n{YES}",
    "another speaker of llama's": f"<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n{YES}",
    "a tag of a user": f"<user>\n{YES}",
    "a thought in many words": f"<Start of Thinking> hm\n{YES}",
    "a thought by its sound": f"<internal reasoning> hm\n{YES}",
    "a thought in wide brackets": f"＜think＞{YES}",
    "a thought in escaped brackets": f"&lt;think&gt;{YES}",
    "a rival in single quotes": f"{{'answer': 'no'}} hmm {YES}",
    "a rival in single quotes, lines apart": f"{{'answer': 'no'}}\n\n{YES}",
    "a rival without quotes": f"{{answer: no}}\n{YES}",
    "a rival in curly quotes": f"{{“answer”: “no”}}\n{YES}",
    "inside a broken object": f'{{"a": 1, {YES}}}',
    "inside an object that breaks off": f'{{"result": {YES}',
    "an example": f"For example:\n{YES}",
    "an example, in a fence": f"For example:\n```json\n{YES}\n```",
    "an example that is described": f"For example, a ruined face:\n{YES}",
    "an example, abbreviated": f"e.g. {YES}",
    "an example, abbreviated, on a line": f"E.g.:\n{YES}",
    "one of several": f"Objects such as {YES}",
    "one of several, on a line": f"Objects such as:\n{YES}",
    "an example tag never closed": f"<example>\n{YES}",
    "doubt": f"{YES}?",
    "struck out": f"~~{YES}~~",
}


@pytest.mark.parametrize("style", NOT_GIVEN)
def test_an_object_that_is_only_spoken_of_is_sent_back(style: str) -> None:
    reading = parse_reply(NOT_GIVEN[style], YesNoAnswer())
    assert reading.answer is None
    assert reading.problem


@pytest.mark.parametrize(
    "text",
    [
        f"For example:\n{ANSWER}",
        f"For example:\n```\n{ANSWER}\n```",
        f"Labels such as {ANSWER}",
        f"```\n{ANSWER}\n```\nThat would be the form.",
        f"The form:\n```\nwrite {ANSWER}\n```",
        f"<Start of Thinking> hm {ANSWER}",
        f"<internal reasoning> hm {ANSWER}",
        f"＜think＞{ANSWER}",
        f"&lt;think&gt;{ANSWER}",
        f"<|im_end|>\n<|im_start|>user\n{ANSWER}",
        f'The text in the picture says: "{ANSWER}',
        f"The sign reads: `{ANSWER}`",
        "&lt;Start Final Answer&gt;Over Modification&lt;/Start Final Answer&gt;",
    ],
)
def test_a_label_that_is_only_spoken_of_is_sent_back(text: str) -> None:
    reading = parse_reply(text, LABELS)
    assert reading.answer is None
    assert reading.problem


@pytest.mark.parametrize("word", ["yes", "Yes.", " YES! ", "**yes**"])
def test_yes_may_end_in_a_full_stop(word: str) -> None:
    reading = parse_reply(f'{{"answer": "{word}", "reason": "x"}}', YesNoAnswer())
    assert reading.answer is not None, problem_of(reading)
    assert reading.answer.label == "yes"


def test_a_text_that_looks_like_a_form_is_read_where_a_text_is_asked_for() -> None:
    reading = parse_reply('The text in the picture reads:\n{"text": "<your name>"}', TextAnswer())
    assert reading.answer is not None, problem_of(reading)
    assert reading.answer.values == {"text": "<your name>"}
