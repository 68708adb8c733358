"""Lay out the pages of the site: `make docs` builds them with mkdocs.yml.

The documents are written to be read in the repository. They link to source files and draw graphs as Mermaid. The site must
work without a network, so linked files become pages of their own and graphs become lists of their edges. Three reference
pages are generated: commands and settings from the command line, Python names from the packages that have an `__all__`.

    python docs/prepare_site.py build/docs
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "editloupe"
PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "CONTRIBUTING.md": "inside/contributing.md",
    ROOT / "CHANGELOG.md": "inside/changelog.md",
}
"""Documents at the top of the repository and the pages they become. Documents in docs/ keep their paths."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml"}
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#]+)")
GRAPH = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
EDGE = re.compile(r"^\s*(\w+) (?:-->|-\.->) (\w+);$", re.MULTILINE)
VALUES = {"str": "TEXT", "int": "N", "float": "X", "Path": "PATH"}
"""How the command reference names kinds of values."""
GENERATED = re.compile(r"<!-- generated: (\w+) -->")


def prepare(site: Path) -> None:
    """Write all pages into a folder, which is emptied first."""
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("images", "examples"):
        shutil.copytree(DOCS / folder, site / folder)
    sources: set[Path] = set()
    for document in (*PAGES, *sorted(DOCS.rglob("*.md"))):
        write_page(site / page_path(document), document_page(document, sources))
    for path in sorted(sources):
        write_page(site / page_path(path), folder_page(path) if path.is_dir() else file_page(path))


def write_page(page: Path, text: str) -> None:
    """Write one page, creating its folder."""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")


def page_path(path: Path) -> str:
    """Return the path in the site of a file or folder of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def document_page(document: Path, sources: set[Path]) -> str:
    """Return a document with its links pointing into the site. Linked source files are added to `sources`."""
    text = GRAPH.sub(lambda graph: list_edges(graph[1]), document.read_text("utf-8"))
    text = LINK.sub(lambda link: f"]({site_link(link[1], document, sources)}", text)
    return GENERATED.sub(lambda mark: GENERATORS[mark[1]](), text)


def site_link(target: str, document: Path, sources: set[Path]) -> str:
    """Return the target of a document's link, relative to the document's page."""
    path = (document.parent / target).resolve()
    if path not in PAGES and not path.is_relative_to(DOCS):
        sources.add(path)
    return Path(os.path.relpath(page_path(path), Path(page_path(document)).parent)).as_posix()


def list_edges(graph: str) -> str:
    """Return a Mermaid graph as a list of nodes with their followers, from the start node on."""
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
    """Return the page of one file: Markdown as it is, source in a code block."""
    if path.suffix == ".md":
        return path.read_text("utf-8")
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT).as_posix()}\n\n````{language}\n{path.read_text('utf-8').rstrip()}\n````\n"


def folder_page(path: Path) -> str:
    """Return the page of a folder: a list of its files."""
    inside = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    names = "\n".join(p.relative_to(path).as_posix() for p in inside)
    return f"# {path.relative_to(ROOT).as_posix()}/\n\n````text\n{names}\n````\n"


def command_reference() -> str:
    """Return every command with its arguments, options, defaults and examples, as the typer application declares them."""
    from editloupe.cli.main import COMMANDS

    panels: dict[str, list[str]] = {}
    for command in COMMANDS:
        panels.setdefault(command.panel, []).append(command.name)
    sections = [
        f"## {panel}\n\n" + "\n".join(section for name in names for section in command_sections(name))
        for panel, names in panels.items()
    ]
    links = ((f"[{panel}](#{panel.lower().replace(' ', '-')})", names) for panel, names in panels.items())
    overview = table("group", ((link, ", ".join(f"`{name}`" for name in names)) for link, names in links), "commands")
    return "\n".join([overview, *sections])


def command_sections(name: str) -> Iterator[str]:
    """Yield the section of a command. A group of commands has a section for each of its commands."""
    import typer

    from editloupe.cli.main import build_app

    command: Any = typer.main.get_command(build_app(name)).commands[name]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        yield f"### {name}\n\n{plain(command.help)}\n"
        for inner_name in command.list_commands(None):
            inner = command.get_command(None, inner_name)
            if not inner.hidden:
                yield command_section(f"{name} {inner_name}", inner, "####")
    else:
        yield command_section(name, command, "###")


def settings_reference() -> str:
    """Return every key of `--set` with its values, default and meaning, in a table for each kind."""
    from editloupe.cli.settings import TITLES, list_settings

    rows: dict[str, list[str]] = {}
    for setting in list_settings():
        prefix = next(prefix for prefix in sorted(TITLES, key=len, reverse=True) if setting.key.startswith(prefix))
        default = "unset" if setting.default in (None, {}) else str(setting.default)
        row = f"| `{setting.key}` | `{default}` | {plain(setting.about)} Takes {plain(setting.takes)}. |"
        rows.setdefault(TITLES[prefix], []).append(row)
    head = "| key | default | meaning |\n|---|---|---|\n"
    return "\n".join(f"## {title}\n\n{head}" + "\n".join(lines) + "\n" for title, lines in rows.items())


def command_section(name: str, command: Any, heading: str) -> str:
    """Return the section of one command: usage, help, arguments, and one table of options for each panel of its help."""
    arguments = [parameter for parameter in command.params if not parameter.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-") and "--help" not in p.opts]
    usage = " ".join(
        ["editloupe", name, *(argument_usage(a) for a in arguments), "[OPTIONS]" if options else ""]
    ).strip()
    parts = [f"{heading} {name}\n", f"```sh\n{usage}\n```\n", plain(command.help) + "\n"]
    if command.epilog:
        parts.append(plain(command.epilog) + "\n")
    if arguments:
        parts.append(table("argument", ((f"`{argument_usage(a)}`", plain(a.help)) for a in arguments)))
    panels: dict[str, list[Any]] = {}
    for option in options:
        panel = "Hidden options" if option.hidden else getattr(option, "rich_help_panel", None) or "Options"
        panels.setdefault(panel, []).append(option)
    for panel in sorted(panels, key=lambda panel: panel == "Hidden options"):
        parts.append(f"**{panel}**\n")
        parts.append(table("option", ((option_usage(option), option_help(option)) for option in panels[panel])))
    return "\n".join(parts)


def argument_usage(argument: Any) -> str:
    """Return an argument as usage lines show it: `NAME`, `[NAME]`, `NAME…`."""
    name = str(argument.name).upper() + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def option_usage(option: Any) -> str:
    """Return the spellings of an option with its kind of value."""
    spellings = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return spellings
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", str)
    value = getattr(next(iter(get_args(annotation)), annotation), "__name__", "value")
    return f"{spellings} `{option.metavar or VALUES.get(value, value.upper())}`"


def option_help(option: Any) -> str:
    """Return the help of an option with its default, if it has one worth showing."""
    sentence = plain(option.help)
    default = option.show_default if isinstance(option.show_default, str) else option.default
    if option.is_flag and not option.secondary_opts:
        return sentence
    if callable(default) or default in (None, "", (), []) or "Default: " in sentence:
        return sentence
    if isinstance(default, bool):
        default = "on" if default else "off"
    return f"{sentence} Default: `{default}`."


def table(title: str, rows: Iterable[tuple[str, str]], second: str = "meaning") -> str:
    """Return a Markdown table of two columns."""
    lines = [f"| {title} | {second} |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n"


def plain(text: str | None) -> str:
    """Return a help text as Markdown: wrapped lines joined, bars and angle brackets escaped, examples as code."""
    paragraphs = re.split(r"\n\s*\n", (text or "").replace("\b", "").strip())
    return "\n\n".join(plain_paragraph(" ".join(paragraph.split())) for paragraph in paragraphs)


def plain_paragraph(paragraph: str) -> str:
    """Return one paragraph of a help text; the command of an example becomes a code block."""
    if example := re.match(r"(Examples?:)\s*(editloupe .*)", paragraph):
        commands = re.sub(r"\s+(?=editloupe )", "\n", example[2])
        return f"{example[1]}\n\n```sh\n{commands}\n```"
    parts = paragraph.split("`")  # odd parts are code
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([*_<])", r"\\\1", parts[index])
    return "`".join(parts).replace("|", "\\|")


def python_reference() -> str:
    """Return directives for mkdocstrings: the package itself, then every package that lists its public names."""
    return "\n".join(
        f"::: {package}\n"
        + "".join(f"::: {hidden}\n    options: {{heading_level: 3}}\n" for hidden in shadowed_names(package))
        for package in public_names()
    )


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "settings": settings_reference,
    "python": python_reference,
}
"""What the marks `<!-- generated: NAME -->` in documents are replaced by."""


def public_names() -> dict[str, list[str]]:
    """Return the `__all__` of every package that has one, by the package's name."""
    names = {}
    for path in sorted(PACKAGE.rglob("__init__.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and "__all__" in [ast.unparse(target) for target in node.targets]:
                names[".".join(path.parent.relative_to(ROOT).parts)] = ast.literal_eval(node.value)
    return names


def shadowed_names(package: str) -> list[str]:
    """Return the full names of functions that share their module's name: a source reader takes them for the module."""
    folder = ROOT.joinpath(*package.split("."))
    return [f"{package}.{name}.{name}" for name in public_names()[package] if defines(folder / f"{name}.py", name)]


def defines(module: Path, name: str) -> bool:
    """Return whether the module exists and has a function or class of this name."""
    body = ast.parse(module.read_text("utf-8")).body if module.exists() else []
    return any(getattr(node, "name", None) == name for node in body)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
