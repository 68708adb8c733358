"""Profiles, sampling and keys of stored replies stay byte for byte the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage, message_to_dict

from editloupe.agent.chat_interface import ChatRequest
from editloupe.agent.messages import picture_block, text_block
from editloupe.agent.model_settings import ModelSettings, adjust_profile, build_sampling
from editloupe.agent.open_model import open_chat
from editloupe.agent.spec_names import RULES
from editloupe.agent.specs import find_profile, split_spec
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from tests.agent.rules.pictures import BLUE, disc, ground, make_case, make_edit

JUDGES = json.loads((Path(__file__).parents[1] / "fixtures" / "keyed_judges.json").read_text())
"""Kept from commit 44a8c4c, whose runs go on; a difference would have them judged and paid for again."""
SHA = "0123456789abcdef0123456789abcdef"
CALL = {"name": "zoom_in_image", "args": {"bbox_2d": [1, 2, 3, 4]}, "id": "call_1", "type": "tool_call"}
CONVERSATION: list[AnyMessage] = [
    SystemMessage("You judge."),
    HumanMessage([text_block("Source:"), picture_block(SHA, "Source Image")]),
    AIMessage("I look.", tool_calls=[CALL]),
    ToolMessage("A cup.", tool_call_id="call_1", name="zoom_in_image"),
]
judges = pytest.mark.parametrize("known", JUDGES, ids=lambda known: f"{known['spec']} {len(known['settings'])}")


class Kept:
    """Holds a reply to everything, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def get(self, key: str) -> Mapping[str, Any]:
        self.keys.append(key)
        return {"message": message_to_dict(AIMessage("kept")), "usage": {}}

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        raise AssertionError("it was asked although a reply is kept")


@pytest.mark.long
@judges
def test_profiles_and_sampling_are_those_the_keys_were_made_of(known: dict[str, Any]) -> None:
    settings = ModelSettings(**known["settings"])
    provider, name = split_spec(known["spec"])
    own = find_profile(provider, name)
    as_set = own if provider == RULES else adjust_profile(own, settings)
    decides = {name: value for name, value in known["profile"].items() if name not in ("family", "pattern")}
    assert as_set.model_dump(mode="json", include=set(decides)) == decides
    assert build_sampling(adjust_profile(own, settings), settings) == known["sampling"]


@pytest.mark.long
@pytest.mark.parametrize("url", [None, "http://localhost:8000/v1"])
@pytest.mark.parametrize(
    "known", [known for known in JUDGES if known["spec"] != RULES], ids=lambda k: f"{k['spec']} {len(k['settings'])}"
)
async def test_a_kept_reply_is_found_again_wherever_the_model_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any], url: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-test-0123456789")
    kept = Kept()
    chat = open_chat(known["spec"], url, ModelSettings(**known["settings"]), kept)
    picture = disc(ground(), (160, 120), BLUE)
    case, _ = make_case(make_edit(tmp_path, picture, picture, picture, "Paint it"), "instruction_following", "plain")
    request = ChatRequest(CONVERSATION, [], case, Album(), EncodingLimits(), 1, schema={"type": "object"})
    reply = await chat.reply(request)
    await chat.aclose()
    assert (reply.kept, reply.message.content) == (True, "kept")
    assert kept.keys == [known["reply_key"]]
