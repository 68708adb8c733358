"""Pictures by role: which picture of an edit a name in a rubric stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from editloupe.pictures.decode import Album
from editloupe.pictures.memory import PictureSource
from editloupe.rubrics.case import Case
from editloupe.rubrics.model import Rubric
from editloupe.rubrics.protocol import MissingInput
from editloupe.types import Edit, Mode, Sha

ROLES: Mapping[str, str] = {
    "Source Image": "source",
    "Edited Image": "edited",
    "Reference Image": "reference",
    "Annotated Image": "annotated",
    "Input Images": "inputs",
    "Reference Images": "references",
    "Pose Sheet": "pose",
    "Golden Label": "golden",
    "Candidate A": "candidate_a",
    "Candidate B": "candidate_b",
}
"""Picture names of the bundled rubrics and the roles they stand for; a plural name stands for all pictures of its role."""
OPTIONAL = "?"


def role_of(name: str) -> str:
    """Return the role a picture's name stands for.

    >>> role_of("Annotated Image"), role_of("Depth Map"), role_of("Reference Images?")
    ('annotated', 'depth_map', 'references')
    """
    name = name.removesuffix(OPTIONAL)
    return ROLES.get(name) or "_".join(name.removesuffix(" Images").removesuffix(" Image").lower().split())


def name_of(role: str) -> str:
    """Return the name a role's picture is shown under.

    >>> name_of("source"), name_of("depth_map")
    ('Source Image', 'Depth Map Image')
    """
    known = {own: name for name, own in ROLES.items()}
    return known.get(role) or f"{role.replace('_', ' ').title()} Image"


def paths_in(edit: Edit, role: str) -> tuple[PictureSource, ...]:
    """Return the pictures of an edit in one role; `inputs` begins with the source, `references` with the reference."""
    found = edit.files.get(role, ())
    if role == "inputs":
        return (edit.source, *(path for path in found if path != edit.source))
    if role == "references" and edit.reference:
        return (edit.reference, *found)
    return found


def gather(edit: Edit, wanted: Sequence[str], album: Album) -> dict[str, Sha]:
    """Return the pictures a rubric asks for by name, in its order; one that is missing is told in one sentence."""
    found: dict[str, Sha] = {}
    for entry in wanted:
        name, role = entry.removesuffix(OPTIONAL), role_of(entry)
        paths = paths_in(edit, role)
        if not paths and not entry.endswith(OPTIONAL):
            raise MissingInput(
                f'edit {edit.id} has no picture in the role "{role}"; give it with --image {role}=FILE '
                f'or under "more_images" in the manifest'
            )
        for label, path in zip(_labels(name, len(paths)), paths, strict=True):
            found[label] = album.open(path).sha
    return found


def _labels(name: str, count: int) -> list[str]:
    if not name.endswith(" Images"):
        return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
    single = name.removesuffix("s")
    return [single] if count == 1 else [f"{single} {number}" for number in range(1, count + 1)]


def make_cases(edit: Edit, rubric: Rubric, mode: Mode, album: Album) -> list[Case]:
    """Return the one case of a rubric that shows whole pictures by role."""
    pictures = gather(edit, rubric.modes[mode].images, album)
    return [Case(edit=edit, rubric=rubric, mode=mode, pictures=pictures)]
