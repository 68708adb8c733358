"""The options that say which edits a command judges: a manifest's, or a benchmark's with the outputs of models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.output import tell
from editloupe.evals.batch.batch import Edits
from editloupe.evals.manifests import layouts
from editloupe.rubrics.benchmark import LANGUAGES
from editloupe.rubrics.registry import DEFAULT, Note
from editloupe.rubrics.user_rubrics import with_files
from editloupe.types import UserError

ManifestFile = Annotated[
    Path, typer.Argument(help="A .jsonl, .csv or .parquet file, a folder of edits, or a benchmark's folder.")
]


@dataclass(frozen=True)
class Listed:
    """Edits to judge."""

    edits: Edits
    assumed: tuple[str, ...] | None
    """What was assumed while looking for outputs of models; None where a manifest names its pictures itself."""


@dataclass(frozen=True)
class EditOptions:
    """The options about edits as they were given."""

    layout: Annotated[str, typer.Option(help=layouts.layout_help())] = layouts.PLAIN
    results: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=FOLDER",
            help="Outputs of a model; may be given again. A folder alone is one model's, or has a folder for each.",
        ),
    ] = None
    language: Annotated[
        list[str] | None, typer.Option(help="en or cn, where a benchmark has both; else both of them.")
    ] = None
    model: Annotated[
        list[str] | None,
        typer.Option(help="Only this model of the results; may be given again. For a model's folder alone, its name."),
    ] = None
    allow_outside: Annotated[bool, typer.Option(help="Allow paths outside the manifest's folder.")] = False

    def check(self) -> None:
        """Tell a user in one sentence what cannot be meant."""
        layouts.check(self.layout, bool(self.results))
        if (self.model or self.language) and not self.results:
            raise UserError("--model and --language pick among outputs, and go with --results")

    def judged_by(self, judge: JudgeOptions) -> JudgeOptions:
        """Return the judge's options with the protocol they mean: the set-up's, or the layout's own."""
        if judge.protocol is not None or judge.rubrics:
            return judge
        return replace(judge, protocol=judge.chosen().protocol if self.layout == layouts.PLAIN else self.layout)

    def listed(self, manifest: Path, judge: JudgeOptions) -> Listed:
        """Return the edits, with types spelt as the protocol of this judge spells them; say what was assumed."""
        protocol = protocol_of(judge)
        if not self.results:
            return Listed(
                partial(layouts.load_manifest, manifest, self.allow_outside, self.layout, protocol, _once()), None
            )
        found = layouts.load_outputs(
            manifest,
            self.results,
            self.layout,
            languages=tuple(self.language) if self.language else LANGUAGES,
            models=self.model or (),
            protocol=protocol,
            allow_outside=self.allow_outside,
        )
        for sentence in found.notes:
            tell(sentence)
        return Listed(found.edits, found.notes)


def protocol_of(judge: JudgeOptions) -> str:
    """Return the name of the protocol that a judge's options mean."""
    return with_files(judge.protocol, judge.rubrics).name if judge.rubrics else judge.protocol or DEFAULT.name


def _once() -> Note:
    """Return what tells a sentence the first time it comes: edits are read several times."""
    told: set[str] = set()

    def note(sentence: str) -> None:
        if sentence not in told:
            told.add(sentence)
            tell(sentence)

    return note
