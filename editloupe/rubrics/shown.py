"""What of an edit a judge is shown on one rubric: the pictures and texts an answer can depend on, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editloupe.asked import content_key
from editloupe.memory_picture import PictureSource
from editloupe.rubrics.model import Rubric, Telling
from editloupe.rubrics.protocol import Protocol, all_facts, no_facts
from editloupe.rubrics.roles import make_cases, paths_in, role_of
from editloupe.types import Edit, Mode, Sha


@dataclass(frozen=True)
class Shown:
    """What an answer depends on besides the question."""

    pictures: Mapping[str, tuple[PictureSource, ...]]
    """By role."""
    texts: Mapping[str, Any]

    def key(self, hashes: Mapping[PictureSource, Sha]) -> str | None:
        """Return a hash of it all, from the hashes of the pictures; None where a picture has none."""
        if any(path not in hashes for paths in self.pictures.values() for path in paths):
            return None
        by_role = {role: [hashes[path] for path in paths] for role, paths in self.pictures.items()}
        return content_key({**self.texts, "pictures": by_role})


def shown_of(protocol: Protocol, rubric: Rubric, mode: Mode, edit: Edit) -> Shown:
    """Return what a judge is shown of an edit; of one that the paper's rule decides, only that."""
    if settled := protocol.settle(edit, rubric):
        return Shown({}, {"settled": settled.label, "score": settled.score})
    text = rubric.modes[mode]
    roles = [role_of(name) for name in (*text.images, *(rubric.stage.images if rubric.stage else ()))]
    pictures = {role: paths for role in dict.fromkeys(roles) if (paths := paths_in(edit, role))}
    pictures |= {role: edit.files[role] for role in protocol.further_roles if role in edit.files}
    tells = (*rubric.tells, *(rubric.stage.tells if rubric.stage else ()))
    facts_of = protocol.case_facts or (no_facts if protocol.make_cases is make_cases else all_facts)
    # The tools take the instruction's words for names of objects, also where the judge is not told it.
    return Shown(pictures, {"instruction": edit.instruction, **dict(told(edit, tells)), **facts_of(edit, rubric, mode)})


def told(edit: Edit, tells: Sequence[Telling]) -> Iterator[tuple[str, str]]:
    """Yield what of an edit's own text these words stand for, as far as it has it."""
    if "instruction" in tells:
        yield "instruction", edit.instruction.strip()
    if "type" in tells and edit.instruction_type:
        yield "type", edit.instruction_type
    if "hint" in tells and edit.hint:
        yield "hint", edit.hint
