"""General code names no paper: a paper is its own folder, a line in the registry, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from editloupe.rubrics.registry import PAPERS, PROTOCOLS

PACKAGE = Path(__file__).parent.parent / "editloupe"
SUFFIXES = (".py", ".yaml", ".html", ".js", ".css")
FOLDERS = tuple(path.name for path in sorted((PACKAGE / "rubrics").iterdir()) if (path / "__init__.py").is_file())
WORDS = sorted({*FOLDERS, *(paper.name for paper in PAPERS), *(paper.title for paper in PAPERS)}, key=len, reverse=True)
SPELLINGS = "|".join(re.sub(r"[^a-z0-9]+", "[-_ ]?", word.lower()) for word in WORDS)
NAME = re.compile(rf"(?<![a-z])(?:{SPELLINGS})", re.IGNORECASE)  # `PendingEdit` does not name a paper
CITATION = re.compile(
    rf"\((?:{NAME.pattern}), (?:Appendix|Equations?|Figures?|Section|Tables?|A\.)[^()]*\)", re.IGNORECASE
)
"""Where a number or a rule comes from, such as (DLEBench, Section 7.3), may be said wherever it stands."""
REGISTRIES = (
    "cli/main.py",
    "generators/scenes.py",
    "graphs/engines.py",
    "rubrics/registry.py",
)
EXCEPTIONS = {
    ("cli/judge_options.py", "edit-compass"): "the help of --differences says where they are listed first",
    ("cli/make.py", "dlebench"): "the list of what can be made",
    ("cli/make.py", "vibe"): "the example in the help can be pasted",
    ("cli/protocols.py", "dlebench"): "the example in the help can be pasted",
}


def is_of_a_paper(path: Path) -> bool:
    """Whether a file is a paper's own: its name, or that of a folder it is in, begins with the paper's."""
    names = (*FOLDERS, *(paper.name for paper in PAPERS))
    return path.as_posix() in REGISTRIES or any(
        part.removeprefix("editloupe_").startswith(names) for part in path.parts
    )


def spelled(text: str) -> set[str]:
    """Return the papers that a text names, but for citations."""
    return {found.lower() for found in NAME.findall(CITATION.sub("", text))}


@pytest.mark.long
def test_no_paper_is_imported_or_spelled_in_general_code() -> None:
    offenders, used = [], set()
    for file in sorted(PACKAGE.rglob("*")):
        path = file.relative_to(PACKAGE)
        if file.suffix not in SUFFIXES or is_of_a_paper(path):
            continue
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            for name in sorted(spelled(line)):
                if (path.as_posix(), name) in EXCEPTIONS:
                    used.add((path.as_posix(), name))
                else:
                    offenders.append(f"{path.as_posix()}:{number} names {name}")
    assert not offenders, "\n".join(offenders)
    assert used == set(EXCEPTIONS), "an exception that nothing needs"


def test_every_spelling_of_a_name_is_found_and_a_citation_is_not() -> None:
    for text in ("from editloupe.rubrics.editcompass import x", "Edit-Compass", "EDIT_COMPASS", "edit-compass"):
        assert spelled(text), text
    assert spelled("EDIVAL_GRAPH as in VIBE") == {"edival", "vibe"}
    assert not spelled("the worst of several targets' labels (DLEBench, Section 7.3)")
    assert spelled("as DLEBench has it (Section 7.3)") == {"dlebench"}


def test_every_folder_of_rubrics_is_a_registered_paper() -> None:
    assert [paper.protocol for paper in PAPERS] == list(PROTOCOLS)
    assert len({paper.name for paper in PAPERS}) == len(PAPERS) == len(FOLDERS)
