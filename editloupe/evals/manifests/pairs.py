"""Preference pairs: what a pair is, and how a file of them is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from editloupe.evals.manifests.benchmark import read_json_list
from editloupe.evals.manifests.readers import read_jsonl
from editloupe.rubrics.load import mistake
from editloupe.rubrics.pairs import PairRules
from editloupe.rubrics.registry import pair_rules
from editloupe.types import Edit, Record, UserError

LABELS = ("preference", "tie")


class Pair(Record):
    """Two candidates for one instruction, and which of them people prefer."""

    id: str
    source: Path
    instruction: str
    winner: Path
    loser: Path
    dimension: str
    label: Literal["preference", "tie"] = "preference"
    task: str | None = None
    references: tuple[Path, ...] = ()
    hint: str | None = None
    extra: Mapping[str, Any] = {}

    def candidate(self, which: Literal["winner", "loser"]) -> Edit:
        """Return one candidate as an edit of its own."""
        return self._edit(f"{self.id}:{which}", self.winner if which == "winner" else self.loser, {})

    def ordered(self, winner_first: bool) -> Edit:
        """Return both candidates as one edit, the winner as candidate A or as candidate B."""
        first, second = (self.winner, self.loser) if winner_first else (self.loser, self.winner)
        return self._edit(
            f"{self.id}:{'AB' if winner_first else 'BA'}", first, {"candidate_a": (first,), "candidate_b": (second,)}
        )

    def _edit(self, name: str, edited: Path, pictures: Mapping[str, tuple[Path, ...]]) -> Edit:
        references = {"references": self.references} if self.references else {}
        return Edit(
            id=name,
            source=self.source,
            edited=edited,
            instruction=self.instruction,
            instruction_type=self.task,
            hint=self.hint,
            more_images={**references, **pictures},
            extra={**self.extra, "dimension": self.dimension, "pair": self.id},
        )


def load_pairs(file: str | Path, protocol: str | None = None) -> Iterator[Pair]:
    """Stream pairs from a JSON list or a JSONL file; paths are relative to the file.

    The protocol says which dimensions a pair can be about; without it that of `editloupe reward`.
    """
    file, rules = Path(file), pair_rules(protocol)
    if not file.is_file():
        raise UserError(f"there is no file of pairs at {file}")
    items: Iterator[Mapping[str, Any]]
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        items = (row.values for row in read_jsonl(file))
    else:
        items = iter(read_json_list(file))
    for number, item in enumerate(items, start=1):
        yield _pair(item, number, file, rules)


def _pair(item: Mapping[str, Any], number: int, file: Path, rules: PairRules) -> Pair:
    where = f"{file.name}, pair {number}"
    for name in ("source_image", "prompt", "winner", "loser", "dimension"):
        if not str(item.get(name) or "").strip():
            raise UserError(f'{where}: "{name}" is missing')
    if not isinstance(item["dimension"], str) or item["dimension"] not in rules.dimensions:
        known = ", ".join(rules.dimensions)
        raise UserError(f'{where}: "dimension" is {json.dumps(item["dimension"])}, not one of {known}')
    label = item.get("label", "preference")
    if label not in LABELS:
        raise UserError(f'{where}: "label" is {json.dumps(label)}, not preference or tie')

    def path(said: Any) -> Path:
        try:
            return (file.parent / str(said)).resolve()
        except (OSError, RuntimeError, ValueError):
            raise UserError(f"{where}: {said!r} is no path") from None

    references = item.get("reference_image_path") or ()
    if not isinstance(references, (str, list, tuple)):
        raise UserError(f'{where}: "reference_image_path" must be a path or a list of paths')
    try:
        pair = Pair(
            id=str(item.get("id") or f"pair_{number:05d}"),
            source=path(item["source_image"]),
            instruction=str(item["prompt"]),
            winner=path(item["winner"]),
            loser=path(item["loser"]),
            dimension=str(item["dimension"]),
            label=label,
            task=item.get("task"),
            references=tuple(path(one) for one in ([references] if isinstance(references, str) else references)),
            hint=str(item.get("hints") or "").strip() or None,
            extra={name: item[name] for name in rules.kept if name in item},
        )
        pair.candidate("winner")  # what an edit cannot hold is said here, where its place is known
    except ValidationError as error:
        raise UserError(f"{where}: {mistake(error)}") from None
    return pair
