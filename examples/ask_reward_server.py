"""Ask a running reward server for scores. Start one with `editloupe serve`, then pass the address it prints, which has its token:

    python examples/ask_reward_server.py http://any:TOKEN@127.0.0.1:8645

A busy server answers 429 with Retry-After. An edit that could not be judged has a reason instead of a score.
"""

import base64
import sys
import time
from typing import Any

import httpx

from editloupe.demo import demo_manifest


def ask(url: str, edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send edits, and try again while the server is busy."""
    while True:
        answer = httpx.post(f"{url}/v1/judge", json={"edits": edits}, timeout=60)
        if answer.status_code != 429:
            answer.raise_for_status()
            results: list[dict[str, Any]] = answer.json()["results"]
            return results
        time.sleep(float(answer.headers["retry-after"]))


def main() -> None:
    """Score an edit that does what was asked, and one whose picture is broken."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: ask_reward_server.py http://any:TOKEN@127.0.0.1:8645")
    url = sys.argv[1]
    pictures = demo_manifest().parent / "pictures"
    source, edited = (
        base64.b64encode((pictures / name).read_bytes()).decode() for name in ("chelsea.jpg", "cat-eye-edited.jpg")
    )
    instruction = "Change the color of the cat's eye on the left from green to blue."
    edits = [
        {"id": "as asked", "source": source, "edited": edited, "instruction": instruction},
        {"id": "broken", "source": source, "edited": "bm8gcGljdHVyZQ==", "instruction": instruction},
    ]
    for result in ask(url, edits):
        print(f"{result['id']}: {result['score'] if result['status'] == 'judged' else result['why']}")


if __name__ == "__main__":
    main()
