"""Call the evaluator for LangSmith and openevals as they call it.

    python examples/langsmith_evaluator.py

In an experiment: client.evaluate(edit_a_picture, data="my edits", evaluators=[edit_evaluator("openai:gpt-5.1")])
"""

from editloupe.demo import demo_manifest
from editloupe.evaluators import edit_evaluator


def main() -> None:
    """Evaluate an output with an edited picture, and one without."""
    pictures = demo_manifest().parent / "pictures"
    inputs = {
        "source": str(pictures / "chelsea.jpg"),
        "instruction": "Change the color of the cat's eye on the left from green to blue.",
    }
    evaluate = edit_evaluator(key="edit")
    for outputs in ({"edited": (pictures / "cat-eye-edited.jpg").read_bytes()}, {}):
        result = evaluate(inputs=inputs, outputs=outputs, reference_outputs=None)
        print(f"{result['key']}: {result['score']}, {result['comment'].splitlines()[0]}")


if __name__ == "__main__":
    main()
