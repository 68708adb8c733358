"""Connections of one client: used again, as many as there are requests at one time, and all of them closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient

from editloupe.agent.connections import OneConnection, SingleConnections, spread
from tests.conftest import StartServer
from tests.scripted import drop, final

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
KEY = {"Authorization": "Bearer none"}


def spread_client() -> tuple[Any, SingleConnections]:
    client = DefaultAsyncHttpxClient(headers=KEY)
    assert spread(client)
    assert isinstance(client._transport, SingleConnections)
    return client, client._transport


async def test_one_request_after_another_uses_one_connection(scripted: StartServer) -> None:
    server = scripted(lambda request: final("Wrong Action"))
    client, connections = spread_client()
    for _ in range(5):
        assert (await client.post(f"{server.openai_url}/chat/completions", json=BODY)).status_code == 200
    assert len(connections._all) == len(connections._free) == 1
    await client.aclose()
    assert connections._all == []


async def test_requests_at_one_time_have_a_connection_each_and_give_it_back(scripted: StartServer) -> None:
    server = scripted(lambda request: final("Wrong Action"), delay=0.05)
    client, connections = spread_client()
    asked = [client.post(f"{server.openai_url}/chat/completions", json=BODY) for _ in range(6)]
    assert {reply.status_code for reply in await asyncio.gather(*asked)} == {200}
    assert server.peak == len(connections._all) == len(connections._free) == 6
    await client.aclose()


async def test_a_connection_that_fails_or_is_given_up_is_not_lost(scripted: StartServer) -> None:
    server = scripted([drop(), final("Wrong Action"), final("Wrong Action")])
    client, connections = spread_client()
    address = f"{server.openai_url}/chat/completions"
    with pytest.raises(Exception, match=r"disconnect|closed|reset"):
        await client.post(address, json=BODY)
    server.delay = 30.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.post(address, json=BODY)
    server.delay = 0.0
    assert (await client.post(address, json=BODY)).status_code == 200
    assert len(connections._all) == len(connections._free) == 1
    await client.aclose()


def test_a_client_that_is_built_otherwise_is_left_as_it_is() -> None:
    class Other:
        _transport = None

    other = Other()
    assert not spread(other)
    assert other._transport is None


async def test_a_connection_that_the_server_closed_meanwhile_is_opened_anew(scripted: StartServer) -> None:
    server = scripted(lambda request: final("Wrong Action"))
    client, connections = spread_client()
    address = f"{server.openai_url}/chat/completions"
    assert (await client.post(address, json=BODY)).status_code == 200
    first = connections._all[0]._pool._connection
    server.close()
    again = scripted(lambda request: final("Wrong Action"))
    assert (await client.post(f"{again.openai_url}/chat/completions", json=BODY)).status_code == 200
    assert connections._all[0]._pool._connection is not first
    assert first.is_closed()
    await client.aclose()
    assert connections._all == []


async def test_a_connection_that_becomes_unavailable_before_anything_is_sent_is_replaced_once(
    scripted: StartServer,
) -> None:
    server = scripted(lambda request: final("Wrong Action"))
    client, connections = spread_client()
    address = f"{server.openai_url}/chat/completions"
    assert (await client.post(address, json=BODY)).status_code == 200
    pool = connections._all[0]._pool
    assert isinstance(pool, OneConnection)
    taken = pool._connection

    async def taken_already(request: Any) -> Any:
        raise pool._unavailable

    taken.handle_async_request = taken_already
    assert (await client.post(address, json=BODY)).status_code == 200
    assert pool._connection is not taken
    assert server.served == 2
    await client.aclose()
