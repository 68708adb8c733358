"""Judge the bundled edits through a provider's batch files, at half the price and within a day.

    EDITLOUPE_JUDGE=openai:gpt-4.1 python examples/half_price.py runs/half        # with OPENAI_API_KEY set
    EDITLOUPE_JUDGE=google_genai:gemini-2.5-flash python examples/half_price.py runs/half

In the terminal: editloupe batch … --mode plain --executor batch-api. You can stop it at any time, even with kill -9: the
same command continues with the jobs in progress and sends nothing twice.
"""

import os
import sys
from functools import partial
from pathlib import Path

from editloupe import Judge, load_manifest
from editloupe.demo import demo_manifest
from editloupe.evals.batch import Batch, Limits, judge_batch
from editloupe.evals.stats import compute_scores


def main(out: Path) -> None:
    """Send one request per criterion in a file, wait for the job, and print the scores."""
    batch = Batch(
        edits=partial(load_manifest, demo_manifest()),
        out=out,
        open_judge=partial(Judge, protocol="dlebench", mode="plain"),
        limits=Limits(max_tokens=200_000),
        executor="batch-api",
        poll_seconds=float(os.environ.get("POLL_SECONDS", 30)),
    )
    ending = judge_batch(batch, quiet=True, say=print)
    print(f"{ending.tally.judged} verdicts by {ending.judge}, {ending.tally.held} were there before")
    print(f"overall {compute_scores(out).overall.format(1)} of 100")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/half"))
