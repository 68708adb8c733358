"""Servers that fail, hang, refuse or hold a reply back, through the real clients: tried again, unjudged, or an end at once."""

from __future__ import annotations

from typing import Any

import pytest

from editloupe import Reason, Unjudged, UserError
from tests.graphs.conftest import Judging, only
from tests.scripted import drop, empty, fault, final, hang, not_json, out_of_quota, wrong_key, wrong_shape


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
@pytest.mark.parametrize(
    "bad", [fault(429, retry_after=0.05), fault(500), fault(503), drop(), not_json(), wrong_shape()], ids=str
)
def test_passing_faults_are_tried_again(judging: Judging, spec: str, bad: Any) -> None:
    judgement, server = judging([bad, bad, final("Wrong Action")], spec)
    assert only(judgement).label == "Wrong Action"
    assert server.served == 3
    assert sum(step.attempts for step in judgement.traces[0].steps) == 3


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
def test_a_server_that_stays_sick_leaves_the_edit_unjudged_within_sixty_requests(judging: Judging, spec: str) -> None:
    judgement, server = judging(fault(500), spec, criteria=None)
    assert {outcome.reason for outcome in judgement.verdicts if isinstance(outcome, Unjudged)} == {Reason.MODEL_ERROR}
    assert server.served <= 60


@pytest.mark.long
@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
def test_a_server_that_never_answers_is_a_timeout(judging: Judging, spec: str) -> None:
    judgement, server = judging(hang(30), spec, settings={"timeout": 0.4})
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.TIMEOUT
    assert server.served == 2


@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
@pytest.mark.parametrize(("bad", "word"), [(wrong_key(), "key"), (fault(404), "model"), (out_of_quota(), "quota")])
def test_a_wrong_key_an_unknown_model_and_no_quota_stop_at_once(
    judging: Judging, spec: str, bad: Any, word: str
) -> None:
    with pytest.raises(UserError, match=word):
        judging(bad, spec)


def test_a_request_the_provider_refuses_is_unjudged_and_not_repeated(judging: Judging) -> None:
    judgement, server = judging(fault(400, "Your input image may contain content that is not allowed."))
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.REFUSED
    assert "not allowed" in outcome.detail
    assert server.served == 1


@pytest.mark.parametrize("spec", ["openai:gpt-4.1", "google_genai:gemini-2.5-pro"])
@pytest.mark.parametrize("bad", [empty(finish="content_filter"), empty(finish="blocked")], ids=["filtered", "blocked"])
def test_a_reply_held_back_by_a_filter_is_unjudged_and_not_asked_again(judging: Judging, spec: str, bad: Any) -> None:
    judgement, server = judging(bad, spec)
    outcome = only(judgement)
    assert isinstance(outcome, Unjudged)
    assert outcome.reason is Reason.REFUSED
    assert server.served == 1
