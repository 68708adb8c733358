"""Replies of real models that no score can be read from end without a verdict."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import pytest

from editloupe.agent.replies.answers import parse_reply
from editloupe.rubrics.model import Answer, NumberAnswer
from editloupe.rubrics.registry import get_protocol

ROOT = Path(os.environ.get("EDITLOUPE_CONFORMANCE", Path(__file__).resolve().parents[4] / "shared" / "conformance"))
REPLIES = ROOT / "replies" / "replies.jsonl"
PROTOCOL = get_protocol("dlebench")
LABELS = PROTOCOL.rubric(PROTOCOL.criteria[0]).answer


@cache
def replies() -> list[str]:
    """Return the different replies that the original answered with random numbers."""
    rows = [json.loads(line) for line in REPLIES.read_text("utf-8").splitlines()]
    return list(dict.fromkeys(row["reply"] or "" for row in rows if row["score_is_a_random_guess"]))


@pytest.mark.long
@pytest.mark.skipif(not REPLIES.is_file(), reason="the replies are not here")
@pytest.mark.parametrize("form", [NumberAnswer(low=0, high=10), LABELS], ids=["score", "label"])
def test_only_replies_with_an_object_or_a_label_become_verdicts(form: Answer) -> None:
    names = [label.name.casefold() for label in getattr(form, "labels", ())]
    for text in replies():
        answer = parse_reply(text, form).answer
        if answer is not None:
            # A score needs a JSON object with its key; a label has to be written out.
            assert (answer.label or "").casefold() in names if names else "{" in text and '"score"' in text, text
    assert parse_reply("", form).answer is None


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "[9, 10]",
        "score1 : 0, score2 : 0",
        "naturalness 10 artifacts 0",
        '"score": 0,\n"reasoning": "..."',
        "The image has a score of 7 for naturalness and 6 for artifacts, making the overall score 13.",
        "and output artifacts = [naturalness, artifacts].",
        "[score1], [score2], [reasoning]",
    ],
)
def test_forms_that_real_models_answered_with_are_asked_again(text: str) -> None:
    for form in (NumberAnswer(low=0, high=10), LABELS):
        parsed = parse_reply(text, form)
        assert parsed.answer is None
        assert parsed.problem
