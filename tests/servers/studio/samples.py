"""Runs the studio's tests look at: many small edits, and one edit with a long trace told twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.pictures.decode import Album
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.registry import get_protocol
from editloupe.types import (
    Box,
    Edit,
    Judgement,
    Mode,
    Observation,
    Reason,
    SentPicture,
    Step,
    ToolCall,
    Trace,
    Unjudged,
    Usage,
    Verdict,
)
from tests.drawn_pictures import save, textured

TYPES = get_protocol("dlebench").types
LABELS = {
    rubric.criterion: [label.name for label in sorted(rubric.answer.labels, key=lambda label: label.score)]  # type: ignore[union-attr]
    for rubric in get_protocol("dlebench").rubrics
}
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PAIRS = 6


def pictures(folder: Path, pairs: int = PAIRS) -> list[tuple[Path, Path]]:
    """Write some pairs of pictures in which a patch changes its colour."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(pairs):
        before = textured(200, 150, seed=number)
        after = before.copy()
        after[50:90, 70:130] = (220, 30 + 20 * number, 30)
        found.append((save(before, folder / f"s{number}.png"), save(after, folder / f"e{number}.png")))
    return found


def outcome(criterion: str, number: int, usage: Usage | None = None) -> Verdict | Unjudged:
    """A verdict that depends on the number only; every twentieth is unjudged."""
    if number % 20 == 19:
        return Unjudged(
            criterion=criterion, reason=Reason.UNREADABLE, detail="There was no label in the reply.", raw="hm"
        )
    score = 1 + (number * 7 + len(criterion)) % 4
    return Verdict(
        criterion=criterion,
        label=LABELS[criterion][score - 1],
        score=score,
        score_100=(score - 1) / 3 * 100,
        confidence=round(0.5 + (number % 50) / 100, 2),
        rationale="The patch is what was asked for.",
        usage=usage or Usage(),
        steps=2,
    )


def many_edits(folder: Path, count: int) -> Path:
    """Write a run of many edits, which share a few pictures; every tenth has a human label that differs from the judge's."""
    pairs, album = pictures(folder / "pictures"), Album()
    filings = []
    for number in range(count):
        source, edited = pairs[number % len(pairs)]
        verdicts = tuple(outcome(criterion, number) for criterion in LABELS)
        first = verdicts[0]
        human = {}
        if isinstance(first, Verdict) and number % 5 == 0:
            names = LABELS[first.criterion]
            at = names.index(str(first.label))
            human = {first.criterion: names[(at + 1) % 4] if number % 10 == 0 else names[at]}
        edit = Edit(
            id=f"edit-{number:05}",
            source=source,
            edited=edited,
            instruction=f"Change the color of patch {number} to red",
            instruction_type=TYPES[number % len(TYPES)],
            model=f"painter-{number % 3}",
            human=human,
        )
        judgement = Judgement(edit=edit, protocol="dlebench", mode="tools", judge="openai:gpt-5.1", verdicts=verdicts)
        filings.append(JudgementRecord(judgement, album=album, position=number))
    with Run.write(folder / "run") as run:
        for start in range(0, count, 500):
            run.save_all(filings[start : start + 500])
    return folder / "run"


def long_trace(folder: Path, steps: int = 12, mode: Mode = "tools", repeats: int = 1, thought: str = "I look.") -> Path:
    """Write a run with one edit whose trace has many steps; a second repeat parts from the first at step 4."""
    (source, edited), album = pictures(folder / "pictures", 1)[0], Album()
    edit = Edit(
        id="the-edit/../x",
        source=source,
        edited=edited,
        instruction="Change the color of the patch to red",
        instruction_type="Change Color",
        target_boxes=(Box(x1=70, y1=50, x2=130, y2=90),),
        human={"instruction_following": ("Flawless Execution", "Over Modification")},
    )
    with Run.write(folder / "run") as run:
        for repeat in range(repeats):
            trace = _trace(edit, album, steps - 2 * repeat, repeat, mode, thought)
            verdicts = (
                outcome(
                    "instruction_following", 3 + repeat, Usage(requests=steps, input_tokens=9000, output_tokens=700)
                ),
            )
            whole = Judgement(
                edit=edit, protocol="dlebench", mode=mode, judge="openai:gpt-5.1", verdicts=verdicts, traces=(trace,)
            )
            run.save(whole, repeat, album)
    return folder / "run"


def _trace(edit: Edit, album: Album, count: int, repeat: int, mode: Mode, thought: str) -> Trace:
    source, edited = album.open(edit.source), album.open(edit.edited)
    sent = tuple(
        SentPicture(name=name, sha=p.sha, original_size=p.size, size=p.size, format="png", bytes=9, scale=1.0)
        for name, p in (("Source Image", source), ("Edited Image", edited))
    )
    usage = Usage(requests=1, input_tokens=700, output_tokens=50)
    steps = []
    for number in range(count - 1):
        place = 10 * number + (7 if repeat and number >= 3 else 0)
        box = [place, 40, place + 40, 90]
        name = ("Source Image", "Edited Image")[number % 2]
        call = ToolCall(id=f"c{number}", name="zoom_in_image", parameters={"bbox_2d": box, "target_image": name})
        picture = album.open(edit.source if number % 2 == 0 else edit.edited)
        crop: Pixels = np.ascontiguousarray(picture.pixels[box[1] : box[3], box[0] : box[2]])
        seen = Observation(
            call_id=call.id,
            tool=call.name,
            text=f"{name}, region {box}.",
            pictures=(album.add(crop).sha,),
            captions=(f"{name}, region {box}",),
            data={"pictures": [name], "box": box, "asked": box},
            seconds=0.012,
        )
        steps.append(
            Step(
                index=number,
                thought=f"{thought} ({number + 1})",
                calls=(call,),
                observations=(seen,),
                sent=sent if number == 0 else (),
                raw=thought,
                usage=usage,
                seconds=1.25,
            )
        )
    steps.append(
        Step(index=count - 1, thought="That settles it.", answer="Over Modification", usage=usage, seconds=0.8)
    )
    return Trace(
        edit_id=edit.id,
        criterion="instruction_following",
        protocol="dlebench",
        mode=mode,
        judge="openai:gpt-5.1",
        prompt=("You judge edits.", f"Instruction: {edit.instruction}"),
        tools=("zoom_in_image",),
        steps=tuple(steps),
        seconds=18.0,
    )
