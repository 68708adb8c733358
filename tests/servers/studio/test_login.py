"""The token: nothing without it, a cookie in its place, no guessing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from editloupe.servers.http.access import TokenCheck, new_token
from editloupe.servers.studio.app import create_app
from editloupe.servers.studio.settings import StudioSettings
from editloupe.types import UserError
from tests.servers.studio.conftest import BEARER, TOKEN, OpenStudio
from tests.servers.studio.samples import many_edits

HTML = {"accept": "text/html"}


def test_a_studio_has_a_token_of_its_own_that_nobody_can_guess() -> None:
    made = {StudioSettings().token for _ in range(50)}
    assert len(made) == 50
    assert min(map(len, made)) >= 32
    assert made.isdisjoint({new_token()})
    assert StudioSettings().token not in repr(StudioSettings())


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("", "16 characters"),
        ("fifteen-letters", "16 characters"),
        ("with a space inside", "without spaces"),
        ("ünïcödé-ünïcödé-ünïcödé", "plain letters"),
        ("line\nbreak-line-break", "plain letters"),
    ],
)
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused(token: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        StudioSettings(token=token)


@pytest.mark.long
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1"])
def test_nothing_is_shown_without_the_token_also_on_this_machine(studio: OpenStudio, tmp_path: Path, host: str) -> None:
    client = studio(bearer=False, runs=(many_edits(tmp_path, 1),), host=host)
    for path in ("/", "/judge", "/runs/run", "/static/judge.js", "/judge?token=wrong", "/judge?token=", "/token"):
        for accept in ({}, HTML):
            refused = client.get(path, headers=accept)
            assert refused.status_code == 401, path
            assert "patch" not in refused.text
            assert TOKEN not in refused.text
    for path in ("/runs/run/labels", f"/runs/run/labels?token={TOKEN}", "/uploads", "/judge"):
        assert client.post(path, json={}).status_code == 401
    assert client.get("/runs/run", headers=BEARER).status_code == 200
    assert "bearer" in client.get("/judge").headers["www-authenticate"].lower()


def test_the_token_leaves_the_address_and_a_strict_cookie_takes_its_place(studio: OpenStudio) -> None:
    client = studio(bearer=False)
    first = client.get(f"/judge?a=1&token={TOKEN}&b=%2F%26")
    assert (first.status_code, first.headers["location"]) == (303, "/judge?a=1&b=%2F%26")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("editloupe-8642=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert client.get("/judge").status_code == 200
    again = client.get(f"/judge?token={TOKEN}")
    assert (again.status_code, again.headers["location"]) == (303, "/judge")


def test_a_browser_that_is_known_loses_a_wrong_token_from_its_address_too(studio: OpenStudio) -> None:
    client = studio(bearer=False)
    client.get(f"/judge?token={TOKEN}")
    again = client.get("/runs?token=that-of-yesterday")
    assert (again.status_code, again.headers["location"]) == (303, "/runs")


def test_the_page_that_asks_takes_the_token_and_goes_on_to_where_one_wanted_to(studio: OpenStudio) -> None:
    client = studio(bearer=False)
    page = client.get("/runs/run?text=a%26b", headers=HTML)
    assert page.status_code == 401
    then = re.search(r'name="then" value="([^"]+)"', page.text)
    assert then
    form = {"token": TOKEN, "then": then[1]}
    wrong = client.post("/token", data={**form, "token": "x" * 20}, headers=HTML)
    assert wrong.status_code == 401
    assert "not the token of this studio" in wrong.text
    right = client.post("/token", data=form, headers=HTML)
    assert (right.status_code, right.headers["location"]) == (303, "/runs/run?text=a%26b")
    assert client.get("/judge").status_code == 200


@pytest.mark.parametrize("there", ["//evil.example/", "/\\evil.example", "https://evil.example", "\\\\evil.example"])
def test_nobody_is_led_elsewhere(studio: OpenStudio, there: str) -> None:
    client = studio(bearer=False)
    for answer in (
        client.post("/token", data={"token": TOKEN, "then": there}, headers={"cookie": ""}),
        client.get(f"http://127.0.0.1:8642/{there}?token={TOKEN}", headers={"cookie": ""}),
    ):
        assert re.match(r"/(?![/\\])", answer.headers["location"])
    asked = client.get(
        f"http://127.0.0.1:8642/{there}",
        headers={**HTML, "cookie": "", "sec-fetch-site": "cross-site"} | {"sec-fetch-mode": "navigate"},
    )
    assert re.search(r'content="0;url=/(?![/\\])', asked.text)


@pytest.mark.parametrize("foreign", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}])
def test_another_page_cannot_try_tokens(studio: OpenStudio, foreign: dict[str, str]) -> None:
    assert studio(bearer=False).post("/token", data={"token": TOKEN}, headers=foreign).status_code == 403
    assert studio(bearer=False).get(f"/?token={TOKEN}", headers={"host": "evil.example"}).status_code == 421


def test_guesses_are_limited_and_do_not_lock_out_the_right_token(studio: OpenStudio) -> None:
    client = studio(bearer=False)
    inside = studio(bearer=False)
    inside.get(f"/judge?token={TOKEN}")
    tries = [client.get("/judge", headers={"authorization": f"Bearer guess-{n}"}).status_code for n in range(12)]
    assert tries == [401] * 10 + [429] * 2
    for answer in (
        client.get("/judge?token=wrong"),
        client.post("/token", data={"token": "wrong"}),
        client.get("/judge?token=wrong", headers={"x-forwarded-for": "203.0.113.9"}),
    ):
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "set-cookie" not in answer.headers
    assert client.get("/judge").status_code == 401
    assert client.get("/judge", headers=BEARER).status_code == 200
    assert "set-cookie" in client.get(f"/judge?token={TOKEN}", follow_redirects=False).headers
    assert inside.get("/judge").status_code == 200


def test_who_waited_may_try_again_and_others_never_had_to_wait() -> None:
    now = 0.0
    check = TokenCheck(TOKEN, at_once=3, seconds=5.0, clock=lambda: now)
    first, second = ("10.0.0.1", 1), ("10.0.0.2", 1)
    assert [check.refuse("wrong", first) for _ in range(5)] == [0, 0, 0, 5, 5]
    assert check.refuse(TOKEN, first) is None
    assert check.refuse("wrong", second) == 0
    now = 5.0
    assert [check.refuse("wrong", first) for _ in range(2)] == [0, 5]
    now = 1000.0
    assert check.refuse("wrong", first) == 0
    for number in range(9000):
        check.refuse("wrong", (str(number), 1))
    assert len(check._until) <= 4096


def test_two_studios_do_not_fight_over_one_cookie_and_do_not_take_each_others() -> None:
    settings = StudioSettings(token=TOKEN)
    with (
        TestClient(create_app(settings), base_url="http://127.0.0.1:8642", follow_redirects=False) as one,
        TestClient(create_app(replace(settings, port=9000)), base_url="http://127.0.0.1", cookies=one.cookies) as two,
    ):
        one.get(f"/?token={TOKEN}")
        two.cookies.update(one.cookies)
        assert two.get("/judge").status_code == 401
        two.get(f"/?token={TOKEN}", follow_redirects=False)
        assert {cookie.name for cookie in two.cookies.jar} == {"editloupe-8642", "editloupe-9000"}
        one.cookies.update(two.cookies)
        assert (one.get("/judge").status_code, two.get("/judge").status_code) == (200, 200)


@pytest.mark.parametrize(
    "beside",
    [
        'prefs={"theme":"dark"}; {}',
        "name=John Doe; {}",
        "{}; name=John Doe",
        "a[b]=1; {}; c:d=ü",
        "no-value;; {};",
        'open="; {}',
        "editloupe-8642=of-another-path; {}",
        "x={}; {}",
    ],
)
def test_what_others_on_this_host_keep_in_cookies_does_not_lock_anybody_out(studio: OpenStudio, beside: str) -> None:
    client = studio(bearer=False)
    own = client.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    client.cookies.clear()
    sent = own.join(beside.rsplit("{}", 1)).encode("latin-1")
    assert client.get("/judge", headers=[(b"cookie", sent)]).status_code == 200
    assert client.get("/judge", headers=[(b"cookie", sent.replace(own.encode(), own[:-1].encode()))]).status_code == 401


def test_the_cookie_of_an_earlier_start_leads_to_a_page_that_says_what_to_open(studio: OpenStudio) -> None:
    first = studio(bearer=False)
    first.get(f"/?token={TOKEN}")
    second = studio(bearer=False)
    second.cookies.update(first.cookies)
    told = second.get("/judge", headers=HTML)
    assert told.status_code == 401
    assert "an earlier start of the studio" in told.text
    assert "printed in its terminal" in told.text
    assert "printed when it started" in second.post("/judge", json={}).text


def test_a_link_of_another_page_is_followed_once_more_so_that_the_strict_cookie_comes_along(
    studio: OpenStudio,
) -> None:
    client = studio(bearer=False)
    from_elsewhere = {**HTML, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (
        'http-equiv="refresh" content="0;url=/runs/run?text=1"'
        in client.get("/runs/run?text=1", headers=from_elsewhere).text
    )
    assert "refresh" not in client.get("/runs/run", headers=HTML).text
    assert "refresh" not in client.get("/runs/run?token=wrong", headers=from_elsewhere).text


@pytest.mark.parametrize("body", [b"", b"token", b"\xff\xfe=\x00", b"token=" + b"x" * 20_000, b"a=b&" * 500])
def test_a_form_that_is_none_is_not_the_token(studio: OpenStudio, body: bytes) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert studio(bearer=False).post("/token", content=body, headers=kind).status_code == 401
