"""Score an Inspect task whose model edits pictures. Inspect's mock model stands in for a real one.

    python examples/inspect_task.py logs

Needs pip install '.[inspect]'. With a real model: inspect eval examples/inspect_task.py --model …
"""

import base64
import sys

from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelOutput,
    ModelUsage,
    get_model,
)

from editloupe.demo import demo_manifest
from editloupe.inspect import edit_judge

PICTURES = demo_manifest().parent / "pictures"


def picture(name: str) -> ContentImage:
    """Return a picture as a part of a message."""
    return ContentImage(image=f"data:image/jpeg;base64,{base64.b64encode((PICTURES / name).read_bytes()).decode()}")


@task
def recolour_the_eye() -> Task:
    """Ask for one edit twice."""
    words = ContentText(text="Change the color of the cat's eye on the left from green to blue.")
    messages = [ChatMessageUser(content=[picture("chelsea.jpg"), words])]
    return Task(dataset=[Sample(id="first", input=messages), Sample(id="second", input=messages)], scorer=edit_judge())


def make_output(*content: ContentImage | ContentText) -> ModelOutput:
    """Return an output of the mock model, with its tokens."""
    output = ModelOutput.from_message(ChatMessageAssistant(content=list(content)))
    return output.model_copy(update={"usage": ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)})


def main() -> None:
    """Score an output with an edited picture, and one without."""
    answers = [make_output(picture("cat-eye-edited.jpg")), make_output(ContentText(text="I would rather not."))]
    model = get_model("mockllm/model", custom_outputs=answers)
    folder = sys.argv[1] if len(sys.argv) > 1 else "logs"
    (log,) = eval(recolour_the_eye(), model=model, log_dir=folder, display="none", max_samples=1)
    for sample in log.samples or ():
        score = (sample.scores or {})["edit_judge"]
        print(f"{sample.id}: {f'unscored, {score.explanation}' if score.reason else f'{score.value:.2f}'}")


if __name__ == "__main__":
    main()
