"""`editloupe make TASK FOLDER`: test scenes with known answers, and the check of answers to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import command, for_json, number_of, one_line
from editloupe.cli.output import tell
from editloupe.generators import billiards, letters
from editloupe.generators.letters import lexicon
from editloupe.generators.scenes import (
    BILLIARDS,
    MANIFEST,
    PUZZLES,
    check_answers,
    find_task,
    write_billiards,
    write_puzzles,
)
from editloupe.types import UserError


def scenes(
    what: Annotated[str, typer.Argument(help="billiards, a puzzle's name, list, or check.")],
    out: Annotated[
        Path | None, typer.Argument(help="The folder to write, or with check the one that was written.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many scenes.")] = 10,
    seed: Annotated[int, typer.Option(help="Same seed, same scenes.")] = 0,
    bounces: Annotated[str, typer.Option(help="Billiards: fewest and most cushions, such as 2-7.")] = "2-7",
    language: Annotated[str, typer.Option(help="Puzzles: en or cn.")] = "en",
    words: Annotated[
        Path | None,
        typer.Option(
            "--lexicon",
            help="Letter puzzles: a text file of words, or bundled; else the system's /usr/share/dict/words, or the bundled few.",
        ),
    ] = None,
    answers: Annotated[Path | None, typer.Option(help="With check: the folder of answer pictures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With check: one line of JSON an answer.")] = False,
) -> int:
    """Draw billiards scenes or puzzles whose answers are known, ready to be judged; or check answer pictures exactly.

    Example: editloupe make billiards scenes --count 20 && editloupe batch scenes/manifest.jsonl --protocol vibe --out runs/bi
    """
    if what == "list":
        for known in (BILLIARDS, *PUZZLES):
            print(f"{known.name}: {known.about} ({known.protocol.title})")
        return 0
    if out is None:
        raise UserError(f"name the folder: editloupe make {what} FOLDER")
    if what == "check":
        return _check(out, answers or out / "answers", as_json)
    if (out / MANIFEST).exists():
        raise UserError(f"{out} holds scenes already; name another folder")
    if what.lower() == BILLIARDS.name:
        lines, protocol = write_billiards(out, count, seed, _range(bounces)), BILLIARDS.protocol
    else:
        if language not in ("en", "cn"):
            raise UserError(f'--language is en or cn, not "{language}"')
        task = find_task(what)
        if task in letters.TASKS or words:
            chosen = lexicon(words)
            task = letters.with_words(task, chosen)
            if not chosen.is_dictionary:
                tell(f"{chosen.about}: too few to prove a word the longest in English; every item says so")
        lines = write_puzzles(out, task, count, seed, language)
        protocol = next(puzzle.protocol for puzzle in PUZZLES if puzzle.name == task.name)
    print(one_line(f"{number_of(lines, 'edit')} in {out / MANIFEST}"))
    tell(f"next: {command('editloupe', 'batch', out / MANIFEST)} --protocol {protocol.name} --judge … --out RUN")
    return 0


def _check(folder: Path, answers: Path, as_json: bool) -> int:
    """Return 0 where every answer could be decided, right or wrong, 3 where one could not."""
    undecided = right = total = 0
    for name, found in check_answers(folder, answers):
        total += 1
        undecided += found.correct is None
        right += found.correct is True
        word = {True: "right", False: "wrong", None: "undecided"}[found.correct]
        if as_json:
            print(for_json({"id": name, "correct": found.correct, "why": found.why}))
        else:
            print(one_line(f"{name}: {word}, {found.why}"))
    if not as_json:
        print(f"{right} of {total} right, {undecided} undecided")
    return 3 if undecided else 0


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        ends = int(low), int(high or low)
    except ValueError:
        raise UserError(f'--bounces is a number or two with a dash, such as 2-7, not "{text}"') from None
    if not 0 <= ends[0] <= ends[1] <= billiards.BOUNCES[1]:
        raise UserError(f"--bounces lies between 0 and {billiards.BOUNCES[1]}, the fewer first, not {text}")
    return ends
