"""Lays out the pages of the site from the README, the guides and the source: `make docs` builds them with mkdocs.yml.

The documents are written to be read in the repository, where they link to source files and draw graphs as Mermaid. The site
is to be whole without a network, so what they link to comes along as pages, graphs become lists of their edges, and the
packages that list their public names become the reference.

    python docs/prepare_site.py build/docs
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ROOT / "docs"
PACKAGE = ROOT / "editloupe"
PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
}
"""Documents at the top of the repository, and the pages they become; guides keep their names."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml"}
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")
GRAPH = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
EDGE = re.compile(r"^\s*(\w+) (?:-->|-\.->) (\w+);$", re.MULTILINE)


def prepare(site: Path) -> None:
    """Write all pages into a folder, which is emptied first."""
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("images", "examples"):
        shutil.copytree(GUIDES / folder, site / folder)
    shown: set[Path] = set()
    for document in (*PAGES, *sorted(GUIDES.glob("*.md"))):
        (site / place(document)).write_text(document_page(document, shown), "utf-8")
    for path in sorted(shown):
        page = site / place(path)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(folder_page(path) if path.is_dir() else file_page(path), "utf-8")
    (site / "api.md").write_text(reference(), "utf-8")


def place(path: Path) -> str:
    """Return where a file of the repository stands in the site."""
    if path in PAGES:
        return PAGES[path]
    if path.is_relative_to(GUIDES):
        return path.relative_to(GUIDES).as_posix()
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def document_page(document: Path, shown: set[Path]) -> str:
    """Return a document with its links leading through the site; files that become pages for its sake go into `shown`."""
    text = GRAPH.sub(lambda graph: edges(graph[1]), document.read_text("utf-8"))
    return LINK.sub(lambda link: f"]({led(link[1], document, shown)}", text)


def led(target: str, document: Path, shown: set[Path]) -> str:
    """Return where a document's link leads in the site."""
    path = (document.parent / target).resolve()
    if path not in PAGES and not path.is_relative_to(GUIDES):
        shown.add(path)
    return Path(os.path.relpath(place(path), Path(place(document)).parent)).as_posix()


def edges(graph: str) -> str:
    """Return a Mermaid graph as a list of what follows what, from its start on."""
    after: dict[str, list[str]] = {}
    for first, second in EDGE.findall(graph):
        after.setdefault(first, []).append(second)
    order = ["__start__"]
    for node in order:
        order += [follower for follower in after.get(node, ()) if follower not in order]
    width = max(len(node.strip("_")) for node in after)
    lines = (f"{node.strip('_'):{width}} → {' or '.join(after[node])}" for node in order if node in after)
    return "```text\n" + "\n".join(lines).replace("__end__", "end") + "\n```"


def file_page(path: Path) -> str:
    """Return the page of one file: a document as it is, source in a block."""
    if path.suffix == ".md":
        return path.read_text("utf-8")
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT).as_posix()}\n\n````{language}\n{path.read_text('utf-8').rstrip()}\n````\n"


def folder_page(path: Path) -> str:
    """Return the page of a folder: what is in it."""
    inside = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    names = "\n".join(p.relative_to(path).as_posix() for p in inside)
    return f"# {path.relative_to(ROOT).as_posix()}/\n\n````text\n{names}\n````\n"


def reference() -> str:
    """Return the reference: the package's front door, then every package that lists its public names."""
    return "# Reference\n\n" + "\n".join(
        f"::: {package}\n"
        + "".join(f"::: {hidden}\n    options: {{heading_level: 3}}\n" for hidden in shadowed(package))
        for package in public_names()
    )


def public_names() -> dict[str, list[str]]:
    """Return what every package lists in `__all__`, by the package's name; those without one are left out."""
    found = {}
    for path in sorted(PACKAGE.rglob("__init__.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and "__all__" in [ast.unparse(target) for target in node.targets]:
                found[".".join(path.parent.relative_to(ROOT).parts)] = ast.literal_eval(node.value)
    return found


def shadowed(package: str) -> list[str]:
    """Return the full names of functions called like the module they are in: a reader of source takes them for the module."""
    folder = ROOT.joinpath(*package.split("."))
    return [f"{package}.{name}.{name}" for name in public_names()[package] if defines(folder / f"{name}.py", name)]


def defines(module: Path, name: str) -> bool:
    """Whether there is such a module and it has a function or class of this name."""
    body = ast.parse(module.read_text("utf-8")).body if module.exists() else []
    return any(getattr(node, "name", None) == name for node in body)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
