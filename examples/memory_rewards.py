"""Reward candidates that were never files: PIL images and arrays, as a model returns them.

python examples/memory_rewards.py
EDITLOUPE_JUDGE=openai:gpt-5.1 python examples/memory_rewards.py
"""

import numpy as np
from PIL import Image

from editloupe import Edit, Judge, reward
from editloupe.demo import demo_manifest


def main() -> None:
    """Compare the edit that was asked for, the unedited source, and a broken candidate."""
    pictures = demo_manifest().parent / "pictures"
    source = Image.open(pictures / "chelsea.jpg")
    edited = Image.open(pictures / "cat-eye-edited.jpg")
    broken = np.full((64, 64, 3), np.nan)
    instruction = "Change the color of the cat's eye on the left from green to blue."
    candidates = {"as asked": edited, "untouched": np.asarray(source), "broken": broken}
    edits = [Edit(source=source, edited=candidate, instruction=instruction) for candidate in candidates.values()]
    with Judge(protocol="dlebench") as judge:
        for name, score in zip(candidates, reward(edits, judge), strict=True):
            print(f"{name}: {'unjudged' if score is None else f'{score:.2f}'}")


if __name__ == "__main__":
    main()
