"""One judgement into a run, outside a batch: the same edit judged again in the same way is a further repeat."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from editloupe.evals.runs.records import Filing
from editloupe.evals.runs.store import Run
from editloupe.judge.base_judge import BaseJudge
from editloupe.judge.question_key import Question
from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Judgement, Sha


def keep_judgement(run: Run, judge: BaseJudge, judgement: Judgement, album: Album) -> int:
    """Keep what a judge said of an edit and return the repeat it is kept as."""
    configuration = run.configure(judge.describe(), judge.asked())
    edit, hashes = judgement.edit, _hashes(judgement, album)
    questions = {
        outcome.criterion: judge.question_key(edit, outcome.criterion, hashes) for outcome in judgement.verdicts
    }
    repeat = _next_repeat(run, questions.values())
    run.save_all([Filing(judgement, repeat, album, questions=questions, configuration=configuration)])
    return repeat


def _hashes(judgement: Judgement, album: Album) -> dict[PictureSource, Sha]:
    found: dict[PictureSource, Sha] = {}
    for path in judgement.edit.paths:
        with suppress(ImageError):
            found[path] = album.open(path).sha
    return found


def _next_repeat(run: Run, questions: Iterable[Question]) -> int:
    with run.reader() as reader:
        return max(reader.next_repeat(question) for question in questions)
