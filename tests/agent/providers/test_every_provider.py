"""Behaviour of every provider, through its real client against a server with its wire format."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import pytest

from editloupe import Edit, Judge, Judgement, JudgeSettings, Reason, UserError
from editloupe.agent.chat_interface import RetryPolicy
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.rubrics.samples import edit_for
from tests.scripted import (
    Fault,
    Garbage,
    Request,
    Script,
    ScriptedServer,
    Usage,
    call,
    calls,
    drop,
    empty,
    fault,
    final,
    hang,
    not_json,
    out_of_quota,
    redirect,
    say,
    think_and_call_text,
    wrong_key,
)

DIFFER = call("localize_differences", comparison_image_1="Source Image", comparison_image_2="Edited Image")
ZOOM = call("zoom_in_image", bbox_2d=[50, 30, 110, 80], target_image="Edited Image")
QUICK = RetryPolicy(first_wait=0.01, longest_wait=0.02)
KEY = "key-Hx7-never-to-be-seen-0123"


@dataclass(frozen=True)
class ProviderCase:
    """A provider as a test asks it."""

    spec: str
    url: Callable[[ScriptedServer], str]
    keys: dict[str, str] = field(default_factory=dict)
    """The environment it needs."""
    overloaded: int = 503
    tool_choice: str | None = "none"
    """What its requests say where no tool may be called."""
    tools_at_the_end: bool = True
    """Whether the tools stay in that request."""
    package: str = ""
    quota: bool = True
    """Whether it has accounts that run dry."""

    def __str__(self) -> str:
        return self.spec.partition(":")[0]


EVERY = [
    ProviderCase(
        "anthropic:claude-sonnet-4-6",
        lambda server: server.url,
        {"ANTHROPIC_API_KEY": KEY},
        overloaded=529,
        package="langchain-anthropic",
    ),
    ProviderCase("azure_openai:gpt-4.1", lambda server: server.url, {"AZURE_OPENAI_API_KEY": KEY}),
    ProviderCase(
        "bedrock:us.anthropic.claude-sonnet-4-6",
        lambda server: server.url,
        {"AWS_BEARER_TOKEN_BEDROCK": KEY, "AWS_REGION": "us-east-1"},
        tool_choice=None,
        package="langchain-aws",
        quota=False,
    ),
    ProviderCase("openrouter:openai/gpt-4.1", lambda server: server.openai_url, {"OPENROUTER_API_KEY": KEY}),
    ProviderCase(
        "ollama:llama3.2-vision",
        lambda server: server.url,
        {"OLLAMA_API_KEY": KEY},
        tool_choice=None,
        tools_at_the_end=False,
        package="langchain-ollama",
    ),
]


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


every = pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=str(case),
            marks=pytest.mark.skipif(
                bool(case.package) and not _installed(case.package), reason=f"needs {case.package}"
            ),
        )
        for case in EVERY
    ],
)
Judging = Callable[..., tuple[Judgement, ScriptedServer]]


@pytest.fixture
def judging(scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judging:
    def run(case: ProviderCase, script: Script, **options: Any) -> tuple[Judgement, ScriptedServer]:
        for name, value in case.keys.items():
            monkeypatch.setenv(name, value)
        server = scripted(*script) if isinstance(script, list) else scripted(script if callable(script) else [script])
        before, after = edit_pair(tmp_path)
        edit = options.pop("edit", None) or Edit(source=before, edited=after, instruction="Paint the patch red")
        settings = {"retry": QUICK, "timeout": 5.0} | options.pop("settings", {})
        options.setdefault("criteria", ["instruction_following"])
        with Judge(case.spec, base_url=case.url(server), settings=JudgeSettings(**settings), **options) as judge:
            return judge.judge(edit), server

    return run


def only(judgement: Judgement) -> Any:
    (outcome,) = judgement.verdicts
    return outcome


def replies(request: Request) -> int:
    return sum(message.role == "assistant" for message in request.messages)


def in_turn(*answers: Any) -> Script:
    """Answer a conversation turn by turn, the last for ever."""
    return lambda request: answers[min(replies(request), len(answers) - 1)]


@pytest.mark.long
@every
def test_it_looks_with_function_calls_and_is_shown_what_the_tools_found(judging: Judging, case: ProviderCase) -> None:
    judgement, server = judging(
        case, in_turn(calls(DIFFER, ZOOM), final("Wrong Action")), settings={"tool_calls": "native"}
    )
    verdict = only(judgement)
    assert verdict.label == "Wrong Action"
    first, second = server.requests
    assert {"zoom_in_image", "localize_differences"} <= set(first.tools)
    assert len(first.images) == 2
    assert len(second.images) > 2
    assert [image.defect() for image in second.images] == [None] * len(second.images)
    results = [result for message in second.messages for result in message.results]
    assert len(results) == 2
    assert all(result.text for result in results)
    assert not server.refused
    assert not first.stream
    assert "judge" in first.system.lower()


@pytest.mark.long
@every
def test_it_looks_with_calls_written_in_its_text(judging: Judging, case: ProviderCase) -> None:
    judgement, server = judging(
        case,
        in_turn(think_and_call_text("I look.", DIFFER), final("Wrong Action")),
        settings={"tool_calls": "text"},
    )
    assert only(judgement).label == "Wrong Action"
    assert server.requests[0].tools == ()
    assert len(server.requests[1].images) > 2


@pytest.mark.long
@every
def test_at_the_end_of_its_turns_it_must_answer_without_tools(judging: Judging, case: ProviderCase) -> None:
    judgement, server = judging(
        case, in_turn(ZOOM, final("Wrong Action")), settings={"tool_calls": "native", "max_turns": 1}
    )
    assert only(judgement).label == "Wrong Action"
    last = server.requests[-1]
    assert last.tool_choice == case.tool_choice
    assert bool(last.tools) == case.tools_at_the_end


@pytest.mark.long
@every
def test_its_tokens_are_counted_as_it_reports_them(judging: Judging, case: ProviderCase) -> None:
    judgement, _ = judging(case, final("Wrong Action").but(usage=Usage(1000, 50)), mode="plain")
    usage = only(judgement).usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (1, 1000, 50)
    assert not judgement.notes


UNREADABLE = ["12", 1.5, [1], {}, True, 10**30, "absent"]


def with_counts(reply: Any, value: Any) -> Any:
    """Return a reply in which every count of tokens is this value, or which has none."""
    if not isinstance(reply, dict):
        return reply
    return {
        name: value if name.lower().endswith(("tokens", "_count", "_details")) else with_counts(inner, value)
        for name, inner in reply.items()
        if value != "absent" or not (name == "usage" or name.endswith("_count"))
    }


@pytest.mark.parametrize("value", UNREADABLE, ids=str)
@pytest.mark.long
@every
def test_a_verdict_is_read_although_its_tokens_are_not(judging: Judging, case: ProviderCase, value: Any) -> None:
    def script(request: Request) -> Garbage:
        reply = request.wire.write(final("Wrong Action"), request, cast(Any, None))
        return Garbage(json.dumps(with_counts(reply, value)).encode())

    judgement, server = judging(case, script, mode="plain")
    assert only(judgement).label == "Wrong Action"
    assert len(server.requests) == 1
    assert only(judgement).usage.input_tokens > 0, "estimated"


@pytest.mark.long
@every
def test_half_an_emoji_in_a_reply_is_a_mark(judging: Judging, case: ProviderCase) -> None:
    text = "I see \ud83d there. <Start Final Answer>Wrong Action</Start Final Answer>"
    judgement, server = judging(case, say(text), mode="plain")
    assert only(judgement).label == "Wrong Action"
    assert "I see \ufffd there" in judgement.traces[0].steps[0].thought
    assert len(server.requests) == 1


@pytest.mark.long
@every
def test_a_reply_that_reached_its_length_is_no_answer(judging: Judging, case: ProviderCase) -> None:
    judgement, server = judging(
        case, lambda _: final("Wrong Action").but(finish="length"), mode="plain", settings={"max_repairs": 1}
    )
    outcome = only(judgement)
    assert outcome.reason == Reason.TRUNCATED
    assert "cut off" in outcome.detail
    assert len(server.requests) == 2


@pytest.mark.long
@every
@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (wrong_key(), "the key for {spec} was not accepted"),
        (fault(404), "the server does not know the model {spec}"),
        (out_of_quota(), "the account of {spec} has no quota or budget left"),
    ],
)
def test_what_only_the_user_can_mend_stops_at_once(
    judging: Judging, case: ProviderCase, reply: Fault, sentence: str
) -> None:
    if reply.kind == "quota" and not case.quota:
        pytest.skip("it sends a bill")
    with pytest.raises(UserError) as raised:
        judging(case, [reply], mode="plain")
    assert sentence.format(spec=case.spec) in str(raised.value)
    assert KEY not in str(raised.value)


@pytest.mark.long
@every
def test_limits_and_overload_are_waited_out(judging: Judging, case: ProviderCase) -> None:
    trouble = [fault(429, retry_after=0.02), fault(case.overloaded), drop(), not_json(), final("Wrong Action")]
    judgement, server = judging(case, trouble, mode="plain")
    assert only(judgement).label == "Wrong Action"
    assert len(server.requests) == len(trouble)


@pytest.mark.long
@every
def test_a_limit_that_lasts_longer_than_anybody_waits_is_no_verdict(judging: Judging, case: ProviderCase) -> None:
    judgement, server = judging(case, [fault(429, retry_after=4000)], mode="plain")
    assert only(judgement).reason == Reason.MODEL_ERROR
    assert "429" in only(judgement).detail
    assert len(server.requests) == 1


@pytest.mark.long
@every
def test_a_server_that_says_nothing_is_given_up(judging: Judging, case: ProviderCase) -> None:
    judgement, _ = judging(case, [hang(5), hang(5)], mode="plain", settings={"timeout": 0.2})
    assert only(judgement).reason == Reason.TIMEOUT


@pytest.mark.long
@every
def test_an_empty_reply_is_none(judging: Judging, case: ProviderCase) -> None:
    judgement, _ = judging(case, lambda _: empty(), mode="plain", settings={"max_repairs": 0})
    assert only(judgement).status == "unjudged"


@every
def test_no_redirect_is_followed(judging: Judging, case: ProviderCase, scripted: StartServer) -> None:
    elsewhere = scripted(lambda _: final("Wrong Action"), checks=False)
    with pytest.raises(UserError, match="redirect"):
        judging(case, lambda _: redirect(f"{elsewhere.url}/v1/messages"), mode="plain")
    assert elsewhere.served == 0


@pytest.mark.long
@every
def test_an_answer_in_json_is_read_and_held_to_its_schema_where_asked_for(
    judging: Judging, case: ProviderCase, tmp_path: Path
) -> None:
    judgement, server = judging(
        case,
        say('{"reason": "seen", "score": 4}'),
        protocol="edit-compass",
        mode="plain",
        edit=edit_for(tmp_path, roles=()),
        settings={"structured": "on", "written_reasoning": "off"},
    )
    assert only(judgement).score == 4
    assert "additionalProperties" in json.dumps(server.requests[0].body), "the schema is in the request"
    assert not server.refused


@pytest.mark.long
@every
def test_its_key_is_sent_and_shown_nowhere(
    judging: Judging, case: ProviderCase, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    judgement, server = judging(case, [say(f"{KEY} is your key"), final("Wrong Action")], mode="plain")
    if KEY in case.keys.values():
        assert KEY in " ".join(server.requests[0].headers.values())
    trace = judgement.traces[0].model_dump_json()
    assert KEY not in trace + caplog.text
    assert KEY not in json.dumps(judgement.model_dump(mode="json"), default=str)


@every
def test_a_client_that_is_not_installed_is_named_with_its_command(
    case: ProviderCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.agent.providers import find_provider

    extra = find_provider(str(case)).extra
    if not extra:
        pytest.skip("its client comes with every installation")
    for name, value in case.keys.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(__import__("sys").modules, f"langchain_{extra if extra != 'bedrock' else 'aws'}", None)
    with pytest.raises(UserError, match=rf"pip install '\.\[{extra}\]'"):
        Judge(case.spec, base_url="http://127.0.0.1:1")
