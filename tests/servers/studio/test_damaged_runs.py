"""A damaged run is a sentence on the studio's pages, whatever was done to it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from editloupe.types import UserError
from tests.faults.test_damaged_runs import KINDS, VARIANTS, whole
from tests.servers.studio.conftest import OpenStudio

__all__ = ["whole"]
PAGES = (
    "/",
    "/runs",
    "/runs/run",
    "/runs/run/charts",
    "/runs/run/trace?edit=f0",
    "/runs/run/trace?edit=e0&criterion=instruction_following&repeat=0",
    "/runs/run/raw?edit=f0&criterion=instruction_following&repeat=0&step=0",
    "/runs/run/annotate?annotator=ana",
)
DAMAGE = [pytest.param(kind, marks=pytest.mark.slow if VARIANTS.search(kind) else ()) for kind in KINDS]


@pytest.mark.long
@pytest.mark.parametrize("kind", DAMAGE)
def test_no_page_of_a_damaged_run_fails(kind: str, whole: Path, tmp_path: Path, studio: OpenStudio) -> None:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    KINDS[kind](tmp_path / "run")
    try:
        client = studio(runs=(tmp_path / "run",))
    except UserError:
        return  # told when the studio starts
    for page in PAGES:
        answer = client.get(page, headers={"accept": "text/html"})
        assert answer.status_code in (200, 307, 400, 404, 503), (page, answer.status_code)
