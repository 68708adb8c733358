"""The reference every editing model is held against: nothing edited, the source itself handed in as the output."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from editloupe.rubrics.protocol import OUTPUT
from editloupe.types import Edit

NOTHING_EDITED = "nothing edited"
"""The name of the model that returns its source; reports show it as a reference and rank it nowhere."""


def untouched(edit: Edit) -> Edit:
    """Return the edit with the source as its edited picture; labels by people belong to another picture and are left out.

    So is a reader's word that the model left no picture.
    """
    extra = {name: value for name, value in edit.extra.items() if name != OUTPUT}
    return edit.model_copy(update={"edited": edit.source, "model": NOTHING_EDITED, "human": {}, "extra": extra})


def with_untouched(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Stream the edits and, behind the first edit of every case, the same case with nothing edited.

    A case is a source with its instruction, targets, turn and further pictures, whoever edited it. Sixteen bytes of each are
    remembered, so that manifests of any length can be streamed.
    """
    seen: set[bytes] = set()
    for edit in edits:
        yield edit
        case = _case(edit)
        if case not in seen:
            seen.add(case)
            if edit.model != NOTHING_EDITED:
                yield untouched(edit)


def _case(edit: Edit) -> bytes:
    further = {role: paths for role, paths in sorted(edit.files.items()) if role != "edited"}
    parts = (edit.instruction, [list(box) for box in edit.target_boxes], edit.turn, further)
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
