"""Count how many true claims `editloupe verify` contradicts, on edits with known truth.

    python benchmarks/claims.py DIR… [--no-targets]

A judge that knows the truth says of every edit what changed, where, what stayed, what a text reads and what colour a thing
has. Every contradiction is false. `--no-targets` hides the annotated boxes.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

from editloupe.agent.rules.instructions import parse_instruction
from editloupe.judge.claims.claim_checks import CheckedEdit, check_claim
from editloupe.judge.claims.claim_patterns import read_claims, read_label
from editloupe.judge.claims.claim_records import CheckedClaim, ClaimState, Statement
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.pictures.decode import open_picture
from editloupe.tools.contract import Frame
from editloupe.types import Edit

CRITERIA = ("instruction_following", "visual_consistency")
UNTOUCHED = ("no_change", "wrong_object")


def say_following(row: dict[str, Any]) -> Iterator[str]:
    """Yield true sentences about the target."""
    request = parse_instruction(row["instruction"], row["instruction_type"])
    assert request is not None
    name, variant = row["target_name"], row["if_variant"]
    if request.kind == "count" and variant == "done":
        yield f"There are now {request.new_count} {name}s."
    for box in row["target_boxes"] if request.kind != "count" else ():
        yield f"The {name} at {box} {'is unchanged' if variant in UNTOUCHED else 'has been changed'}."
        if variant == "done" and request.kind == "color":
            yield f"The {name} at {box} is now {request.new}. The {name} is now {request.new}."
        if variant == "done" and request.kind == "text":
            yield f'In the edited image the text at {box} reads "{request.new}".'
        if request.kind == "text" and request.old:
            yield f'In the source image the text at {box} reads "{request.old}".'
        if variant == "done" and request.kind == "removal":
            yield f"The {name} at {box} has been removed."
        if variant == "done" and request.kind == "replacement":
            yield f"The {name} at {box} was replaced by a {request.new}."


def say_consistency(row: dict[str, Any]) -> Iterator[str]:
    """Yield true sentences about the rest of the picture."""
    if row["truth"][CRITERIA[1]] == "Scene Collapse":
        yield "The whole scene has changed."
        return
    for box in row["changed_boxes"]:
        yield f"The region {box} has changed."
    for thing in row["all_objects"]:
        if not any(_overlap(thing["box"], box) for box in row["changed_boxes"]):
            yield f"The {thing['name']} at {thing['box']} is unchanged."
    if row["truth"][CRITERIA[1]] == "Perfect Consistency":
        yield "Nothing else changed. The background is unchanged."


def _overlap(a: Sequence[int], b: Sequence[int]) -> bool:
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


@cache
def instruments() -> Instruments:
    """Return the reader and the detector of this process."""
    return Instruments()


def check(job: tuple[Path, dict[str, Any]], targets: bool) -> list[tuple[str, list[CheckedClaim]]]:
    """Check the true claims about one edit, by criterion."""
    folder, row = job
    boxes = row["target_boxes"] if targets else ()
    paths = {role: folder / row[role] for role in ("source", "edited")}
    edit = Edit(instruction=row["instruction"], target_boxes=boxes, **paths)
    source, edited = (open_picture(path).pixels for path in paths.values())
    facts = PairFacts(source, edited, instruments())
    frame = Frame(facts.size, facts.size)
    results = []
    for criterion, sentences in zip(CRITERIA, (say_following(row), say_consistency(row)), strict=True):
        claims = [*read_claims([Statement(" ".join(sentences), 0, frame, None)], edit).claims]
        claims += [label for label in [read_label(row["truth"][criterion])] if label]
        results.append(
            (f"{row['id']} {criterion}", [check_claim(claim, facts, CheckedEdit.of(edit)) for claim in claims])
        )
    return results


def main() -> None:
    """Check, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--no-targets", action="store_true", help="hide the annotated boxes")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    jobs = [
        (folder, json.loads(line))
        for folder in options.folders
        for line in (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        done = [
            item
            for items in pool.map(partial(check, targets=not options.no_targets), jobs, chunksize=4)
            for item in items
        ]
    counts = Counter((checked.claim.kind.value, checked.state.value) for _, claims in done for checked in claims)
    false = [(name, checked) for name, claims in done for checked in claims if checked.state is ClaimState.CONTRADICTED]
    verdicts = len({name for name, _ in false})
    print(f"{len(done)} true verdicts, {sum(counts.values())} claims")
    print(f"contradicted: {verdicts} verdicts ({100 * verdicts / len(done):.1f} %), {len(false)} claims\n")
    print("| kind | supported | contradicted | not checkable |\n|---|--:|--:|--:|")
    for kind in sorted({kind for kind, _ in counts}):
        print(f"| {kind.replace('_', ' ')} | {' | '.join(str(counts[kind, state.value]) for state in ClaimState)} |")
    for name, checked in false:
        print(f"{name}: {checked.claim.text} – {checked.why} {dict(checked.numbers)}")


if __name__ == "__main__":
    main()
