"""The page of a run shows one page of its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.evals.traces.run_list import PAGE_SIZE
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import TYPES

OF_TYPE = f'instruction_type = "{TYPES[0]}"'


@pytest.mark.long
def test_the_page_shows_only_its_rows_and_says_how_long_it_took(studio: OpenStudio, thousands: Path) -> None:
    client = studio(runs=(thousands,))
    page = client.get("/runs/run", params={"where": OF_TYPE, "page": 2})
    assert page.text.count('<tr data-edit="') == PAGE_SIZE
    assert "Page 2 of" in page.text
    assert page.headers["server-timing"].startswith("studio;dur=")
    part = client.get("/runs/run", params={"where": OF_TYPE, "page": 2}, headers={"x-part": "rows"}).text
    assert part.count('<tr data-edit="') == PAGE_SIZE
    assert "<html" not in part
    assert "No edit matches" in client.get("/runs/run", params={"where": 'edit = "none"'}).text
