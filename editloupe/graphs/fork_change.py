"""What is other at the step where a fork begins: the thought, or what the calls of that step showed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import isfinite
from typing import Any

from pydantic import Field

from editloupe.pictures.decode import Album
from editloupe.types import Observation, Record, Sha, Step, ToolCall, UserError

NO_RESULT = "No result: this call was not carried out."
"""What stands in the place of an observation that was dropped; a call without any answer is refused by providers."""


class StepChange(Record):
    """Changes to one step; calls and their pictures are counted from 1, as people count them."""

    thought: str | None = None
    dropped: tuple[int, ...] = ()
    """Calls whose observations the judge is not shown."""
    again: tuple[int, ...] = ()
    """Calls that are carried out again, with the tools as they are set for the fork."""
    boxes: Mapping[int, tuple[float, float, float, float]] = Field(default_factory=dict)
    """Calls that are carried out again with another box, in the numbers the judge counts in."""
    pictures: Mapping[str, Sha] = Field(default_factory=dict)
    """Other pictures for observations, by `CALL` or `CALL.PICTURE`."""

    def __bool__(self) -> bool:
        return self != StepChange()

    def words(self) -> Iterator[str]:
        """Yield what is other, in a few words each."""
        if self.thought is not None:
            yield "another thought"
        yield from (f"observation {call} dropped" for call in self.dropped)
        yield from (f"call {call} carried out again" for call in self.again)
        for call, box in self.boxes.items():
            yield f"call {call} with the box {', '.join(f'{number:g}' for number in box)}"
        yield from (f"another picture of observation {place}" for place in self.pictures)

    def check(self, step: Step, number: int) -> None:
        """Raise UserError where the step has no such call, picture or box."""
        places = [split_place(place) for place in self.pictures]
        for call in (*self.dropped, *self.again, *self.boxes, *(call for call, _ in places)):
            if not 1 <= call <= len(step.calls):
                have = f"{len(step.calls)} call{'s' * (len(step.calls) != 1)}" if step.calls else "no calls"
                raise UserError(f"step {number} has {have}, so there is no observation {call}")
        self._check_once([call for call, _ in places])
        for call, picture in places:
            shown = seen_of(step, step.calls[call - 1])
            if (count := len(shown.pictures) if shown else 0) < picture:
                have = f"{count} picture{'s' * (count != 1)}" if count else "no picture"
                raise UserError(f"observation {call} of step {number} has {have}, so there is no {picture}")
        for call, box in self.boxes.items():
            if not all(map(isfinite, box)):
                raise UserError(f"the box of call {call} is four finite numbers")
            if box_name(step.calls[call - 1]) is None:
                raise UserError(f"call {call} of step {number}, {step.calls[call - 1].name}, has no box")

    def _check_once(self, pictured: Iterable[int]) -> None:
        """Raise UserError where two changes of one call exclude each other."""
        ways = {
            "dropped": {*self.dropped},
            "made with another box": {*self.boxes},
            "carried out again": {*self.again},
            "shown with another picture": {*pictured},
        }
        for (one, first), (other, second) in combinations(ways.items(), 2):
            if {one, other} == {"made with another box", "carried out again"}:
                continue  # another box is carried out anyway
            for call in sorted(first & second):
                raise UserError(f"observation {call} cannot be {one} and {other} in one fork")

    def calls_of(self, step: Step) -> tuple[ToolCall, ...]:
        """Return the step's calls with their new boxes."""
        return tuple(self._call(call, number) for number, call in enumerate(step.calls, 1))

    def _call(self, call: ToolCall, number: int) -> ToolCall:
        name = box_name(call)
        if number not in self.boxes or name is None:
            return call
        box = [int(value) if value == int(value) else value for value in self.boxes[number]]
        return call.model_copy(update={"parameters": {**call.parameters, name: box}})

    def runs(self, number: int) -> bool:
        """True where a call has to be carried out."""
        return number in self.boxes or number in self.again

    def applied(self, call: ToolCall, number: int, seen: Observation | None) -> Observation:
        """Return what the judge is shown of a call."""
        if seen is None or number in self.dropped:
            return Observation(call_id=call.id, tool=call.name, text=NO_RESULT, failed=True)
        pictures = list(seen.pictures)
        for place, sha in self.pictures.items():
            of, picture = split_place(place)
            if of == number:
                pictures[picture - 1] = sha
        return seen.model_copy(update={"pictures": tuple(pictures)})


def split_place(place: str) -> tuple[int, int]:
    """Return the numbers of a call and of its picture.

    >>> split_place("2"), split_place("2.3")
    ((2, 1), (2, 3))
    """
    call, _, picture = place.partition(".")
    try:
        found = int(call), int(picture or 1)
    except ValueError:
        found = 0, 0
    if min(found) < 1:
        raise UserError(
            f'"{place}" is no picture of an observation; write its number, or 2.3 for the third of the second'
        )
    return found


def seen_of(step: Step, call: ToolCall) -> Observation | None:
    """Return what came back from a call."""
    return next((seen for seen in step.observations if seen.call_id == call.id), None)


def box_name(call: ToolCall) -> str | None:
    """Return the parameter that holds a call's box."""

    def is_box(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and len(value) == 4 and all(isinstance(v, (int, float)) for v in value)

    return next((name for name, value in call.parameters.items() if is_box(value)), None)


def known_pictures(change: StepChange, album: Album) -> None:
    """Raise UserError where a picture that is to be shown is not at hand."""
    for place, sha in change.pictures.items():
        if sha not in album:
            raise UserError(f"the picture for observation {place} is not at hand")
