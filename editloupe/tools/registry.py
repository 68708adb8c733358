"""The list of built-in tools, and the toolbox that offers and runs tools."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from editloupe._util.json_safe import sanitize, sanitize_text
from editloupe._util.text import quote_line
from editloupe.pictures.memory_budget import limit_memory, memory_shares
from editloupe.tools.compare.difference import PictureComparer
from editloupe.tools.contract import (
    NoResultCache,
    ResultCache,
    Selective,
    Tool,
    ToolError,
    ToolPicture,
    ToolResult,
    View,
)
from editloupe.tools.detect import DEPENDS_ON, DetectObject
from editloupe.tools.enhance import Enhancer, build_enhancer
from editloupe.tools.localize import LocalizeDifferences, LocalizePixelDifferences
from editloupe.tools.measures import PictureMeasures
from editloupe.tools.parameters import check_parameters
from editloupe.tools.read_text import ReadText
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import READ_TEXT, ToolSettings
from editloupe.tools.zoom import ZoomInImage
from editloupe.types import UserError

T = TypeVar("T")

SEARCHES = 16
"""Searches of the detector at a time, which wait more than they compute. Together they fill its batches."""
LONGEST_TEXT = 50_000
"""The most characters of a tool's text, all of which a model is sent and paid for."""
ENTRY_POINTS = "editloupe.tools"
"""The entry point group in which other packages register a `Tool`, or a class or function that makes one."""


@dataclass(frozen=True)
class BuiltIn:
    """A tool that comes with EditLoupe."""

    name: str
    shows: str
    make: Callable[[ToolSettings, Enhancer], Tool]
    enlarges: bool = False
    """Whether its crops pass through the enhancer."""
    depends_on: tuple[str, ...] = ()
    """The settings that change its result."""
    also_depends_on: tuple[str, ...] = ()
    """Settings that enter the facts only if they are not the default, so that runs made before they existed continue."""


def _build_localizer(settings: ToolSettings, enhancer: Enhancer) -> Tool:
    if settings.comparison == "pixels":
        return LocalizePixelDifferences(enhancer, settings.max_regions, settings.pixel_threshold)
    return LocalizeDifferences(enhancer, settings.max_regions, settings.overview)


BUILT_IN: tuple[BuiltIn, ...] = (
    BuiltIn(
        "zoom_in_image",
        "a region of a picture from its original pixels, or of two pictures side by side",
        lambda settings, enhancer: ZoomInImage(enhancer, settings.zoom_smallest, settings.zoom_both),
        enlarges=True,
        also_depends_on=("pictures", "zoom_smallest", "zoom_both"),
    ),
    BuiltIn(
        "localize_differences",
        "where two pictures differ beyond what re-rendering changes, as side-by-side crops",
        _build_localizer,
        enlarges=True,
        depends_on=("max_regions", "overview", "read_text", "comparison", "pixel_threshold"),
        also_depends_on=("pictures",),
    ),
    BuiltIn(
        "detect_object",
        "boxes round an object that the instruction names; Grounding DINO",
        lambda settings, enhancer: DetectObject(settings),
        depends_on=DEPENDS_ON,
        also_depends_on=("pictures",),
    ),
    BuiltIn(
        "read_text",
        "the text in a picture or a region of it; rapidocr",
        lambda settings, enhancer: ReadText(settings),
        depends_on=("read_text",),
        also_depends_on=("pictures",),
    ),
)


class Toolbox:
    """The tools of a run.

    One toolbox serves all edits of a run from any number of threads. Models are loaded once, at their first use.

    Args:
        tools: The tools; those that cannot run here are withheld.
        settings: The settings of the tools.
        memory: The cache of results.
        enhancer: The enhancer that all tools share.
        notes: Sentences that a run should print about its tools, such as a fallback.
        broken: Plug-ins that could not be loaded, with the reason.
    """

    def __init__(
        self,
        tools: tuple[Tool, ...],
        settings: ToolSettings,
        memory: ResultCache,
        enhancer: Enhancer,
        notes: tuple[str, ...] = (),
        broken: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self.memory = memory
        self.notes = notes
        """Sentences that a run should print about its tools, such as a fallback."""
        self.measures = PictureMeasures(settings, memory)
        """The measures that rubrics may name."""
        self._enhancer = enhancer
        self._withheld = dict(broken or {})
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._admit(tool)
        self._start_workers()

    def _start_workers(self) -> None:
        count = self.settings.workers or min(8, os.cpu_count() or 1)
        self._workers = ThreadPoolExecutor(count, thread_name_prefix="editloupe-tool")
        count = self.settings.workers or SEARCHES
        self._searchers = ThreadPoolExecutor(count, thread_name_prefix="editloupe-detect")
        self._process = os.getpid()

    def _admit(self, tool: Tool) -> None:
        try:
            problem = tool.unavailable()
        except Exception as error:  # a plug-in may do anything; the run goes on without it
            problem = f"it failed when asked whether it can run: {_one_line(error)}"
        if problem:
            self._withheld[tool.name] = problem
        else:
            self._tools[tool.name] = tool

    @property
    def enhancer(self) -> Enhancer:
        """The enhancer that all tools share."""
        return self._enhancer

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that can run on this machine."""
        return tuple(self._tools)

    @property
    def not_offered(self) -> frozenset[str]:
        """The built-in tools that are not offered, because of the settings or because they cannot run here."""
        return frozenset(tool.name for tool in BUILT_IN if tool.name not in self._tools)

    @property
    def withheld(self) -> dict[str, str]:
        """The tools that cannot be offered, each with the reason and what would help."""
        return dict(self._withheld)

    def tools_for(self, about: View | str) -> list[Tool]:
        """Return the tools to offer for an edit, from its view or its instruction."""
        instruction = about if isinstance(about, str) else about.instruction
        tools = self._tools.values()
        return [tool for tool in tools if not isinstance(tool, Selective) or tool.useful(instruction)]

    def tool(self, name: str) -> Tool:
        """Return a tool by name.

        Raises:
            ToolError: If the tool is unknown or withheld.
        """
        if name in self._tools:
            return self._tools[name]
        if name in self._withheld:
            raise ToolError(f"{name} is not available here: {self._withheld[name]}.")
        raise ToolError(f"There is no tool called {quote_line(name)}. The tools are: {', '.join(self._tools)}.")

    def run(self, name: str, parameters: Any, view: View) -> ToolResult:
        """Run a tool. Results are cached in the toolbox unless the view has its own cache.

        Args:
            name: The name of the tool.
            parameters: The parameters as the model wrote them.
            view: The pictures and the instruction.

        Raises:
            ToolError: For any failure, with a sentence for the model. No other error is raised.
        """
        tool = self.tool(name)
        watched = _CountingCache(self.memory if isinstance(view.memory, NoResultCache) else view.memory)
        view = replace(view, memory=watched)
        try:
            result = tool.run(check_parameters(name, parameters, tool.schema(view)), view)
            if all(name != own.name for own in BUILT_IN):
                result = _check_result(result)
        except ToolError:
            raise
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # tools of others run here
            raise ToolError(f"{name} failed on this call ({_one_line(error)}).") from error
        return replace(result, cached=watched.all_cached)

    def run_in_worker(self, tool: str, work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        """Run a function in a worker thread of the tools, without blocking the event loop.

        Args:
            tool: The tool that the function runs. Searches of the detector have threads of their own.
            work: The function.
            arguments: Its arguments.
        """
        if self._process != os.getpid():  # forked: the threads stayed with the parent
            self._start_workers()
        workers = self._searchers if tool == DetectObject.name else self._workers
        return asyncio.get_running_loop().run_in_executor(workers, work, *arguments)

    def use_comparer(self, comparing: PictureComparer) -> None:
        """Compare pictures with another comparer, such as a process pool. The results must be the same."""
        for tool in self._tools.values():
            if isinstance(tool, LocalizeDifferences):
                tool.compare = comparing

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return everything the result of each tool depends on. Tools that cannot run here are left out."""
        usable = ((name, tool) for name, tool in sorted(self._tools.items()) if tool.unavailable() is None)
        return {name: self._facts_of(name, tool) for name, tool in usable}

    def _facts_of(self, name: str, tool: Tool) -> dict[str, Any]:
        facts: dict[str, Any] = {"version": getattr(tool, "version", "1")}
        built_in = next((tool_record for tool_record in BUILT_IN if tool_record.name == name), None)
        if built_in and built_in.enlarges:
            facts["enhancer"] = self._enhancer.fingerprint
        settings = tool.resolve_settings() if isinstance(tool, DetectObject) else self.settings
        for setting in self._list_settings(built_in) if built_in else ():
            value = getattr(settings, setting)
            facts[setting] = list(value) if isinstance(value, tuple) else value
        return facts

    def _list_settings(self, tool: BuiltIn) -> list[str]:
        usual = ToolSettings()
        changed = (name for name in tool.also_depends_on if getattr(self.settings, name) != getattr(usual, name))
        return [*tool.depends_on, *changed]

    def close(self) -> None:
        """Stop the worker threads after their current calls."""
        for workers in (self._workers, self._searchers):
            workers.shutdown(wait=False, cancel_futures=True)


class _CountingCache:
    """A cache that records whether anything was computed."""

    def __init__(self, memory: ResultCache) -> None:
        self._memory = memory
        self._requests = self._computed = 0

    @property
    def all_cached(self) -> bool:
        return self._requests > 0 and self._computed == 0

    def get(self, key: str, compute: Callable[[], T]) -> T:
        def compute_and_count() -> T:
            self._computed += 1
            return compute()

        self._requests += 1
        return self._memory.get(key, compute_and_count)


def build_toolbox(settings: ToolSettings | None = None) -> Toolbox:
    """Build the toolbox of these settings. Nothing heavy is imported or loaded yet.

    Args:
        settings: The settings of the tools.

    Raises:
        UserError: If an enhancer that was requested by name cannot run here, or a named tool does not exist.
    """
    settings = settings or ToolSettings()
    enhancer, note = build_enhancer(settings)
    problem = enhancer.backend.unavailable()
    if problem:
        raise UserError(f"the enhancer {settings.enhancer} cannot be used: {problem}")
    tools: list[Tool] = [
        built_in.make(settings, enhancer) for built_in in BUILT_IN if _is_enabled(built_in.name, settings)
    ]
    _share_reader(tools)
    taken = {built_in.name for built_in in BUILT_IN}
    plugged, failed = load_plugins() if settings.plugins else ([], {})
    for tool in (*settings.extra_tools, *plugged):
        if tool.name in taken:
            failed[f"{tool.name} (plug-in)"] = f'another tool is already called "{tool.name}"; give it another name'
        else:
            taken.add(tool.name)
            if settings.offered is None or tool.name in settings.offered:
                tools.append(tool)
    for name in settings.offered or ():
        if name not in taken and name not in failed:
            raise UserError(f'unknown tool "{name}"; the tools are: {", ".join(sorted(taken))}')
    if settings.max_memory is not None:
        limit_memory(settings.max_memory)
    memory = ToolResultCache(
        min(settings.memory_bytes, memory_shares().caches), settings.cache_folder, settings.cache_bytes
    )
    notes = (note, *(tool.note() for tool in tools if isinstance(tool, ReadText)))
    return Toolbox(tuple(tools), settings, memory, enhancer, tuple(filter(None, notes)), failed)


def load_plugins() -> tuple[list[Tool], dict[str, str]]:
    """Load the tools that other packages register.

    Returns:
        The tools, and a sentence per plug-in that could not be loaded.
    """
    tools: list[Tool] = []
    failed: dict[str, str] = {}
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        try:
            loaded = entry.load()
            tool = loaded if not isinstance(loaded, type) and isinstance(loaded, Tool) else loaded()
            if not isinstance(tool, Tool):
                raise TypeError(f"{entry.value} is not a tool: it needs name, description, schema, unavailable and run")
            tools.append(tool)
        except (Exception, SystemExit) as error:  # whatever a foreign package raises while it loads
            failed[entry.name] = f"the plug-in {entry.value} could not be loaded: {_one_line(error)}"
    return tools, failed


def _share_reader(tools: list[Tool]) -> None:
    """Let `localize_differences` use the reader of `read_text`, so that its models are loaded once."""
    reader = next((tool for tool in tools if isinstance(tool, ReadText)), None)
    for tool in tools:
        if isinstance(tool, LocalizeDifferences):
            tool.reader = reader


def _is_enabled(name: str, settings: ToolSettings) -> bool:
    if settings.offered is not None and name not in settings.offered:
        return False
    return not (name == READ_TEXT and settings.read_text == "off")


def _check_result(result: Any) -> ToolResult:
    """Return the result of a tool of others as it can be shown and stored. Raise TypeError or ValueError if it cannot."""
    if not isinstance(result, ToolResult) or not isinstance(result.text, str) or not isinstance(result.data, Mapping):
        raise TypeError(f"it returned a {type(result).__name__}, not a ToolResult with a text and a mapping")
    if len(result.text) > LONGEST_TEXT:
        raise ValueError(f"its text has {len(result.text):,} characters, and at most {LONGEST_TEXT:,} are sent")
    for picture in result.pictures:
        pixels = picture.pixels if isinstance(picture, ToolPicture) else None
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or pixels.shape[2:] != (3,)
            or not pixels.size
        ):
            raise TypeError("its pictures must be a ToolPicture each, with uint8 pixels, height × width × 3")
    pictures = tuple(replace(picture, caption=sanitize_text(str(picture.caption))) for picture in result.pictures)
    return replace(result, text=sanitize_text(result.text), pictures=pictures, data=sanitize(result.data))


def _one_line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an error of others may fail to print itself
        text = ""
    return " ".join(f"{type(error).__name__}: {text}".split())[:200]
