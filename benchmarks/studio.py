"""Measure how long the studio takes for the pages of a large run, on the server and in a browser.

    python benchmarks/studio.py                          # 5 000 edits
    python benchmarks/studio.py 20000 --browser          # and first paint and layout shift in Chromium
    python benchmarks/studio.py --run FOLDER             # of a run that is there

Charts are measured once, because the first user to open them waits for them: reading, counting, and drawing all figures. The time
of a core is that of this process, the asking client included; on a busy machine it says more than the clock.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote, urlencode

from starlette.testclient import TestClient

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from editloupe.servers.studio.app import create_app  # noqa: E402
from editloupe.servers.studio.settings import StudioSettings  # noqa: E402
from tests.servers.studio.samples import many_edits  # noqa: E402


def filtered(where: str, **more: str) -> str:
    """Return the query string of a list with a filter."""
    return "?" + urlencode({"where": where, **more})


PAGES = {
    "first page": "",
    "last page": "?page=1000000",
    "text": filtered('edit_text ~ "patch 77"'),
    "type": filtered('instruction_type = "Change Color"'),
    "label": filtered('criterion = "instruction_following" and label = "Wrong Action"'),
    "unjudged": filtered('status = "unjudged"'),
    "judge and people differ": filtered("agrees = false"),
    "lowest label first": "?order=label",
    "furthest from people first": "?order=-people",
    "most costly first": "?order=-cost",
    "five conditions at once": filtered(
        'edit_text ~ "patch" and instruction_type = "Change Color" and criterion = "instruction_following" and '
        'status = "judged" and agrees = false',
        order="confidence",
    ),
    "by verdict": "?by=verdict",
    "by verdict, last page": "?by=verdict&page=1000000",
    "by verdict, a filter": filtered('human != label and status = "judged"', by="verdict", order="-confidence"),
    "by verdict, furthest from people first": "?by=verdict&order=-people",
    "a trace among all edits": "/trace?edit=edit-00010&among=",
    "a trace among the disagreements": "/trace?edit=edit-00010&among=" + quote("where=agrees+%3D+false&order=-people"),
    "a trace among all verdicts": "/trace?edit=edit-00010&among=" + quote("by=verdict&order=-people"),
}
PAINTED = ("", filtered("agrees = false", order="-people"), "?by=verdict", filtered("human != label", by="verdict"))
TIMES = 9
LOADING = 8
"""Seconds after the first page, in which what draws charts is loaded in the background."""
SHIFT = """new Promise((told) => {
  let sum = 0;
  const add = (list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value; };
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => told(sum), 300);
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or many_edits(Path(folder), options.edits)
        begun = time.perf_counter()
        settings = StudioSettings(runs=(run,))
        app = create_app(settings)
        app.state.studio.pages.warm()
        print(f"opened in {time.perf_counter() - begun:.2f} s")
        print(f"{'page':40} {'median ms':>10} {'worst ms':>10} {'of a core':>10}")
        with TestClient(app, base_url="http://127.0.0.1:8642") as client:
            client.headers["authorization"] = f"Bearer {settings.token}"
            wait_for_index(client)
            client.get("/runs/run")
            time.sleep(LOADING)
            for name, query in PAGES.items():
                taken, worked = [], []
                for _ in range(TIMES):
                    begun = time.process_time()
                    answer = client.get(f"/runs/run{query}")
                    worked.append(1000 * (time.process_time() - begun))
                    assert answer.status_code == 200
                    taken.append(float(answer.headers["server-timing"].split("dur=")[1]))
                medians = statistics.median(taken), statistics.median(worked)
                print(f"{name:40} {medians[0]:10.0f} {max(taken):10.0f} {medians[1]:10.0f}")
            charts(client)
        if options.browser:
            paint(run)


def wait_for_index(client: TestClient) -> None:
    """Ask for the traces until the index is built, and say how long that took."""
    begun = time.perf_counter()
    while "data-rows" not in client.get("/runs/run?by=verdict").text:
        time.sleep(0.2)
    print(f"index of the traces in {time.perf_counter() - begun:.1f} s")


def charts(client: TestClient) -> None:
    """Measure the charts: their numbers and sentences, then every figure."""
    begun, core = time.perf_counter(), time.process_time()
    page = client.get("/runs/run/charts").text
    answered, counted = time.perf_counter(), time.process_time()
    places = [part.split('"')[0].replace("&amp;", "&") for part in page.split('data-fragment="')[1:]]
    sizes = [len(client.get(address).content) for address in places]
    assert sizes
    assert min(sizes) > 1000
    taken = f"{answered - begun:.2f} s ({counted - core:.2f} s of a core)"
    drawing = f"{time.perf_counter() - answered:.2f} s ({time.process_time() - counted:.2f} s of a core)"
    print(f"charts: {taken}, and {drawing} for {len(sizes)} figures")


def paint(run: Path) -> None:
    """Measure first paint and layout shift in Chromium, each of a newly opened page."""
    from playwright.sync_api import sync_playwright

    from tests.servers.studio.browser.conftest import FLAGS
    from tests.servers.studio.conftest import TOKEN, served

    with served(runs=(run,)) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for width in (1440, 400):
            for query in PAINTED:
                context = browser.new_context(viewport={"width": width, "height": 900}, base_url=address)
                context.request.get("/", params={"token": TOKEN})
                painted, shifted = [], []
                for _ in range(3):
                    page = context.new_page()
                    page.goto(f"/runs/run{query}")
                    page.wait_for_load_state("networkidle")
                    shifted.append(page.evaluate(SHIFT))
                    painted.append(page.evaluate(PAINT))
                    page.close()
                print(
                    f"{width:5} px: painted after {statistics.median(painted):4.0f} ms, shift {max(shifted):.3f}: {query or '/'}"
                )
                context.close()
        browser.close()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edits", type=int, nargs="?", default=5000)
    parser.add_argument("--run", type=Path, help="the folder of a run, named run, in place of one that is made")
    parser.add_argument("--browser", action="store_true", help="measure first paint and layout shift, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
