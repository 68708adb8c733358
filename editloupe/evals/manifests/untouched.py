"""The reference every editing model is held against: nothing edited, the source itself handed in as the output."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from editloupe.evals.manifests.ids import case_key
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

    Sixteen bytes of each case's key are remembered, so that manifests of any length can be streamed.
    """
    seen: set[bytes] = set()
    for edit in edits:
        yield edit
        key = repr(case_key(edit, edit.files)).encode("utf-8", "surrogatepass")
        case = hashlib.blake2b(key, digest_size=16).digest()
        if case not in seen:
            seen.add(case)
            if edit.model != NOTHING_EDITED:
                yield untouched(edit)
