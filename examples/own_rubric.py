"""Judge an edit by your own rubric, which is a YAML file.

    EDITLOUPE_JUDGE=openai:gpt-5.1 python examples/own_rubric.py       # with OPENAI_API_KEY set
    python examples/own_rubric.py

The embedded judge `rules` knows two criteria only. For any other it leaves the edit unjudged with a reason, as the second
command shows.
"""

from itertools import islice
from pathlib import Path

from editloupe import Judge, Verdict, load_manifest
from editloupe.demo import demo_manifest

RUBRIC = Path(__file__).with_name("visible_at_a_glance.yaml")


def main() -> None:
    """Judge the first bundled edit by the rubric next to this script."""
    with Judge(rubrics=[RUBRIC]) as judge:
        for edit in islice(load_manifest(demo_manifest()), 1):
            for outcome in judge(edit).verdicts:
                if isinstance(outcome, Verdict):
                    print(f"{outcome.criterion}: {outcome.score:g}, that is {outcome.score_100:.0f} of 100")
                else:
                    print(f"{outcome.criterion}: unjudged ({outcome.reason}), {outcome.detail}")


if __name__ == "__main__":
    main()
