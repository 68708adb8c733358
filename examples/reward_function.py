"""Uses a judge as the reward of a training loop: candidates for one instruction, and how much better each is than the group.

    python examples/reward_function.py
    EDITLOUPE_JUDGE=openai:Qwen/Qwen3-VL-8B-Instruct OPENAI_BASE_URL=http://localhost:8000/v1 python examples/reward_function.py

A candidate that could not be judged has no reward. It is left out of the group, and never counted as a bad one.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from editloupe import Edit, Judge, reward
from editloupe.demo import demo_manifest


def advantages(judge: Judge, source: Path, instruction: str, candidates: Sequence[Path]) -> list[float | None]:
    """Return every candidate's reward, 0 to 1, less the group's mean; None where one could not be judged."""
    edits = [Edit(source=source, edited=candidate, instruction=instruction) for candidate in candidates]
    scores = reward(edits, judge)
    judged = [score for score in scores if score is not None]
    return [None if score is None else score - fmean(judged) for score in scores]


def main() -> None:
    """Compare three candidates: the asked edit, another one, and the picture as it was."""
    pictures = demo_manifest().parent / "pictures"
    candidates = [pictures / name for name in ("rocket-rod-edited.jpg", "rocket-emblem-edited.jpg", "rocket.jpg")]
    instruction = "Remove the white rod from the top of the lattice tower to the right of the rocket."
    with Judge(protocol="dlebench", mode="tools") as judge:
        found = advantages(judge, pictures / "rocket.jpg", instruction, candidates)
    for candidate, advantage in zip(candidates, found, strict=True):
        print(f"{candidate.stem}: {'unjudged' if advantage is None else f'{advantage:+.2f}'}")


if __name__ == "__main__":
    main()
