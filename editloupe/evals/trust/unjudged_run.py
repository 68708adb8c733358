"""A manifest that nobody judged, as a run that people can label: every edit with its pictures, every criterion unjudged."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

from editloupe.evals.papers.layouts import load_manifest
from editloupe.evals.runs.enrolment import Entry
from editloupe.evals.runs.records import Filing
from editloupe.evals.runs.store import Run
from editloupe.images import Album
from editloupe.rubrics.protocol import MissingInput, Protocol
from editloupe.rubrics.registry import DEFAULT
from editloupe.rubrics.registry import protocol as protocol_named
from editloupe.types import Edit, Judgement, Reason, Unjudged, UserError

NOBODY = "nobody"
"""What stands where a run names its judge."""
DETAIL = "No judge was asked; the edit waits for a person's label."


def manifest_names(manifest: Path) -> list[tuple[str, str, str | None]]:
    """Return id, name and model of the edits of a manifest; the names are those that a run of it gives them."""
    with tempfile.TemporaryDirectory(prefix="editloupe-") as folder, Run.write(Path(folder) / "run") as run:
        _enrol(run, manifest, None)
        return [(kept.edit.id, kept.name, kept.edit.model) for kept in run.edits()]


def unjudged_run(
    manifest: Path, folder: Path, protocol: str | None = None, only: Collection[str] | None = None
) -> None:
    """Write a run in which every edit of a manifest waits for people; `only` are names of edits, the others get no questions.

    Pictures are copied into the run's folder, so that a page can show them by their hashes.
    """
    known = protocol_named(protocol) if protocol else DEFAULT
    with Run.write(folder) as run:
        _enrol(run, manifest, known.name)
        if strange := set(only or ()) - {kept.name for kept in run.edits()}:
            raise UserError(f"{manifest.name} has no edit {min(strange)}: the queue was drawn from another manifest")
        for position, kept in enumerate(list(run.edits())):
            if only is None or kept.name in only:
                album = Album()
                run.save_all([Filing(_waiting(kept.edit, known), album=album, position=position)])


def _enrol(run: Run, manifest: Path, protocol: str | None) -> None:
    edits = list(load_manifest(manifest, protocol=protocol))
    if not edits:
        raise UserError(f"{manifest.name} names no edits")
    run.enrol(Entry(edit, position) for position, edit in enumerate(edits))


def _waiting(edit: Edit, protocol: Protocol) -> Judgement:
    try:
        criteria = [rubric.criterion for rubric in protocol.rubrics_for(edit)]
    except MissingInput as error:
        raise UserError(str(error)) from None
    return Judgement(
        edit=edit,
        protocol=protocol.name,
        mode="plain",
        judge=NOBODY,
        verdicts=tuple(
            Unjudged(criterion=criterion, reason=Reason.NEEDS_A_PERSON, detail=DETAIL) for criterion in criteria
        ),
    )
