"""List the tasks that can be generated, write them to disk, and check answers.

A folder holds the pictures, a manifest that can be judged, and the facts that a check needs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from editloupe._util.files import atomic_write, make_folder, read_text, write_text
from editloupe.generators import billiards, letters, puzzles
from editloupe.generators.contract import AnswerCheck, PuzzleKind
from editloupe.pictures.decode import open_picture
from editloupe.pictures.pixels import Pixels
from editloupe.rubrics.editcompass import EDIT_COMPASS
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.vibe import VIBE
from editloupe.types import UserError


@dataclass(frozen=True)
class SceneKind:
    """A kind of scene that can be generated."""

    name: str
    about: str
    protocol: Protocol
    """The protocol whose rubrics judge it."""


TASKS: tuple[PuzzleKind, ...] = (*letters.TASKS, *puzzles.TASKS)
BILLIARDS = SceneKind("billiards", "the path of a ball and the ball it strikes", VIBE)
PUZZLES = tuple(SceneKind(task.name, task.about, EDIT_COMPASS) for task in TASKS)


def find_task(name: str) -> PuzzleKind:
    """Return a task by name, ignoring case and separators. Raise UserError if there is none."""
    key = name.lower().replace("-", "_").replace(" ", "_")
    for task in TASKS:
        if task.name.lower() == key:
            return task
    raise UserError(f'there is no task "{name}"; there are: {", ".join(kind.name for kind in (BILLIARDS, *PUZZLES))}')


MANIFEST, FACTS = "manifest.jsonl", "facts.jsonl"
MADE_FROM = ("lexicon", "longest_proven")
"""Facts of a puzzle that the manifest repeats: its word list, and whether that proves the answer."""


def write_billiards(folder: Path, count: int, seed: int = 0, bounces: tuple[int, int] = billiards.BOUNCES) -> int:
    """Write scenes with a perfect and five spoiled outputs each. Return the number of lines in the manifest."""
    lines, facts = [], []
    for number in range(count):
        rng = random.Random(f"billiards {seed} {number}")
        scene = billiards.make_scene(rng, *bounces)
        name = f"billiards_{number:04d}"
        save(folder / "scenes" / f"{name}.png", billiards.draw_input(scene))
        save(folder / "labels" / f"{name}.png", billiards.draw_label(scene))
        facts.append({"id": name, "task": "billiards", **asdict(scene)})
        for output in billiards.make_outputs(scene, rng):
            edited = f"outputs/{name}_{output.kind}.png"
            save(folder / edited, output.picture)
            lines.append(
                {
                    "id": f"{name}_{output.kind}",
                    "source": f"scenes/{name}.png",
                    "edited": edited,
                    "instruction": billiards.INSTRUCTION,
                    "instruction_type": "BI",
                    "more_images": {"golden": f"labels/{name}.png"},
                    "human": {"billiards": f"{output.score:.4f}"},
                    "truth": dict(output.truth),
                    "bounces": len(scene.cushions),
                }
            )
    _write(folder, lines, facts)
    return len(lines)


def write_puzzles(folder: Path, task: PuzzleKind, count: int, seed: int = 0, language: str = "en") -> int:
    """Write puzzles with their exact answers. In the manifest, the answer is the edited picture."""
    lines, facts = [], []
    for number in range(count):
        puzzle = task.make(random.Random(f"{task.name} {seed} {number}"))
        name = f"{task.name}_{number:04d}"
        save(folder / "puzzles" / f"{name}.png", puzzle.picture)
        save(folder / "answers" / f"{name}.png", puzzle.answer)
        facts.append({"id": name, "task": task.name, **puzzle.facts})
        lines.append(
            {
                "id": name,
                "source": f"puzzles/{name}.png",
                "edited": f"answers/{name}.png",
                "instruction": puzzle.instruction_en if language == "en" else puzzle.instruction_cn,
                "instruction_type": task.name,
                "language": language,
                **{name: puzzle.facts[name] for name in MADE_FROM if name in puzzle.facts},
            }
        )
    _write(folder, lines, facts)
    return len(lines)


def check_answers(folder: Path, answers: Path) -> Iterator[tuple[str, AnswerCheck]]:
    """Check every puzzle of a folder against the answer picture of the same name in another folder."""
    for facts in _facts(folder):
        name = str(facts["id"])
        path = next((p for s in (".png", ".jpg", ".jpeg", ".webp") if (p := answers / f"{name}{s}").is_file()), None)
        if path is None:
            yield name, AnswerCheck(None, "there is no answer picture")
            continue
        problem = open_picture(folder / "puzzles" / f"{name}.png").pixels
        answer, task = open_picture(path).pixels, find_task(str(facts["task"]))
        try:
            yield name, task.decide(facts, problem, answer)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UserError(f"the facts of {name} in {folder / FACTS} are damaged ({type(error).__name__})") from None


def _facts(folder: Path) -> list[Mapping[str, Any]]:
    try:
        records = [json.loads(line) for line in read_text(folder / FACTS).split("\n") if line.strip()]
        if all(isinstance(facts, dict) and {"id", "task"} <= facts.keys() for facts in records):
            return records
        raise ValueError("facts without a name")
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{folder} was not made by `editloupe make`: it has no readable {FACTS}") from None


def save(file: Path, pixels: Pixels) -> None:
    """Write a picture atomically and create its folder. Raise UserError if that fails."""
    make_folder(file.parent)
    with atomic_write(file) as part:
        Image.fromarray(pixels).save(part, "PNG")


def _write(folder: Path, lines: list[dict[str, Any]], facts: list[dict[str, Any]]) -> None:
    for name, records in ((FACTS, facts), (MANIFEST, lines)):  # a manifest never names what is not there
        write_text(folder / name, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
