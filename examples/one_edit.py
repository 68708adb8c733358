"""Judge one edit and print the verdicts.

    python examples/one_edit.py
    EDITLOUPE_JUDGE=openai:gpt-5.1 python examples/one_edit.py       # with OPENAI_API_KEY set

Without EDITLOUPE_JUDGE the embedded judge `rules` answers, a rule-based baseline that needs no key and no network.
"""

from editloupe import Edit, Judge, Verdict
from editloupe.demo import demo_manifest


def main() -> None:
    """Judge one of the bundled edits."""
    pictures = demo_manifest().parent / "pictures"
    edit = Edit(
        source=pictures / "chelsea.jpg",
        edited=pictures / "cat-eye-edited.jpg",
        instruction="Change the color of the cat's eye on the left side of the picture from green to blue.",
    )
    with Judge(protocol="dlebench", mode="tools") as judge:
        judgement = judge(edit)
    for outcome in judgement.verdicts:
        if isinstance(outcome, Verdict):
            print(f"{outcome.criterion}: {outcome.label}, {outcome.score_100:.0f} of 100, after {outcome.steps} steps")
        else:
            print(f"{outcome.criterion}: unjudged ({outcome.reason}), {outcome.detail}")


if __name__ == "__main__":
    main()
