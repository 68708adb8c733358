import asyncio
import json
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient

from editloupe.agent.chat_client import ModelChat
from editloupe.agent.messages import picture_block, text_block, to_wire_messages
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.agent.providers import gemini as gemini_provider
from editloupe.agent.providers import openai as openai_provider
from editloupe.agent.transport.attachments import PictureForm, attach_pictures
from editloupe.agent.transport.http import Gate
from editloupe.pictures.decode import Album
from editloupe.pictures.encode import EncodingLimits
from tests.conftest import StartServer
from tests.scripted import say

LIMITS = EncodingLimits()
URLS, INLINE = openai_provider.PICTURES, gemini_provider.PICTURES
forms = pytest.mark.parametrize("form", [URLS, INLINE], ids=["urls", "inline"])


def album_of(*shades: int) -> tuple[Album, list[str]]:
    album = Album()
    return album, [album.add(np.full((40, 30, 3), shade, np.uint8)).sha for shade in shades]


def conversation(*blocks: dict[str, Any]) -> list[AnyMessage]:
    return [SystemMessage("You judge."), HumanMessage([*blocks, text_block("Is it – “red” – now?")])]


def client(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", api_key="none", base_url=url, max_retries=0, **options)  # type: ignore[arg-type]


def attaching_client(url: str) -> ChatOpenAI:
    return client(url, http_async_client=DefaultAsyncHttpxClient(event_hooks=Gate().hooks(URLS.attach)))


def data_url(album: Album, sha: str) -> str:
    wire = album[sha].wire(LIMITS)
    return f"data:{wire.media_type};base64,{wire.base64.decode()}"


@pytest.mark.long
async def test_the_wire_carries_what_chat_openai_sends_with_the_pictures_written_out(scripted: StartServer) -> None:
    server = scripted(say("fine"), say("fine"))
    album, (first,) = album_of(10)
    second = album.add(np.random.default_rng(0).integers(0, 255, (300, 300, 3), np.uint8)).sha  # a piece of its own
    kept = conversation(picture_block(first, "Source Image"), picture_block(second, "Edited Image"))
    urls = [{"type": "image_url", "image_url": {"url": data_url(album, s), "detail": "high"}} for s in (first, second)]

    plain, ours = client(server.openai_url), attaching_client(server.openai_url)
    await plain.ainvoke(conversation(*urls))
    light = to_wire_messages(kept, URLS, album, LIMITS)
    with attach_pictures(album, LIMITS):
        await ours.ainvoke(light)
    await plain.root_async_client.close()
    await ours.root_async_client.close()

    assert server.requests[1].body == server.requests[0].body
    assert json.dumps(server.requests[1].body).count("base64,") == 2
    assert len(json.dumps([message.content for message in light])) < 600


def gemini(url: str) -> ChatGoogleGenerativeAI:
    return ChatGoogleGenerativeAI(model="gemini-3-pro", google_api_key="k", base_url=url, max_retries=1)


def inline(album: Album, sha: str) -> dict[str, str]:
    wire = album[sha].wire(LIMITS)
    return {"type": "image", "base64": wire.base64.decode(), "mime_type": wire.media_type}


@pytest.mark.long
async def test_the_wire_carries_what_gemini_s_client_sends_with_the_pictures_written_out(scripted: StartServer) -> None:
    server = scripted(say("fine"), say("fine"))
    album = Album()
    noise = np.random.default_rng(0).integers(0, 256, (2, 90, 70, 3), np.uint8)
    first, second = [album.add(pixels).sha for pixels in noise]
    kept = conversation(picture_block(first, "Source Image"), picture_block(second, "Edited Image"))
    assert b"+" in album[first].wire(LIMITS).base64, "a picture in which the two alphabets of base64 differ"

    plain = gemini(server.gemini_url)
    ours = open_chat("google_genai:gemini-3-pro", server.gemini_url, ModelSettings())
    assert isinstance(ours, ModelChat)
    await plain.ainvoke(conversation(inline(album, first), inline(album, second)))
    light = to_wire_messages(kept, INLINE, album, LIMITS)
    with attach_pictures(album, LIMITS):
        await ours._clients.current().model.ainvoke(light)
    await plain.aclose()
    await ours.aclose()

    assert server.requests[1].body == server.requests[0].body
    assert [image.pixels for image in server.requests[1].messages[0].images] == [(70, 90), (70, 90)]
    assert len(json.dumps([message.content for message in light])) < 600


@pytest.mark.long
async def test_conversations_under_way_together_get_their_own_pictures(scripted: StartServer) -> None:
    server = scripted(lambda request: say("fine"), delay=0.02)
    model = attaching_client(server.openai_url)

    async def ask(shade: int) -> str:
        album, (sha,) = album_of(shade)
        with attach_pictures(album, LIMITS):
            await model.ainvoke(to_wire_messages(conversation(picture_block(sha, "It")), URLS, album, LIMITS))
        return data_url(album, sha)

    sent = await asyncio.gather(*(ask(shade) for shade in range(8)))
    await model.root_async_client.close()
    bodies = [json.dumps(request.body) for request in server.requests]
    assert all(sum(url in body for body in bodies) == 1 for url in sent)


@forms
def test_a_reference_quoted_in_a_text_stays_a_text(form: PictureForm) -> None:
    album, (sha,) = album_of(5)
    wire, field = album[sha].wire(LIMITS), form.fields[0]
    quoted = f'look at "{field}": "{form.reference_to(sha)}" and \\"{field}\\":\\"{form.reference_to(sha)}\\"'
    body = json.dumps({"text": quoted, field: form.reference_to(sha)}).encode()
    sent = b"".join(form.sent(wire)).decode()
    assert json.loads(b"".join(form.fill(body, album, LIMITS))) == {"text": quoted, field: sent}


@forms
@pytest.mark.parametrize("made_up", ["0" * 32, "ab"])
@pytest.mark.parametrize("key", ["text", "content", "url", "data"])
def test_a_reference_a_model_makes_up_stays_what_it_said(form: PictureForm, made_up: str, key: str) -> None:
    album, _ = album_of(5)
    body = json.dumps({key: form.reference_to(made_up)}).encode()
    assert form.fill(body, album, LIMITS) == [body]


@forms
def test_a_body_without_pictures_is_left_as_it_is(form: PictureForm) -> None:
    assert form.fill(b'{"a":"b"}', Album(), LIMITS) == [b'{"a":"b"}']


def test_requests_of_one_edit_share_the_bytes_of_a_large_picture() -> None:
    album = Album()
    sha = album.add(np.random.default_rng(0).integers(0, 255, (300, 300, 3), np.uint8)).sha
    wire = album[sha].wire(LIMITS)
    body = f'{{"url": "{URLS.reference_to(sha)}", "text": "a"}}'.encode()
    first, second = URLS.fill(body, album, LIMITS), URLS.fill(body, album, LIMITS)

    assert first[1] is second[1] is wire.base64
    assert json.loads(b"".join(first)) == {"url": data_url(album, sha), "text": "a"}
    assert sum(map(len, first)) - len(wire.base64) < 100


@forms
def test_without_attaching_the_pictures_are_written_into_the_messages(form: PictureForm) -> None:
    album, (sha,) = album_of(5)
    message = to_wire_messages(conversation(picture_block(sha, "It")), form, album, LIMITS, attach=False)[1]
    wire = album[sha].wire(LIMITS)
    assert wire.base64.decode() in json.dumps(message.content)
    assert form.mark not in json.dumps(message.content)
