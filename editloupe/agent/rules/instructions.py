"""Parse an instruction into the change it asks for, without a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from editloupe.agent.rules.pixels import colour_of
from editloupe.agent.rules.thresholds import load_vocabulary

Kind = Literal["color", "material", "text", "shape", "removal", "replacement", "count"]

_PLACES = (
    ("left", r"\b(?:left(?:most)?|left-hand)\b"),
    ("right", r"\b(?:right(?:most)?|right-hand)\b"),
    ("top", r"\b(?:top(?:most)?|upper|uppermost)\b"),
    ("bottom", r"\b(?:bottom|lower|lowest)\b"),
)


@dataclass(frozen=True)
class ChangeRequest:
    """The change that an instruction asks for."""

    kind: Kind
    target: str
    """The object to change, with the words that identify it."""
    new: str = ""
    """The requested value: a colour, a material, a text, a shape or the new object."""
    old: str = ""
    old_count: int | None = None
    new_count: int | None = None

    @property
    def new_colour(self) -> str | None:
        """The requested basic colour, if the request is about colour."""
        return colour_of(self.new) if self.kind == "color" else None

    @property
    def place(self) -> str | None:
        """The target's position among similar objects in the instruction: left, right, top or bottom."""
        # "the telephone on the right side of the lamp" is relative to another object, not to the picture.
        words = re.sub(r"\b(?:left|right|top|bottom)(?:[- ]hand)?(?: side)? of\b.*", "", self.target.lower())
        return next((name for name, pattern in _PLACES if re.search(pattern, words)), None)

    def name_in(self, instruction: str) -> str:
        """Return the target's name as it appears in the instruction, for a detector.

        >>> ChangeRequest("replacement", "spider on the blue sail", "dog").name_in("Change spider to dog on the blue sail")
        'spider'
        """
        words = self.target.split()
        pieces = (" ".join(words[:end]) for end in range(len(words), 0, -1))
        return next((piece for piece in pieces if piece.lower() in " ".join(instruction.lower().split())), "")

    def say(self) -> str:
        """Describe the request, for the thought."""
        if self.kind == "count":
            return f'count of "{self.target}" from {self.old_count if self.old_count is not None else "?"} to {self.new_count}'
        if self.kind == "removal":
            return f'removal of "{self.target}"'
        before = f' from "{self.old}"' if self.old else ""
        return f'{self.kind} of "{self.target}"{before} to "{self.new}"'


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
"""Maximum length of an instruction; the work of some patterns grows faster than the sentence."""


def parse_instruction(instruction: str, instruction_type: str | None = None) -> ChangeRequest | None:
    """Return the requested change, or None if the sentence matches none of the known patterns.

    >>> parse_instruction("Changed attribute of white handbag to black")
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


_WORDS = load_vocabulary()
MATERIALS, SHAPES = frozenset(_WORDS["materials"]), frozenset(_WORDS["shapes"])
NUMBERS = {word: value for value, word in enumerate(_WORDS["numbers"])}
_NUMBER = rf"(\d+|{'|'.join(NUMBERS)})"

_CHANGE = (
    r"(?:chang(?:e|ed|ing)|alter(?:ed)?|modif(?:y|ied)|switch(?:ed)?|convert(?:ed)?|turn(?:ed)?|transform(?:ed)?"
    r"|set|make|made|updated?)"
)
_PAINT = r"(?:paint|dye|tint|colou?r|recolou?r)(?:ed)?"
_BEND = r"(?:bend|bent|reshaped?|deform(?:ed)?|twist(?:ed)?|stretch(?:ed)?|shaped?|curved?|mou?ld(?:ed)?)"
_REMOVE = r"(?:removed?|deleted?|erased?|eliminated?|(?:take|wipe) (?:away|out)|get rid of|clear|cut out)"
_MORE_OR_LESS = r"increased?|decreased?|reduced?|raised?"
_ABOUT_TEXT = (
    r"\b(?:text|words?|letters?|digits?|writing|caption|inscription|reads?|says?|title|label|numbers? on|plate)\b"
)
_SHADE = r"(?:dark|light|bright|pale|deep|pastel|neon|vivid)"
_FROM_TO = r"(?: from (?P<old>.+?))? (?:in)?to (?P<new>.+)"


def _bare(phrase: str) -> str:
    """Drop articles and leftovers at the ends of a noun phrase."""
    phrase = re.sub(r"^(?:the|a|an|all|all the|its|this|that|one of the)\s+", "", phrase.strip(" ,.;:\"'"), flags=re.I)
    return re.sub(r"\s+(?:in|from) the (?:image|picture|photo|scene)$", "", phrase, flags=re.I).strip()


def _attribute(sentence: str, noun: str) -> re.Match[str] | None:
    """Match "change the NOUN of X from A to B", "change X's NOUN to B", "change X's NOUN from A to B"."""
    return re.match(rf"{_CHANGE} (?:the )?{noun} (?:of|on|for) (?P<target>.+?){_FROM_TO}$", sentence, re.I) or re.match(
        rf"{_CHANGE} (?P<target>.+?)(?:'s|s')? {noun}{_FROM_TO}$", sentence, re.I
    )


def _plain_change(sentence: str) -> re.Match[str] | None:
    """Match "change X to B", "change X from A to B", "make X B"."""
    return re.match(rf"{_CHANGE} (?P<target>.+?){_FROM_TO}$", sentence, re.I)


def _color(sentence: str, kind_known: bool) -> ChangeRequest | None:
    match = (
        _attribute(sentence, r"(?:colou?rs?|attributes?|hue)")
        or re.match(
            rf"{_PAINT} (?P<target>.+?)(?P<old>)(?: (?:in|into|to|with))? (?P<new>(?:{_SHADE} )?\S+)$",
            sentence,
            re.I,
        )
        or _plain_change(sentence)
        or re.match(rf"{_CHANGE} (?P<target>.+?)(?P<old>) (?P<new>(?:{_SHADE} )?\S+)$", sentence, re.I)
    )
    if (
        not match
        or colour_of(match["new"]) is None
        or re.search(r"\b(?:material|shape|text|number|count)\b", sentence, re.I)
    ):
        return None
    words = re.findall(r"[a-z]+", match["new"].lower())
    # "to a red apple" asks for another object; a colour is a single word besides its shade.
    last = words[-1] if words[-1] not in ("color", "colour") else words[-2] if len(words) > 1 else ""
    if colour_of(last) is None or (words[0] in ("a", "an", "the") and not kind_known):
        return None
    return ChangeRequest("color", _bare(match["target"]), _bare(match["new"]), _bare(match["old"] or ""))


def _material(sentence: str, kind_known: bool) -> ChangeRequest | None:
    match = (
        _attribute(sentence, r"(?:material|texture|attributes?)")
        or re.match(rf"{_CHANGE} (?P<target>.+?)(?P<old>) (?:(?:out )?of|from) (?P<new>.+)$", sentence, re.I)
        or _plain_change(sentence)
        or re.match(rf"{_CHANGE} (?P<target>.+?)(?P<old>) (?P<new>\S+)$", sentence, re.I)
    )
    if not match:
        return None
    names_material = re.search(r"\b(?:material|texture)\b", sentence, re.I) is not None
    words = re.findall(r"[a-z]+", match["new"].lower())
    if not (names_material or kind_known) and not (words and words[-1] in MATERIALS):
        return None
    return ChangeRequest("material", _bare(match["target"]), _bare(match["new"]), _bare(match["old"] or ""))


_QUOTED = re.compile(r"\"([^\"]+)\"|(?<!\w)'(.+?)'(?!\w)")


def _text(sentence: str, kind_known: bool) -> ChangeRequest | None:
    quotes = [next(g for g in m.groups() if g) for m in _QUOTED.finditer(sentence)]
    rest = _QUOTED.sub("§", sentence)
    about = re.search(_ABOUT_TEXT, rest, re.I)
    if quotes and (about or kind_known or len(quotes) > 1):
        where = re.search(
            r"\b(?:on|of|in|at) (?P<target>[^§]+?)(?: from §| to (?:read |say )?§| with §| as §| so |$)", rest, re.I
        )
        if where is None:
            where = re.search(rf"^{_CHANGE} (?P<target>.+?) (?:to )?(?:read|say)s? ", rest, re.I)
        target = _bare(where["target"]) if where else "text"
        return ChangeRequest("text", target, quotes[-1], quotes[0] if len(quotes) > 1 else "")
    match = re.match(
        rf"{_CHANGE} (?:the )?(?:text|words?|numbers?|digits?|letters?)(?: content)? on (?P<target>.+?){_FROM_TO}$",
        rest,
        re.I,
    )
    return (
        ChangeRequest("text", _bare(match["target"]), match["new"].strip(), (match["old"] or "").strip())
        if match and not quotes
        else None
    )


def _shape(sentence: str, kind_known: bool) -> ChangeRequest | None:
    match = (
        _attribute(sentence, r"(?:shape|form|outline|attributes?)")
        or re.match(
            rf"{_BEND} (?P<target>.+?)(?P<old>) (?:in)?to (?P<new>.+)$",
            sentence,
            re.I,
        )
        or _plain_change(sentence)
        or re.match(rf"{_CHANGE} (?P<target>.+?)(?P<old>) (?P<new>\S+)$", sentence, re.I)
    )
    if not match:
        return None
    words = re.findall(r"[a-z]+", match["new"].lower())
    verb = re.match(_BEND, sentence, re.I)
    if not (kind_known or verb or re.search(r"\bshape\b", sentence, re.I) or (words and words[-1] in SHAPES)):
        return None
    return ChangeRequest("shape", _bare(match["target"]), _bare(match["new"]), _bare(match["old"] or ""))


def _removal(sentence: str, kind_known: bool) -> ChangeRequest | None:
    match = re.match(rf"{_REMOVE} (?P<target>.+)$", sentence, re.I)
    match = match or re.match(r"make (?P<target>.+?) disappear$", sentence, re.I)
    return ChangeRequest("removal", _bare(match["target"])) if match else None


def _replacement(sentence: str, kind_known: bool) -> ChangeRequest | None:
    match = re.match(
        r"(?:replace|replaced|swap|swapped|exchange) (?P<target>.+?) (?:with|by|for) (?P<new>.+)$", sentence, re.I
    )
    match = match or re.match(r"substitute (?P<new>.+?) for (?P<target>.+)$", sentence, re.I) or _plain_change(sentence)
    if not match or re.search(r"\b(?:attributes?|number|count|text)\b", sentence, re.I):
        return None
    new, location = match["new"], ""
    where = re.search(r" (?:on|in|at|near|beside|under|behind) the .+$", new)
    if where and not re.match(r"(?:replace|swap|substitute)", sentence, re.I):
        # "Change spider to dog on the blue sail": the location belongs to the changed object.
        new, location = new[: where.start()], where.group()
    return ChangeRequest("replacement", _bare(match["target"]) + location, _bare(new))


def _count(sentence: str, kind_known: bool) -> ChangeRequest | None:
    patterns = [
        rf"(?:{_CHANGE}|{_MORE_OR_LESS}) (?:the )?(?:number|count|amount|quantity) of (?P<target>.+?)"
        rf"(?: from (?P<old>{_NUMBER}))? to (?P<new>{_NUMBER})\b",
        rf"{_CHANGE} (?:the )?(?P<old>{_NUMBER}) (?P<target>.+?) (?:in)?to (?P<new>{_NUMBER})\b",
    ]
    if kind_known:
        patterns.append(rf"{_CHANGE} (?P<target>.+?)(?: from (?P<old>{_NUMBER}))? to (?P<new>{_NUMBER})\b")
    match = next((found for pattern in patterns if (found := re.match(pattern, sentence, re.I))), None)
    if match is None:
        return None
    return ChangeRequest(
        "count", _bare(match["target"]), old_count=_number(match["old"]), new_count=_number(match["new"])
    )


def _number(word: str | None) -> int | None:
    if word is None:
        return None
    return int(word) if word.isdigit() else NUMBERS.get(word.lower())


READERS: dict[Kind, Callable[[str, bool], ChangeRequest | None]] = {
    "color": _color,
    "material": _material,
    "text": _text,
    "shape": _shape,
    "removal": _removal,
    "replacement": _replacement,
    "count": _count,
}
