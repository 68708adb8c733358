"""Asks a reward server in its own dialect: start one with `editloupe serve`, then

    python examples/ask_reward_server.py http://127.0.0.1:8645

A server that is busy answers 429 and says when to come back; what could not be judged has no score, and a reason.
"""

import base64
import sys
import time
from typing import Any

import httpx

from editloupe.demo import demo_manifest


def ask(url: str, edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send edits, as often as it takes to be let in."""
    while True:
        answer = httpx.post(f"{url}/v1/judge", json={"edits": edits}, timeout=60)
        if answer.status_code != 429:
            answer.raise_for_status()
            found: list[dict[str, Any]] = answer.json()["results"]
            return found
        time.sleep(float(answer.headers["retry-after"]))


def main() -> None:
    """Ask about the asked edit, and about a picture that is none."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8645"
    pictures = demo_manifest().parent / "pictures"
    source, edited = (
        base64.b64encode((pictures / name).read_bytes()).decode() for name in ("rocket.jpg", "rocket-rod-edited.jpg")
    )
    instruction = "Remove the white rod from the top of the lattice tower to the right of the rocket."
    edits = [
        {"id": "as asked", "source": source, "edited": edited, "instruction": instruction},
        {"id": "broken", "source": source, "edited": "bm8gcGljdHVyZQ==", "instruction": instruction},
    ]
    for result in ask(url, edits):
        print(f"{result['id']}: {result['score'] if result['status'] == 'judged' else result['why']}")


if __name__ == "__main__":
    main()
