"""Chat models of LangChain that have no file of their own here: objects of a program, and providers of `init_chat_model`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from editloupe.agent.providers.provider import Client, Opening, Profile, Provider, build_response_format, format_error
from editloupe.agent.transport.attachments import PictureForm, data_url
from editloupe.agent.transport.secrets import redact_text, remember_secrets, remember_url_secrets
from editloupe.types import UserError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

CHAT_MODEL = "chat_model"
"""Prefix of the spec of a chat model that a program passes as an object."""
NAME = re.compile(r"[\w.@/-][\w.@/:-]*")
_SECRET = re.compile(
    r"api.?key|(?<![a-z])key$|token$|secret|password|credential|authorization|cookie|signature", re.IGNORECASE
)
_URL = re.compile(r"https?://")
DEPTH = 4
"""Levels of a chat model's attributes that are searched for keys."""


def _picture(text: str, media_type: str) -> dict[str, Any]:
    """Return the picture block that LangChain's integrations have in common."""
    return {"type": "image_url", "image_url": {"url": text}}


async def _close_nothing() -> None:
    """Leave the connections open: the object belongs to the program."""


async def _close_clients(model: BaseChatModel) -> None:
    """Close the HTTP clients in a chat model's attributes."""
    private = getattr(model, "__pydantic_private__", None) or {}
    for value in {**vars(model), **private}.values():
        close = getattr(value, "aclose", None) or getattr(value, "close", None)
        if callable(close):
            with suppress(Exception):  # a client that was never used, or is closed already
                done = close()
                if isawaitable(done):
                    await done


def _refuse_name(opening: Opening) -> Client:
    raise UserError(
        f"{CHAT_MODEL}:{opening.model} is a chat model of a Python program; pass the object: "
        f'Judge(model, name="{opening.model}")'
    )


def _build_provider(name: str, family: str) -> Provider:
    profile = Profile(family=family, provider=name, pattern="", native_tools=False)
    return Provider(
        name=name,
        keys=(),
        base_url="",
        packages=("langchain-core",),
        example=f"{name}:NAME",
        profiles=(profile,),
        open=_refuse_name,
        pictures=PictureForm(_picture, data_url),
        structured=build_response_format,
        needs_key=False,
        no_calls={},
        limits=frozenset(),
    )


PROVIDER = _build_provider(CHAT_MODEL, "LangChain chat model")
"""Not in the list of providers, because no spec on the command line opens it."""


@dataclass(frozen=True)
class ChatModel:
    """A LangChain chat model that a program passes to a judge.

    Args:
        model: The object. It keeps its own sampling, address and key.
        profile: Properties of the model. Default: they are read from the object's attributes.
    """

    model: BaseChatModel
    profile: Profile | None = None

    def why_not_importable(self) -> str | None:
        """Return why workers on other machines cannot receive the object; None if its class can be imported."""
        kind = type(self.model)
        attribute: Any = None
        if kind.__module__ != "__main__":
            try:
                attribute = import_module(kind.__module__)
                for part in kind.__qualname__.split("."):
                    attribute = getattr(attribute, part)
            except (ImportError, AttributeError):
                attribute = None
        if attribute is kind:
            return None
        return f"{kind.__module__}.{kind.__qualname__} cannot be imported; define the class in a module of its own"


def check_name(name: str | None) -> str:
    """Return the spec of a chat model with this name; raise UserError if it cannot be part of a key."""
    if not name:
        raise UserError('a chat model needs a name, which becomes part of its verdicts\' keys: Judge(model, name="…")')
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot be the name of a chat model; use letters, digits and . _ - / @ : only")
    return f"{CHAT_MODEL}:{name}"


def find_model_name(model: BaseChatModel) -> str:
    """Return the model's name by its own attributes; empty if it has none."""
    names = (getattr(model, attribute, None) for attribute in ("model_name", "model", "model_id", "deployment_name"))
    return next((name for name in names if isinstance(name, str) and name), "")


def read_native_tools(model: BaseChatModel) -> bool:
    """Return whether a chat model calls tools: by its own profile, else by whether its class can bind tools."""
    from langchain_core.language_models import BaseChatModel

    profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
    binds = type(model).bind_tools is not BaseChatModel.bind_tools
    return binds and bool(profile.get("tool_calling", binds))


def describe_model(spec: str, chat_model: ChatModel, profile: Profile) -> tuple[str, ...]:
    """Return notes on what the judge knows of a chat model and from where, without secrets."""
    model = chat_model.model
    kind, own_name = type(model), find_model_name(model)
    temperature = getattr(model, "temperature", None)
    source = "the profile passed with it" if chat_model.profile else "its own attributes"
    properties = (
        f"family {profile.family}, {'native' if profile.native_tools else 'text'} tool calls, positions in "
        f"{'thousandths' if profile.per_mille else 'pixels'}"
    )
    sentence = (
        f"{spec} is a {kind.__module__}.{kind.__qualname__}{f' of the model {own_name}' if own_name else ''}; temperature: "
        f"{'unknown' if temperature is None else temperature}, set by the object; by {source}: {properties}"
    )
    return (redact_text(sentence),)


def open_object(spec: str, chat_model: ChatModel, profile: Profile) -> Provider:
    """Return a provider whose client is this object; its keys are secrets from now on."""
    remember_model_secrets(chat_model.model)
    client = Client(chat_model.model, _close_nothing, attaches=False, notes=describe_model(spec, chat_model, profile))
    return replace(PROVIDER, open=lambda opening: client)


def remember_model_secrets(model: Any) -> None:
    """Treat every key in a chat model's attributes as a secret: secret fields, names such as `api_key`, and addresses."""
    for value, hidden in _walk_attributes(model, DEPTH):
        if hidden:
            remember_secrets(value, *value.split())
        elif _URL.match(value):
            remember_url_secrets(value)


def _walk_attributes(value: Any, depth: int, hidden: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the texts in a value, each with whether it is secret."""
    if isinstance(value, str):
        yield value, hidden
    elif depth and callable(reveal := _find_attribute(value, "get_secret_value")):
        yield from _walk_attributes(reveal(), depth - 1, True)
    elif depth and isinstance(value, Mapping):
        for name, item in value.items():
            yield from _walk_attributes(item, depth - 1, hidden or bool(_SECRET.search(str(name))))
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk_attributes(item, depth - 1, hidden)
    elif (
        depth and _find_attribute(value, "model_fields_set") is not None
    ):  # a pydantic record; its private attributes hold clients
        secrets = getattr(value, "lc_secrets", None) or {}
        private = getattr(value, "__pydantic_private__", None) or {}
        for name, item in {**vars(value), **private}.items():
            yield from _walk_attributes(item, depth - 1, hidden or name in secrets or bool(_SECRET.search(name)))


def _find_attribute(value: Any, name: str) -> Any:
    """Return an attribute; None if there is none, or if computing it fails."""
    with suppress(Exception):
        return getattr(value, name, None)
    return None


def is_known(name: str) -> bool:
    """Return True if LangChain's `init_chat_model` can be asked for a provider of this name."""
    return name in list_langchain_providers()


@cache
def list_langchain_providers() -> dict[str, tuple[str, str]]:
    """Return the providers that `init_chat_model` knows, with module and class; empty if `langchain` is not installed."""
    if find_spec("langchain") is None:
        return {}
    try:
        base = import_module("langchain.chat_models.base")
    except ImportError:
        return {}
    return {name: (entry[0], entry[1]) for name, entry in getattr(base, "_BUILTIN_PROVIDERS", {}).items()}


@cache
def find_langchain_provider(name: str) -> Provider:
    """Return the provider of a name that only LangChain knows."""
    return replace(_build_provider(name, f"LangChain's {name}"), open=lambda opening: _init_model(name, opening))


def _init_model(name: str, opening: Opening) -> Client:
    """Open a client by `init_chat_model`; LangChain's package finds its key in its own environment variable."""
    from langchain.chat_models import init_chat_model  # type: ignore[import-not-found, unused-ignore]

    module, kind = list_langchain_providers()[name]
    try:
        fields = getattr(import_module(module), kind).model_fields
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise UserError(
            f"{name}:{opening.model} needs a client that is not installed: pip install {package} ({format_error(error)})"
        ) from None
    accepted = {*fields, *(field.alias for field in fields.values() if field.alias)}
    usual = {"timeout": opening.timeout, "max_retries": 0, "disable_streaming": True}
    parameters = dict(opening.parameters) | ({"base_url": opening.base_url} if opening.base_url else {})
    if refused := sorted(parameters.keys() - accepted):
        raise UserError(f"{name}:{opening.model} is opened by LangChain's {kind}, which has no {', '.join(refused)}")
    passed = {key: value for key, value in usual.items() if key in accepted} | parameters
    close = None
    if "http_async_client" in fields:
        # Without a client of their own, models of one address share one, which must not be closed.
        from httpx import AsyncClient, Limits

        own = AsyncClient(timeout=opening.timeout, limits=Limits(max_connections=None))
        passed["http_async_client"], close = own, own.aclose
    model = init_chat_model(opening.model, model_provider=name, **passed)
    remember_model_secrets(model)
    note = (
        f"{name}:{opening.model} is opened by LangChain's {kind}; the provider's quirks are unknown to EditLoupe: redirects, "
        "refusals and parameters it does not accept are handled by that package, and tools are called by the text protocol "
        "unless tool_calls=native is set"
    )
    return Client(model, close or partial(_close_clients, model), attaches=False, notes=(note,))
