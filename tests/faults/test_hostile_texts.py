"""Ids, instructions, labels and models' words are shown as text: they steer no terminal, no page, no shell, no sheet."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from editloupe._util.text import for_csv, for_json, for_markdown, format_trace_command, one_line, printable
from editloupe._util.text import format_command as to_copy
from editloupe.cli.main import run as command
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.types import Edit, Judgement, Observation, Reason, Step, ToolCall, Trace, Unjudged, Verdict
from tests.evals.samples import write_manifest, write_picture

STEERING = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))} - {
    "\n",
    "\t",
}
TEXTS = (
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31mred\x9c",
    "\u202egnp.exe\u2066",
    "a\rb\x08\x7f",
    "[red]markup[/red] [link=http://x]y[/link] [/]",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)> \' onmouseover=\'x',
    "javascript:alert(1) [x](javascript:alert(1)) ![i](http://x/y)",
    "| a | b |\n| - | - |\n# heading\n* item `code` ~~gone~~ &lt; http://a.b www.a.b a@b.cd",
    "=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", " =1", "＝1",
    "; rm -rf / $(id) `id` && echo | tee > x",
    "it's \"quoted\" \\ back\\slash $HOME !!",
    "-x", "--help", "", " ",
    "$E=mc^2$ \\frac{1}{0} $\\undefined$",
    "null\x00byte", "line\u2028sep\u2029", "\ud83d half", "é 漢字 😀", "x" * 3000,
)  # fmt: skip


JUDGE = f"openai:{''.join(TEXTS[:8])}"
"""One for the whole run: verdicts of several are never put into one table."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every text is hostile: ids, criteria's labels, instructions, models, reasons, traces."""
    folder = tmp_path_factory.mktemp("hostile")
    source, edited = write_picture(folder / "a.png", 1), write_picture(folder / "b.png", 2)
    filings = []
    for number, text in enumerate(TEXTS):
        edit = Edit(
            id=text or f"empty {number}",
            source=source,
            edited=edited,
            instruction=text if text.strip() else "Do it",
            instruction_type=text or None,
            model=text or None,
            hint=text,
            human={"instruction_following": "Wrong Action"} if number % 3 == 0 else {},
            extra={text: {text: [text]}},
        )
        call = ToolCall(id="c", name=text, parameters={text: text})
        seen = Observation(call_id="c", tool=text, text=text, captions=(text,), pictures=("0" * 32,), failed=True)
        step = Step(index=0, thought=text, calls=(call,), observations=(seen,), problem=text, raw=text, answer=text)
        facts = {"edit_id": edit.id, "protocol": "dlebench", "mode": "tools", "judge": JUDGE}
        trace = Trace(criterion="instruction_following", notes=(text,), prompt=(text,), steps=(step,), **facts)  # type: ignore[arg-type]
        verdicts = (
            Verdict(
                criterion="instruction_following",
                label=text,
                score=1 + number % 4,
                score_100=50,
                rationale=text,
                confidence=0.1,
                values={text: text},
            ),
            Unjudged(criterion="visual_consistency", reason=Reason.UNREADABLE, detail=text, raw=text),
        )
        whole = Judgement(edit=edit, protocol="dlebench", mode="tools", judge=JUDGE, verdicts=verdicts, traces=(trace,))
        filings.append(JudgementRecord(whole))
    with Run.write(folder / "run") as run:
        run.configure({"spec": TEXTS[0], "protocol": "dlebench", "mode": "tools", "note": "\ud83d"})
        run.save_all(filings)
    return folder / "run"


def printed(hostile: Path, *formats: str) -> Iterator[list[str]]:
    for kind in formats:
        yield ["report", str(hostile), "--format", kind, "--by", "hint"]


@pytest.mark.long
def test_no_command_prints_what_a_terminal_obeys(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(hostile) as run:
        ids = [edit.id for edit, *_ in run.edits()]
    assert len(ids) == len(TEXTS)
    wanted = [*printed(hostile, "text", "md", "json"), ["agree", str(hostile)]]
    wanted += [["agree", str(hostile), "--format", "json"], ["compare", str(hostile), str(hostile)]]
    wanted += [["passport", str(hostile), str(hostile)], ["trust", str(hostile)], ["traces", str(hostile)]]
    wanted += [["verify", str(hostile)]]
    wanted += [["export", str(hostile), "--format", kind] for kind in ("jsonl", "csv")]
    wanted += [["trace", "--", str(hostile), edit_id] for edit_id in ids if "\x00" not in edit_id]
    wanted += [["trace", "--json", "--", str(hostile), edit_id] for edit_id in ids if "\x00" not in edit_id]
    wanted += [["trace", "--", str(hostile), f"no such {text}"] for text in TEXTS]
    for arguments in wanted:
        code = command(arguments)
        said = capsys.readouterr()
        assert code == (2 if "no such " in arguments[-1] else 0), said.err
        for stream in said:
            assert not (found := set(stream) & STEERING), (arguments, found)
            stream.encode("utf-8")
    assert command(["trace", str(hostile), "[red]markup[/red] [link=http://x]y[/link] [/]"]) == 0
    assert "thought: [red]markup[/red] [link=http://x]y[/link] [/]" in " ".join(capsys.readouterr().out.split())


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {(value or "")[:11] for name, value in attrs if name in ("href", "src", "action")}


@pytest.mark.long
def test_a_page_runs_nothing_and_loads_nothing(hostile: Path, tmp_path: Path) -> None:
    assert command(["report", str(hostile), "--out", str(tmp_path / "r.html")]) == 0
    page = Page()
    page.feed((tmp_path / "r.html").read_text("utf-8"))
    assert not page.tags & {"script", "iframe", "object", "link", "form", "foreignobject", "animate", "image"}
    assert not [name for name in page.attributes if name.startswith("on")]
    elsewhere = {address for address in page.addresses if not re.fullmatch(r"#[a-z]+-[\w-]+", address)}
    assert elsewhere <= {"data:image/"}, "what is linked are the page's own sections and figures"


@pytest.mark.long
def test_markdown_has_the_tables_and_headings_of_the_report_and_no_others(hostile: Path, tmp_path: Path) -> None:
    assert command(["report", str(hostile), "--out", str(tmp_path / "r.md")]) == 0
    text = (tmp_path / "r.md").read_text("utf-8")
    blocks = re.findall(r"^```json\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert [json.loads(block) for block in blocks]
    text = re.sub(r"^```json\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    without_code = re.sub(r"(`+) .*? \1(?!`)|`[^`\n]*`", "", text)
    for line in without_code.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) > 2
        assert not re.search(r"(?<!\\)<", line), line
        assert not re.search(r"(?<![\\!])\[[^\]]*(?<!\\)\]\(", line), line
        assert not re.search(r"https?://|www\.a", line), line
    widths: list[int] = []
    for line in without_code.splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        elif widths:
            assert len(set(widths)) == 1
            widths = []


def test_a_sheet_takes_no_text_for_a_formula_and_numbers_stay_numbers(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["export", str(hostile), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * len(TEXTS)
    for row in rows:
        for name in ("edit_id", "criterion", "label", "reason", "status"):
            assert not row[name].lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "＝"))
    assert {row["score"] for row in rows} == {"1.0", "2.0", "3.0", "4.0", ""}
    assert "'=1+1" in {row["edit_id"] for row in rows}
    assert for_csv(-3) == -3


def test_a_command_to_copy_means_exactly_these_words() -> None:
    words = [text for text in TEXTS if "\x00" not in text and "\ud83d" not in text]
    done = subprocess.run(["bash", "-c", to_copy("printf", "%s\\0", *words)], capture_output=True, check=True)
    assert done.stdout.decode("utf-8").split("\0")[:-1] == words
    for text in TEXTS:
        assert not set(format_trace_command("runs/a b", text, text, 1)) & STEERING
        assert "\n" not in format_trace_command(text, text)


def test_json_for_the_terminal_reads_back_equal() -> None:
    for text in TEXTS:
        line = for_json({"text": text})
        assert not set(line) & STEERING
        assert json.loads(line)["text"] == text.replace("\ud83d", "\ufffd")


def test_sentences_are_one_line_without_steering() -> None:
    for text in TEXTS:
        assert not set(one_line(text)) & (STEERING | {"\n", "\t"})
        assert not set(printable(text)) & STEERING
        assert "\n" not in for_markdown(text)


@pytest.mark.long
def test_a_hostile_file_name_and_manifest_end_in_one_harmless_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = write_manifest(tmp_path, 1)
    name = "no\x1b[2J\nsuch\u202e.png"
    for arguments in (
        ["judge", str(tmp_path / name), str(tmp_path / "img/e0.png"), "x"],
        ["batch", str(tmp_path / name), "--out", str(tmp_path / "run")],
        ["report", str(tmp_path / name)],
        ["batch", str(manifest), "--out", str(tmp_path / "r"), "--judge", "openai:\x1b[2J\u202e"],
        ["report", str(tmp_path), "--format", name],
    ):
        assert command(arguments) in (2, 3)
        said = capsys.readouterr()
        assert not set(said.out + said.err) & STEERING
