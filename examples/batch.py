"""Judge a manifest into a run and print its scores. Run the same command again to continue.

python examples/batch.py runs/example
EDITLOUPE_JUDGE=openai:gpt-5.1 python examples/batch.py runs/example       # with OPENAI_API_KEY set
"""

import sys
from functools import partial
from pathlib import Path

from editloupe import Judge, load_manifest
from editloupe.demo import demo_manifest
from editloupe.evals.batch import Batch, Limits, judge_batch
from editloupe.evals.stats import compute_scores


def main(out: Path) -> None:
    """Judge the bundled edits, which come with target boxes and references, in oracle mode."""
    batch = Batch(
        edits=partial(load_manifest, demo_manifest()),
        out=out,
        open_judge=partial(Judge, protocol="dlebench", mode="oracle"),
        limits=Limits(max_cost=5.0),
    )
    ending = judge_batch(batch, quiet=True)
    print(f"{ending.judge} judged into {out}: {'complete' if ending.complete else ending.why}")
    scores = compute_scores(out)
    print(f"overall {scores.overall.format(1)} of 100, {scores.coverage.unjudged} unjudged")
    for row in scores.rows():
        if row["group"] == "type" and row["criterion"] == "final":
            print(f"{row['name']}: {row['value']}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example"))
