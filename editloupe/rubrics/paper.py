"""The record of a paper, which holds its protocol, the layout of its benchmark and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.rubrics.benchmark import Benchmark
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.published import Published
from editloupe.rubrics.tables import Layout, PrintedTable
from editloupe.types import Edit


@dataclass(frozen=True)
class Scored:
    """The scores of one edit in one repeat, as passed to `Paper.tables`.

    Args:
        edit: The edit.
        repeat: Index of the repeat, from 0.
        scores: Score per criterion, 0 to 100.
        total: Score of the edit by the protocol's arithmetic, or None if a required criterion is unjudged.
        missing: Whether the editing model produced no picture and a rule of the paper decided the edit.
    """

    edit: Edit
    repeat: int
    scores: Mapping[str, float]
    total: float | None
    missing: bool = False


@dataclass(frozen=True)
class SampleFolder:
    """How a benchmark is published as a folder: a file of samples, and folders of pictures next to it.

    Args:
        file: Name of the file of samples.
        pictures: Fields of a manifest to the folders in which their pictures are.
    """

    file: str
    pictures: Mapping[str, str]


@dataclass(frozen=True)
class Paper:
    """Everything EditLoupe knows about one paper.

    Only `protocol` is required. Each further field adds a feature; None means that the paper does not have it. Make a paper
    available with `register`, or name it in the entry points `editloupe.papers` of a package.
    """

    protocol: Protocol
    """Rubrics and arithmetic. The paper has the protocol's name and title."""
    read: Callable[[Benchmark], Iterator[Edit]] | None = None
    """Yields the edits of the benchmark with the results of one model (`--layout NAME --results MODEL=FOLDER`). If a result
    does not exist, `edited` is the path where it would be."""
    part: Callable[[Edit], tuple[str, ...]] | None = None
    """Returns the parts of the benchmark that an edit belongs to, widest first, such as a language and a subset.

    A part without any result was not run and is left out; in other parts a missing result is a missing output. If None, the
    benchmark as a whole is the only part.
    """
    absent_part: Callable[[Edit], tuple[str, ...]] | None = None
    """Returns the only part that may be absent, if it is wider than the parts of `part`.

    Narrower parts without results then consist of missing outputs, which `missing_output` may settle. If None, every part
    may be absent.
    """
    fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Renames the fields of one sample of the benchmark's file to those of a manifest (`--layout NAME`)."""
    guessed_boxes: tuple[str, ...] = ()
    """Normalized names of columns that `fields` takes for target boxes although the paper does not document them."""
    folder: SampleFolder | None = None
    """How the file of samples is published, if `--layout NAME` accepts its folder as it is; goes with `fields`."""
    layouts: Callable[[Sequence[Edit], Sequence[str]], Iterable[Layout]] | None = None
    """Returns the layouts of the paper's tables with one row per model, for the edits and criteria of a run."""
    tables: Callable[[Sequence[Scored]], Iterable[PrintedTable]] | None = None
    """Builds tables of any other form from the scores of one model.

    `editloupe report` shows them after the tables of `layouts`. If None and the protocol has rules for preference pairs, the
    table of pairs is built.
    """
    question_types: Mapping[str, str] | None = None
    """Instruction type per type of question, for benchmarks that derive edits from questions about a picture."""
    missing_output: str | None = None
    """Label of the verdict by which the protocol settles an edit without an output; None leaves such edits unjudged."""
    published: Published | None = None
    """The rules and tables of the paper's public script (`editloupe report --as-published`)."""

    read_results: Callable[[Path], Iterator[tuple[str, Mapping[str, Any]]]] | None = None
    """Reads results of the paper's public script for `editloupe import`: yields where a row is, and its columns."""

    @property
    def name(self) -> str:
        """Name on the command line and in runs."""
        return self.protocol.name

    @property
    def title(self) -> str:
        """Name as the paper writes it."""
        return self.protocol.title
