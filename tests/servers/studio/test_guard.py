"""Who gets in, what is refused, and that nothing hostile comes through."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.servers.studio.guard import POLICY
from editloupe.servers.studio.settings import UPLOAD_BYTES, StudioSettings
from editloupe.types import UserError
from tests.drawn_pictures import huge_png, save, textured
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import HOSTILE, long_trace, many_edits


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "169.254.169.254", "[::2]:8642"])
def test_a_request_by_another_host_name_is_refused(studio: OpenStudio, host: str) -> None:
    assert studio().get("/judge", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:9999", "[::1]:8642", "LOCALHOST"])
def test_this_machine_may_be_called_by_its_own_names(studio: OpenStudio, host: str) -> None:
    assert studio().get("/judge", headers={"host": host}).status_code == 200


@pytest.mark.long
@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8642.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_post_from_another_page_changes_nothing(studio: OpenStudio, tmp_path: Path, foreign: dict[str, str]) -> None:
    run = many_edits(tmp_path, 2)
    client = studio(runs=(run,))
    body = {"annotator": "eve", "edit": "edit-00000", "criterion": "instruction_following", "label": "Wrong Action"}
    assert client.post("/runs/run/labels", json=body, headers=foreign).status_code == 403
    assert client.post("/uploads", content=b"x", headers=foreign).status_code == 403
    assert not (run / "labels.jsonl").exists()
    assert client.post("/runs/run/labels", json=body, headers={"origin": "http://127.0.0.1:8642"}).status_code == 200


def test_another_page_may_link_here_but_have_nothing_loaded(studio: OpenStudio) -> None:
    client, foreign = studio(), {"sec-fetch-site": "cross-site"}
    assert client.get("/judge", headers={**foreign, "sec-fetch-mode": "navigate"}).status_code == 200
    for path in ("/judge", "/examples/cat-eye/small", "/static/base.css"):
        assert client.get(path, headers={**foreign, "sec-fetch-mode": "no-cors"}).status_code == 403


@pytest.mark.long
def test_a_form_of_another_site_cannot_stand_in_for_json(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 1),))
    for address in ("/judge", "/runs/run/labels", "/runs/run/trace/note"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert client.post(address, content=b"{}", headers={"content-type": kind}).status_code == 415


def test_every_answer_carries_the_policy(studio: OpenStudio) -> None:
    client = studio()
    answers = [
        client.get(path) for path in ("/judge", "/runs", "/nowhere", "/static/base.css", "/examples/cat-eye/small")
    ]
    answers += [client.get("/", headers={"host": "evil.example"}), client.post("/uploads", content=b"no picture")]
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


@pytest.mark.long
def test_no_path_of_a_request_reaches_the_file_system(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 1),))
    secret = (tmp_path / "secret.png").resolve()
    save(textured(), secret)
    up = "../" * 12
    for inner in (
        f"{up}etc/passwd",
        str(secret),
        "..%2f..%2fsecret.png",
        f"{up}{secret}",
        "run.sqlite",
        "%00",
        "a" * 5000,
    ):
        for start in ("/pictures/", "/static/", "/examples/", "/runs/", "/runs/run/charts/dlebench/", "/jobs/"):
            for path in (start + inner, f"{start}{inner}/small", f"{start}{inner.replace('.', '%2e')}"):
                answer = client.get(path)
                assert answer.status_code in (400, 404, 405), path
                assert not answer.content.startswith(b"\x89PNG")
                assert b"root:" not in answer.content
    for name in ("edit", "criterion", "beside"):
        answer = client.get("/runs/run/trace", params={"edit": "edit-00000", name: f"{up}etc/passwd"})
        assert answer.status_code == 404
        assert b"root:" not in answer.content


@pytest.mark.long
def test_pictures_are_served_by_hash_only(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 1),))
    page = client.get("/runs/run").text
    sha = page.split('src="/pictures/')[1].split("/")[0]
    whole = client.get(f"/pictures/{sha}")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
    assert client.get(f"/pictures/{sha}/small").headers["content-type"] == "image/jpeg"
    for wrong in (sha[:-1], sha.upper(), sha + "0", "0" * 32, f"{sha}.png"):
        assert client.get(f"/pictures/{wrong}").status_code == 404


@pytest.mark.long
def test_texts_of_models_files_and_manifests_are_shown_as_text(studio: OpenStudio, tmp_path: Path) -> None:
    run = long_trace(tmp_path, steps=3, thought=HOSTILE)
    (run / "labels.jsonl").write_text(
        '{"edit_id": "the-edit/../x", "criterion": "instruction_following", "label": "Wrong Action", '
        '"annotator": "<script>1</script>"}\n'
    )
    client = studio(runs=(run,))
    html = {"accept": "text/html"}
    pages = [
        client.get("/runs/run/trace", params={"edit": "the-edit/../x"}).text,
        client.get("/runs/run/annotate").text,
        client.get("/runs/run/annotate", params={"annotator": HOSTILE}).text,
        client.get("/runs/run/annotators").text,
        client.get("/runs/run", params={"text": HOSTILE, "type": HOSTILE, "order": HOSTILE}).text,
        client.get("/runs/run/trace", params={"edit": HOSTILE}, headers=html).text,
        client.get("/judge", params={"job": HOSTILE}).text,
    ]
    assert "&lt;script&gt;document.title" in pages[0]
    for page in pages:
        assert "<script>" not in page
        assert "<img src=x" not in page


@pytest.mark.long
def test_an_upload_is_limited_and_opened_safely(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio()
    assert client.post("/uploads", content=b"x", headers={"content-length": str(UPLOAD_BYTES + 1)}).status_code == 413
    assert client.post("/uploads", content=iter([b"x"])).status_code == 411
    for content in (b"", b"<svg onload=alert(1)>", b"GIF89a" + b"0" * 50, huge_png(7000, 7000)):
        refused = client.post("/uploads", content=content)
        assert refused.status_code == 400
        assert "/" not in refused.json()["sentence"]
    taken = client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes()).json()
    assert (taken["width"], taken["height"]) == (160, 120)
    assert client.get(f"/pictures/{taken['sha']}").content.startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_key_goes_only_to_servers_named_at_the_start(
    studio: OpenStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecretvalue123")
    client = studio(host=host, base_urls=("http://127.0.0.1:9/v1",))
    sha = client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes()).json()["sha"]
    asked = {"source": sha, "edited": sha, "instruction": "x", "judge": "openai:m"}
    for other in ("http://evil.example/v1", "http://127.0.0.1:9/v1/../evil", "http://127.0.0.1:9/v1@evil.example"):
        refused = client.post("/judge", json={**asked, "base_url": other})
        assert refused.status_code == 400
        assert "--base-url" in refused.json()["sentence"]
    taken = client.post("/judge", json={**asked, "base_url": "http://127.0.0.1:9/v1"})
    assert taken.status_code == 200
    client.post(f"/jobs/{taken.json()['job']}/stop", json={})


def test_the_page_offers_the_named_servers_without_the_keys_in_them(
    studio: OpenStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROXY_API_KEY", "in-the-address-9876")
    named = ("http://127.0.0.1:9/v1", "http://me:password1@127.0.0.1:9/v1", "http://127.0.0.1:9/in-the-address-9876/v1")
    client = studio(base_urls=named)
    page = client.get("/judge").text
    assert page.count('<option value="http://') == 3
    assert "in-the-address-9876" not in page
    assert "password1" not in page
    assert [*client.app.state.studio.settings.servers.values()] == [*named]  # type: ignore[attr-defined]


@pytest.mark.parametrize("base_url", ["", "ftp://host/v1", "host:8000", "http://", "http://a\nb/v1", "http://a b/v1"])
def test_a_server_that_is_no_address_is_refused_at_the_start(base_url: str) -> None:
    with pytest.raises(UserError, match="--base-url"):
        StudioSettings(base_urls=(base_url,))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"judge": "openai:gpt-5.1"}, "OPENAI_API_KEY"),
        ({"judge": "nobody"}, "nobody"),
        ({"instruction": " "}, "type the instruction"),
        ({"source": ""}, "choose the source picture"),
        ({"source": "0" * 32}, "choose it again"),
        ({"source": "../../etc/passwd"}, "source"),
        ({"boxes": [[5, 5, 1, 1]]}, "no area"),
        ({"protocol": "nope"}, "nope"),
        ({"setup": "nope"}, "there is no set-up"),
        ({"setup": __file__}, "there is no set-up"),
    ],
)
def test_a_mistake_is_one_sentence(
    studio: OpenStudio, tmp_path: Path, changes: dict[str, object], sentence: str
) -> None:
    client = studio()
    sha = client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes()).json()["sha"]
    refused = client.post(
        "/judge", json={"source": sha, "edited": sha, "instruction": "x", "judge": "rules", **changes}
    )
    assert refused.status_code == 400
    assert sentence in refused.json()["sentence"]
    assert "Traceback" not in refused.text


def test_what_is_judged_here_is_gone_with_the_program(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio()
    client.post("/uploads", content=save(textured(), tmp_path / "p.png").read_bytes())
    folder = client.app.state.studio.uploads.folder  # type: ignore[attr-defined]
    assert folder.exists()
    client.__exit__(None, None, None)
    assert not folder.exists()
    client.__enter__()
