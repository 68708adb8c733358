"""Make a tool of a plain function."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, overload

import numpy as np

from editloupe._util.hashing import text_key
from editloupe.tools.contract import ToolResult, View
from editloupe.tools.parameters import read_box
from editloupe.types import Box, UserError

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
BOX_WORDS = "[x1, y1, x2, y2]"


class FunctionTool:
    """A tool that calls a function. It can still be called as the function.

    Args:
        function: The function. Annotations say what it takes: `np.ndarray` (the pixels of a picture that the model names), `Box`
            (a region of the first of these pictures, in pixels of the original), `str`, `int`, `float`, `bool`, `Literal`, or
            `View` (everything a tool sees; not a parameter of the model).
        name: The name that the model calls. Default: the function's name.
        description: What the model reads. Default: the function's docstring.

    Raises:
        UserError: If the function has no description, or a parameter that the model cannot give.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None, description: str | None = None) -> None:
        self.name = name or function.__name__
        self.description = " ".join((description or inspect.getdoc(function) or "").split())
        if not self.description:
            raise UserError(f"the tool {self.name} needs a docstring, which the model reads to decide when to call it")
        self.version = _find_version(function, self.name, self.description)
        """Changes with the function's code, so edits that a changed tool was offered for are judged again."""
        self._function = function
        self.__module__, self.__qualname__, self.__doc__ = function.__module__, function.__qualname__, function.__doc__
        parameters = inspect.signature(function).parameters.values()
        hints = get_type_hints(function, include_extras=True)
        self._kinds = {parameter.name: _read_kind(self.name, parameter, hints) for parameter in parameters}
        self._words = {
            name: next(iter(get_args(hint)[1:]), None) for name, hint in hints.items() if _is_annotated(hint)
        }
        self._required = [p.name for p in parameters if p.default is p.empty and self._kinds[p.name] is not View]
        self._pictures = [name for name, kind in self._kinds.items() if kind is np.ndarray]
        if Box in self._kinds.values() and not self._pictures:
            raise UserError(f"the tool {self.name} has a Box but no picture (np.ndarray) that the box is a region of")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function itself."""
        return self._function(*arguments, **named)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a tool of an importable module by its name, and one of a notebook by its function."""
        module = sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(module, self.__qualname__, None) is self:
            return self.__qualname__
        return super().__reduce_ex__(protocol)

    def unavailable(self) -> str | None:
        """Return None: a function can run wherever it is defined."""
        return None

    def schema(self, view: View) -> dict[str, Any]:
        """Return the JSON schema of the function's parameters."""
        properties: dict[str, Any] = {}
        for name, kind in self._kinds.items():
            if kind is View:
                continue
            properties[name] = _build_schema(kind, view)
            if isinstance(words := self._words.get(name), str):
                properties[name]["description"] = words
        return {"type": "object", "properties": properties, "required": self._required}

    def run(self, parameters: Mapping[str, Any], view: View) -> ToolResult:
        """Call the function with the model's parameters.

        Raises:
            ToolError: If the model names no such picture or a box outside it.
            TypeError: If the function returns neither text nor a `ToolResult`.
        """
        arguments: dict[str, Any] = {name: view for name, kind in self._kinds.items() if kind is View}
        arguments |= {name: value for name, value in parameters.items() if self._kinds[name] not in (np.ndarray, Box)}
        for name in self._pictures:
            if name in parameters:
                arguments[name] = view.picture(parameters[name])[1].pixels.copy()  # the function may draw on it
        for name, kind in self._kinds.items():
            if kind is Box and name in parameters:
                picture, _ = view.picture(parameters.get(self._pictures[0]))
                arguments[name] = read_box(parameters[name], picture, view.frame(picture))
        result = self._function(**arguments)
        if isinstance(result, str):
            return ToolResult(result)
        if isinstance(result, ToolResult):
            return result
        raise TypeError(f"{self.name} returned a {type(result).__name__}, not a text or a ToolResult")


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function, for `ToolSettings(extra_tools=…)`.

    Args:
        function: The function; its annotations become the parameters that the model gives.
        name: The name that the model calls. Default: the function's name.
        description: What the model reads. Default: the function's docstring.

    Raises:
        UserError: If the function has no description, or a parameter that the model cannot give.

    >>> @tool
    ... def brightness(picture: np.ndarray) -> str:
    ...     "Measures the mean brightness of a picture."
    ...     return f"{picture.mean():.0f} of 255"
    >>> brightness.name, brightness(np.full((2, 2, 3), 7))
    ('brightness', '7 of 255')
    """
    if function is not None:
        return FunctionTool(function)
    return lambda decorated: FunctionTool(decorated, name, description)


def _is_annotated(hint: Any) -> bool:
    return get_origin(hint) is Annotated


def _read_kind(tool_name: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    """Return the kind of a parameter; raise UserError if the model cannot give it."""
    hint = hints.get(parameter.name)
    kind = get_args(hint)[0] if _is_annotated(hint) else hint
    kind = np.ndarray if get_origin(kind) is np.ndarray else kind
    has_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    if has_name and (kind in (np.ndarray, Box, View) or kind in _KINDS or get_origin(kind) is Literal):
        return kind
    raise UserError(
        f"the parameter {parameter.name} of the tool {tool_name} needs an annotation: np.ndarray (a picture), Box, str, int, "
        "float, bool, Literal[…] or View"
    )


def _build_schema(kind: Any, view: View) -> dict[str, Any]:
    if kind is np.ndarray:
        return {"type": "string", "enum": list(view.pictures)}
    if kind is Box:
        return {"type": "array", "items": {"type": "number"}, "description": BOX_WORDS}
    return {"enum": list(get_args(kind))} if get_origin(kind) is Literal else {"type": _KINDS[kind]}


def _find_version(function: Callable[..., Any], name: str, description: str) -> str:
    """Return a hash of the function's source, or of its compiled code if there is no source."""
    try:
        return text_key(f"{name}\n{description}\n{inspect.getsource(function)}")
    except (OSError, TypeError):
        code: Any = getattr(function, "__code__", None)
        constants = [value for value in getattr(code, "co_consts", ()) if isinstance(value, (str, int, float, bytes))]
        compiled = getattr(code, "co_code", b"") + repr((getattr(code, "co_names", ()), constants)).encode()
        return text_key(f"{name}\n{description}\n{hashlib.sha256(compiled).hexdigest()}")
