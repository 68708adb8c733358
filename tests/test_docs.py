"""The documents agree with the program, and the site can be prepared from them."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from editloupe.cli.main import COMMANDS, build_app, run
from editloupe.cli.settings import list_settings
from editloupe.demo import demo_manifest
from editloupe.graphs.edit import EDIT_GRAPH
from editloupe.graphs.loop import LOOP

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)(?:#([^)]+))?")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared pages of the site."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    runpy.run_path(str(DOCS / "prepare_site.py"))["prepare"](folder)
    return folder


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("name", "graph"), [("loop", LOOP), ("edit", EDIT_GRAPH)])
def test_the_diagrams_are_those_of_the_compiled_graphs(name: str, graph: Any) -> None:
    text = (DOCS / "inside" / "architecture.md").read_text("utf-8")
    diagram = re.search(rf"<!-- graph:{name} -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert diagram
    assert diagram[1].strip() == graph.get_graph().draw_mermaid(with_styles=False).strip()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text("utf-8")):
        page = path.parent / target
        assert page.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(page), f"{path.name} links to {target}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_file_that_a_document_names_exists(path: Path) -> None:
    pattern = r"`((?:editloupe|tests|benchmarks|examples|docs)/[\w/.-]*(?:\.\w+|/))`"
    named = re.findall(pattern, path.read_text("utf-8"))
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


def find_options(words: list[str]) -> set[str]:
    """The options of the command that a command line names."""
    command: Any = typer.main.get_command(build_app(words[1])).commands[words[1]]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        names = command.list_commands(None)
        command = command.get_command(
            None, words[2] if words[2] in names else names[0]
        )  # `make TASK` is `make scenes TASK`
    return {name for option in command.params for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.long
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_and_option_that_a_document_shows_exists(path: Path) -> None:
    blocks = "\n".join(re.findall(r"```(?:sh|text)\n(.*?)```", path.read_text("utf-8"), re.DOTALL)).replace("\\\n", " ")
    for line in re.findall(r"^(?:\$ )?(editloupe [a-z].*)", blocks, re.MULTILINE):
        words = line.partition("  #")[0].split()
        assert words[1] in {command.name for command in COMMANDS}, line
        unknown = {word for word in words if re.fullmatch(r"--[a-z-]+", word)} - find_options(words)
        assert unknown <= {"--help", "--json", "--format"}, line


AVOIDED = re.compile(
    r"\b(anew|nobody|somebody|whoever|beside|is none|are none|may be given again|one \w+ a (?:line|row|model|unit))\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_documents_avoid_words_that_readers_stumble_over(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    if path.name == "tool-benchmarks.md":  # written by a program
        return
    assert not AVOIDED.findall(prose)


def test_architecture_and_contributing_show_the_packages_that_exist() -> None:
    trees = []
    for page in (DOCS / "inside" / "architecture.md", ROOT / "CONTRIBUTING.md"):
        tree = re.search(r"```text\neditloupe/\n((?:  .*\n)+)", page.read_text("utf-8"))
        assert tree
        trees.append(tree[1])
    assert trees[0] == trees[1]
    top = {name.rstrip("/") for name in re.findall(r"^  (\w+/)", trees[0], re.MULTILINE)}
    packages = {path.parent.name for path in (ROOT / "editloupe").glob("*/__init__.py")}
    assert top == packages
    rooms = {
        name for line in re.findall(r"^    ((?:\w+/ )+)", trees[0], re.MULTILINE) for name in re.findall(r"\w+", line)
    }
    assert {path.parent.name for path in (ROOT / "editloupe" / "evals").glob("*/__init__.py")} <= rooms


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    words = [word for word in re.sub(r"\]\([^)]*\)", "]", readme).split() if re.search(r"\w", word)]
    assert 500 <= len(words) <= 700
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.long
def test_the_python_of_the_readme_prints_what_it_says() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL)
    assert example
    printed = subprocess.run([sys.executable, "-c", example[1]], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout == example[2]


RUNNABLE = [
    pytest.param(code, id=f"{path.relative_to(DOCS).as_posix()}-{number}")
    for path in DOCUMENTS
    for number, code in enumerate(re.findall(r"<!-- run -->\n```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL))
]


@pytest.fixture(scope="module")
def folder_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two runs that the documents' Python reads."""
    folder = tmp_path_factory.mktemp("runs")
    for name, mode in (("demo", "tools"), ("plain", "plain")):
        run(["batch", str(demo_manifest()), "--out", str(folder / "runs" / name), "--mode", mode, "--quiet"])
    return folder


@pytest.mark.long
@pytest.mark.parametrize("code", RUNNABLE)
def test_python_that_a_document_marks_as_runnable_runs(
    code: str, folder_of_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder_of_runs)
    exec(compile(code, "document", "exec"), {"__name__": "document"})
    assert capsys.readouterr().out


def test_the_changelog_and_the_citation_are_of_the_packages_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert newest
    assert newest[1] == citation["version"] == version


def test_every_command_of_make_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    named = {name for text in texts for name in re.findall(r"(?:`|^)make ([a-z]+)", text, re.MULTILINE)}
    assert {"demo", "quick", "test", "docs"} <= named
    assert named <= targets


@pytest.mark.long
def test_every_document_is_in_the_navigation(site: Path) -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2])
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.md")}
    assert sorted(listed) == sorted(name for name in pages if not name.startswith("source/"))


@pytest.mark.long
def test_the_site_is_laid_out_with_every_link_leading_to_a_page(site: Path) -> None:
    for page in sorted(site.rglob("*.md")):
        if page.is_relative_to(site / "source"):
            continue
        text = page.read_text("utf-8")
        assert "```mermaid" not in text
        for target, _ in LINK.findall(text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    assert "think   → end or act or insist or repair" in (site / "inside" / "architecture.md").read_text("utf-8")
    assert "::: editloupe\n" in (site / "reference" / "python.md").read_text("utf-8")


@pytest.mark.long
def test_the_command_line_reference_has_every_command_with_its_options(site: Path) -> None:
    text = (site / "reference" / "command-line.md").read_text("utf-8")
    for command in COMMANDS:
        assert f"\n### {command.name}\n" in text
        assert f"\n## {command.panel}\n" in text
    assert "\n#### run merge\n" in text
    assert "\n#### make dlebench\n" in text
    assert "**Hidden options**" in text
    assert "| `--judge` `TEXT` |" in text
    assert "`SOURCE`" in text


def test_the_settings_reference_has_every_key(site: Path) -> None:
    text = (site / "reference" / "settings.md").read_text("utf-8")
    assert not [setting.key for setting in list_settings() if f"| `{setting.key}` |" not in text]
