"""The default install holds permissively licensed packages only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution

import pytest
from packaging.requirements import Requirement

PERMISSIVE = re.compile(
    r"\b(MIT|MIT-CMU|HPND|BSD|[023]-?Clause|0BSD|Apache|ISC|PSF|Python Software Foundation|Zlib|Unlicense|CC0|MPL|Mozilla)",
    re.IGNORECASE,
)
COPYLEFT = re.compile(r"\b[AL]?GPL|General Public", re.IGNORECASE)


def required_by_default(name: str) -> Iterator[Distribution]:
    """Yield the installed packages that `name` needs without extras, itself included."""
    waiting, seen = [Requirement(name)], set()
    while waiting:
        requirement = waiting.pop()
        key = (requirement.name.lower().replace("_", "-"), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        package = distribution(requirement.name)
        yield package
        for line in package.requires or ():
            needed = Requirement(line)
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)


def stated_licence(package: Distribution) -> str:
    """Return what a package's metadata says of its licence: the expression, else classifiers, else the first line of the text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    return "; ".join(classifiers) or (metadata.get("License") or "").strip().partition("\n")[0]


PACKAGES = {package.metadata["Name"]: package for package in required_by_default("editloupe")}


def test_the_default_install_is_found() -> None:
    assert {"editloupe", "numpy", "langgraph", "langsmith"} <= PACKAGES.keys()


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_of_the_default_install_is_permissively_licensed(name: str) -> None:
    licence = stated_licence(PACKAGES[name])
    assert PERMISSIVE.search(licence), f"{name} states the licence {licence!r}"
    alternatives = re.split(r"\bOR\b", licence)
    assert not all(COPYLEFT.search(part) for part in alternatives), f"{name} is under {licence!r}"
