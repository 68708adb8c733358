"""Pictures and words are found in messages in the shapes that programs write them in; a picture that is only named is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest

from editloupe.integrations.chat_messages import first_picture, last_picture, last_words, plain_picture
from editloupe.types import UserError

URL = "data:image/png;base64,AAAA"
OTHER = "data:image/png;base64,BBBB"


@pytest.mark.parametrize(
    "said",
    [
        URL,
        f"Here it is: ![edited]({URL})",
        [{"role": "assistant", "content": f"{OTHER} and then {URL}."[:-1]}],
        [
            {
                "role": "assistant",
                "content": [{"type": "image", "image": OTHER}, {"type": "image_url", "image_url": {"url": URL}}],
            }
        ],
        [{"content": [{"type": "image", "base64": "AAAA", "mime_type": "image/png"}]}],
        {"content": [{"type": "image", "url": URL}, {"type": "text", "text": "Done."}]},
    ],
)
def test_the_last_picture_is_found(said: Any) -> None:
    assert last_picture(said) == URL


@pytest.mark.parametrize(
    "said", [None, "", [], "no picture", "it ends in data:image/", [{"role": "user", "content": None}]]
)
def test_where_there_is_no_picture_there_is_none(said: Any) -> None:
    assert last_picture(said) is None
    assert first_picture(said) is None


@pytest.mark.parametrize("named", ["/etc/passwd", "https://example.org/a.png", "best.png"])
def test_a_picture_that_is_only_named_is_refused(named: str) -> None:
    with pytest.raises(UserError, match="names a picture instead of containing it"):
        last_picture([{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": named}}]}])


def test_the_users_first_picture_and_last_words_are_found() -> None:
    messages = [
        {"role": "system", "content": [{"type": "image", "image": OTHER}, {"type": "text", "text": "Be good."}]},
        {"role": "user", "content": [{"type": "image", "image": URL}, {"type": "text", "text": "Remove"}]},
        {"role": "user", "content": [{"type": "text", "text": "the"}, {"type": "text", "text": "cup"}]},
        {"role": "assistant", "content": "Done."},
    ]
    assert first_picture(messages) == URL
    assert last_words(messages) == "the cup"


def test_a_picture_in_a_list_a_mapping_or_an_attachment_is_taken_out() -> None:
    reader = io.BytesIO(b"png")
    reader.read()
    for given in (b"png", [b"png"], {"bytes": b"png"}, {"reader": reader}, {"mime_type": "image/png", "data": b"png"}):
        assert plain_picture(given) == b"png"
    assert plain_picture({"bytes": None, "path": "a.png"}) == "a.png"
    assert plain_picture({"type": "image_url", "image_url": {"url": URL}}) == URL
