"""Preference pairs: what a pair is, how a file of them is read, and the edits that are judged for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from editloupe.evals.manifests.readers import read_jsonl
from editloupe.rubrics.benchmark import read_json_list
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.registry import find_pair_rules, find_protocol
from editloupe.rubrics.rubric_files import describe_validation_error
from editloupe.types import Edit, Record, UserError

LABELS = ("preference", "tie")
PAIRS = "pairs"
"""The field of an edit that says which pairs it stands in: a list of records with file, id, role, label and dimension."""
LINES = (".jsonl", ".ndjson")
Way = Literal["pointwise", "pairwise"]
Role = Literal["winner", "loser", "AB", "BA"]
ROLES: Mapping[Way, tuple[Role, Role]] = {"pointwise": ("winner", "loser"), "pairwise": ("AB", "BA")}
"""What the two edits of a pair are: its candidates, or both candidates in either order."""


class Pair(Record):
    """Two candidates for one instruction, and which of them people prefer."""

    id: str
    source: Path
    instruction: str
    winner: Path
    loser: Path
    dimension: str
    label: Literal["preference", "tie", "open"] = "preference"
    """`open` where nobody said which is better."""
    models: tuple[str, str] | None = None
    """The editing models of winner and loser, where two models' outputs are set against each other."""
    task: str | None = None
    references: tuple[Path, ...] = ()
    unmarked: Path | None = None
    """The source as it is without marks, where marks on the source are part of the instruction."""
    hint: str | None = None
    file: str = ""
    """The name of the file it was read from, without suffix: pairs of two files may have the same ids."""
    root: Path | None = None
    """The folder its paths were relative to."""
    extra: Mapping[str, Any] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells this pair from all others."""
        return self.file, self.id, self.dimension

    def candidate(self, which: Literal["winner", "loser"]) -> Edit:
        """Return one candidate as an edit of its own."""
        annotated = {"annotated": (self.source,)} if self.unmarked else {}
        return self._edit(
            which, self.unmarked or self.source, self.winner if which == "winner" else self.loser, annotated
        )

    def ordered(self, winner_first: bool) -> Edit:
        """Return both candidates as one edit, the winner as candidate A or as candidate B."""
        first, second = (self.winner, self.loser) if winner_first else (self.loser, self.winner)
        pictures = {"candidate_a": (first,), "candidate_b": (second,)}
        return self._edit("AB" if winner_first else "BA", self.source, first, pictures)

    def edits(self, way: Way) -> tuple[Edit, Edit]:
        """Return the two edits that are judged for this pair."""
        if way == "pointwise":
            return self.candidate("winner"), self.candidate("loser")
        return self.ordered(True), self.ordered(False)

    def _edit(self, role: Role, source: Path, edited: Path, pictures: Mapping[str, tuple[Path, ...]]) -> Edit:
        references = {"references": self.references} if self.references else {}
        stands_in = {
            "file": self.file,
            "id": self.id,
            "role": role,
            "label": self.label,
            "dimension": self.dimension,
            **({"models": list(self.models)} if self.models else {}),
        }
        return Edit(
            id=f"{self.id}:{role}",
            source=source,
            edited=edited,
            instruction=self.instruction,
            instruction_type=self.task,
            hint=self.hint,
            more_images={**references, **pictures},
            extra={**self.extra, "dimension": self.dimension, PAIRS: [stands_in]},
        )


def load_pairs(file: str | Path, protocol: str | None = None, way: Way | None = "pointwise") -> Iterator[Pair]:
    """Stream pairs from a JSON list or a JSONL file; paths are relative to the file.

    The protocol says which dimensions a pair can be about; without one that of `editloupe reward`. To be judged candidate
    by candidate, what a pair is asked must be known: one of which it is not raises UserError with its place. Asked both
    at once, or where scores come from elsewhere (`way` None), that does not matter.
    """
    file, rules = Path(file), find_pair_rules(protocol)
    known = find_protocol(protocol)
    own_rules = protocol is None or (known is not None and known.pairs is not None)
    if not file.is_file():
        raise UserError(f"there is no file of pairs at {file}")
    items: Iterable[tuple[str, Mapping[str, Any]]]
    if file.suffix.lower() in LINES:
        items = ((row.where, row.values) for row in read_jsonl(file))
    else:
        items = ((f"{file.name}, pair {place}", item) for place, item in enumerate(read_json_list(file), start=1))
    places: dict[str, str] = {}
    for number, (where, item) in enumerate(items, start=1):
        pair = _pair(item, number, where, file, rules)
        if not own_rules and (known is None or pair.task not in known.types):
            # What folders say of a task is no word for the judge of another protocol.
            pair = pair.model_copy(update={"task": item.get("task")})
        if pair.id in places:
            raise UserError(f'{where}: the id "{pair.id}" stands at {places[pair.id]} already')
        places[pair.id] = where
        if way == "pointwise" and own_rules:
            _check(pair, where, rules)
        yield pair


def merge_pair_edits(edits: Iterable[Edit], by_dimension: bool) -> list[Edit]:
    """Return the edits of pairs, one that several pairs share only once, with all the pairs it stands in.

    With `by_dimension` the question depends on the dimension, so that a candidate is one edit in each of its dimensions.
    """
    found: dict[Any, Edit] = {}
    stands_in: dict[Any, list[Any]] = {}
    for edit in edits:
        extra = {name: value for name, value in edit.extra.items() if name != PAIRS}
        if not by_dimension:
            extra.pop("dimension", None)
        facts = edit.model_dump(mode="json", exclude={"id", "extra"})
        key = json.dumps([facts, extra], sort_keys=True, default=str)
        stands_in.setdefault(key, []).extend(edit.extra.get(PAIRS, ()))
        if key not in found:
            found[key] = edit.model_copy(update={"extra": extra})
    return [
        edit.model_copy(update={"extra": {**edit.extra, PAIRS: stands_in[key]}}) if stands_in[key] else edit
        for key, edit in found.items()
    ]


def _check(pair: Pair, where: str, rules: PairRules) -> None:
    """Refuse a pair of which something is not known that decides what it is asked."""
    try:
        unknown = rules.unknown(pair.candidate("winner"))
    except UserError as error:
        raise UserError(f"{where}: {str(error).removeprefix(f'edit {pair.id}:winner: ')}") from None
    if unknown:
        raise UserError(f"{where}: {unknown}")


def _pair(item: Mapping[str, Any], number: int, where: str, file: Path, rules: PairRules) -> Pair:
    for name in ("source_image", "prompt", "winner", "loser", "dimension"):
        if not str(item.get(name) or "").strip():
            raise UserError(f'{where}: "{name}" is missing')
    if not isinstance(item["dimension"], str) or item["dimension"] not in rules.dimensions:
        known = ", ".join(rules.dimensions)
        raise UserError(f'{where}: "dimension" is {json.dumps(item["dimension"])}, not one of {known}')
    label = item.get("label", "preference")
    if label not in LABELS:
        raise UserError(f'{where}: "label" is {json.dumps(label)}, not preference or tie')
    for name in rules.flags:
        if item.get(name) is not None and not isinstance(item[name], bool):
            raise UserError(f'{where}: "{name}" is {json.dumps(item[name])}, not true or false')

    def path(said: Any) -> Path:
        try:
            return (file.parent / str(said)).resolve()
        except (OSError, RuntimeError, ValueError):
            raise UserError(f"{where}: {said!r} is no path") from None

    references = item.get("reference_image_path") or ()
    if not isinstance(references, (str, list, tuple)):
        raise UserError(f'{where}: "reference_image_path" must be a path or a list of paths')
    unmarked = rules.unmarked(item)
    try:
        pair = Pair(
            id=str(item.get("id") or f"pair_{number:05d}"),
            source=path(item["source_image"]),
            instruction=str(item["prompt"]),
            winner=path(item["winner"]),
            loser=path(item["loser"]),
            dimension=str(item["dimension"]),
            label=label,
            task=rules.task_of(item),
            references=tuple(path(one) for one in ([references] if isinstance(references, str) else references)),
            unmarked=path(unmarked) if unmarked else None,
            hint=str(item.get("hints") or "").strip() or None,
            file=file.stem,
            root=file.parent.resolve(),
            extra={name: item[name] for name in (*rules.kept, *rules.flags) if item.get(name) is not None},
        )
        pair.candidate("winner")  # what an edit cannot hold is said here, where its place is known
    except ValidationError as error:
        raise UserError(f"{where}: {describe_validation_error(error)}") from None
    return pair
