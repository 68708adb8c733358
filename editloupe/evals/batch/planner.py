"""Plan the missing units of a manifest as one job per edit, repeat and try."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from editloupe._util.files import check_file
from editloupe._util.json_safe import storable_text
from editloupe._util.text import number_of, verb
from editloupe.evals.runs import edit_rows
from editloupe.evals.runs.edit_rows import EditRecord, FileStamp, NewEdit
from editloupe.evals.runs.find_answers import AnswerFinder, StoredUnit
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Answer, timestamp
from editloupe.judge.base_judge import BaseJudge
from editloupe.judge.question_key import QuestionKey
from editloupe.pictures.decode import hash_file
from editloupe.pictures.memory import MemoryPicture, PictureSource
from editloupe.pictures.pixels import ImageError
from editloupe.types import Edit, Sha

ANNOUNCED_AT_ONCE = 500
"""Edits that are made known to the run in one transaction."""
_Place = tuple[QuestionKey, int]
_REPLACING = "replacing"
"""Field of run.json: replacements that were begun and not finished, which the same command continues."""


@dataclass(frozen=True)
class RejudgePolicy:
    """What is asked although the run holds something of it."""

    retry_unjudged: bool = False
    """What the judge left open is asked anew."""
    keep: bool = False
    """Verdicts that the same judge gave to a question asked otherwise are used."""
    replace: bool = False
    """Everything is asked anew, and what is held gives way."""
    only: frozenset[str] = frozenset()
    """Ids or names of the edits that are judged, anew; empty for all of them."""
    exact: bool = False
    """Only what answers the very same question is used: where ways of asking are compared, none may stand in for another."""

    @property
    def judges_again(self) -> bool:
        """True where a verdict that is held is asked for once more."""
        return self.replace or bool(self.only)


@dataclass(frozen=True)
class Job:
    """One edit, one repeat, and the criteria that are missing."""

    edit: Edit
    position: int | None
    """In the manifest; None where that is not read as a whole."""
    repeat: int
    criteria: tuple[str, ...]
    tries: int = 1
    number: int | None = None
    """The edit's in the run; None where nothing is written."""
    questions: Mapping[str, QuestionKey] = field(default_factory=dict)
    hashes: Mapping[PictureSource, Sha] = field(default_factory=dict)
    """Of the pictures, as they went into the questions."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    """By criterion, the unit whose verdict is to be replaced; it is kept if this job ends unjudged."""


@dataclass(frozen=True)
class ManifestSurvey:
    """What a manifest comes to, before anything is asked."""

    units: int
    changes: tuple[str, ...]
    """What is asked otherwise than the run's verdicts were, and how many units that concerns, a sentence each."""
    key: str
    """Tells this set of edits, questions and repeats from another."""


class EditFiles:
    """Hashes of the pictures that can be read."""

    def __init__(self, edit: Edit, known: Iterable[EditRecord] = ()) -> None:
        self.hashes: dict[PictureSource, Sha] = {}
        self.stamps: dict[str, FileStamp] = {}
        """By path, as the run keeps them."""
        before: dict[str, FileStamp] = {}
        for row in known:
            before |= row.stamps()
        for path in edit.paths:
            if path not in self.hashes:
                self._take(path, before.get(storable_text(str(path))))
        self.pictures = {
            role: [self.hashes[path] for path in paths]
            for role, paths in edit.files.items()
            if all(path in self.hashes for path in paths)
        }
        """Hashes by role, of the roles that are whole."""

    def _take(self, path: PictureSource, before: FileStamp | None) -> None:
        if isinstance(path, MemoryPicture):
            with suppress(ImageError):
                self.hashes[path] = hash_file(path)
            return
        try:
            found = check_file(path)
            same = before is not None and before[:2] == (found.st_size, found.st_mtime_ns)
            sha = before.sha if before and same else hash_file(path)
        except (OSError, ImageError):
            return
        self.hashes[path] = sha
        self.stamps[storable_text(str(path))] = FileStamp(found.st_size, found.st_mtime_ns, sha)


class UnitsUnderWay:
    """Knows which units are under way and who waits for them; the planner asks from its thread, the runner from its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: dict[_Place, list[int]] = {}
        self._being_written: set[_Place] = set()
        self._over: set[bytes] = set()
        """Those that are not asked twice although the run alone would have them asked again."""

    def follows(self, question: QuestionKey, repeat: int, number: int | None) -> bool:
        """Have an edit wait for a unit that another edit is being asked; False where nobody is.

        Of a unit that is being written the end is awaited: after that the run tells what it holds.
        """
        place = (question, repeat)
        with self._changed:
            self._changed.wait_for(lambda: place not in self._being_written)
            if question.shown is None or place not in self._under_way:
                return False
            if number is not None:
                self._under_way[place].append(number)
            return True

    def begin(self, question: QuestionKey, repeat: int) -> None:
        """Note a unit as under way."""
        if question.shown is not None:
            with self._changed:
                self._under_way.setdefault((question, repeat), [])

    def followers(self, question: QuestionKey, repeat: int) -> tuple[int, ...]:
        """Return the edits that wait for a unit, which is about to be written; further ones wait until it is."""
        place = (question, repeat)
        with self._changed:
            if place not in self._under_way:
                return ()
            self._being_written.add(place)
            return tuple(self._under_way[place])

    def end(self, questions: Collection[QuestionKey], repeat: int) -> None:
        """Note units as no longer under way, whatever came of them."""
        with self._changed:
            for question in questions:
                self._under_way.pop((question, repeat), None)
                self._being_written.discard((question, repeat))
            self._changed.notify_all()

    def settle(self, question: QuestionKey, repeat: int) -> None:
        """Note a unit as asked in this session, for which nothing further is asked in it."""
        if question.shown is not None:
            self._over.add(_mark(question, repeat))

    def settled(self, question: QuestionKey, repeat: int) -> bool:
        """True where a unit was asked in this session."""
        return bool(self._over) and _mark(question, repeat) in self._over


def _mark(question: QuestionKey, repeat: int) -> bytes:
    """Return a few bytes for a unit: with everything judged anew there are as many as the run has units."""
    return blake2b(f"{question.asked} {question.shown} {repeat}".encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Replacement:
    """A set of units that is judged anew in the place of what the run holds of it."""

    key: str
    """Tells which edits are asked which questions."""
    after: int
    """The highest number of an answer when it was begun."""
    began: str
    continued: bool = False
    """True where an earlier session began it."""


def find_replacement(run: Run, key: str) -> Replacement | None:
    """Return the replacement of this key that was begun and not finished."""
    known = run.about().get(_REPLACING)
    found = known.get(key) if isinstance(known, Mapping) else None
    if not isinstance(found, Mapping) or not isinstance(found.get("after"), int):
        return None
    return Replacement(key, found["after"], str(found.get("began")), continued=True)


def begin_replacement(run: Run, key: str) -> Replacement:
    """Return the unfinished replacement of this key, or begin one; it is noted before anything is replaced."""
    if found := find_replacement(run, key):
        return found
    with run.reader() as reader:
        after = reader.last_answer()
    begun = Replacement(key, after, timestamp())

    def note(about: dict[str, Any]) -> bool:
        known = about.get(_REPLACING)
        about[_REPLACING] = {**(known if isinstance(known, dict) else {}), key: {"after": after, "began": begun.began}}
        return True

    run.amend_about(note)
    return begun


def finish_replacement(run: Run, replacement: Replacement) -> None:
    """Take the note of a replacement away: the next one of its key begins anew."""

    def forget(about: dict[str, Any]) -> bool:
        left = {key: noted for key, noted in about.get(_REPLACING, {}).items() if key != replacement.key}
        about.pop(_REPLACING, None)
        about.update({_REPLACING: left} if left else {})
        return True

    run.amend_about(forget)


class Planner:
    """Turns edits into jobs; used from one thread at a time, and closed by any once that one is done."""

    def __init__(
        self,
        run: Run,
        judge: BaseJudge,
        how: RejudgePolicy | None = None,
        repeats: int = 1,
    ) -> None:
        self._run, self._judge, self._repeats = run, judge, repeats
        self._how = how or RejudgePolicy()
        self._reader = run.reader()
        asked = judge.question_specs()
        self._answers = AnswerFinder(self._reader, asked, self._how.keep, self._how.exact)
        self._every = {one.key for one in asked}
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self._shared = UnitsUnderWay()
        self.replacement: Replacement | None = None
        """Where verdicts are asked for once more: what knows which of them were asked again already."""
        self.held = 0
        """Units that were found judged, or unjudged and not to be tried again."""
        self.held_unjudged = 0
        self.shared = 0
        """Of these, units that were asked in this session about another edit, which shows the judge the same."""

    def survey(self, edits: Iterable[Edit]) -> ManifestSurvey:
        """Read the whole manifest before anything is asked: how many units it has, and what would be paid a second time.

        Of edits the run holds, files that have not changed are not read.
        """
        units = further = 0
        concerned: Counter[tuple[str, str]] = Counter()
        names = hashlib.sha256(repr((self._repeats, sorted(self._every))).encode())
        for edit in edits:
            names.update(repr((edit.id, edit.model)).encode("utf-8", "backslashreplace"))
            criteria = self._judge.criteria_for(edit)
            units += len(criteria) * self._repeats
            if not (rows := self._reader.edits_with_id(edit.id)):
                continue
            files = EditFiles(edit, rows)
            model = edit_rows.stored_model(edit)
            same = edit_rows.find_same_edit(rows, model, edit_rows.hash_content(edit, files.hashes))
            if same is None:
                further += any(row.model == model for row in rows)
            else:
                concerned.update(self._changed(same.edit, edit, criteria, files.hashes))
        return ManifestSurvey(units, tuple(self._told(concerned, further)), names.hexdigest()[:16])

    def announce(self, edits: Iterable[Edit]) -> None:
        """Have the run know every edit of the manifest before the first is judged, so that a stop in the middle shows."""
        entries = (
            NewEdit(edit, None if self._how.only else position, announced=True) for position, edit in enumerate(edits)
        )
        while some := list(itertools.islice(entries, ANNOUNCED_AT_ONCE)):
            self._run.upsert_edits(some)

    def _changed(
        self, number: int, edit: Edit, criteria: Iterable[str], hashes: Mapping[PictureSource, Sha]
    ) -> Iterator[tuple[str, str]]:
        """Yield, for every verdict of an edit that does not answer any more, what changed and the criterion."""
        for criterion in criteria:
            question = self._judge.question_key(edit, criterion, hashes)
            for repeat in range(self._repeats):
                if what := self._answers.find_change(number, question, repeat):
                    yield what, criterion

    def _told(self, concerned: Mapping[tuple[str, str], int], further: int) -> Iterator[str]:
        then = "the old verdicts are used" if self._how.keep else "judged again; --keep uses the old verdicts"
        then = "judged again in their place" if self._how.judges_again else then
        for (what, criterion), count in concerned.items():
            yield f"{what} changed: {number_of(count, 'unit')} of {criterion}, {then}"
        if further:
            yield self._further(further)

    def _further(self, count: int) -> str:
        kept = (
            "those give way"
            if self._how.replace
            else "both are kept and both count; --replace keeps only the manifest's"
        )
        return (
            f"{number_of(count, 'edit')} {verb(count, 'has', 'have')} other pictures or another instruction than "
            f"the run holds under the same id and model: {kept}"
        )

    def jobs(self, edits: Iterable[tuple[int, Edit]]) -> Iterator[Job]:
        """Yield the jobs of these edits, in order; what the run holds already is passed over."""
        for position, edit in edits:
            # Of edits that are picked out the place in the manifest is not known: those the run holds keep theirs.
            yield from self._jobs_of(None if self._how.only else position, edit)

    def some(self, jobs: Iterator[Job], count: int) -> list[Job]:
        """Take the next few jobs; `close` waits until they are there."""
        with self._turn:
            return list(itertools.islice(jobs, count))

    def _jobs_of(self, position: int | None, edit: Edit) -> Iterator[Job]:
        rows = self._reader.edits_with_id(edit.id)
        files = EditFiles(edit, rows)
        number = self._enrolled(position, edit, files, rows)
        criteria = self._judge.criteria_for(edit)
        questions = {criterion: self._judge.question_key(edit, criterion, files.hashes) for criterion in criteria}
        self._take_back(number, {question.asked for question in questions.values()})
        for repeat in range(self._repeats):
            missing: dict[int, dict[str, QuestionKey]] = {}
            verdicts: dict[str, int] = {}
            answers: list[Answer] = []
            for criterion, question in questions.items():
                if self._shared.follows(question, repeat, number):
                    continue
                unit = self._answers.find(number, question, repeat)
                tries = self._tries(unit, question, repeat) if unit else 1
                if unit and not tries:
                    self._count(unit)
                    if number is not None:
                        answers.append(Answer(number, criterion, question.asked, repeat, unit.unit, question.shown))
                else:
                    self._shared.begin(question, repeat)
                    if unit and unit.status == "judged":
                        verdicts[criterion] = unit.unit
                    missing.setdefault(tries, {})[criterion] = question
            self._link(answers)
            for tries, asked in missing.items():
                held = {criterion: verdicts[criterion] for criterion in asked if criterion in verdicts}
                yield Job(edit, position, repeat, tuple(asked), tries, number, asked, files.hashes, held)

    def _enrolled(self, position: int | None, edit: Edit, files: EditFiles, rows: list[EditRecord]) -> int | None:
        """Bring the run's row of the edit up to date and return its number; without a row and a writer there is none."""
        content = edit_rows.hash_content(edit, files.hashes)
        same = edit_rows.find_same_edit(rows, model := edit_rows.stored_model(edit), content)
        if not self._run.writable:
            return same.edit if same else None
        others = [row.edit for row in rows if row.model == model and row is not same]
        if others and self._how.replace and content is not None:
            self._run.delete_edits(others)
        return self._run.upsert_edits([NewEdit(edit, position, content, files.stamps, files.pictures)])[0]

    def _take_back(self, number: int | None, asked: set[str]) -> None:
        """Have an edit no longer answered in a wording that is another kind of edit's: its task was told otherwise before."""
        if number is None or not self._run.writable or not (others := self._every - asked):
            return
        if stale := others & self._answers.questions_answered(number):
            self._run.delete_answers(number, stale)

    def _count(self, unit: StoredUnit) -> None:
        with self._counting:
            self.held += 1
            self.held_unjudged += unit.status != "judged"

    def _link(self, answers: list[Answer]) -> None:
        """Have units that are there answer an edit they do not answer yet."""
        new = [answer for answer in answers if not self._answers.holds(answer)]
        if new and self._run.writable:
            self._run.add_answers(new)

    def followers(self, job: Job) -> dict[str, tuple[int, ...]]:
        """Return the edits that wait for the units of a job, by criterion, when these are about to be written."""
        return {name: self._shared.followers(question, job.repeat) for name, question in job.questions.items()}

    def over(self, job: Job, outcomes: Mapping[str, str], also: Mapping[str, tuple[int, ...]]) -> None:
        """Note a job as over: what was written of it, by criterion with its status, answers also those that waited for it."""
        for criterion, status in outcomes.items():
            if self._how.judges_again or status != "judged":
                self._shared.settle(job.questions[criterion], job.repeat)
        with self._counting:
            shared = sum(len(also.get(criterion, ())) for criterion in outcomes)
            self.held, self.shared = self.held + shared, self.shared + shared
        self._shared.end(job.questions.values(), job.repeat)

    def _tries(self, unit: StoredUnit, question: QuestionKey, repeat: int) -> int:
        """Return which try a unit that is held is due for; 0 where it is done."""
        if self._shared.settled(question, repeat):
            return 0
        if self._how.judges_again and not (
            self.replacement and self._answers.judged_after(unit.unit, self.replacement.after)
        ):
            return unit.tries + 1
        if unit.status == "judged":
            return 0
        if unit.failed:
            return unit.tries
        return unit.tries + 1 if self._how.retry_unjudged else 0

    def close(self) -> None:
        """Let go of the file, once nobody reads it: a connection closed under a reading thread ends the whole process."""
        with self._turn:
            self._reader.close()
