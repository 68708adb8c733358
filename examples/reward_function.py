"""Use a judge as the reward of a training loop: score the candidates of one instruction relative to their group.

    python examples/reward_function.py
    EDITLOUPE_JUDGE=openai:Qwen/Qwen3-VL-8B-Instruct OPENAI_BASE_URL=http://localhost:8000/v1 python examples/reward_function.py

A candidate that could not be judged has no reward and is left out of the group.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from editloupe import Edit, Judge, reward
from editloupe.demo import demo_manifest


def compute_advantages(judge: Judge, source: Path, instruction: str, candidates: Sequence[Path]) -> list[float | None]:
    """Return each candidate's reward (0 to 1) minus the group's mean, or None if it could not be judged."""
    edits = [Edit(source=source, edited=candidate, instruction=instruction) for candidate in candidates]
    scores = reward(edits, judge)
    judged = [score for score in scores if score is not None]
    return [None if score is None else score - fmean(judged) for score in scores]


def main() -> None:
    """Compare three candidates: the edit that was asked for, another edit, and the unedited picture."""
    pictures = demo_manifest().parent / "pictures"
    candidates = [pictures / name for name in ("cat-eye-edited.jpg", "cat-eye-reference.jpg", "chelsea.jpg")]
    instruction = "Change the color of the cat's eye on the left from green to blue."
    with Judge(protocol="dlebench", mode="tools") as judge:
        advantages = compute_advantages(judge, pictures / "chelsea.jpg", instruction, candidates)
    for candidate, advantage in zip(candidates, advantages, strict=True):
        print(f"{candidate.stem}: {'unjudged' if advantage is None else f'{advantage:+.2f}'}")


if __name__ == "__main__":
    main()
