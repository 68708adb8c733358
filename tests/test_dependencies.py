"""Dependencies point one way, files stay small, and the default install stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "editloupe"
LAYERS = (
    ("types", "files", "images", "lazy_names", "loop_thread", "pixel_budget", "storable"),
    ("rubrics", "tools"),
    ("agent",),
    ("graphs",),
    ("judge", "judge_lifecycle", "described_judge"),
    ("evals", "generators"),
    ("studio", "cli", "app", "demo", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
HEAVY = ("torch", "transformers", "ray", "ncnn", "rapidocr", "fastapi", "matplotlib", "sklearn", "pyarrow")
MODULES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str | None:
    """The part of the package a module belongs to; None for the package itself."""
    names = module.split(".")
    return names[1] if len(names) > 1 else None


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports at its top or inside its functions, but for type checking."""
    tree = ast.parse(path.read_text("utf-8"))
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
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("editloupe"):
            found.add(node.module)
            if node.module == "editloupe":
                found |= {f"editloupe.{alias.name}" for alias in node.names if alias.name in RANK}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("editloupe")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_layer_or_below(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own == "__init__":
        return
    for module in imported(path):
        part = part_of(module)
        assert part is not None, f"{path.name} imports the package's front door"
        if part != own:
            assert RANK[part] <= RANK[own], f"{own} may not import {module}"
            assert not (RANK[part] == RANK[own] and {part, own} == {"rubrics", "tools"}), (
                f"{own} may not import {module}"
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_is_longer_than_four_hundred_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 400


def test_the_judge_and_its_tools_load_without_the_heavy_parts() -> None:
    code = (
        "import sys, editloupe.judge, editloupe.tools.registry, editloupe.cli.main, editloupe.evals.runs.store;"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
