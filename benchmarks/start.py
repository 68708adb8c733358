"""Measure how much longer `judge` takes to start with all extras installed than without them, as a ratio in one run.

    python benchmarks/start.py             # seven rounds; the best of each counts
    python benchmarks/start.py --runs 15

Both commands judge the same bundled edit with the embedded judge, in turn. For the second one the packages that only extras
need are hidden from Python's imports, as if they were not installed. CPU seconds are compared: other work on the machine
changes them less than the clock.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "editloupe" / "demo" / "manifest.jsonl"
HIDE = """
import json, sys
from importlib.machinery import PathFinder
hidden = set(json.loads(sys.argv.pop(1)))
class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
from editloupe.__main__ import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    hidden = find_modules_of_extras()
    print(f"{len(hidden)} modules hidden in the light runs; load {os.getloadavg()[0]:.1f} at the start")
    rounds = [(measure([]), measure(hidden)) for _ in range(runs + 1)][1:]  # the first one fills the disk's cache
    full, light = (min(seconds) for seconds in zip(*rounds, strict=True))
    print(
        f"CPU of judge: {full:.2f} s with all extras, {light:.2f} s without, ratio {full / light:.2f}, best of {runs}"
    )


def measure(hidden: list[str]) -> float:
    """Judge one edit; return the CPU seconds of the command."""
    edit = json.loads(MANIFEST.read_text().splitlines()[0])
    source, edited = (str(MANIFEST.parent / edit[name]) for name in ("source", "edited"))
    arguments = ["judge", "--judge", "rules", source, edited, edit["instruction"]]
    command = [sys.executable, "-c", HIDE, json.dumps(hidden), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{' '.join(arguments)} failed")
    return usage.ru_utime + usage.ru_stime


def find_modules_of_extras() -> list[str]:
    """Return the installed top-level modules that do not belong to the package or what it always needs."""
    needed = find_requirements("editloupe")
    owners = importlib.metadata.packages_distributions()
    return sorted(
        module for module, names in owners.items() if not needed.intersection(canonicalize_name(name) for name in names)
    )


def find_requirements(package: str) -> set[str]:
    """Return the names of a package and of all packages it needs without extras."""
    needed: set[tuple[str, str]] = set()
    waiting = [(package, "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in needed:
            continue
        needed.add((name, extra))
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(requirement.name), part) for part in ("", *requirement.extras)]
    return {name for name, _ in needed}


if __name__ == "__main__":
    main()
