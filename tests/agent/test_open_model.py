"""Keys are read from the environment, and a malformed one is reported without being repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe import Edit, Judge, UserError
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.agent.specs import find_profile
from editloupe.agent.transport.secrets import redact_text
from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.scripted import final

VARIABLES = {"openai:gpt-4.1": "OPENAI_API_KEY", "google_genai:gemini-2.5-pro": "GOOGLE_API_KEY"}
specs = pytest.mark.parametrize("spec", VARIABLES)


@specs
@pytest.mark.parametrize("around", ["{}\n", "{}\r\n", " {}\t", "\n{}"])
def test_a_key_with_white_space_around_it_is_sent_without(
    scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, around: str
) -> None:
    key = "sk-mounted-as-a-file-1"
    monkeypatch.setenv(VARIABLES[spec], around.format(key))
    server, (before, after) = scripted(lambda _: final("Wrong Action")), edit_pair(tmp_path)
    url = server.gemini_url if spec.startswith("google") else server.openai_url
    with Judge(spec, mode="plain", criteria=["instruction_following"], base_url=url) as judge:
        assert judge.judge(Edit(source=before, edited=after, instruction="Paint it")).judged
    sent = server.requests[0].headers
    assert key in (sent.get("x-goog-api-key"), sent.get("authorization", "").removeprefix("Bearer "))
    monkeypatch.delenv(VARIABLES[spec])
    assert key not in redact_text(f"They said {key}.")


@specs
@pytest.mark.parametrize(
    "key",
    ["sk-inner space-22", "sk-inner\nline-22", "sk-ünïcödé-22", "\ufeffsk-mark-22", "sk-\x00\x1b-22", "sk-\udcff-22"],
)
def test_a_key_that_can_be_none_is_told_by_its_variable_alone(
    monkeypatch: pytest.MonkeyPatch, spec: str, key: str
) -> None:
    # No real environment holds a zero byte, a mapping in its place may.
    monkeypatch.setattr("os.environ", {VARIABLES[spec]: key})
    with pytest.raises(UserError, match=f"^{VARIABLES[spec]} contains white space") as raised:
        Judge(spec)
    assert "22" not in str(raised.value)
    assert "-22" not in redact_text(f"They said {key}.")


def test_the_command_ends_with_2_on_such_a_key_and_does_not_print_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ünïcödé-33")
    before, after = edit_pair(tmp_path)
    assert run(["judge", str(before), str(after), "Paint it", "--judge", "openai:gpt-4.1"]) == 2
    said = capsys.readouterr()
    assert "OPENAI_API_KEY" in said.err
    assert "-33" not in said.err + said.out


@specs
def test_a_key_of_white_space_alone_is_none(monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    for variable in ("OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, " \n")
    with pytest.raises(UserError, match="needs a key"):
        Judge(spec)


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        ("openai:gpt-3.5-turbo", ["without picture input"]),
        ("google_genai:gemma-4-31b-it", ["--set tool_calls=native"]),
        ("openai:gpt-5.1", []),
        ("openai:a-model-of-our-own", []),
    ],
)
def test_langchain_s_profile_adds_notes_on_models_and_changes_no_key(spec: str, notes: list[str]) -> None:
    provider, _, model = spec.partition(":")
    chat = open_chat(spec, "http://127.0.0.1:9/v1", ModelSettings())
    assert chat.profile == find_profile(provider, model)
    listed = [note for note in chat.notes if "LangChain lists" in note]
    assert len(listed) == len(notes)
    assert all(words in note for words, note in zip(notes, listed, strict=True))
