"""Check everything that one verdict claims, in the words of its traces and by its label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from editloupe.agent.rules.judge import CRITERIA
from editloupe.judge.claims.claim_checks import CheckedEdit, check_claim
from editloupe.judge.claims.claim_patterns import read_claims, read_label
from editloupe.judge.claims.claim_records import CheckedClaim, Claim, ClaimState, Statement, read_statements
from editloupe.judge.claims.pixel_facts import Instruments, PairFacts
from editloupe.pictures.decode import Album
from editloupe.types import Edit, Opinion, Sha, Trace, Verdict

MOST_CLAIMS = 100
"""Claims that are checked in the words that led to one label. A detector may look for the object of each."""
FindMore = Callable[[Sequence[Statement], Edit], Sequence[Claim]]
"""Returns further claims in some statements, such as a model's."""


class SpokenPart(NamedTuple):
    """The words of one trace, the label they led to, and the target they are about."""

    statements: tuple[Statement, ...]
    label: str
    target: int | None


class SpokenVerdict(NamedTuple):
    """Everything a verdict says, and the number of tool results that the judge had seen."""

    parts: tuple[SpokenPart, ...]
    tools: int


class CheckedVerdictClaims(NamedTuple):
    """The checked claims of a verdict, and the statements without a claim that is understood or beyond the limit."""

    claims: tuple[CheckedClaim, ...]
    unparsed: tuple[str, ...]

    @property
    def share(self) -> float | None:
        """The share of the checkable claims that are supported; None if none is checkable."""
        states = [checked.state for checked in self.claims]
        checkable = len(states) - states.count(ClaimState.NOT_CHECKABLE)
        return states.count(ClaimState.SUPPORTED) / checkable if checkable else None

    def to_json(self) -> dict[str, Any]:
        """Return the claims as they are stored and printed."""
        return {"claims": [checked.to_json() for checked in self.claims], "unparsed": list(self.unparsed)}


def read_words(verdict: Verdict, traces: Sequence[Trace], source: Sha) -> SpokenVerdict:
    """Return the words of a verdict; of a panel or a cascade only those of the judges whose answer counts.

    Args:
        verdict: The verdict.
        traces: Its traces; without any, its rationale is read.
        source: The hash of the source picture.
    """
    counting = list(_list_counting(verdict.opinions))
    traces = [
        trace
        for trace in traces
        if trace.steps and (not counting or any(parts <= set(trace.part.split(", ")) for parts in counting))
    ]
    label = verdict.label or ""
    if not traces:
        return SpokenVerdict((SpokenPart((Statement(verdict.rationale, None, None, None),), label, None),), 0)
    spoken = []
    for trace in traces:
        statements, answer = read_statements(trace, source)
        spoken.append(SpokenPart(tuple(statements), answer or label, trace.target))
    tools = sum(not result.failed for trace in traces for step in trace.steps for result in step.observations)
    return SpokenVerdict(tuple(spoken), tools)


def _list_counting(opinions: Sequence[Opinion]) -> Iterator[set[str]]:
    """Yield the parts of each judge whose answer counts: its own, and those of the panels and stages around it."""
    for opinion in opinions:
        if opinion.kept:
            inner = list(_list_counting(opinion.opinions))
            yield from ({opinion.part, *parts} for parts in inner or [set[str]()])


def check_words(
    words: SpokenVerdict, criterion: str, edit: Edit, facts: PairFacts, find_more: FindMore | None = None
) -> CheckedVerdictClaims:
    """Check the claims of a verdict.

    Args:
        words: What the verdict says.
        criterion: The criterion; only labels of the two that have a meaning in pixels are claims.
        edit: The edit.
        facts: Measurements of its two pictures.
        find_more: Finds claims that no pattern reads.
    """
    checked: list[CheckedClaim] = []
    unparsed: list[str] = []
    for part in words.parts:
        about = CheckedEdit.of(edit, part.target)
        read = read_claims(part.statements, edit)
        claims, statements = list(read.claims), list(read.unparsed)
        if find_more is not None:
            more = find_more(part.statements, edit)
            by_pattern = {_identify(claim) for claim in claims}
            claims += [claim for claim in more if _identify(claim) not in by_pattern]
            statements = [
                text for text in statements if not any(claim.text in text or text in claim.text for claim in more)
            ]
        unparsed += [*statements, *(claim.text for claim in claims[MOST_CLAIMS:])]
        del claims[MOST_CLAIMS:]
        if criterion in CRITERIA and (label := read_label(part.label)):
            claims.append(label)
        checked += [check_claim(claim, facts, about) for claim in claims]
    return CheckedVerdictClaims(tuple(checked), tuple(unparsed))


@cache
def _load_instruments() -> Instruments:
    """Return the reader and the detector of this process."""
    return Instruments()


def measure_support(verdict: Verdict, traces: Sequence[Trace], edit: Edit, album: Album) -> float | None:
    """Return the share of a verdict's checkable claims that the pixels support; None if none is checkable.

    Args:
        verdict: The verdict.
        traces: Its traces.
        edit: The edit.
        album: Holds the pictures of the edit.
    """
    source, edited = (album.open(path) for path in (edit.source, edit.edited))
    facts = PairFacts(source.pixels, edited.pixels, _load_instruments())
    return check_words(read_words(verdict, traces, source.sha), verdict.criterion, edit, facts).share


def _identify(claim: Claim) -> tuple[Any, ...]:
    """Return what makes two claims the same, however they were read."""
    return claim.kind, claim.side, claim.box, claim.value.casefold(), claim.count, claim.step
