"""Call the reward for verl as its reward manager calls `compute_score`, one sample at a time.

    python examples/verl_reward.py

In training: reward.custom_reward_function.path=pkg://editloupe.rewards reward.custom_reward_function.name=verl, and the judge
in reward_kwargs. A sample that could not be judged raises an error, or scores NaN with `unjudged="nan"`.
"""

from editloupe.demo import demo_manifest
from editloupe.rewards import NotJudged, verl


def main() -> None:
    """Score an edited picture, and a solution without a picture."""
    pictures = demo_manifest().parent / "pictures"
    sample = {
        "source": str(pictures / "chelsea.jpg"),
        "instruction": "Change the color of the cat's eye on the left from green to blue.",
    }
    edited = (pictures / "cat-eye-edited.jpg").read_bytes()
    print(verl("my-edits", "", None, sample, solution_image=edited, mode="plain"))
    try:
        verl("my-edits", "I would rather not.", None, sample, mode="plain")
    except NotJudged as error:
        print(error)
    print(verl("my-edits", "I would rather not.", None, sample, mode="plain", unjudged="nan"))


if __name__ == "__main__":
    main()
