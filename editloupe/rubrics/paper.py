"""The record of a paper: its protocol, how its benchmark lies on disk, and the tables it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.rubrics.benchmark import Benchmark
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.tables import Layout, PrintedTable
from editloupe.types import Edit


@dataclass(frozen=True)
class Scored:
    """One edit in one repeat: its criteria's scores, 0 to 100, and its own."""

    edit: Edit
    repeat: int
    scores: Mapping[str, float]
    total: float | None
    """By the protocol's `edit_score`; None where a criterion it needs is unjudged."""
    missing: bool = False
    """Whether the editing model left no picture and the paper's rule decided the edit."""


@dataclass(frozen=True)
class Paper:
    """One paper; what it does not have is None."""

    protocol: Protocol
    """Its rubrics and its arithmetic; the paper goes by the protocol's name."""
    read: Callable[[Benchmark], Iterator[Edit]] | None = None
    """Reads the whole benchmark together with a folder of one model's results (`--layout NAME --results MODEL=FOLDER`); a
    result that is not there has the path it would have."""
    part: Callable[[Edit], tuple[str, ...]] | None = None
    """Names what an edit belongs to that a model may not have been run on, from the wider to the narrower (a language, a
    subset); where none of its results is there it is absent, not failed. Without it that is the whole benchmark."""
    absent_part: Callable[[Edit], tuple[str, ...]] | None = None
    """Names the only part that is absent if it has no result, if that is wider than `part`; a narrower part without results
    consists of missing outputs, which `missing_output` may settle. Without it every `part` may be absent."""
    fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Gives a line of the benchmark's sample file our names of fields (`--layout NAME`)."""
    layouts: Callable[[Sequence[Edit], Sequence[str]], Iterable[Layout]] | None = None
    """Lays out the tables the paper prints with one row a model, given a run's edits and the criteria that were asked."""
    tables: Callable[[Sequence[Scored]], Iterable[PrintedTable]] | None = None
    """Makes tables of any other form from one model's edits; `report` shows both after its own. Without it, a protocol with
    rules for preference pairs has the table of its pairs."""
    question_types: Mapping[str, str] | None = None
    """What a question about a picture asks for to the type of the edits that are made of it, where the paper makes them so."""
    missing_output: str | None = None
    """The label its protocol settles an edit with whose picture the model left out; None leaves such an edit unjudged."""

    @property
    def name(self) -> str:
        """The name on the command line and in runs."""
        return self.protocol.name

    @property
    def title(self) -> str:
        """The name as the paper writes it."""
        return self.protocol.title
