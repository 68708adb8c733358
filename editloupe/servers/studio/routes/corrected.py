"""The page of corrected scores: beside each mean of the judge, what people would have said of all edits."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from editloupe.evals.runs.damage import raise_run_damaged
from editloupe.evals.stats.trust.label_queue import QUEUE_FILE, LabelQueue, join_queues
from editloupe.evals.traces.run_index import TableFacts
from editloupe.servers.studio.library import OpenRun
from editloupe.servers.studio.studio import studio_of
from editloupe.servers.studio.worklists import proposed_work, queue_files
from editloupe.types import UserError

router = APIRouter()
Text = Annotated[str, Query(max_length=300)]
Names = Annotated[list[str] | None, Query(max_length=20)]


@router.get("/runs/{key}/corrected")
def corrected(
    request: Request, key: str, configuration: Text = "", queue: Names = None, chosen: bool = False
) -> Response:
    """Return the corrected scores of a run; unless told otherwise by the studio's --queue, else the one in its folder."""
    studio = studio_of(request)
    one = studio.run(key)
    files = queue_files(one, studio.settings.queues)
    names = [name for name in queue or () if name in files]
    if not chosen and not names:
        proposed = proposed_work(one, studio.settings.queues)
        names = [proposed] if proposed == QUEUE_FILE or files.get(proposed) in studio.settings.queues else []
    facts = one.index.facts(configuration)
    blocks: list[Any] = []
    why = ""
    try:
        drawn = join_queues([LabelQueue.read(files[name]) for name in names]) if names else None
        blocks = list(_blocks(one, facts, drawn))
    except UserError as error:
        why = str(error)
    return studio.pages.page(
        "corrected.html",
        one=one,
        facts_of_run=facts,
        blocks=[(type(block).__name__, block) for block in blocks],
        why=why,
        queues=list(files),
        names=names,
        versions=one.served_notes(facts.configuration) if facts.configuration else (),
    )


def _blocks(one: OpenRun, facts: TableFacts, queue: LabelQueue | None) -> Any:
    if not facts.configuration:
        raise UserError("nothing has been judged in this run yet")
    try:
        from editloupe.evals.labels.human import load_human_labels
        from editloupe.evals.report.trust_blocks import corrected_blocks
        from editloupe.evals.stats.scores.run_table import read_run_table
        from editloupe.evals.stats.trust.corrected_scores import correct_scores
    except ImportError as error:
        raise UserError(f"corrected scores need {error.name}, which is not installed") from None
    with raise_run_damaged(one.name):
        table = read_run_table(one.run.folder, configuration=facts.configuration)
        people = load_human_labels(table, studio=one.labels.path)
        return corrected_blocks(correct_scores(table, people, queue), table.titles)
