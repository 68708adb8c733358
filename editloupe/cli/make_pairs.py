"""The command `editloupe make pairs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.text import format_command, number_of, one_line, verb
from editloupe.cli.compare import read_tables
from editloupe.cli.options import check_choice
from editloupe.cli.output import split_assignments, tell
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.preferences.pairs import OpenPair, PairAnswers, PairCounts

WHICH, PEOPLE = "Which pairs", "What people decide"
_WAITING = {
    "open": "wait for more people",
    "another": "wait for one more person, since people disagree",
    "split": "have no agreement and are left out",
    "unclear": "are unclear: ahead by less than the margin",
}


def pairs(
    runs: Annotated[list[Path], typer.Argument(help="Judged runs with outputs of several editing models.")],
    out: Annotated[Path, typer.Option(help="File of pairs (JSONL). Draws and answers are stored next to it.")],
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            help="IA, VC or VQ; with --rationales a criterion. Default: all of the runs. Repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            help="DIMENSION=CRITERION: the criterion of the runs that measures a dimension. Repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0,
            max=100,
            help="Smallest difference of scores for a preference, in points of 100.",
            rich_help_panel=WHICH,
        ),
    ] = 25.0,
    ties: Annotated[str, typer.Option(help="keep or drop ties.", rich_help_panel=WHICH)] = "keep",
    per_source: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of pairs per source and dimension.", rich_help_panel=WHICH),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw and the order.", rich_help_panel=WHICH)] = 0,
    within_model: Annotated[
        bool,
        typer.Option(
            "--within-model",
            help="Pair different outputs of one model for the same case, instead of outputs of two models.",
            rich_help_panel=WHICH,
        ),
    ] = False,
    rationales: Annotated[
        bool,
        typer.Option(
            "--rationales",
            help="Make pairs of two judges' rationales about the same edit instead.",
            rich_help_panel=WHICH,
        ),
    ] = False,
    configuration: Annotated[
        list[str] | None,
        typer.Option(help="The configuration, if a run has several. Repeatable.", rich_help_panel=WHICH),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="scores or people. Default: people, if there are answers.", rich_help_panel=PEOPLE),
    ] = None,
    people: Annotated[int, typer.Option(min=1, help="Number of people per pair.", rich_help_panel=PEOPLE)] = 2,
    agreement: Annotated[
        str,
        typer.Option(
            help="If people disagree: third (ask one more person) or unanimous (drop the pair).", rich_help_panel=PEOPLE
        ),
    ] = "third",
) -> int:
    """Make preference pairs of models' outputs for `editloupe reward`, decided by scores, or by people in the studio.

    Example: editloupe make pairs runs/eight-seeds --out pairs.jsonl --within-model

    Example: editloupe make pairs runs/models --out pairs.jsonl --dimension IA && editloupe studio --pairs pairs.jsonl
    """
    from editloupe.evals.preferences.draw import DrawSettings, draw_pairs, draw_rationales
    from editloupe.evals.preferences.pairs import (
        RULES,
        PairAnswers,
        answers_file,
        build_decided_lines,
        open_pairs_file,
        write_lines,
    )

    check_choice("--ties", ties, ("keep", "drop"))
    check_choice("--by", by or "scores", ("scores", "people"))
    if rationales and within_model:
        raise UserError("--within-model goes without --rationales")
    if rationales and (by == "scores" or criterion):
        raise UserError("rationales have no scores; which one is better is for people to say")
    _check_output(out, open_pairs_file(out))
    settings = DrawSettings(
        dimensions=tuple(dimension or ()),
        criteria=dict(
            split_assignments(criterion or (), "--criterion takes DIMENSION=CRITERION, such as VC=visual_consistency")
        ),
        margin=margin,
        per_source=per_source,
        seed=seed,
        people=people,
        rule=check_choice("--agreement", agreement, RULES),
        within_model=within_model,
    )
    tables = read_tables(runs, None, configuration or (), split=rationales)
    for table in {str(table.folder): table for table in tables}.values():
        for sentence in table.notes:
            tell(f"{table.name}: {sentence}")
    draw = (draw_rationales if rationales else draw_pairs)(tables, settings, out.parent)
    for sentence in draw.format_left_out():
        tell(sentence)
    if not draw.pairs:
        raise UserError("no pair is left to make")
    answers = PairAnswers(answers_file(out))
    pair_ids = {pair.id for pair in draw.pairs}
    answered = sum(pair in pair_ids for pair in answers.all())
    for note in answers.notes:
        tell(note)
    if lost := len(answers.all()) - answered:
        tell(
            f"{number_of(lost, 'answered pair')} {verb(lost, 'is', 'are')} not among those drawn; the answers are kept"
        )
    decided_by: Any = by or ("people" if answered or rationales else "scores")
    counts: dict[str, PairCounts] = {}
    write_lines(open_pairs_file(out), (pair.model_dump(mode="json") for pair in draw.pairs))
    tie_rule: Any = ties
    written = write_lines(out, build_decided_lines(draw.pairs, answers, decided_by, tie_rule, counts))
    _print_counts(counts, draw.pairs, written, decided_by, out)
    if answered:
        _print_people(draw.pairs, answers)
    if rationales and written:
        _print_judges(draw.pairs, answers)
    waiting = any(count.states["open"] or count.states["another"] for count in counts.values())
    outside = ("--allow-outside",) if any(map(_leads_outside, draw.pairs)) else ()
    if outside:
        tell(f"some pictures are outside the folder of {out.name}; its readers need --allow-outside")
    if waiting or (decided_by == "scores" and not answered):
        command = format_command("editloupe", "studio", "--pairs", out, *outside)
        tell(f"people answer with: {command}; then give this command again")
    return 0


def _leads_outside(pair: OpenPair) -> bool:
    """Return whether a pair has a picture outside the folder of its file."""
    paths = (pair.source_image, pair.edited, pair.a.picture, pair.b.picture, *pair.references)
    return any(Path(path).parts[:1] == ("..",) or Path(path).is_absolute() for path in paths if path)


def _check_output(out: Path, opened: Path) -> None:
    if out.suffix.lower() != ".jsonl":
        raise UserError(f"--out is a .jsonl file, not {out.name}")
    if out.exists() and not opened.exists():
        raise UserError(f"{out} is there and was not written by this command; name another file")


def _print_counts(counts: dict[str, PairCounts], pairs: Sequence[OpenPair], written: int, by: str, out: Path) -> None:
    for dimension, tally in sorted(counts.items()):
        parts = [number_of(tally.preferences, "preference"), number_of(tally.ties, "tie")]
        parts += [f"{count} {_WAITING[state]}" for state, count in tally.states.items()]
        print(one_line(f"{dimension}: {number_of(tally.pairs, 'pair')}, by {by}: {', '.join(parts)}"))
    sides = Counter(side.name for pair in pairs for side in (pair.a, pair.b))
    print(one_line("in pairs: " + ", ".join(f"{name} {count}" for name, count in sorted(sides.items()))))
    dropped = sum(tally.preferences + tally.ties for tally in counts.values()) - written
    dropped_text = f", {number_of(dropped, 'tie')} dropped" if dropped else ""
    print(one_line(f"{number_of(written, 'pair')} in {out}{dropped_text}"))


def _print_people(pairs: Sequence[OpenPair], answers: PairAnswers) -> None:
    from editloupe.evals.preferences.pairs import measure_pair_agreement

    done = Counter(who for pair in pairs for who in answers.choices(pair))
    print(one_line("answered: " + (", ".join(f"{who} {count}" for who, count in done.items()) or "nothing yet")))
    for row in measure_pair_agreement(pairs, answers):
        print(one_line(row.format()))
    against = sum(row.contradicts_itself for pair in pairs for row in answers.all().get(pair.id, {}).values())
    if against:
        tell(f"{number_of(against, 'answer')} {verb(against, 'prefers', 'prefer')} the candidate rated lower")


def _print_judges(pairs: Sequence[OpenPair], answers: PairAnswers) -> None:
    """Print how often each judge's rationale was preferred, and how often it beat all others about the same edit."""
    lost: dict[tuple[str, ...], dict[str, int]] = {}
    wins: Counter[str] = Counter()
    pair_counts: Counter[str] = Counter()
    for pair in pairs:
        decision = answers.decision(pair)
        if decision.choice is None:
            continue
        about = lost.setdefault((str(pair.edited), pair.prompt, pair.dimension), {})
        for side in (pair.a, pair.b):
            about[side.name] = about.get(side.name, 0) + (decision.choice != side.key)
            pair_counts[side.name] += 1
            wins[side.name] += 2 * (decision.choice == side.key) + (decision.choice == "tie")
    first = Counter(name for about in lost.values() for name, count in about.items() if not count)
    for name in sorted(pair_counts, key=lambda judge: -wins[judge] / pair_counts[judge]):
        share = wins[name] / 2 / pair_counts[name]
        share_text = f"{name}: preferred {share:.2f} of {number_of(pair_counts[name], 'pair')}, ties half"
        print(
            one_line(
                f"{share_text}; first on {first[name]} of {number_of(len(lost), 'edit and criterion', 'edits and criteria')}"
            )
        )
