"""Which verdicts may stand beside one: those on the same pictures and instruction; and what else differs between two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from editloupe.evals.runs.records import Unit
from editloupe.judge.question_key import changes
from editloupe.servers.studio.damage import readable
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.servers.studio.library import Library, OpenRun

Judged = tuple["OpenRun", Unit]
_OBVIOUS = ("judge", "mode", "criterion", "protocol")
"""What stands in the title of a verdict anyway, or is said first."""


def verdicts_beside(library: Library, own: OpenRun, unit: Unit) -> list[Judged]:
    """Return all other verdicts by the same criterion on the same pictures and instruction, in all open runs.

    Ids do not count: two runs may give one id to different edits, and different ids to one. Where several edits of a run
    show the same, each way of judging stands there once, of the edit with the same name where there is one.
    """
    found: list[Judged] = []
    content = own.content(unit.name)
    for one in library.runs():
        same_run = one.key == own.key
        try:
            alike = [unit.name] if same_run else one.alike(content) if content else []
            names = sorted(alike, key=lambda name: name != unit.name)
            units = [other for name in names for other in one.units(name)]
        except UserError:  # its own pages say what is wrong with it
            continue
        seen = {(unit.asked, unit.repeat)} if same_run else set()
        for other in units:
            if other.criterion == unit.criterion and (other.asked, other.repeat) not in seen:
                seen.add((other.asked, other.repeat))
                found.append((one, other))
    return found


def differences(left: Judged, right: Judged) -> list[str]:
    """Say what differs between two verdicts on the same pictures and instruction, beside judge, mode and repeat."""
    return list(dict.fromkeys(_differences(left, right)))


def _differences(left: Judged, right: Judged) -> Iterator[str]:
    (one, first), (other, second) = left, right
    if first.protocol != second.protocol:
        yield f"A was asked by {first.protocol}, B by {second.protocol}: criteria of one name, but not one question"
    else:
        told = changes(_asked(one, first), _asked(other, second))
        if told := tuple(what for what in told if not what.startswith(_OBVIOUS)):
            yield f"they were asked otherwise: {', '.join(told)}"
    edit, same = one.edit(first.name).edit, other.edit(second.name).edit
    if edit.id != same.id:
        yield f"the run of B calls this edit {same.id}"
    if edit.model != same.model:
        yield f"the editing model is {edit.model or 'not named'} in A and {same.model or 'not named'} in B"
    for name, words in (
        ("target_boxes", "the targets"),
        ("instruction_type", "the type of the instruction"),
        ("hint", "the hint"),
        ("turn", "the turn"),
    ):
        if getattr(edit, name) != getattr(same, name):
            yield (
                f"{words} of the edit differ between the two runs"
                if name == "target_boxes"
                else (f"{words} differs between the two runs")
            )
    if _further(one, first) != _further(other, second):
        yield "the further pictures of the edit, such as a reference, differ between the two runs"


def _asked(one: OpenRun, unit: Unit) -> Mapping[str, Any]:
    """Return the facts of the question a unit answers; nothing where the run does not know them."""
    with readable(one.name), one.run.reader() as reader:
        return reader.question_facts(unit.asked)


def _further(one: OpenRun, unit: Unit) -> dict[str, list[str]]:
    pictures = one.edit(unit.name).pictures
    return {role: list(shas) for role, shas in pictures.items() if role not in ("source", "edited")}
