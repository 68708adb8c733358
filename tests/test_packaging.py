"""The declared dependencies, the code, the messages and the documents name the same packages and extras."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from editloupe.agent.providers.registry import PROVIDERS
from editloupe.cli.doctor import EXTRAS as CHECKED_EXTRAS

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "editloupe").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OF_DEVELOPMENT = {"dev", "docs", "servers"}
FOR_USERS = set(EXTRAS) - OF_DEVELOPMENT
ON_REQUEST = {"datasets", "hpsv3", "langchain", "lmms_eval", "pandas"}
"""Packages that are used if the user installed them; a message says which is missing. lmms-eval loads its plugin itself."""
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


def expand(lines: list[str]) -> set[str]:
    """Return the packages of requirement lines, with those of the extras that they name."""
    names = set()
    for requirement in map(Requirement, lines):
        if requirement.name == "editloupe":
            names |= {name for extra in requirement.extras for name in expand(EXTRAS[extra])}
        else:
            names.add(canonicalize_name(requirement.name))
    return names


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names of the modules that a file imports, and whether it does so when it is loaded itself."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, node in tree.body) for name in names)


def distribution_names(module: str, known: dict[str, list[str]]) -> set[str]:
    """Return the packages that may contain a module; those of a namespace are told apart by their second part."""
    parts = module.split(".")
    named = {canonicalize_name(name) for name in known.get(parts[0], [parts[0]])}
    if len(named) > 1 and len(parts) > 1:
        named = {name for name in named if name.startswith(f"{parts[0]}-{parts[1]}".lower())} or named
    return named


@pytest.mark.long
def test_every_imported_package_is_declared() -> None:
    declared = expand(PROJECT["dependencies"]) | set().union(*(expand(EXTRAS[extra]) for extra in FOR_USERS))
    known = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in MODULES
        for module, _ in imports(path)
        if module.split(".")[0] not in {"editloupe", *sys.stdlib_module_names, *ON_REQUEST}
        and not distribution_names(module, known) & declared
    }
    assert not undeclared


@pytest.mark.long
def test_no_module_needs_a_module_of_posix_systems_to_be_loaded() -> None:
    needed = {
        f"{path}: {name}" for path in MODULES for name, at_once in imports(path) if at_once and name in POSIX_ONLY
    }
    assert not needed


def test_every_dependency_has_a_lower_bound_that_was_tried() -> None:
    unbounded = {
        requirement.name
        for lines in (PROJECT["dependencies"], *(EXTRAS[extra] for extra in FOR_USERS))
        for requirement in map(Requirement, lines)
        if requirement.name != "editloupe" and not re.search(r">=|==", str(requirement.specifier))
    }
    assert unbounded == {"boto3", "pydantic-core"}, "boto3 has an upper bound here; pydantic names its core"


def test_vision_is_text_detect_and_enhance_and_all_is_everything_for_users() -> None:
    assert Requirement(EXTRAS["vision"][0]).extras == {"text", "detect", "enhance"}
    assert Requirement(EXTRAS["all"][0]).extras == FOR_USERS - {"all", "text", "detect", "enhance"}


@pytest.mark.parametrize("page", ["README.md", "docs/start/install.md"])
def test_the_table_of_extras_is_that_of_the_project(page: str) -> None:
    rows = re.findall(r"^\| ((?:`[a-z]+`(?:, | / |, and )?)+) \|", (ROOT / page).read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z]+)`", row) if name in EXTRAS]
    assert sorted(named) == sorted(FOR_USERS)


def test_messages_name_extras_that_exist_and_never_a_name_on_the_package_index() -> None:
    files = [
        *MODULES,
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.py"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    texts = {path: path.read_text("utf-8") for path in files}
    named = {
        extra
        for text in texts.values()
        for group in re.findall(r"(?:'\.\[|explain_missing_packages\(\")([a-z,]+)(?:\]'|\",)", text)
        for extra in group.split(",")
    }
    assert {"text", "detect", "studio"} <= named <= set(EXTRAS)
    assert not [
        path
        for path, text in texts.items()
        if re.search(r"(?:install|add|--with) '?editloupe\b(?!(?:\[[a-z,]+\])? @)", text)
    ]


def test_doctor_looks_for_the_packages_of_every_extra() -> None:
    by_provider = {provider.extra for provider in PROVIDERS} - {""}
    assert set(CHECKED_EXTRAS) | by_provider == FOR_USERS - {"all", "vision"}
    for extra, packages in CHECKED_EXTRAS.items():
        assert {canonicalize_name(name) for name in packages} <= expand(EXTRAS[extra]), extra


def test_the_classifiers_name_the_pythons_that_are_run() -> None:
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    further = re.search(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert further
    assert named == {"3.11", *(name.removeprefix("python") for name in further.group(1).split())}
