"""The same conversations with nothing around them, run by `batch.py`: what the wire, and what the clients cost by themselves.

    python benchmarks/bare_loops.py posts MANIFEST URL CONCURRENCY TURNS    # HTTP posts of ready-made bodies
    python benchmarks/bare_loops.py graph MANIFEST URL CONCURRENCY TURNS    # LangGraph and langchain-openai, pictures in messages

Neither compares, stores, retries or parses anything. A fixed crop takes the place of a tool's picture.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import operator
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

CRITERIA = ("Single Anomaly", "Flawless Execution")
SYSTEM = "You judge edits. Answer with one of the labels, such as LABEL. " * 40
ARGUMENTS = {"comparison_image_1": "Source Image", "comparison_image_2": "Edited Image"}


def main() -> None:
    way, manifest, url, concurrency, turns = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
    conversation = posts(url) if way == "posts" else graph(url)
    asyncio.run(all_of(conversation, manifest, concurrency, int(turns)))


Conversation = Callable[[list[dict[str, Any]], dict[str, Any], int], Awaitable[None]]


async def all_of(conversation: Conversation, manifest: Path, concurrency: int, turns: int) -> None:
    """Hold every conversation of the manifest, a fixed number at a time."""
    units = iter(list(openings(manifest)))

    async def one_after_another() -> None:
        for edit, label in units:
            opening = await asyncio.to_thread(messages_of, manifest.parent, edit, label)
            shown = await asyncio.to_thread(crop_of, manifest.parent / edit["edited"])
            await conversation(opening, shown, turns)

    await asyncio.gather(*(one_after_another() for _ in range(concurrency)))


def openings(manifest: Path) -> Iterator[tuple[dict[str, str], str]]:
    for line in manifest.read_text().splitlines():
        for label in CRITERIA:
            yield json.loads(line), label


def messages_of(folder: Path, edit: dict[str, str], label: str) -> list[dict[str, Any]]:
    blocks = [
        part
        for name in ("source", "edited")
        for part in (
            {"type": "text", "text": f"{name}:"},
            picture((folder / edit[name]).read_bytes()),
        )
    ]
    blocks.append({"type": "text", "text": edit["instruction"]})
    return [{"role": "system", "content": SYSTEM.replace("LABEL", label)}, {"role": "user", "content": blocks}]


def picture(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"}}


def crop_of(path: Path) -> dict[str, Any]:
    from PIL import Image

    data = io.BytesIO()
    Image.open(path).crop((100, 100, 300, 300)).resize((512, 512)).save(data, "JPEG", quality=95, subsampling=0)
    return picture(data.getvalue())


def posts(url: str) -> Conversation:
    """Post bodies with httpx, and nothing else."""
    import httpx

    client = httpx.AsyncClient(
        timeout=60, headers={"Authorization": "Bearer none"}, limits=httpx.Limits(max_connections=None)
    )

    async def conversation(messages: list[dict[str, Any]], shown: dict[str, Any], turns: int) -> None:
        for _ in range(turns):
            body = {"model": "bench", "messages": messages}
            reply = (await client.post(f"{url}/chat/completions", json=body)).json()["choices"][0]["message"]
            calls = reply.get("tool_calls") or []
            replies = [{"role": "tool", "tool_call_id": call["id"], "content": "They differ."} for call in calls]
            messages = [*messages, reply, *replies, {"role": "user", "content": [shown]}]

    return conversation


class State(TypedDict):
    """A conversation in the state of a graph."""

    messages: Annotated[list[Any], operator.add]
    shown: dict[str, Any]


def graph(url: str) -> Conversation:
    """Hold conversations as a graph of two nodes with langchain-openai, as its documentation shows it."""
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, StateGraph

    tool = {
        "type": "function",
        "function": {
            "name": "localize_differences",
            "description": "Compares two pictures and shows the places where they differ.",
            "parameters": {"type": "object", "properties": {name: {"type": "string"} for name in ARGUMENTS}},
        },
    }
    model = ChatOpenAI(model="bench", base_url=url, api_key="none").bind_tools([tool])

    async def think(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state: State) -> dict[str, Any]:
        replies = [ToolMessage("They differ.", tool_call_id=call["id"]) for call in state["messages"][-1].tool_calls]
        return {"messages": [*replies, HumanMessage([state["shown"]])]}

    def onwards(state: State) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    built = StateGraph(State)
    built.add_node("think", think)
    built.add_node("act", act)
    built.add_edge(START, "think")
    built.add_conditional_edges("think", onwards, ["act", END])
    built.add_edge("act", "think")
    compiled = built.compile()

    async def conversation(messages: list[dict[str, Any]], shown: dict[str, Any], turns: int) -> None:
        await compiled.ainvoke({"messages": messages, "shown": shown})

    return conversation


if __name__ == "__main__":
    main()
