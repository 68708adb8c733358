"""Score pictures with HPSv3, one JSON line per request. Run it with the Python of an environment that has `hpsv3`.

    python hpsv3_scorer.py [DEVICE]

A request is `{"pictures": ["a.png", "b.png"], "prompt": ""}`; the reply is `{"scores": [7.1, 6.4]}` or `{"error": "…"}`.
The first line is `{"ready": true}`, once the model is loaded. The program ends with its input. It imports nothing of
EditLoupe, because EditLoupe is not installed in that environment.
"""

import importlib
import json
import os
import sys


def load(device: str):  # type: ignore[no-untyped-def]
    """Load the model on a device; `auto` is the GPU, or the CPU without one."""
    if device == "auto":
        device = "cuda" if importlib.import_module("torch").cuda.is_available() else "cpu"
    return importlib.import_module("hpsv3").HPSv3RewardInferencer(device=device)


def main() -> None:
    """Answer requests until the input ends."""
    # Packages print while they load. Only replies may reach the standard output, so everything else goes to the errors.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(reply: dict) -> None:  # type: ignore[type-arg]
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    model = load(sys.argv[1] if len(sys.argv) > 1 else "auto")
    send({"ready": True})
    for line in sys.stdin.buffer:
        try:
            request = json.loads(line)
            paths = request["pictures"]
            rewards = model.reward(image_paths=paths, prompts=[request.get("prompt", "")] * len(paths))
            # The first of the two numbers per picture is the mean score, the second its uncertainty.
            send({"scores": [float(reward[0]) for reward in rewards]})
        except Exception as error:
            send({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
