"""Turn a manifest that was not judged into a run that people can label."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from editloupe.evals.labels.files import EditName, find_rater
from editloupe.evals.labels.human import HumanLabels, LabelFiles, check_not_empty, list_files, merge_labels
from editloupe.evals.labels.label_files import LabelFile, name_files
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.edit_rows import NewEdit
from editloupe.evals.runs.run_folder import LABELS
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.pictures.decode import Album
from editloupe.rubrics.protocol import MissingInput, Protocol
from editloupe.rubrics.registry import DEFAULT
from editloupe.rubrics.registry import get_protocol as protocol_named
from editloupe.rubrics.user_rubrics import with_files
from editloupe.types import Edit, Judgement, Reason, Unjudged, UserError

NO_JUDGE = "nobody"
"""The name of the judge in such a run."""
DETAIL = "No judge was asked; the edit waits for a person's label."


def read_manifest_edits(manifest: Path) -> list[tuple[str, Edit]]:
    """Return the edits of a manifest with the names that a run of it gives them."""
    with tempfile.TemporaryDirectory(prefix="editloupe-") as folder, Run.write(Path(folder) / "run") as run:
        _store_edits(run, manifest, None)
        return [(stored.name, stored.edit) for stored in run.edits()]


def load_manifest_labels(
    manifest: Path,
    edits: Sequence[tuple[str, Edit]],
    protocol: str | None = None,
    files: LabelFiles = None,
) -> HumanLabels:
    """Load people's labels of a manifest's edits: from the manifest, the studio's file next to it, and the given files.

    Args:
        manifest: The manifest's file.
        edits: The edits, as `read_manifest_edits` returns them.
        protocol: The protocol whose criteria are labelled; the default protocol if None.
        files: Files of human labels.

    Raises:
        UserError: A label cannot be read.
    """
    own = list_files(files)
    rules = protocol_named(protocol) if protocol else DEFAULT
    answers = {criterion: rules.rubric(criterion).answer for criterion in rules.criteria}
    studio = LabelFile(manifest.with_name(f"{manifest.stem}.{LABELS}"))
    try:
        human = merge_labels(
            (EditName.of(name, edit) for name, edit in edits),
            answers,
            ((name, edit.human, find_rater(edit.extra)) for name, edit in edits if edit.human),
            name_files((*([studio] if studio.path.is_file() else []), *own)),
        )
        check_not_empty([human], own)
        return human
    except UserError as error:
        missing = any(not file.path.is_file() for file in own)
        hint = "" if protocol or missing else f" (read as labels of {rules.name}; --protocol names another protocol)"
        raise UserError(f"{error}{hint}") from None


def find_labelled_edits(
    manifest: Path, edits: Sequence[tuple[str, Edit]], protocol: str | None = None, files: LabelFiles = None
) -> tuple[list[str], int, tuple[str, ...]]:
    """Find the edits of a manifest that people have labelled.

    Labels are read from the manifest, from the studio's file next to it, and from the given files.

    Args:
        manifest: The manifest's file.
        edits: The edits, as `read_manifest_edits` returns them.
        protocol: The protocol whose criteria are to be labelled; the default protocol if None.
        files: Files of human labels.

    Returns:
        Names of edits with a label on every criterion, the number of edits with labels on some criteria only, and notes.

    Raises:
        UserError: A label cannot be read.
    """
    rules = protocol_named(protocol) if protocol else DEFAULT
    people = load_manifest_labels(manifest, edits, protocol, files)
    complete, partly = [], 0
    for name, edit in edits:
        labelled = [bool(people.counting_scores((name, criterion))) for criterion in _list_criteria(edit, rules)]
        if labelled and all(labelled):
            complete.append(name)
        else:
            partly += any(labelled)
    return complete, partly, (*people.notes, *people.unused)


def _list_criteria(edit: Edit, protocol: Protocol) -> tuple[str, ...]:
    try:
        return tuple(rubric.criterion for rubric in protocol.rubrics_for(edit))
    except MissingInput:  # reported when the edit is judged or labelled
        return protocol.criteria


def write_unjudged_run(
    manifest: Path,
    folder: Path,
    protocol: str | None = None,
    only: Collection[str] | None = None,
    rubrics: Sequence[Path] = (),
) -> None:
    """Write a run in which every edit of a manifest waits for people.

    Pictures are copied into the run's folder, so that a page can show them by their hashes.

    Args:
        manifest: The manifest's file.
        folder: The new run's folder.
        protocol: The protocol whose criteria are labelled; the default protocol, or that of the rubrics, if None.
        only: Names of edits; the others get no questions.
        rubrics: Files with own rubrics, or other wordings of the protocol's. The run records them.
    """
    rules = with_files(protocol, rubrics) if rubrics else protocol_named(protocol) if protocol else DEFAULT
    with Run.write(folder) as run:
        configuration = None
        if rubrics:
            texts = {rubric.name: rubric.model_dump(mode="json") for rubric in rules.rubrics}
            about = {"judge": NO_JUDGE, "protocol": rules.name, "mode": "plain", "rubrics": texts}
            configuration = run.configure(about)
        _store_edits(run, manifest, rules.name)
        if strange := set(only or ()) - {stored.name for stored in run.edits()}:
            raise UserError(f"{manifest.name} has no edit {min(strange)}: the queue was drawn from another manifest")
        for position, stored in enumerate(list(run.edits())):
            if only is None or stored.name in only:
                waiting = _build_unjudged(stored.edit, rules)
                run.save_all([JudgementRecord(waiting, album=Album(), position=position, configuration=configuration)])


def _store_edits(run: Run, manifest: Path, protocol: str | None) -> None:
    edits = list(load_manifest(manifest, protocol=protocol))
    if not edits:
        raise UserError(f"{manifest.name} names no edits")
    run.upsert_edits(NewEdit(edit, position) for position, edit in enumerate(edits))


def _build_unjudged(edit: Edit, protocol: Protocol) -> Judgement:
    try:
        criteria = [rubric.criterion for rubric in protocol.rubrics_for(edit)]
    except MissingInput as error:
        raise UserError(str(error)) from None
    return Judgement(
        edit=edit,
        protocol=protocol.name,
        mode="plain",
        judge=NO_JUDGE,
        verdicts=tuple(
            Unjudged(criterion=criterion, reason=Reason.NEEDS_A_PERSON, detail=DETAIL) for criterion in criteria
        ),
    )
