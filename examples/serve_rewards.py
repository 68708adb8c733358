"""Start a reward server, ask it in the dialects of three trainers, and stop it.

    python examples/serve_rewards.py
    EDITLOUPE_JUDGE=openai:gpt-5.1 python examples/serve_rewards.py

Needs pip install '.[serve]'. A trainer needs only the address; the requests here are those its client sends.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from editloupe.demo import demo_manifest

PICTURES = demo_manifest().parent / "pictures"
INSTRUCTION = "Change the color of the cat's eye on the left from green to blue."


@contextmanager
def reward_server(*options: str) -> Iterator[str]:
    """Run `editloupe serve` on a free port and yield its address. The server ends with the context."""
    command = [sys.executable, "-m", "editloupe", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        output = []
        for line in server.stderr:
            output.append(line)
            if "http://" in line:
                break
        else:  # it ended; the output says why
            raise SystemExit("".join(output))
        try:
            yield line.split()[-1]
        finally:
            server.terminate()


def encode_base64(name: str) -> str:
    """Return a picture in base64."""
    return base64.b64encode((PICTURES / name).read_bytes()).decode()


def main() -> None:
    """Ask for the same edit three times; it is judged once."""
    source, edited = encode_base64("chelsea.jpg"), encode_base64("cat-eye-edited.jpg")
    history = [{"text": "", "image_b64": source}, {"text": INSTRUCTION, "image_b64": edited}]
    requests: dict[str, dict[str, Any]] = {
        "/score": {"requests": [{"history": history, "required_rewards": ["editloupe", "visual_consistency"]}]},
        "/compute": {"prompt": [INSTRUCTION], "image": [edited], "condition_images": [[source]]},
        "/get_reward": {
            "query": [f"{INSTRUCTION} data:image/jpeg;base64,{edited}"],
            "prompts": [INSTRUCTION],
            "labels": [json.dumps({"source": source})],
        },
    }
    with reward_server("--mode", "plain", "--deadline", "50") as address, httpx.Client(base_url=address) as client:
        health = client.get("/health").json()
        print(
            f"{health['judge']} gives {', '.join(health['rewards'])} from {health['scale'][0]} to {health['scale'][1]}"
        )
        for path, body in requests.items():
            answer = client.post(path, json=body, timeout=60).json()
            print(f"{path}: {answer['results'][0] if 'results' in answer else answer['rewards']}")
        lines = client.get("/metrics").text.splitlines()
        print(*(line for line in lines if line.startswith("editloupe_edits_total")), sep="\n")


if __name__ == "__main__":
    main()
