"""Call the reward function for TRL as its trainers do, with completions that contain pictures.

    python examples/trl_reward.py

In training: GRPOTrainer(model=…, reward_funcs=[trl("openai:gpt-5.1", source="image")], train_dataset=…)
"""

import base64

from editloupe.demo import demo_manifest
from editloupe.rewards import trl


def main() -> None:
    """Reward a completion with the edited picture, one with the unedited one, and one without a picture."""
    pictures = demo_manifest().parent / "pictures"
    edited, source = (pictures / name for name in ("cat-eye-edited.jpg", "chelsea.jpg"))
    urls = [f"data:image/jpeg;base64,{base64.b64encode(path.read_bytes()).decode()}" for path in (edited, source)]
    completions = [[{"role": "assistant", "content": text}] for text in (*urls, "I would rather not.")]
    instruction = "Change the color of the cat's eye on the left from green to blue."
    prompts = [[{"role": "user", "content": instruction}]] * len(completions)

    function = trl(source="image")
    for reward in function(prompts=prompts, completions=completions, image=[str(source)] * len(completions)):
        print("no reward" if reward is None else f"{reward:.2f}")


if __name__ == "__main__":
    main()
