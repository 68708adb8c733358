"""Find pictures and texts in chat messages of the usual formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from editloupe._util.errors import UserError

SOURCES = ("source", "source_image", "image", "images")
"""Fields that may hold the source picture, in order of preference."""
_WRAPPED = "\"')>]`"
"""Characters that Markdown and prose put after an address."""


def last_picture(messages: Any) -> Any:
    """Return the last picture in messages: an image part, or a data URL in a text. Return None if there is none.

    A path or an address is refused: a model that is scored could name any good picture.

    >>> last_picture("Here it is: ![edited](data:image/png;base64,AAAA)")
    'data:image/png;base64,AAAA'
    """
    for message in reversed(_messages(messages)):
        for part in reversed(_parts(message)):
            if (picture := _find_picture(part)) is not None:
                if isinstance(picture, str) and not picture.startswith("data:"):
                    raise UserError("the completion names a picture instead of containing it")
                return picture
            _, mark, tail = str(part.get("text") or "").rpartition("data:image/")
            if mark and tail.split():
                return mark + tail.split()[0].strip(_WRAPPED)
    return None


def first_picture(messages: Any) -> Any:
    """Return the first picture of the user's messages, or its path or address; None if there is none."""
    of_user = (message for message in _messages(messages) if _is_users(message))
    pictures = (_find_picture(part) for message in of_user for part in _parts(message))
    return next((picture for picture in pictures if picture is not None), None)


def last_words(messages: Any) -> str:
    """Return the user's last text in messages.

    >>> last_words([{"role": "user", "content": "Remove the cup"}, {"role": "assistant", "content": "Done"}])
    'Remove the cup'
    """
    for message in reversed(_messages(messages)):
        texts = [str(part["text"]) for part in _parts(message) if part.get("type") == "text" and part.get("text")]
        if texts and _is_users(message):
            return " ".join(texts).strip()
    return ""


def plain_picture(value: Any) -> Any:
    """Return a picture in a form that an edit accepts: the first of a list, or the content or path of a mapping."""
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return value
    if (reader := value.get("reader")) is not None:  # an attachment, read from its beginning
        reader.seek(0)
        return reader.read()
    return value.get("bytes") or value.get("path") or value.get("data") or _find_picture(value)


def first_field(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the first of these fields that has a value, or None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _is_users(message: Any) -> bool:
    return not isinstance(message, Mapping) or message.get("role") in (None, "user")


def _find_picture(part: Mapping[str, Any]) -> Any:
    """Return the picture of a message's part."""
    if part.get("type") not in ("image", "image_url"):
        return None
    picture = part.get("image") or part.get("image_url") or part.get("url")
    if picture is None and part.get("base64"):
        return f"data:{part.get('mime_type') or 'image/png'};base64,{part['base64']}"
    return picture.get("url") if isinstance(picture, Mapping) and "url" in picture else picture


def _parts(message: Any) -> list[Mapping[str, Any]]:
    content = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [part for part in content or () if isinstance(part, Mapping)]


def _messages(messages: Any) -> list[Any]:
    return [messages] if isinstance(messages, (str, Mapping)) else list(messages or ())
