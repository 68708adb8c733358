"""The scripted server behaves towards the real clients as the real services do."""

from __future__ import annotations

import asyncio
import base64
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.conftest import StartServer
from tests.scripted import (
    Call,
    Reply,
    Request,
    ScriptedServer,
    ScriptError,
    Usage,
    as_data_url,
    broken_call,
    call,
    calls,
    empty,
    final,
    noise,
    say,
    think_and_call_text,
)

PROVIDERS = ("openai", "gemini")
both = pytest.mark.parametrize("provider", PROVIDERS)


@tool
def zoom_in_image(bbox_2d: list[int], target_image: str) -> str:
    """Zoom in."""
    return target_image


@tool
def detect_object(target_image: str, detect_object_name: str) -> str:
    """Find an object."""
    return target_image


TOOLS = [zoom_in_image, detect_object]
LOOK = calls(
    call("zoom_in_image", bbox_2d=[1, 2, 30, 40], target_image="Source Image"),
    call("detect_object", target_image="Edited Image", detect_object_name="duck"),
    text="Let me look.",
)


def model(server: ScriptedServer, provider: str, **options: Any) -> BaseChatModel:
    """Return the provider's real client, pointed at the server, with its own retries off."""
    if provider == "openai":
        options = {"model": "gpt-4.1", "max_retries": 0, "timeout": 10, **options}
        return ChatOpenAI(base_url=server.openai_url, api_key=SecretStr("test"), **options)
    options = {"model": "gemini-2.5-flash", "max_retries": 1, "timeout": 10, **options}
    return ChatGoogleGenerativeAI(base_url=server.gemini_url, google_api_key="test", **options)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x10\x90\xf0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def picture(data: bytes, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": as_data_url(data), **more}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def answered(reply: AIMessage) -> list[BaseMessage]:
    return [reply, *(ToolMessage("seen", tool_call_id=c["id"], name=c["name"]) for c in reply.tool_calls)]


@both
def test_a_text_arrives_with_its_usage_and_finish_reason(scripted: StartServer, provider: str) -> None:
    server = scripted(say("Hello.", usage=Usage(1000, 300, cached=600, reasoning=250)))
    reply = model(server, provider).invoke("Hi")
    assert reply.text == "Hello."
    assert reply.response_metadata["finish_reason"] == {"openai": "stop", "gemini": "STOP"}[provider]
    usage = reply.usage_metadata
    assert usage is not None
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (1000, 300, 1300)
    assert usage["input_token_details"]["cache_read"] == 600
    assert usage["output_token_details"]["reasoning"] == 250


@both
@pytest.mark.parametrize(
    ("finish", "seen"),
    [("length", ("length", "MAX_TOKENS")), ("content_filter", ("content_filter", "SAFETY"))],
)
def test_other_finish_reasons_come_in_the_providers_words(
    scripted: StartServer, provider: str, finish: str, seen: tuple[str, str]
) -> None:
    reply = model(scripted(empty(finish=finish)), provider).invoke("Hi")
    assert reply.text == ""
    assert reply.response_metadata["finish_reason"] == seen[PROVIDERS.index(provider)]


@both
def test_several_tool_calls_and_their_results_make_a_conversation(scripted: StartServer, provider: str) -> None:
    server = scripted(LOOK, final("Wrong Action"))
    chat = model(server, provider).bind_tools(TOOLS)
    start: list[BaseMessage] = [SystemMessage("You judge."), HumanMessage("Judge this.")]
    first = chat.invoke(start)
    assert first.text == "Let me look."
    assert [(c["name"], c["args"]) for c in first.tool_calls] == [(c.name, c.params) for c in LOOK.calls]
    last = chat.invoke([*start, *answered(first), HumanMessage([words("The crop:"), picture(png(9, 8))])])
    assert last.text.endswith("<Start Final Answer>Wrong Action</Start Final Answer>")

    assert server.left == 0
    assert server.refused == []
    request = server.requests[1]
    assert (request.provider, request.system) == (provider, "You judge.")
    assert request.tools == ("zoom_in_image", "detect_object")
    assert [c.name for c in request.messages[1].calls] == ["zoom_in_image", "detect_object"]
    assert [r.text for m in request.messages for r in m.results] == ["seen", "seen"]
    assert request.last.role == "user"
    assert request.last.texts == ("The crop:",)
    assert "Judge this." in request.text


@both
def test_pictures_of_the_user_are_seen_with_type_and_size(scripted: StartServer, provider: str) -> None:
    server = scripted(say("ok"))
    small, large = png(4, 3), png(300, 200)
    block = {"type": "image", "base64": base64.b64encode(large).decode(), "mime_type": "image/png"}
    model(server, provider).invoke([HumanMessage([words("Two pictures"), picture(small), block])])
    images = server.requests[0].images
    assert [(i.mime, i.size, i.pixels) for i in images] == [
        ("image/png", len(small), (4, 3)),
        ("image/png", len(large), (300, 200)),
    ]
    assert images[1].data == large


def test_detail_reaches_openai(scripted: StartServer) -> None:
    server = scripted(say("ok"))
    model(server, "openai").invoke([HumanMessage([picture(png(4, 3), detail="high")])])
    assert server.requests[0].images[0].detail == "high"


@pytest.mark.long
@both
@pytest.mark.parametrize("choice", ["any", "auto", "none", "detect_object"])
def test_the_tool_choice_reads_the_same_on_both_wires(scripted: StartServer, provider: str, choice: str) -> None:
    server = scripted(say("ok"))
    model(server, provider).bind_tools(TOOLS, tool_choice=choice).invoke("Hi")
    assert server.requests[0].tool_choice == choice


@pytest.mark.long
@both
def test_temperature_is_none_where_none_was_sent(scripted: StartServer, provider: str) -> None:
    server = scripted(say("a"), say("b"))
    name = {"openai": "gpt-4.1", "gemini": "gemini-3-pro-preview"}[provider]
    model(server, provider, model=name).invoke("Hi")
    model(server, provider, model="gemini-2.5-flash" if provider == "gemini" else name, temperature=0.3).invoke("Hi")
    assert [r.temperature for r in server.requests] == [None, 0.3]


def _refusal(server: ScriptedServer, chat: Any, messages: list[BaseMessage]) -> str:
    """Return the words of the refusal, which must be both what the client raised and what the server noted."""
    with pytest.raises(Exception, match="400") as caught:
        chat.invoke(messages)
    message = server.refused[-1].message
    assert message in str(caught.value)
    return message


@pytest.mark.long
def test_openai_refuses_a_picture_in_a_tool_message_and_gemini_takes_it(scripted: StartServer) -> None:
    for provider in PROVIDERS:
        server = scripted(call("zoom_in_image", bbox_2d=[0, 0, 2, 2], target_image="Source Image"), say("ok"))
        chat = model(server, provider).bind_tools(TOOLS)
        first = chat.invoke("Hi")
        result = ToolMessage([words("The crop"), picture(png(4, 3))], tool_call_id=first.tool_calls[0]["id"])
        history: list[BaseMessage] = [HumanMessage("Hi"), first, result]
        if provider == "gemini":
            assert chat.invoke(history).text == "ok"
            assert server.requests[-1].last.images[0].pixels == (4, 3)
        else:
            assert _refusal(server, chat, history) == (
                "Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', "
                "but this message with role 'tool' contains an image URL."
            )
            assert server.left == 1


@both
def test_a_tool_call_left_unanswered_is_refused(scripted: StartServer, provider: str) -> None:
    server = scripted(LOOK)
    chat = model(server, provider).bind_tools(TOOLS)
    first = chat.invoke("Hi")
    one_missing = answered(first)[:-1]
    said = _refusal(server, chat, [HumanMessage("Hi"), *one_missing, HumanMessage("And?")])
    if provider == "openai":
        assert said.endswith(f"did not have response messages: {first.tool_calls[1]['id']}")
    else:
        assert said.startswith("Please ensure that the number of function response parts is equal")


def test_openai_refuses_a_tool_message_that_answers_no_call(scripted: StartServer) -> None:
    server = scripted()
    said = _refusal(server, model(server, "openai"), [HumanMessage("Hi"), ToolMessage("seen", tool_call_id="call_x")])
    assert "must be a response to a preceeding message with 'tool_calls'" in said


def test_openai_refuses_a_bare_string_among_content_parts(scripted: StartServer) -> None:
    server = scripted()
    said = _refusal(server, model(server, "openai"), [HumanMessage(["Look:", picture(png(4, 3))])])
    assert said.startswith("Invalid type for 'messages[0].content[0]'")


@pytest.mark.parametrize("name", ["o1", "o3", "o4-mini"])
def test_openai_refuses_a_temperature_for_reasoning_models(scripted: StartServer, name: str) -> None:
    server = scripted(say("ok"))
    said = _refusal(server, model(server, "openai", model=name, temperature=0.2), [HumanMessage("Hi")])
    assert said.startswith("Unsupported value: 'temperature' does not support 0.2 with this model.")
    assert model(server, "openai", model=name).invoke("Hi").text == "ok"


@both
@pytest.mark.parametrize("data", [png(40, 40)[:-20], b"not a picture"])
def test_a_picture_that_does_not_decode_is_refused(scripted: StartServer, provider: str, data: bytes) -> None:
    server = scripted()
    said = _refusal(server, model(server, provider), [HumanMessage([picture(data)])])
    assert said.startswith(("You uploaded an unsupported image.", "Unable to process input image."))


def test_openai_refuses_a_data_url_that_is_not_base64(scripted: StartServer) -> None:
    server = scripted()
    block = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR*w0KGgo"}}
    assert _refusal(server, model(server, "openai"), [HumanMessage([block])]) == "Invalid base64 image_url."


@pytest.mark.parametrize("name", ["gemini-2.5-flash", "gemini-3-pro-preview"])
def test_gemini_refuses_a_history_that_lost_its_thought_signature(scripted: StartServer, name: str) -> None:
    signature = base64.b64encode(b"signature>>??").decode()
    server = scripted(LOOK.but(signature=signature), say("ok"))
    chat = model(server, "gemini", model=name).bind_tools(TOOLS)
    first = chat.invoke("Hi")
    assert chat.invoke([HumanMessage("Hi"), *answered(first)]).text == "ok"
    bare = AIMessage(first.text, tool_calls=first.tool_calls)
    said = _refusal(server, chat, [HumanMessage("Hi"), *answered(bare)])
    assert said.startswith("Function call is missing a thought_signature in functionCall parts.")


@pytest.mark.long
def test_arguments_that_are_not_json_reach_the_client(scripted: StartServer) -> None:
    server = scripted(broken_call("zoom_in_image", '{"bbox_2d": [1,'), say("ok"), broken_call("zoom_in_image", "{"))
    chat = model(server, "openai")
    first = chat.invoke("Hi")
    assert [c["args"] for c in first.invalid_tool_calls] == ['{"bbox_2d": [1,']
    chat.invoke([HumanMessage("Hi"), first, ToolMessage("no", tool_call_id=first.invalid_tool_calls[0]["id"] or "")])
    assert server.requests[1].messages[1].calls == (Call("zoom_in_image", {}, "call_00000000_0", '{"bbox_2d": [1,'),)
    gemini = model(server, "gemini").invoke("Hi")
    assert gemini.response_metadata["finish_reason"] == "MALFORMED_FUNCTION_CALL"


@both
def test_streams_add_up_to_the_same_answer(scripted: StartServer, provider: str) -> None:
    server = scripted(LOOK)
    extra = {"stream_usage": True} if provider == "openai" else {}
    chunks = list(model(server, provider, **extra).bind_tools(TOOLS).stream("Hi"))
    assert len(chunks) > 2
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk  # type: ignore[assignment]
    assert whole.text == "Let me look."
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [(c.name, c.params) for c in LOOK.calls]
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["input_tokens"] == 100


@pytest.mark.long
async def test_sixty_four_requests_are_served_at_once(scripted: StartServer) -> None:
    everyone = asyncio.Event()

    async def script(request: Request) -> Reply:
        if request.in_flight == 64:
            everyone.set()
        await everyone.wait()
        return say(str(request.index))

    server = scripted(script)
    chat = model(server, "openai", timeout=30)
    replies = await asyncio.gather(*(chat.ainvoke("Hi") for _ in range(64)))
    assert server.peak == 64
    assert {reply.text for reply in replies} == {str(n) for n in range(64)}
    assert server.in_flight == 0


@pytest.mark.long
def test_each_reply_of_a_list_is_used_once_by_many_threads(scripted: StartServer) -> None:
    server = scripted([say(str(n)).after(0.01) for n in range(40)])
    chat = model(server, "openai")
    with ThreadPoolExecutor(8) as pool:
        texts = [reply.text for reply in pool.map(chat.invoke, ["Hi"] * 40)]
    assert sorted(texts, key=int) == [str(n) for n in range(40)]
    assert server.left == 0


@both
def test_a_function_sees_the_request_and_chooses_the_reply(scripted: StartServer, provider: str) -> None:
    server = scripted(lambda request: say(f"{request.index} {request.last.text}"))
    chat = model(server, provider)
    assert [chat.invoke(word).text for word in ("one", "two")] == ["0 one", "1 two"]


def _raises(request: Request) -> Reply:
    assert request.images, "a picture was expected"
    return say("ok")


@pytest.mark.parametrize(
    ("script", "why"),
    [([], "no reply left for request 0"), (_raises, "a picture was expected"), (lambda request: "text", "no reply")],
)
def test_a_script_that_fails_fails_the_test(script: Any, why: str) -> None:
    server = ScriptedServer(script).start()
    with pytest.raises(Exception, match="400"):
        model(server, "openai").invoke("Hi")
    with pytest.raises(ScriptError, match=why):
        server.close()


@pytest.mark.long
@both
def test_noise_is_the_same_for_a_seed_and_always_a_reply_the_client_can_read(
    scripted: StartServer, provider: str
) -> None:
    assert noise(7) == noise(7)
    assert len({repr(noise(seed)) for seed in range(60)}) > 50
    server = scripted(lambda request: noise(request.index))
    chat = model(server, provider)
    for seed in range(60):
        reply = chat.invoke("Hi")
        assert len(reply.tool_calls) + len(reply.invalid_tool_calls) == len(noise(seed).calls)


def test_the_text_protocol_is_written_as_dlebench_has_it() -> None:
    assert think_and_call_text("I look.", call("a", x=[1]), call("b")).text == (
        "<Start Thinking>I look.</Start Thinking>\n"
        '<tool_call>\n{"name": "a", "parameters": {"x": [1]}}\n{"name": "b", "parameters": {}}\n</tool_call>'
    )
    assert final("Wrong Action", "Blue.").text == (
        "<Start Thinking>Blue.</Start Thinking>\n<Start Final Answer>Wrong Action</Start Final Answer>"
    )


@both
def test_a_key_is_not_shown_by_a_request(scripted: StartServer, provider: str) -> None:
    server = scripted(say("ok"))
    chat = model(server, provider)
    chat.invoke("Hi")
    request = server.requests[0]
    assert "test" in (request.headers.get("x-goog-api-key"), request.headers.get("authorization", "")[7:])
    assert "(redacted)" in repr(request)
    assert "'test'" not in repr(request)
    assert "Bearer" not in repr(request)


def test_an_unlogged_server_counts_but_keeps_nothing(scripted: StartServer) -> None:
    server = scripted(say("ok"), log=False)
    model(server, "openai").invoke("Hi")
    assert (server.served, server.requests) == (1, [])


def test_closing_does_not_wait_for_hanging_replies() -> None:
    arrived = threading.Event()

    def script(request: Request) -> Reply:
        arrived.set()
        return say("late").after(600)

    with ThreadPoolExecutor(1) as pool:
        with ScriptedServer(script) as server:
            waiting = pool.submit(model(server, "openai", timeout=60).invoke, "Hi")
            assert arrived.wait(timeout=10)
        with pytest.raises(Exception, match="Connection error"):
            waiting.result(timeout=10)
