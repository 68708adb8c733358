"""Keys are found in every form in which they are echoed, and ordinary words stay."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote

import pytest
from markupsafe import Markup

from editloupe.agent.transport.secrets import Secrets, redact_text, redact_url, remember_url_secrets

KEY = "k/9+z=Ab-cd_ef.gh~12"


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY, safe="").replace("%2F", "%2f"),
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        KEY.replace("=", "\\u003d").replace("+", "\\u002B"),
        html.escape(KEY),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f"me:{KEY}:more".encode()).decode(),
        base64.urlsafe_b64encode(f"Bearer {KEY}".encode()).decode(),
    ],
)
def test_a_key_is_found_in_every_form(form: str) -> None:
    clean = Secrets([KEY])
    for said in (clean(f"before {form} after"), clean.in_body(f'{{"x": "{form}"}}'.encode()).decode()):
        assert "[secret]" in said
        assert form not in said
        assert form[4:-6] not in said


def test_a_short_key_is_taken_out_as_a_whole_word_and_a_mere_word_where_a_key_stands() -> None:
    clean = Secrets(["ab12"])
    assert clean("the key ab12, not cab123") == "the key [secret], not cab123"
    word = Secrets(["secret"])
    assert word("no secret here") == "no secret here"
    assert "secret" not in word("Authorization: Bearer secret").replace("[secret]", "")


def test_words_given_to_servers_that_take_any_key_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert Secrets()("none of the key: none") == "none of the key: none"


def test_a_number_of_one_or_two_digits_in_an_address_is_no_secret() -> None:
    remember_url_secrets("https://example.org/v1?revision=1&round=42")
    for text in ('<button data-key="1">', "press the key 42", "token: 1"):
        assert redact_text(text) == text


def test_what_an_address_carries_is_taken_out() -> None:
    clean = Secrets([])
    assert clean("see http://me:word@host/v1") == "see http://host/v1"
    assert clean("see https://host/v1?api-key=abc&x=1") == "see https://host/v1?api-key=[secret]&x=1"
    assert clean("a=b is no address, nor is a key=word") == "a=b is no address, nor is a key=word"


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://host/v1/", "", "http://[::1]:80/v1"])
def test_an_ordinary_address_is_shown_as_it_is(url: str) -> None:
    assert redact_url(url) == url


@pytest.mark.parametrize(
    ("url", "there", "secret"),
    [
        ("http://h/v1?sk-bare-secret-777", "http://h/v1?[secret]", "sk-bare-secret-777"),
        ("http://h/v1?api-version=1&bare%2Bsecret-778", "http://h/v1?api-version=1&[secret]", "bare+secret-778"),
        ("http://h/v1?YmFyZS1zZWNyZXQtNzc5MQ==", "http://h/v1?[secret]", "YmFyZS1zZWNyZXQtNzc5MQ"),
        ("http://h/v1?YmFyZS1zZWNyZXQtNzc5MTI=", "http://h/v1?[secret]", "YmFyZS1zZWNyZXQtNzc5MTI"),
        ("http://h/v1?sk-bare-secret-780=1", "http://h/v1?[secret]", "sk-bare-secret-780"),
        ("https://h/v1;key=parameter-781", "https://h/v1;key=[secret]", "parameter-781"),
        ("https://h/v1;parameter-782/x", "https://h/v1;[secret]/x", "parameter-782"),
        ("https://h/v1?api-version=1;key=parameter-783", "https://h/v1?api-version=1;key=[secret]", "parameter-783"),
        ("https://h/v1?version=sk-harmless-784", "https://h/v1?version=[secret]", "sk-harmless-784"),
        (
            "https://h/v1?region=0123456789abcdef0123456785",
            "https://h/v1?region=[secret]",
            "0123456789abcdef0123456785",
        ),
        ("https://h/sk-in-the-path-786/v1", "https://h/[secret]/v1", "sk-in-the-path-786"),
        ("https://h/v1#sk-fragment-787", "https://h/v1", "sk-fragment-787"),
    ],
)
def test_a_key_anywhere_in_an_address_is_neither_shown_nor_forgotten(url: str, there: str, secret: str) -> None:
    assert redact_url(url) == there
    remember_url_secrets(url)
    assert redact_text(f"I was asked with {secret}!") == "I was asked with [secret]!"


@pytest.mark.parametrize(
    "url",
    [
        "https://h/openai/deployments/gpt-4o?api-version=2024-02-15-preview",
        "https://h/v1?model=gpt-4o-2024-08-06-preview&deployment=Qwen2.5-VL-72B-Instruct-AWQ&region=eu-west-1",
        "https://h/v1?beta",
        "https://h/v1?empty=&api-version=1",
        "https://h/v1/0123456789abcdef0123456789abcdef/gateway/openai",
        "https://h/v1;version=2/x",
    ],
)
def test_what_is_no_secret_stays_in_an_address(url: str) -> None:
    assert redact_url(url) == url


def test_a_variable_that_holds_no_text_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "\udcff\udcfe-token-of-bytes")
    clean = Secrets()
    assert clean("a \udcff\udcfe-token-of-bytes b") == "a [secret] b"
    assert clean.in_body(b"token") == b"token"


def test_a_long_text_is_searched_quickly() -> None:
    import time

    clean, text = Secrets([KEY, "sk-" + "x" * 60]), ("k/9+z " * 200_000).encode()
    started = time.perf_counter()
    assert clean.in_body(text) == text
    assert time.perf_counter() - started < 2


@pytest.mark.long
def test_secrets_are_taken_out_of_every_text_a_value_holds_and_html_stays_marked() -> None:
    clean = Secrets(["a-key-of-mine-1"])
    value = {"a-key-of-mine-1": ["see a-key-of-mine-1", 1, None], "pair": ("a-key-of-mine-1", {"x": "plain"})}
    assert clean.in_value(value) == {
        "[secret]": ["see [secret]", 1, None],
        "pair": ("[secret]", {"x": "plain"}),
    }
    marked = clean.in_value(Markup("<b>a-key-of-mine-1</b>"))
    assert isinstance(marked, Markup)
    assert marked == Markup("<b>[secret]</b>")
