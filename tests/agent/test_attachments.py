import asyncio
import json
from typing import Any

import numpy as np
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient

from editloupe.agent.attachments import attach, attaching, filled, reference_to
from editloupe.agent.messages import on_the_wire, picture_block, text_block
from editloupe.images import Album, WireLimits
from tests.conftest import StartServer
from tests.scripted import say

LIMITS = WireLimits()


def album_of(*shades: int) -> tuple[Album, list[str]]:
    album = Album()
    return album, [album.add(np.full((40, 30, 3), shade, np.uint8)).sha for shade in shades]


def conversation(*blocks: dict[str, Any]) -> list[AnyMessage]:
    return [SystemMessage("You judge."), HumanMessage([*blocks, text_block("Is it – “red” – now?")])]


def client(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model="m", api_key="none", base_url=url, max_retries=0, **options)  # type: ignore[arg-type]


def attaching_client(url: str) -> ChatOpenAI:
    return client(url, http_async_client=DefaultAsyncHttpxClient(event_hooks={"request": [attach]}))


def data_url(album: Album, sha: str) -> str:
    wire = album[sha].wire(LIMITS)
    return f"data:{wire.media_type};base64,{wire.base64.decode()}"


async def test_the_wire_carries_what_chat_openai_sends_with_the_pictures_written_out(scripted: StartServer) -> None:
    server = scripted(say("fine"), say("fine"))
    album, (first, second) = album_of(10, 200)
    kept = conversation(picture_block(first, "Source Image"), picture_block(second, "Edited Image"))
    urls = [{"type": "image_url", "image_url": {"url": data_url(album, s), "detail": "high"}} for s in (first, second)]

    await client(server.openai_url).ainvoke(conversation(*urls))
    light = on_the_wire(kept, "openai", album, LIMITS)
    with attaching(album, LIMITS):
        await attaching_client(server.openai_url).ainvoke(light)

    assert server.requests[1].body == server.requests[0].body
    assert json.dumps(server.requests[1].body).count("base64,") == 2
    assert len(json.dumps([message.content for message in light])) < 600


async def test_conversations_under_way_together_get_their_own_pictures(scripted: StartServer) -> None:
    server = scripted(lambda request: say("fine"), delay=0.02)
    model = attaching_client(server.openai_url)

    async def ask(shade: int) -> str:
        album, (sha,) = album_of(shade)
        with attaching(album, LIMITS):
            await model.ainvoke(on_the_wire(conversation(picture_block(sha, "It")), "openai", album, LIMITS))
        return data_url(album, sha)

    sent = await asyncio.gather(*(ask(shade) for shade in range(8)))
    bodies = [json.dumps(request.body) for request in server.requests]
    assert all(sum(url in body for body in bodies) == 1 for url in sent)


def test_a_reference_quoted_in_a_text_stays_a_text() -> None:
    album, (sha,) = album_of(5)
    quoted = f'look at "{reference_to(sha)}" and \\"{reference_to(sha)}\\"'
    body = json.dumps({"text": quoted, "picture": reference_to(sha)}).encode()
    found = json.loads(filled(body, album, LIMITS))
    assert found == {"text": quoted, "picture": data_url(album, sha)}


def test_a_body_without_pictures_is_left_as_it_is() -> None:
    assert filled(b'{"a":"b"}', Album(), LIMITS) == b'{"a":"b"}'
