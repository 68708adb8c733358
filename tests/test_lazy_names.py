"""Packages name what is public, and import it when it is first used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from editloupe.lazy_names import lazy_names

PACKAGES = ("editloupe", "editloupe.agent", "editloupe.agent.providers", "editloupe.agent.rules")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert not missing


@pytest.mark.parametrize("package", PACKAGES)
def test_another_name_is_an_attribute_error_as_usual(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'made_up'"):
        _ = import_module(package).made_up


def test_a_name_that_its_module_does_not_have_is_told() -> None:
    with pytest.raises(AttributeError, match="made_up"):
        lazy_names("editloupe", {"made_up": "types"})("made_up")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("editloupe.agent.secrets", ("langchain_core", "openai", "google.genai", "cv2", "pydantic")),
        (
            "editloupe.agent.providers.registry",
            ("langchain_openai", "openai", "langchain_google_genai", "google.genai"),
        ),
        ("editloupe", ("langchain_core", "pydantic", "numpy")),
    ],
)
def test_importing_a_light_part_stays_light(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
