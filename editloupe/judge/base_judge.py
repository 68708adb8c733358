"""`BaseJudge`, the interface that batches and runs use, and the lifecycle of a judge.

`Judge` and the judge of chains implement it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, TypeVar

from editloupe._util.loop_thread import CalledFromLoop, LoopClosed, LoopThread
from editloupe.agent.chat_interface import Chat
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.providers.registry import list_client_packages
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.secrets import redact_url as shown_address
from editloupe.judge.question_key import QuestionKey, QuestionSpec
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.tools.registry import Toolbox
from editloupe.types import Edit, Judgement, Mode, Outcome, Sha, Trace, UserError

T = TypeVar("T")

SLACK = 2.0
"""Over-subscription factor: edits in flight per request slot, because some always wait for tools or the disk."""
CLOSED = "this judge is closed; open another one"


class JudgeLifecycle:
    """The running tasks, thread and connections of a judge; released when it is closed or garbage-collected."""

    def __init__(self, chat: Chat, toolbox: Toolbox) -> None:
        self._chat = chat
        self._toolbox = toolbox
        self._loop_thread = LoopThread("editloupe-judge")
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._release = weakref.finalize(self, _release, self._loop_thread, chat)

    @property
    def closed(self) -> bool:
        """True after `close` or `aclose`."""
        return self._closed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the judge's own thread and return its result. Works inside and outside an event loop."""
        try:
            return self._loop_thread.run(work)
        except LoopClosed:
            raise UserError(CLOSED) from None
        except CalledFromLoop:
            raise UserError("a judge cannot be called while it reads its own edits; use a second judge there") from None

    async def until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine. Raise UserError if the judge is closed in the meantime."""
        if self._closed:
            work.close()
            raise UserError(CLOSED)
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._closed and not (current and current.cancelling()):
                raise UserError("the judge was closed while it was judging") from None
            raise
        finally:
            self._under_way.discard(task)

    def close(self) -> None:
        """End running tasks, the background thread, the tools' threads and the connections. Can be called again."""
        if self._mark_closed():
            self._loop_thread.close(self._chat.aclose)
            self._chat.drop()

    async def aclose(self) -> None:
        """End everything as `close` does, without blocking the event loop."""
        if not self._mark_closed():
            return
        here = [task for task in self._under_way if task.get_loop() is asyncio.get_running_loop()]
        await asyncio.gather(*here, return_exceptions=True)
        await self._chat.aclose()
        if self._loop_thread.started:
            await asyncio.to_thread(self._loop_thread.close, self._chat.aclose)

    def _mark_closed(self) -> bool:
        """Cancel running tasks on any loop. Return False if that was done before."""
        if self._closed:
            return False
        self._closed = True
        self._release.detach()
        self._toolbox.close()
        for task in list(self._under_way):
            with suppress(RuntimeError):  # its loop has ended, and the task with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        return True


def _release(loop_thread: LoopThread, chat: Chat) -> None:
    """Close the thread and connections of a collected judge. Does not wait, because it runs inside the collector.

    The tools' threads end when their pool is collected.
    """

    async def farewell() -> None:
        await chat.aclose()
        chat.drop()

    if loop_thread.started:
        loop_thread.close(farewell, wait=0)
    else:
        chat.drop()


def edits_at_once(spec: str, criteria: int, concurrency: int) -> int:
    """Return how many edits to judge at once; for the embedded judge, which sends no requests, it depends on the cores."""
    if spec == RULES:
        return max(1, min(concurrency, 2 * (os.cpu_count() or 1)))
    return max(1, round(SLACK * concurrency / criteria))


PACKAGES = ("editloupe", "langgraph", "langchain-core")
"""Packages whose versions a run stores, in addition to those of the providers' clients."""


class BaseJudge(ABC):
    """A judge that batches and runs can use. It describes itself without secrets and can be closed."""

    spec: str
    """The model, panel or cascade that answers."""
    base_url: str | None
    protocol: str
    """The name of the protocol whose rubrics are asked."""
    mode: Mode
    criteria: tuple[str, ...]
    settings: ModelSettings
    toolbox: Toolbox
    _chat: Chat
    _lifecycle: JudgeLifecycle

    @property
    def members(self) -> tuple[str, ...]:
        """The specs of all judges that may be asked; several only for a panel or a cascade."""
        return (self.spec,)

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Notes for readers of the verdicts, such as tools that are not offered."""

    @property
    @abstractmethod
    def uses_tools(self) -> bool:
        """True if the model may call the tools of the toolbox."""

    @abstractmethod
    async def ajudge(
        self,
        edit: Edit,
        *,
        criteria: Sequence[str] | None = None,
        repeat: int = 0,
        strict: bool = False,
        album: Album | None = None,
    ) -> Judgement:
        """Judge one edit. If it cannot be judged, it ends unjudged, or raises with `strict`."""

    @abstractmethod
    def criteria_for(self, edit: Edit) -> tuple[str, ...]:
        """Return the criteria by which one edit is judged."""

    @abstractmethod
    def question_specs(self) -> tuple[QuestionSpec, ...]:
        """Return all questions of this judge."""

    @abstractmethod
    def question_spec(self, edit: Edit, criterion: str) -> QuestionSpec:
        """Return the question that one edit is asked on one criterion."""

    @abstractmethod
    def inputs_key(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return the key of the edit's inputs to the judge; None if a picture has no hash."""

    def question_key(self, edit: Edit, criterion: str, hashes: Mapping[PictureSource, Sha]) -> QuestionKey:
        """Return the key of one unit, except for its repeat.

        Args:
            edit: The edit to judge.
            criterion: A criterion of this judge.
            hashes: The hashes of the edit's pictures, without those that cannot be read.
        """
        return QuestionKey(self.question_spec(edit, criterion).key, self.inputs_key(edit, criterion, hashes))

    def why_only_here(self) -> str | None:
        """Return why this judge cannot be opened on other machines; None if it can."""
        return None

    @abstractmethod
    def further_parameters(self) -> dict[str, Any]:
        """Return the parts of the description that only this kind of judge has."""

    @abstractmethod
    def rubric_texts(self) -> dict[str, Any]:
        """Return the complete rubrics by name."""

    def describe(self) -> dict[str, Any]:
        """Return the description that a run stores: judge, protocol, settings, prompts and versions, without secrets."""
        return {
            "spec": self.spec,
            "base_url": shown_address(self.base_url) if self.base_url else self.base_url,
            "protocol": self.protocol,
            "mode": self.mode,
            "settings": self.settings.model_dump(mode="json", exclude={"retry", "timeout"}),
            "profile": self._chat.profile.model_dump(mode="json"),
            **self.further_parameters(),
            "criteria": list(self.criteria),
            "rubrics": self.rubric_texts(),
            "versions": {name: version(name) for name in (*PACKAGES, *list_client_packages(*self.members))},
            "notes": list(self.notes),
        }

    def _judgement(
        self, edit: Edit, outcomes: Sequence[Outcome], traces: Sequence[Trace], order: Sequence[str]
    ) -> Judgement:
        """Return a judgement with its outcomes and traces in the order of these criteria."""
        return Judgement(
            edit=edit,
            protocol=self.protocol,
            mode=self.mode,
            judge=self.spec,
            verdicts=tuple(sorted(outcomes, key=lambda outcome: order.index(outcome.criterion))),
            traces=tuple(sorted(traces, key=lambda trace: order.index(trace.criterion))),
            notes=self.notes,
        )

    @property
    def closed(self) -> bool:
        """True after `close` or `aclose`."""
        return self._lifecycle.closed

    def close(self) -> None:
        """End running tasks, the background thread, the tools' threads and the connections. Can be called again."""
        self._lifecycle.close()

    async def aclose(self) -> None:
        """End everything as `close` does, without blocking the event loop."""
        await self._lifecycle.aclose()
