"""What an annotator works through: all edits of a run, a queue, or the edits on which annotators differ."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from editloupe.evals.runs.run_folder import QUEUE_SUFFIX
from editloupe.evals.stats.trust.label_queue import QUEUE_FILE, LabelQueue, draw_evenly
from editloupe.servers.studio.library import OpenRun
from editloupe.types import UserError

ALL, DIFFER = "", "differ"
SUFFIX = QUEUE_SUFFIX
"""How the files of queues end that are found beside a run's labels."""


@dataclass(frozen=True)
class Worklist:
    """Edits in the order in which one annotator sees them."""

    key: str
    """As it stands in addresses."""
    title: str
    names: tuple[str, ...]
    shared: frozenset[str] = frozenset()
    """The edits of a calibration round, which everybody labels, where the others are split."""
    needing: frozenset[str] = frozenset()
    """Edits that no judge of a cascade could be trusted with."""
    notes: tuple[str, ...] = ()

    @property
    def adjudicates(self) -> bool:
        """True where labels settle what annotators said differently."""
        return self.key == DIFFER


def worklist(one: OpenRun, key: str, annotator: str, named: Iterable[Path]) -> Worklist:
    """Return an annotator's worklist by its key; one that is not there is told in a sentence."""
    if key == ALL:
        return Worklist(ALL, "All edits", tuple(labelled_edits(one)))
    if key == DIFFER:
        return Worklist(DIFFER, "Where annotators differ", tuple(differing(one)))
    path = queue_files(one, named).get(key)
    if path is None:
        raise UserError(f"there is no queue {key} beside this run; start the studio with --queue FILE")
    queue = LabelQueue.read(path)
    known = set(labelled_edits(one))
    mine = queue.of(annotator)
    names = [drawn.name for drawn in mine if drawn.name in known]
    split = queue.annotators
    notes = []
    if lost := len(mine) - len(names):
        notes.append(f"{lost} of the queue’s edits are not in this run, or nothing was asked of them.")
    if split and annotator not in split:
        notes.append(f"The queue is split between {', '.join(split)}: you see what everybody labels.")
    return Worklist(
        key,
        key.removesuffix(SUFFIX).removesuffix(".jsonl"),
        tuple(names),
        frozenset(drawn.name for drawn in mine if split and drawn.annotator is None),
        frozenset(drawn.name for drawn in mine if drawn.why),
        tuple(notes),
    )


def queue_files(one: OpenRun, named: Iterable[Path]) -> dict[str, Path]:
    """Return the queues there are for a run by name: those the studio was started with, those beside the run and its labels."""
    found: dict[str, Path] = {}
    beside = [path for folder in dict.fromkeys((one.run.folder, one.labels.path.parent)) for path in _queues_in(folder)]
    for path in (*named, *beside):
        if path.resolve() not in {known.resolve() for known in found.values()}:
            name, number = path.name, 2
            while name in found:
                name, number = f"{path.name} ({number})", number + 1
            found[name] = path
    return found


def _queues_in(folder: Path) -> list[Path]:
    own = folder / QUEUE_FILE
    return [*([own] if own.is_file() else []), *sorted(folder.glob(f"*{SUFFIX}"))]


def queue_sizes(one: OpenRun, named: Iterable[Path]) -> dict[str, str]:
    """Return how large each queue of a run is, or what is wrong with it, in words."""
    told = {}
    for name, path in queue_files(one, named).items():
        try:
            queue = LabelQueue.read(path)
        except UserError as error:
            told[name] = str(error)
            continue
        needing = sum(bool(drawn.why) for drawn in queue.drawn)
        shared = sum(drawn.annotator is None for drawn in queue.drawn)
        words = [f"{len(queue.drawn)} edits"]
        if needing:
            words.append(f"{needing} need a person and come first")
        if queue.annotators:
            words.append(f"{shared} shared by all, the others split between {', '.join(queue.annotators)}")
        told[name] = ", ".join(words)
    return told


def proposed_work(one: OpenRun, named: Iterable[Path]) -> str:
    """Return the first queue that holds edits of this run, else all edits: labels outside a queue do not count with it."""
    known = set(labelled_edits(one))
    for name, path in queue_files(one, named).items():
        with suppress(UserError):  # what is wrong with it is said beside its name
            if any(drawn.name in known for drawn in LabelQueue.read(path).drawn):
                return name
    return ALL


def keep_random_subset(one: OpenRun, size: int, seed: int) -> str:
    """Draw a random subset of a run's edits, keep it as a queue beside the labels, and return its name.

    The same size and seed are the same subset; a file that is there is left as it is, for labels may have been drawn by it.
    """
    edits = [(edit_id, name, model) for name, edit_id, model in one.index.asked_edits()]
    if not edits:
        raise UserError("this run holds no edits yet")
    path = one.labels.path.with_name(f"random-{min(size, len(edits))}-of-{len(edits)}-seed-{seed}{SUFFIX}")
    if not path.exists():
        try:
            draw_evenly(edits, size, seed).write(path)
        except OSError as error:
            raise UserError(f"{path} cannot be written ({error.strerror or error})") from None
    return path.name


def labelled_edits(one: OpenRun) -> list[str]:
    """Return the edits of which something is asked, in the manifest's order."""
    return [name for name, _, _ in one.index.asked_edits()]


def differing(one: OpenRun) -> dict[str, set[str]]:
    """Return the edits whose annotators differ and the criteria they differ on, settled ones among them, in the run's order.

    An adjudicated edit keeps its place, so that an adjudicator can go back to it.
    """
    order = labelled_edits(one)
    found: dict[str, set[str]] = {}
    for given in one.index.people().given.values():
        for (name, criterion), scores in given.items():
            if len(set(scores.values())) > 1:
                found.setdefault(name, set()).add(criterion)
    return {name: found[name] for name in order if name in found}


def open_differences(one: OpenRun) -> int:
    """Return how many edits wait for adjudication."""
    settled = settled_places(one)
    return sum(any((name, criterion) not in settled for criterion in on) for name, on in differing(one).items())


def settled_places(one: OpenRun) -> set[tuple[str, str]]:
    """Return what was adjudicated, as (edit, criterion)."""
    return {place for people in one.index.people().by_protocol.values() for place in people.adjudicated}
