"""What the documents show is what the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editloupe.graphs.edit import EDIT_GRAPH
from editloupe.graphs.loop import LOOP

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("name", "graph"), [("loop", LOOP), ("edit", EDIT_GRAPH)])
def test_the_diagrams_are_those_of_the_compiled_graphs(name: str, graph: object) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    found = re.search(rf"<!-- graph:{name} -->\n```mermaid\n(.*?)```", text, re.DOTALL)
    assert found
    assert found[1].strip() == graph.get_graph().draw_mermaid(with_styles=False).strip()  # type: ignore[attr-defined]


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#]+)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "make demo" in readme
    assert "make test" in readme
