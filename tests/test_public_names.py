"""Every package says which of its names are public, all of them can be imported, and light parts stay light."""

from __future__ import annotations

import py_compile
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest

from editloupe.types import Edit

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "editloupe").rglob("__init__.py"))


def in_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions and modules, each by the alphabet."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_public_names_in_order_and_each_can_be_imported(package: str) -> None:
    names = getattr(import_module(package), "__all__", None)
    assert names is not None, f"{package} has no __all__"
    assert list(names) == sorted(set(names), key=in_order)
    for name in names:
        exec(f"from {package} import {name}", {})


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'made_up'"):
        import_module(package).made_up  # noqa: B018


LAZY_PACKAGE = """
from typing import TYPE_CHECKING
from editloupe._util.lazy_names import lazy_names
if TYPE_CHECKING:
    from editloupe.types import Edit, made_up
__getattr__, __dir__ = lazy_names(__name__)
"""


def test_a_name_that_its_module_does_not_have_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_in_folder").mkdir()
    (tmp_path / "lazy_in_folder" / "__init__.py").write_text(LAZY_PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="made_up"):
        import_module("lazy_in_folder").made_up  # noqa: B018


def test_public_names_are_found_in_an_archive_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile(tmp_path / "packages.zip", "w") as archive:
        archive.writestr("lazy_in_archive/__init__.py", LAZY_PACKAGE)
    monkeypatch.syspath_prepend(tmp_path / "packages.zip")
    assert import_module("lazy_in_archive").Edit is Edit


def test_a_package_without_its_source_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source.py"
    source.write_text(LAZY_PACKAGE)
    (tmp_path / "lazy_compiled").mkdir()
    py_compile.compile(str(source), cfile=str(tmp_path / "lazy_compiled" / "__init__.pyc"), doraise=True)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="lazy_compiled is installed without its source files"):
        import_module("lazy_compiled").Edit  # noqa: B018


@pytest.mark.long
def test_dir_shows_public_names_before_they_are_used() -> None:
    lazy = [package for package in PACKAGES if "__dir__" in vars(import_module(package))]
    assert "editloupe" in lazy
    code = (
        "from importlib import import_module\n"
        f"for package in map(import_module, {lazy!r}): print(*sorted(set(package.__all__) - set(dir(package))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_version_is_that_of_the_installed_package_and_is_read_when_asked_for() -> None:
    code = "import sys, editloupe; print('importlib.metadata' in sys.modules, editloupe.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", version("editloupe")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("editloupe", ("langchain_core", "pydantic", "numpy")),
        ("editloupe.agent.transport.secrets", ("langchain_core", "openai", "google.genai", "cv2", "pydantic")),
        (
            "editloupe.agent.providers.registry",
            ("langchain_openai", "openai", "langchain_google_genai", "google.genai"),
        ),
        ("editloupe.tools.settings", ("cv2", "PIL", "langchain_core", "langgraph")),
        ("editloupe.graphs.context", ("editloupe.graphs.loop", "editloupe.rubrics.registry", "langgraph")),
        ("editloupe.rubrics.case", ("editloupe.rubrics.registry", "cv2", "langchain_core")),
        ("editloupe.servers.studio.settings", ("fastapi", "jinja2", "langgraph")),
        ("editloupe.generators.contract", ("editloupe.generators.scenes", "langgraph")),
        ("editloupe.cli.main", ("langgraph", "langchain_core", "cv2", "numpy")),
        ("editloupe.evals.runs.store", ("langgraph", "langchain_core")),
        ("editloupe.evals.report.build", ("langgraph", "langchain_core")),
        ("editloupe.judge.question_key", ("langgraph", "langchain_core", "pydantic", "numpy")),
    ],
)
def test_a_light_part_of_a_package_does_not_load_the_heavy_ones(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
