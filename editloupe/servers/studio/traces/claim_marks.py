"""Marks the claims of a verdict in the judge's words, each with its evidence, if the run was verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from editloupe._util.text import number_of
from editloupe.evals.runs.claim_store import ClaimStore
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import Unit
from editloupe.judge.claims.claim_records import ClaimState
from editloupe.types import UserError

STATES = {state.value: state.value.replace("_", " ") for state in (ClaimState.CONTRADICTED, *ClaimState)}
"""The results of checks in words, the worst first."""
MOST_CROPS = 2
"""Regions of a claim that are shown enlarged."""


class Evidence(NamedTuple):
    """The result of a check as it is shown over the words of the claim."""

    state: str
    words: str
    crops: tuple[tuple[str, str], ...] = ()
    """Addresses of the same place in the source and in the edited picture."""


class MarkedPiece(NamedTuple):
    """A part of a text, with the claims it makes; the worst result comes first."""

    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class MarkedClaims:
    """The checked claims of a verdict.

    Args:
        claims: The claims as they are stored.
        pictures: Hashes of the whole pictures by role, for crops.
    """

    claims: Sequence[Mapping[str, Any]]
    pictures: Mapping[str, str]

    @property
    def summary(self) -> str:
        """How many claims there are, by result."""
        states = [claim["state"] for claim in self.claims]
        counts = [f"{states.count(state)} {words}" for state, words in STATES.items() if state in states]
        return f"{number_of(len(states), 'claim')} checked against the pixels: {', '.join(counts)}" if states else ""

    @property
    def label(self) -> tuple[MarkedPiece, ...]:
        """What the label itself claims."""
        return tuple(
            MarkedPiece(claim["text"], (self._show(claim),)) for claim in self.claims if claim["start"] is None
        )

    def pieces(self, text: str, step: int | None = None) -> list[MarkedPiece]:
        """Return a text in pieces, so that each claim in it is one piece.

        Args:
            text: The thought of a step, or the rationale.
            step: The position of the step; None for the rationale, which may be the thought of any.
        """
        claims: dict[tuple[int, int], list[Evidence]] = {}
        for claim in self.claims:
            words, start = claim["text"], claim["start"]
            if start is None or (step is not None and claim["step"] != step):
                continue
            at = start if text.startswith(words, start) else text.find(words)
            if at >= 0 and not any(at < end and begin < at + len(words) != end for begin, end in claims):
                evidence = self._show(claim)
                own = claims.setdefault((at, at + len(words)), [])
                own += [evidence] if evidence not in own else []
        order, pieces, done = list(STATES), [], 0
        for (begin, end), own in sorted(claims.items()):
            pieces += [MarkedPiece(text[done:begin])] if begin > done else []
            worst_first = sorted(own, key=lambda evidence: order.index(evidence.state))
            pieces.append(MarkedPiece(text[begin:end], tuple(worst_first)))
            done = end
        return [*pieces, MarkedPiece(text[done:])] if done < len(text) else pieces

    def _show(self, claim: Mapping[str, Any]) -> Evidence:
        evidence = claim["evidence"]
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in evidence["numbers"].items())
        kind = claim["kind"].replace("_", " ")
        words = f"{kind}: {STATES[claim['state']]}, {evidence['why']}{f' ({numbers})' if numbers else ''}"
        source, edited = self.pictures.get("source"), self.pictures.get("edited")
        boxes = [",".join(map(str, box)) for box in evidence["boxes"][:MOST_CROPS]] if source and edited else []
        crops = tuple(
            (f"/pictures/{source}/crop/{source}?box={box}", f"/pictures/{edited}/crop/{source}?box={box}")
            for box in boxes
        )
        return Evidence(claim["state"], f"{words[:1].upper()}{words[1:]}.", crops)


def read_marks(run: Run, unit: Unit, pictures: Mapping[str, str]) -> MarkedClaims | None:
    """Return the checked claims of a verdict; None if it was not verified since it was judged."""
    try:
        store = ClaimStore.find(run.folder)
        if store is None:
            return None
        with closing(store):
            record = store.find_record(unit.name, unit.asked, unit.repeat, unit.finished_at)
    except UserError:  # the page is of use without them
        return None
    return None if record is None else MarkedClaims(record["claims"], pictures)
