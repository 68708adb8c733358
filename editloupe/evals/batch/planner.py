"""Plan the missing units of a manifest as one job per edit, repeat and try.

A unit is one question about one edit in one repeat. For every edit, `Planner.jobs`

1. hashes the pictures (`EditFiles`) and brings the edit's row in the run up to date;
2. computes the key of each question: what is asked, and the inputs that the judge is shown;
3. looks in the run for a unit that answers the question. The policy decides whether it is used or asked again;
4. waits with questions that another edit is being asked with the same inputs (`UnitsUnderWay`): they share one unit;
5. links the units that are used to the edit, and yields the remaining criteria as jobs.

Before that, `Planner.survey` reads the whole manifest once. It counts units and finds verdicts that would be paid for again.
`Replacement` records in run.json that verdicts are being replaced, so that a stopped replacement continues where it stopped.
"""

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
from editloupe._util.json_safe import sanitize_text
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
from editloupe.pictures.table_cells import find_file
from editloupe.types import Edit, Sha

ANNOUNCED_AT_ONCE = 500
"""Edits that are added to the run in one transaction."""
_UnitKey = tuple[QuestionKey, int]
"""A question and a repeat."""
_REPLACING = "replacing"
"""Field of run.json: replacements that were begun and are not finished."""


@dataclass(frozen=True)
class RejudgePolicy:
    """Which questions are asked although the run has an answer."""

    retry_unjudged: bool = False
    """Ask again if the judge gave no verdict."""
    keep: bool = False
    """Use verdicts of the same judge although the question or its inputs have changed."""
    replace: bool = False
    """Ask everything again and replace the answers."""
    only: frozenset[str] = frozenset()
    """Ids or names of the edits to judge, again if need be; empty for all edits."""
    exact: bool = False
    """Use only answers to exactly the same question, not equivalent ones. Needed to compare ways of asking."""

    @property
    def judges_again(self) -> bool:
        """True if existing verdicts are asked for again."""
        return self.replace or bool(self.only)


@dataclass(frozen=True)
class Job:
    """The missing criteria of one edit in one repeat."""

    edit: Edit
    position: int | None
    """In the manifest; None if only some edits are judged."""
    repeat: int
    criteria: tuple[str, ...]
    tries: int = 1
    number: int | None = None
    """The edit's number in the run; None if the run is not written."""
    questions: Mapping[str, QuestionKey] = field(default_factory=dict)
    """By criterion."""
    hashes: Mapping[PictureSource, Sha] = field(default_factory=dict)
    """Hashes of the pictures, as they went into the question keys."""
    old_verdicts: Mapping[str, int] = field(default_factory=dict)
    """By criterion, the unit whose verdict is to be replaced. It is kept if this job ends unjudged."""


@dataclass(frozen=True)
class ManifestSurvey:
    """Counts of a manifest, made before anything is asked."""

    units: int
    changes: tuple[str, ...]
    """Sentences on what changed since the run's verdicts, each with the number of units concerned."""
    key: str
    """Identifies this set of edits, questions and repeats."""


class EditFiles:
    """Hashes of an edit's readable pictures.

    Args:
        edit: The edit.
        records: The run's rows with the edit's id. A file whose size and time they know is not read again.
    """

    def __init__(self, edit: Edit, records: Iterable[EditRecord] = ()) -> None:
        self.hashes: dict[PictureSource, Sha] = {}
        self.stamps: dict[str, FileStamp] = {}
        """By path, as the run stores them."""
        before: dict[str, FileStamp] = {}
        for record in records:
            before |= record.stamps()
        for path in edit.paths:
            if path not in self.hashes:
                self._add(path, before.get(sanitize_text(str(path))))
        self.pictures = {
            role: [self.hashes[path] for path in paths]
            for role, paths in edit.files.items()
            if all(path in self.hashes for path in paths)
        }
        """Hashes by role, of the roles whose pictures are all readable."""

    def _add(self, path: PictureSource, before: FileStamp | None) -> None:
        if isinstance(path, MemoryPicture):
            with suppress(ImageError):
                self.hashes[path] = hash_file(path)
            return
        try:
            status = check_file(find_file(path))
            same = before is not None and before[:2] == (status.st_size, status.st_mtime_ns)
            sha = before.sha if before and same else hash_file(path)
        except (OSError, ImageError):
            return
        self.hashes[path] = sha
        self.stamps[sanitize_text(str(path))] = FileStamp(status.st_size, status.st_mtime_ns, sha)


class UnitsUnderWay:
    """Tracks the units being judged and the edits that wait for them. The planner and the runner use it from two threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: dict[_UnitKey, list[int]] = {}
        self._being_written: set[_UnitKey] = set()
        self._settled: set[bytes] = set()
        """Units that are not asked again in this session, although the run alone would have them asked again."""

    def join(self, question: QuestionKey, repeat: int, number: int | None) -> bool:
        """Have an edit wait for a unit that another edit is being asked; return False if there is none.

        If the unit is being written, wait for that. The run then has its answer.
        """
        key = (question, repeat)
        with self._changed:
            self._changed.wait_for(lambda: key not in self._being_written)
            if question.shown is None or key not in self._under_way:
                return False
            if number is not None:
                self._under_way[key].append(number)
            return True

    def begin(self, question: QuestionKey, repeat: int) -> None:
        """Note a unit as under way."""
        if question.shown is not None:
            with self._changed:
                self._under_way.setdefault((question, repeat), [])

    def followers(self, question: QuestionKey, repeat: int) -> tuple[int, ...]:
        """Return the edits that wait for a unit, which is about to be written. No further edit joins until `end`."""
        key = (question, repeat)
        with self._changed:
            if key not in self._under_way:
                return ()
            self._being_written.add(key)
            return tuple(self._under_way[key])

    def end(self, questions: Collection[QuestionKey], repeat: int) -> None:
        """Note units as no longer under way, whatever their outcome."""
        with self._changed:
            for question in questions:
                self._under_way.pop((question, repeat), None)
                self._being_written.discard((question, repeat))
            self._changed.notify_all()

    def settle(self, question: QuestionKey, repeat: int) -> None:
        """Note a unit as asked in this session; it is not asked again in it."""
        if question.shown is not None:
            self._settled.add(_digest(question, repeat))

    def is_settled(self, question: QuestionKey, repeat: int) -> bool:
        """Return whether a unit was asked in this session."""
        return bool(self._settled) and _digest(question, repeat) in self._settled


def _digest(question: QuestionKey, repeat: int) -> bytes:
    """Return a short digest of a unit, because there may be as many as the run has units."""
    return blake2b(f"{question.asked} {question.shown} {repeat}".encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Replacement:
    """A set of units that is judged again to replace the run's answers."""

    key: str
    """Identifies the edits and questions; see `ManifestSurvey.key`."""
    after: int
    """The highest number of an answer at the beginning. Answers with a higher number were replaced already."""
    began: str
    continued: bool = False
    """True if an earlier session began it."""


def find_replacement(run: Run, key: str) -> Replacement | None:
    """Return the unfinished replacement of this key, if any."""
    replacements = run.about().get(_REPLACING)
    entry = replacements.get(key) if isinstance(replacements, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(entry.get("after"), int):
        return None
    return Replacement(key, entry["after"], str(entry.get("began")), continued=True)


def begin_replacement(run: Run, key: str) -> Replacement:
    """Return the unfinished replacement of this key, or begin one. It is recorded before anything is replaced."""
    if unfinished := find_replacement(run, key):
        return unfinished
    with run.reader() as reader:
        after = reader.last_answer()
    replacement = Replacement(key, after, timestamp())

    def record(about: dict[str, Any]) -> bool:
        before = about.get(_REPLACING)
        entry = {"after": after, "began": replacement.began}
        about[_REPLACING] = {**(before if isinstance(before, dict) else {}), key: entry}
        return True

    run.amend_about(record)
    return replacement


def finish_replacement(run: Run, replacement: Replacement) -> None:
    """Remove the record of a replacement, so that the next one of its key starts from the beginning."""

    def remove(about: dict[str, Any]) -> bool:
        others = {key: entry for key, entry in about.pop(_REPLACING, {}).items() if key != replacement.key}
        about.update({_REPLACING: others} if others else {})
        return True

    run.amend_about(remove)


class Planner:
    """Turns edits into jobs. Used by one thread at a time; any thread may close it.

    Args:
        run: The run; may be open for reading only, which gives an estimate.
        judge: The judge that will be asked.
        policy: Which questions are asked again; by default none that have an answer.
        repeats: How often every edit is judged.
    """

    def __init__(self, run: Run, judge: BaseJudge, policy: RejudgePolicy | None = None, repeats: int = 1) -> None:
        self._run, self._judge, self._repeats = run, judge, repeats
        self._policy = policy or RejudgePolicy()
        self._reader = run.reader()
        specs = judge.question_specs()
        self._answers = AnswerFinder(self._reader, specs, self._policy.keep, self._policy.exact)
        self._spec_keys = {spec.key for spec in specs}
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self._under_way = UnitsUnderWay()
        self.replacement: Replacement | None = None
        """Set if verdicts are replaced: tells which of them were replaced already."""
        self.held = 0
        """Units that need not be asked: judged before, or unjudged and not to be retried."""
        self.shared = 0
        """How many of these were asked in this session about another edit with the same inputs."""

    def survey(self, edits: Iterable[Edit]) -> ManifestSurvey:
        """Read the whole manifest before anything is asked: count units and find what would be paid for again.

        Files of known edits are not read if their size and time have not changed.
        """
        units = further = 0
        changes: Counter[tuple[str, str]] = Counter()
        digest = hashlib.sha256(repr((self._repeats, sorted(self._spec_keys))).encode())
        for edit in edits:
            digest.update(repr((edit.id, edit.model)).encode("utf-8", "backslashreplace"))
            criteria = self._judge.criteria_for(edit)
            units += len(criteria) * self._repeats
            if not (records := self._reader.edits_with_id(edit.id)):
                continue
            files = EditFiles(edit, records)
            model = edit_rows.stored_model(edit)
            same = edit_rows.find_same_edit(records, model, edit_rows.hash_content(edit, files.hashes))
            if same is None:
                further += any(record.model == model for record in records)
            else:
                changes.update(self._find_changes(same.edit, edit, criteria, files.hashes))
        return ManifestSurvey(units, tuple(self._format_changes(changes, further)), digest.hexdigest()[:16])

    def announce(self, edits: Iterable[Edit]) -> None:
        """Add every edit of the manifest to the run before the first is judged, so that a stopped run shows what is missing."""
        new = (
            NewEdit(edit, None if self._policy.only else position, announced=True)
            for position, edit in enumerate(edits)
        )
        while some := list(itertools.islice(new, ANNOUNCED_AT_ONCE)):
            self._run.upsert_edits(some)

    def _find_changes(
        self, number: int, edit: Edit, criteria: Iterable[str], hashes: Mapping[PictureSource, Sha]
    ) -> Iterator[tuple[str, str]]:
        """Yield what changed and the criterion, for every verdict of an edit that no longer answers its question."""
        for criterion in criteria:
            question = self._judge.question_key(edit, criterion, hashes)
            for repeat in range(self._repeats):
                if change := self._answers.find_change(number, question, repeat):
                    yield change, criterion

    def _format_changes(self, changes: Mapping[tuple[str, str], int], further: int) -> Iterator[str]:
        consequence = "the old verdicts are used" if self._policy.keep else "judged again; --keep uses the old verdicts"
        consequence = "judged again in their place" if self._policy.judges_again else consequence
        for (change, criterion), count in changes.items():
            yield f"{change} changed: {number_of(count, 'unit')} of {criterion}, {consequence}"
        if further:
            both = "both are kept and both count; --replace keeps only the manifest's"
            yield (
                f"{number_of(further, 'edit')} {verb(further, 'has', 'have')} other pictures or another instruction than "
                f"the run has under the same id and model: {'those are replaced' if self._policy.replace else both}"
            )

    def jobs(self, edits: Iterable[tuple[int, Edit]]) -> Iterator[Job]:
        """Yield the jobs of these edits in order; units the run has already are skipped."""
        for position, edit in edits:
            # If only some edits are judged, their positions in the manifest are unknown; known edits keep theirs.
            yield from self._jobs_of_edit(None if self._policy.only else position, edit)

    def next_jobs(self, jobs: Iterator[Job], count: int) -> list[Job]:
        """Take the next few jobs; `close` waits until this returns."""
        with self._turn:
            return list(itertools.islice(jobs, count))

    def _jobs_of_edit(self, position: int | None, edit: Edit) -> Iterator[Job]:
        records = self._reader.edits_with_id(edit.id)
        files = EditFiles(edit, records)
        number = self._update_edit(position, edit, files, records)
        criteria = self._judge.criteria_for(edit)
        questions = {criterion: self._judge.question_key(edit, criterion, files.hashes) for criterion in criteria}
        self._delete_stale_answers(number, {question.asked for question in questions.values()})
        for repeat in range(self._repeats):
            missing: dict[int, dict[str, QuestionKey]] = {}
            verdicts: dict[str, int] = {}
            answers: list[Answer] = []
            for criterion, question in questions.items():
                if self._under_way.join(question, repeat, number):
                    continue
                unit = self._answers.find(number, question, repeat)
                tries = self._next_try(unit, question, repeat) if unit else 1
                if unit and not tries:
                    with self._counting:
                        self.held += 1
                    if number is not None:
                        answers.append(Answer(number, criterion, question.asked, repeat, unit.unit, question.shown))
                else:
                    self._under_way.begin(question, repeat)
                    if unit and unit.status == "judged":
                        verdicts[criterion] = unit.unit
                    missing.setdefault(tries, {})[criterion] = question
            self._link(answers)
            for tries, own in missing.items():
                old = {criterion: verdicts[criterion] for criterion in own if criterion in verdicts}
                yield Job(edit, position, repeat, tuple(own), tries, number, own, files.hashes, old)

    def _update_edit(self, position: int | None, edit: Edit, files: EditFiles, records: list[EditRecord]) -> int | None:
        """Bring the run's row of the edit up to date and return its number; None if there is no row and no writer."""
        content = edit_rows.hash_content(edit, files.hashes)
        same = edit_rows.find_same_edit(records, model := edit_rows.stored_model(edit), content)
        if not self._run.writable:
            return same.edit if same else None
        replaced = [record.edit for record in records if record.model == model and record is not same]
        if replaced and self._policy.replace and content is not None:
            self._run.delete_edits(replaced)
        return self._run.upsert_edits([NewEdit(edit, position, content, files.stamps, files.pictures)])[0]

    def _delete_stale_answers(self, number: int | None, spec_keys: set[str]) -> None:
        """Unlink answers given under the wording of a different task type, which the edit had before."""
        if number is None or not self._run.writable or not (foreign := self._spec_keys - spec_keys):
            return
        if stale := foreign & self._answers.questions_answered(number):
            self._run.delete_answers(number, stale)

    def _link(self, answers: list[Answer]) -> None:
        """Have existing units answer an edit that they do not answer yet."""
        new = [answer for answer in answers if not self._answers.holds(answer)]
        if new and self._run.writable:
            self._run.add_answers(new)

    def followers(self, job: Job) -> dict[str, tuple[int, ...]]:
        """Return by criterion the edits that wait for the units of a job, which are about to be written."""
        return {name: self._under_way.followers(question, job.repeat) for name, question in job.questions.items()}

    def finish(self, job: Job, outcomes: Mapping[str, str], also: Mapping[str, tuple[int, ...]]) -> None:
        """Note the end of a job.

        Args:
            job: The job.
            outcomes: The status of each outcome that was written, by criterion.
            also: The edits that waited for the units and are answered by them too, by criterion.
        """
        for criterion, status in outcomes.items():
            if self._policy.judges_again or status != "judged":
                self._under_way.settle(job.questions[criterion], job.repeat)
        with self._counting:
            shared = sum(len(also.get(criterion, ())) for criterion in outcomes)
            self.held, self.shared = self.held + shared, self.shared + shared
        self._under_way.end(job.questions.values(), job.repeat)

    def _next_try(self, unit: StoredUnit, question: QuestionKey, repeat: int) -> int:
        """Return the number of the try that an existing unit is due for; 0 if it is done."""
        if self._under_way.is_settled(question, repeat):
            return 0
        replaced = self.replacement and self._answers.judged_after(unit.unit, self.replacement.after)
        if self._policy.judges_again and not replaced:
            return unit.tries + 1
        if unit.status == "judged":
            return 0
        if unit.failed:
            return unit.tries
        return unit.tries + 1 if self._policy.retry_unjudged else 0

    def close(self) -> None:
        """Close the reader once no thread uses it: closing a connection under a reading thread crashes the process."""
        with self._turn:
            self._reader.close()
