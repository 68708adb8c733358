"""Check the layers of the package, the size of its files and packages, unique class names and light imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "editloupe"
LAYERS = (
    ("_util", "types", "pictures", "telemetry"),
    ("rubrics", "tools"),
    ("agent",),
    ("graphs",),
    ("judge",),
    ("evals", "generators"),
    ("making",),
    ("servers", "integrations", "lmms_eval", "cli", "demo", "testing", "__main__"),
)
"""The parts of the package, lowest first. A part may import from its own layer and from those below."""
APART = {"rubrics", "tools"}
"""Parts of one layer that may not import each other."""
ROOMS = {
    "manifests": set(),
    "runs": set(),
    "forks": {"runs"},
    "batch": {"manifests", "runs"},
    "labels": {"manifests", "runs"},
    "stats": {"manifests", "runs", "labels"},
    "preferences": {"manifests", "runs", "labels", "stats"},
    "traces": {"manifests", "runs", "labels", "stats"},
    "report": {"manifests", "runs", "labels", "stats", "traces"},
    "edival": {"manifests", "runs", "labels", "batch", "stats", "report"},
    "reward": {"manifests", "runs", "batch", "stats", "report"},
    "ablation": {"manifests", "runs", "labels", "batch", "stats", "report"},
    "verify": {"runs", "stats", "report"},
    "stress": {"manifests", "runs", "stats", "report", "ablation"},
    "gate": {"manifests", "runs", "batch", "stats", "report"},
}
"""The sub-packages of `evals`, and which of the others each may import."""
SHIMS = {
    "editloupe": {"combined", "evaluators", "inspect", "mcp_server", "rewards", "spans"},
    "editloupe.evals": {"analysis", "making", "papers"},
    "editloupe.evals.forks": {"reopening"},
}
"""Documented import paths that re-export names. No module of the package imports them."""
SHIM_MODULES = {f"{package}.{name}" for package, names in SHIMS.items() for name in names}
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
HEAVY = ("torch", "transformers", "ray", "ncnn", "rapidocr", "fastapi", "matplotlib", "sklearn", "pyarrow")
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 600
MOST_MODULES = 15
"""Modules of a package without sub-packages; `cli` is exempt, it has one module per command."""
TABLE_OF_RUNS = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE) "
    r"(?:edits|asked|configurations|units|answers|verdicts|traces|steps|texts|replies|spent|forks)\b"
)
INDEXES = ("editloupe.evals.traces.", "editloupe.studio.", "editloupe.servers.studio.")
"""Modules that query their own index, whose tables have the names of a run's tables; they read runs by the queries of `Run`."""


def name_of(path: Path) -> str:
    """Return the dotted name of a module or package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path) for path in MODULES}


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, except imports for type checking only."""
    tree = ast.parse(path.read_text("utf-8"))
    own = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), own)
            found |= {whole if (whole := f"{module}.{alias.name}") in NAMES else module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] == PACKAGE.name}


def objections(importer: str, module: str) -> Iterator[str]:
    """Yield why one module may not import another."""
    _, own, *inner = importer.split(".")
    part, *room = module.split(".")[1:] or [""]
    if not part:
        yield "the package root is for users"
    elif module in SHIM_MODULES:
        yield "it is a shim for users' code"
    elif RANK.get(part, 0) > RANK.get(own, 0) or (part != own and {part, own} == APART):
        yield f"{own} is not above {part}"
    elif part == own == "evals" and room and inner and inner[0] != room[0] and room[0] not in ROOMS.get(inner[0], ()):
        yield f"evals/{inner[0]} may not import evals/{room[0]}"


@pytest.mark.long
def test_every_module_imports_only_from_its_layer_and_below() -> None:
    parts = {name.split(".")[1] for name in NAMES if "." in name} - SHIMS["editloupe"]
    rooms = {name.split(".")[2] for name in NAMES if name.startswith("editloupe.evals.")} - SHIMS["editloupe.evals"]
    offenders = [f"editloupe.{part} is not in LAYERS" for part in sorted(parts - set(RANK))]
    offenders += [f"editloupe.evals.{room} is not in ROOMS" for room in sorted(rooms - set(ROOMS))]
    offenders += [
        f"{name_of(path)} imports {module}: {why}"
        for path in MODULES
        if name_of(path) not in {PACKAGE.name, *SHIM_MODULES}
        for module in sorted(imported(path))
        for why in objections(name_of(path), module)
    ]
    assert not offenders, "\n".join(offenders)


def sql_of_runs(path: Path) -> Iterator[str]:
    """Yield where a module outside `evals/runs` uses a raw connection to a run, or SQL on its tables."""
    own_index = name_of(path).startswith(INDEXES)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("connection", "transaction"):
            yield f"{name_of(path)}:{node.lineno} takes a raw connection to a run (.{node.attr})"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").endswith("evals.runs.schema"):
            yield f"{name_of(path)}:{node.lineno} imports the schema of runs"
        elif not own_index and isinstance(node, ast.Constant) and (found := TABLE_OF_RUNS.search(str(node.value))):
            yield f"{name_of(path)}:{node.lineno} queries a run: {found.group()}"


@pytest.mark.long
def test_sql_of_the_run_schema_is_written_only_in_the_package_of_runs() -> None:
    assert [*sql_of_runs(PACKAGE / "evals" / "runs" / "reader.py")], "the check finds what it looks for"
    outside = [path for path in MODULES if not name_of(path).startswith("editloupe.evals.runs")]
    offenders = [why for path in outside for why in sql_of_runs(path)]
    assert not offenders, "\n".join(offenders)


def test_no_module_is_longer_than_six_hundred_lines() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    offenders = [f"{name} has {length} lines" for name, length in lengths.items() if length > LONGEST]
    assert not offenders, "\n".join(offenders)


@pytest.mark.long
def test_no_public_class_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    offenders = [f"{name}: {', '.join(modules)}" for name, modules in places.items() if len(modules) > 1]
    assert not offenders, "\n".join(offenders)


def test_a_package_of_many_modules_has_sub_packages() -> None:
    for package in sorted({path.parent for path in MODULES} - {PACKAGE / "cli"}):
        modules = [path for path in package.glob("*.py") if path.name != "__init__.py"]
        has_sub_packages = any(package.glob("*/__init__.py"))
        assert len(modules) <= MOST_MODULES or has_sub_packages, f"{name_of(package)} has {len(modules)} modules"


@pytest.mark.long
def test_the_judge_and_its_tools_load_without_the_heavy_parts() -> None:
    code = (
        "import sys, editloupe.judge, editloupe.tools.registry, editloupe.cli.main, editloupe.evals.runs.store;"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
