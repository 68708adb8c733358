"""Understanding an instruction without a model: what is asked of which thing, from which value to which."""

from __future__ import annotations

import re

from editloupe.agent.rules.change_request import ChangeRequest, Kind
from editloupe.agent.rules.phrases import READERS

TYPES: dict[str, Kind] = {
    "change color": "color",
    "change colour": "color",
    "change material": "material",
    "change ocr": "text",
    "change text": "text",
    "change shape": "shape",
    "removal object": "removal",
    "remove object": "removal",
    "replace object": "replacement",
    "change count": "count",
}
"""The seven instruction types (DLEBench, Table 2), and close spellings of them."""


LONGEST = 1_000
"""Characters of an instruction these rules read; the work of some phrasings grows faster than the sentence."""


def understand(instruction: str, instruction_type: str | None = None) -> ChangeRequest | None:
    """Return what is asked, or None where the sentence says nothing these rules know.

    >>> understand("Changed attribute of white handbag to black")
    ChangeRequest(kind='color', target='white handbag', new='black', old='', old_count=None, new_count=None)
    """
    if len(instruction) > LONGEST:
        return None
    sentence = _tidy(instruction)
    kind = TYPES.get(re.sub(r"[\s_-]+", " ", (instruction_type or "").strip().lower()))
    if instruction_type and kind is None:
        return None
    order: tuple[Kind, ...] = (
        (kind,) if kind else ("text", "count", "color", "material", "shape", "removal", "replacement")
    )
    for candidate in order:
        request = READERS[candidate](sentence, kind is not None)
        if request is not None and request.target:
            return request
    return None


def _tidy(instruction: str) -> str:
    text = instruction.strip().translate(str.maketrans("“”„«»‘’‚`", '"""""\'\'\'\''))
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"^(?:please|kindly|can you|could you)\s+", "", text, flags=re.I)
    return re.sub(r"(?:,? please)?[.!?\s]+$", "", text)
