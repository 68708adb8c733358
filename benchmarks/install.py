"""Measure what the base and each extra cost: packages, megabytes on disk and seconds of `pip install`, without pip's cache.

Each extra is installed on top of the base, in a copy of its environment. A row of an extra states what it adds.
`--torch` names the build of torch that the extras with torch get; without it, pip takes the CUDA build on Linux.

    python benchmarks/install.py --torch torch==2.13.0
    python benchmarks/install.py text studio
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_FOR_USERS = ("dev", "docs", "servers")


def main() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", default=[name for name in extras if name not in NOT_FOR_USERS])
    parser.add_argument(
        "--torch", help="requirement of the torch build to install before an extra, such as torch==2.13.0"
    )
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}\n\n| part | packages | MB | seconds | of a core |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="editloupe-install-") as folder:
        base = Path(folder, "base")
        subprocess.run([sys.executable, "-m", "venv", base], check=True)
        pip(base, "--upgrade", "pip")
        empty = size(base)
        seconds = pip(base, str(ROOT))
        print_row("base", [after - before for after, before in zip(size(base), empty, strict=True)], seconds)
        for extra in options.extras:
            environment = Path(folder, "extra")
            shutil.copytree(base, environment, symlinks=True, copy_function=os.link)
            before = size(environment)
            with_torch = [options.torch] if options.torch and needs_torch(extra, extras) else []
            seconds = pip(environment, *with_torch, f"{ROOT}[{extra}]")
            print_row(extra, [after - first for after, first in zip(size(environment), before, strict=True)], seconds)
            shutil.rmtree(environment)


def needs_torch(extra: str, extras: dict[str, list[str]]) -> bool:
    inner = [name for line in extras[extra] if line.startswith("editloupe[") for name in line[10:-1].split(",")]
    return any(line.startswith("torch") for line in extras[extra]) or any(needs_torch(name, extras) for name in inner)


def pip(environment: Path, *arguments: str) -> tuple[float, float]:
    """Run `pip install` and return its seconds on the clock and of a core."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [environment / "bin/python", "-m", "pip", "install", "-q", "--no-cache-dir", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip install {' '.join(arguments)} failed: {done.stderr.strip().splitlines()[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size(environment: Path) -> tuple[int, float]:
    """Return the number of packages and the megabytes of an environment."""
    library = next((environment / "lib").glob("python3*/site-packages"))
    files = (path for path in environment.rglob("*") if not path.is_symlink() and path.is_file())
    return len(list(library.glob("*.dist-info"))), sum(path.stat().st_blocks for path in files) * 512 / 1e6


def print_row(name: str, added: list[float], seconds: tuple[float, float]) -> None:
    print(f"| {name} | {added[0]} | {added[1]:.0f} | {seconds[0]:.0f} | {seconds[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
