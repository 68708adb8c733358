"""One memory limit holds for a server: large pictures of one request are judged one after another."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.cli.test_serve_command import serving
from tests.servers.reward.running import b64


def flat(side: int, shade: int) -> bytes:
    """Return a large picture in few bytes."""
    image = Image.new("RGB", (side, side), (90, 90, 90))
    image.paste((shade, 0, 0), (side // 4, side // 4, side // 2, side // 2))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def peak_megabytes(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("megapixels", "limit"),
    [pytest.param(12, 550, marks=pytest.mark.long), pytest.param(49, 1500, marks=pytest.mark.slow)],
)
def test_four_large_pairs_in_one_request_stay_below_the_limit(megapixels: int, limit: int) -> None:
    side = int((megapixels * 10**6) ** 0.5)
    source = b64(flat(side, 90))
    edits = [
        {
            "id": str(number),
            "source": source,
            "edited": b64(flat(side, 200 + number)),
            "instruction": "Change the color of the square from gray to red",
            "instruction_type": "Change Color",
            "target_boxes": [[side // 4, side // 4, side // 2, side // 2]],
        }
        for number in range(4)
    ]
    with serving("--max-memory", f"{limit}MB", "--deadline", "600") as (process, url):
        answer = httpx.post(f"{url}/v1/judge", json={"edits": edits}, timeout=600, trust_env=False)
        assert answer.status_code == 200, answer.text
        assert [result["status"] for result in answer.json()["results"]] == ["judged"] * 4
        assert peak_megabytes(process.pid) < limit
