"""What providers say served a run: which versions, and a sentence where one judge was served in several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pydantic import TypeAdapter, ValidationError

from editloupe.evals.analysis.unit_columns import UnitColumns
from editloupe.types import Record, Served

_SERVED: TypeAdapter[tuple[Served, ...]] = TypeAdapter(tuple[Served, ...])


class ServedVersion(Record):
    """One version of one judge, and how many verdicts rest on replies of it."""

    served: Served
    verdicts: int


def served_versions(units: Iterable[UnitColumns]) -> tuple[ServedVersion, ...]:
    """Return what served these units, the most frequent first; empty for runs that did not record it."""
    found: Counter[str] = Counter()
    for kind, count in (one for columns in units for one in columns.counts.items()):
        if kind.served:
            found[kind.served] += count
    return versions_counted(found)


def versions_counted(counts: Mapping[str, int]) -> tuple[ServedVersion, ...]:
    """Return versions from how many verdicts have each record of what served them, as verdicts keep it."""
    found: Counter[Served] = Counter()
    for text, count in counts.items():
        try:
            served = _SERVED.validate_json(text)
        except ValidationError:  # damage in this part only; the verdict itself could be read
            continue
        for one in served:
            found[one] += count
    return tuple(ServedVersion(served=one, verdicts=count) for one, count in found.most_common())


def version_notes(versions: Iterable[ServedVersion]) -> tuple[str, ...]:
    """Say of every judge that was served in several versions which they were.

    >>> versions = [ServedVersion(served=Served(judge="openai:m", model=m), verdicts=n) for m, n in (("m-1", 90), ("m-2", 10))]
    >>> version_notes(versions)
    ('openai:m was served in 2 versions: m-1 (90 verdicts) and m-2 (10 verdicts); scores may differ with them.',)
    """
    return tuple(_notes(tuple(versions)))


def _notes(versions: tuple[ServedVersion, ...]) -> Iterator[str]:
    for judge in dict.fromkeys(one.served.judge for one in versions):
        own = [one for one in versions if one.served.judge == judge]
        if len(own) > 1:
            told = [f"{one.served.told} ({one.verdicts} verdict{'' if one.verdicts == 1 else 's'})" for one in own]
            listed = f"{', '.join(told[:-1])} and {told[-1]}"
            yield f"{judge} was served in {len(own)} versions: {listed}; scores may differ with them."
