"""`editloupe edival import`: released chains made ready to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe._util.text import command, number_of, one_line
from editloupe.cli.telling import tell
from editloupe.types import UserError

MOST_TOLD = 20
"""Problems that are told one by one."""


def import_(
    file: Annotated[Path, typer.Argument(help="The released table of instructions and object pools: CSV or JSONL.")],
    images: Annotated[
        Path, typer.Option(help="The photographs, INDEX_input_raw.jpg or INDEX.png: a folder or a zip file.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for one chain a picture.")],
) -> int:
    """Read released chains, their instructions and object pools as they are, for `edival evaluate`.

    The same command again does what is missing. Rows that cannot be read are told with their line and left out.

    Example: editloupe edival import oai_instruction_generation_output.csv --images input_images_resize_512.zip --out chains
    """
    from editloupe.evals.edival.import_chains import import_chains

    found = import_chains(file, images, out)
    for sentence in found.left_out[:MOST_TOLD]:
        tell(sentence)
    if len(found.left_out) > MOST_TOLD:
        tell(f"and {len(found.left_out) - MOST_TOLD} more of this kind")
    if not found.made and not found.held:
        raise UserError(f"{file.name} holds no chain that can be used")
    kept = f", {found.held} held before" if found.held else ""
    print(one_line(f"{number_of(found.made, 'chain')} made{kept}, {len(found.left_out)} left out; in {out}"))
    tell(f"next: {command('editloupe', 'edival', 'evaluate', out)} RESULTS --out RUN --judge …")
    return 3 if found.left_out else 0
