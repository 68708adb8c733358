"""How long the studio takes for a page of a large run, on the server's own clock.

python benchmarks/studio.py [EDITS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from starlette.testclient import TestClient

from editloupe.studio.app import create_app
from editloupe.studio.settings import StudioSettings
from tests.studio.samples import many_edits

PAGES = {
    "first page": "",
    "last page": "?page=1000000",
    "text": "?text=patch+77",
    "type": "?type=Change+Color",
    "label": "?criterion=instruction_following&label=Wrong+Action",
    "unjudged": "?status=unjudged",
    "judge and people differ": "?apart=people",
    "lowest score first": "?order=worst",
    "furthest from people first": "?order=apart",
    "five filters at once": (
        "?text=patch&type=Change+Color&criterion=instruction_following&status=judged&apart=people&order=unsure"
    ),
}
TIMES = 9


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = many_edits(Path(folder), count)
        begun = time.perf_counter()
        settings = StudioSettings(runs=(run,))
        app = create_app(settings)
        app.state.studio.pages.warm()
        print(f"{count} edits, {2 * count} verdicts; opened in {time.perf_counter() - begun:.2f} s")
        print(f"{'page':30} {'median ms':>10} {'worst ms':>10} {'edits':>8}")
        with TestClient(app, base_url="http://127.0.0.1:8642") as client:
            client.headers["authorization"] = f"Bearer {settings.token}"
            for name, query in PAGES.items():
                answers = [client.get(f"/runs/run{query}") for _ in range(TIMES)]
                taken = [float(answer.headers["server-timing"].split("dur=")[1]) for answer in answers]
                found = answers[0].text.split('role="status">')[1].split(" edits")[0].split(" of ")[-1]
                print(f"{name:30} {statistics.median(taken):10.0f} {max(taken):10.0f} {found:>8}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
