"""A LangChain chat model is a judge under a name of its own; its keys reach no record."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field, SecretStr

from editloupe import Edit, Judge, JudgeSettings, UserError
from editloupe.agent.providers.langchain import ChatModel
from editloupe.agent.providers.provider import Profile
from editloupe.agent.transport.secrets import redact_text
from editloupe.evals.batch.ray_executor import RayExecutor
from editloupe.judge.plans import Panel, plan_of_chat_model
from tests.drawn_pictures import edit_pair

KEY = "ck-mine-alone-0123456789"
HEADER = "hk-another-9876543210"
ANSWER = "It is the wrong thing.\n<Start Final Answer>Wrong Action</Start Final Answer>"


class ListedChat(BaseChatModel):
    """Gives listed replies and keeps what it was asked; has no asynchronous method of its own."""

    replies: list[AIMessage]
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    model_name: str = "listed-1"
    service_key: SecretStr = SecretStr(KEY)
    default_headers: dict[str, str] = Field(default_factory=lambda: {"X-Api-Key": HEADER})
    failing: bool = False

    @property
    def _llm_type(self) -> str:
        return "listed"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.asked.append(messages)
        if self.failing:
            raise RuntimeError(f"no service for the key {self.service_key.get_secret_value()} and {HEADER}")
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return ChatResult(generations=[ChatGeneration(message=reply)])


class CallingChat(ListedChat):
    """One that can call tools, and keeps which it was offered."""

    offered: list[str] = Field(default_factory=list)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Keep the names of the tools."""
        self.offered[:] = [tool["function"]["name"] for tool in tools]
        return self


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    before, after = edit_pair(tmp_path)
    return Edit(source=before, edited=after, instruction="Paint it red")


def open_judge(model: BaseChatModel, name: str = "mine", **options: Any) -> Judge:
    return Judge(model, name=name, criteria=["instruction_following"], **{"mode": "plain", **options})


def test_it_judges_an_edit_from_both_pictures(edit: Edit) -> None:
    model = ListedChat(replies=[AIMessage(ANSWER)])
    with open_judge(model) as judge:
        (verdict,) = judge.judge(edit).verdicts
        assert judge.spec == "chat_model:mine"
    assert verdict.status == "judged"
    assert verdict.label == "Wrong Action"
    blocks = [b for m in model.asked[0] if isinstance(m.content, list) for b in m.content if isinstance(b, dict)]
    pictures = [b["image_url"]["url"] for b in blocks if b["type"] == "image_url"]
    assert len(pictures) == 2
    assert all(url.startswith("data:image/") for url in pictures)


def test_a_model_that_binds_tools_calls_them_and_sees_their_results(edit: Edit) -> None:
    call = {"name": "localize_differences", "args": {}, "id": "c1", "type": "tool_call"}
    model = CallingChat(replies=[AIMessage("", tool_calls=[call]), AIMessage(ANSWER)])
    with open_judge(model, mode="tools") as judge:
        judgement = judge.judge(edit)
        assert judge.describe()["profile"]["native_tools"] is True
    assert "localize_differences" in model.offered
    assert len(model.asked) == 2
    assert any(step.calls for step in judgement.traces[0].steps)
    assert judgement.verdicts[0].status == "judged"


def test_a_model_that_binds_none_calls_them_by_the_text_protocol(edit: Edit) -> None:
    with open_judge(ListedChat(replies=[AIMessage(ANSWER)]), mode="tools") as judge:
        assert judge.describe()["profile"]["native_tools"] is False
        assert judge.judge(edit).judged


def test_what_is_known_of_it_is_stated_with_its_source() -> None:
    with open_judge(ListedChat(replies=[], model_name="gemini-3-pro")) as judge:
        (note,) = judge.notes
        profile = judge.describe()["profile"]
    assert "ListedChat of the model gemini-3-pro" in note
    assert "temperature: unknown" in note
    assert "by its own attributes: family Gemini 3, text tool calls, positions in thousandths" in note
    assert (profile["family"], profile["per_mille"], profile["provider"]) == ("Gemini 3", True, "chat_model")


def test_a_profile_passed_with_it_counts() -> None:
    own = Profile(family="Mine", provider="chat_model", pattern="", native_tools=False, per_mille=True)
    with open_judge(CallingChat(replies=[]), profile=own) as judge:
        assert judge.describe()["profile"] == own.model_dump(mode="json")
        assert "by the profile passed with it: family Mine" in judge.notes[0]


def test_another_name_is_another_judge_and_the_same_name_the_same() -> None:
    keys = []
    for name in ("one", "one", "two"):
        with open_judge(ListedChat(replies=[]), name=name) as judge:
            keys.append(judge.question_specs()[0].key)
    assert keys[0] == keys[1] != keys[2]


def test_two_models_answer_as_a_panel(edit: Edit) -> None:
    models = ListedChat(replies=[AIMessage(ANSWER)]), ListedChat(replies=[AIMessage(ANSWER)])
    panel = Panel(tuple(plan_of_chat_model(model, name) for model, name in zip(models, "ab", strict=True)))
    with Judge(panel, mode="plain", criteria=["instruction_following"]) as judge:
        assert judge.judge(edit).judged
        assert judge.members == ("chat_model:a", "chat_model:b")
    assert [len(model.asked) for model in models] == [1, 1]


def test_its_keys_reach_neither_errors_nor_the_description(edit: Edit) -> None:
    model = ListedChat(replies=[], failing=True, model_name=f"m-{KEY}")
    settings = JudgeSettings.model_validate({"retry": {"max_attempts": 1}})
    with open_judge(model, settings=settings) as judge:
        judgement = judge.judge(edit)
        stored = json.dumps(judge.describe()) + judgement.model_dump_json() + repr(judge.plan)
    (outcome,) = judgement.verdicts
    assert outcome.status == "unjudged"
    assert "no service for the key [secret]" in outcome.detail
    assert KEY not in stored
    assert HEADER not in stored
    assert KEY not in redact_text(f"later: {KEY}")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs a name"),
        ({"name": "a,b"}, "cannot be the name"),
        ({"name": "a", "base_url": "http://localhost/v1"}, "an address of its own"),
        ({"name": "a", "settings": JudgeSettings(temperature=0.5)}, "a temperature of its own"),
        ({"name": "a", "settings": JudgeSettings(top_p=0.5)}, "does not support --top-p"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        Judge(ListedChat(replies=[]), mode="plain", **options)


def test_a_name_without_a_model_and_an_object_that_is_none_are_refused() -> None:
    with pytest.raises(UserError, match="go with a LangChain chat model"):
        Judge("rules", name="mine")
    with pytest.raises(UserError, match="not a dict"):
        Judge({"model": 1}, name="mine")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r'pass the object: Judge\(model, name="mine"\)'):
        Judge("chat_model:mine")


async def test_on_ray_its_class_must_be_importable() -> None:
    class Local(ListedChat):
        """A class inside a function."""

    assert ChatModel(ListedChat(replies=[])).why_not_importable() is None
    sentence = r"chat_model:mine cannot judge on Ray: its class .*Local cannot be imported"
    with open_judge(Local(replies=[])) as judge, pytest.raises(UserError, match=sentence):
        await RayExecutor.open(None, Judge, judge, None)  # type: ignore[arg-type]


@pytest.mark.ray
async def test_an_object_that_cannot_be_sent_to_rays_workers_is_refused_in_a_sentence() -> None:
    pytest.importorskip("ray")
    model = ListedChat(replies=[], metadata={"connection": threading.RLock()})
    with (
        open_judge(model) as judge,
        pytest.raises(UserError, match=r"cannot be sent to Ray's workers \(TypeError: .*RLock"),
    ):
        await RayExecutor.open(None, partial(Judge, model, name="mine"), judge, None)  # type: ignore[arg-type]


class Failing:
    """Computes its attributes, and fails."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} before the service is connected")


def test_an_attribute_that_cannot_be_computed_is_passed_over(tmp_path: Path) -> None:
    before, after = edit_pair(tmp_path)

    class Connected(ListedChat):
        service: Any = Field(default_factory=Failing)

    model = Connected(replies=[AIMessage(ANSWER)])
    with Judge(model, name="connected", mode="plain", criteria=["instruction_following"]) as judge:
        assert judge.judge(Edit(source=before, edited=after, instruction="Paint it red")).judged
