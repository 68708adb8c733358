"""What the documents show is what the program has."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

from editloupe.graphs.edit import EDIT_GRAPH
from editloupe.graphs.loop import LOOP

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("name", "graph"), [("loop", LOOP), ("edit", EDIT_GRAPH)])
def test_the_diagrams_are_those_of_the_compiled_graphs(name: str, graph: object) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    found = re.search(rf"<!-- graph:{name} -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert found
    assert found[1].strip() == graph.get_graph().draw_mermaid(with_styles=False).strip()  # type: ignore[attr-defined]


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "make demo" in readme
    assert "make test" in readme


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


def test_the_site_is_laid_out_with_every_link_leading_to_a_page(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "docs" / "prepare_site.py"))["prepare"](tmp_path / "site")

    pages = sorted((tmp_path / "site").glob("*.md"))
    assert {"index.md", "api.md", "architecture.md", "contributing.md", "changelog.md"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text("utf-8")
        assert "```mermaid" not in text
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    assert "think   → end or act or insist or repair" in (tmp_path / "site" / "architecture.md").read_text("utf-8")
    assert "::: editloupe\n" in (tmp_path / "site" / "api.md").read_text("utf-8")
