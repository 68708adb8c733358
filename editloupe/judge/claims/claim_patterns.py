"""Read claims from a judge's words by patterns, without a model. A text that fits no pattern is not interpreted.

A clause is read by the first pattern that fits. Questions, plans, wishes and guesses are no claims. Statements that fit no
pattern are counted, so that a reader knows how much was not checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from editloupe.agent.rules.instructions import NUMBERS, parse_instruction
from editloupe.agent.rules.judge import (
    COLLAPSE,
    FLAWLESS,
    MULTIPLE,
    OVER_MODIFICATION,
    PERFECT,
    SINGLE,
    WRONG_ACTION,
)
from editloupe.agent.rules.pixels import BASIC, SYNONYMS, colour_of
from editloupe.judge.claims.claim_records import Claim, ClaimKind, Place, Side, Statement
from editloupe.tools.geometry import round_outwards
from editloupe.types import Box, Edit

Kind = ClaimKind
VERSION = "3"
"""Raised when the same words give other claims."""

LONGEST_CLAUSE = 600
"""Characters of a clause from which it is not read: some patterns take a time that grows with the square of its length."""
SLACK = 1.05
"""By how much a position may exceed the picture."""
_compile = partial(re.compile, flags=re.IGNORECASE)

_END = re.compile(
    r"\s{4,}|(?<=[.!?;])[\"”]?\s+|\n+|,?\s+(?:but|while|whereas|although|however|therefore)\s+|,\s+(?:and|so|with)\s+"
    r"|\s+and\s+(?=(?:nothing|everything|no other|the rest|all other)\b)|\s*→\s*"
)
_NO_CLAIM = re.compile(
    r"""^\W*(?:\d+\.\s+)?(?:asked|requested|measured|known\ instances|thus|i\ (?!see|read|count|find|found|notice|observe)
    |let\ (?:me|us)|let's|first|next|we\ need|if|whether|to\ (?:check|see|decide|verify|confirm)
    |(?:the|this)\ (?:instruction|question|rubric|request|task|edit\ asks)\b|instruction|so\ the\ label|label)
    | \?["”]?$
    | \b(?:should|would|could|might|may|must|ought|maybe|perhaps|possibly|probably|likely|seems?|appears?\ to|unclear|cannot|can't
    |hard\ to|not\ sure|supposed|expected|asks?|asked\ for|wanted|probability|likeness)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_NUMBER = r"-?\d+(?:\.\d+)?"
_DIGITS = r"\d{1,9}"
_BOX = re.compile(rf"[\[(]\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*,\s*({_NUMBER})\s*[\])]")
_NTH = _compile(r"\b(?:difference|place|crop|region|change)\s+(?:no\.?\s*|number\s+|#)?(\d{1,2})\b")
_EDITED = _compile(r"\b(?:edited|second (?:picture|image)|right (?:picture|image|side)|after|afterwards|now|became)\b")
_SOURCE = _compile(r"\b(?:source|original|first (?:picture|image)|left (?:picture|image)|before|was|were|originally)\b")

_PICTURES = r"(?:pictures?|images?|photos?|scenes?)"
_COUNT = rf"(?P<count>{_DIGITS}|no|{'|'.join(NUMBERS)})"
_THINGS = r"(?:(?!differences?\b)[a-z]+\s+){0,2}(?:differences?|places?|regions?|changes?)"
_TOOL_SHOWS = _compile(
    rf"\b(?:tool|comparison|localize_differences|localizer)\b[^.]*?\b(?:shows?|showed|lists?|listed|finds?|found|reports?|reported"
    rf"|returns?|returned|sees?|saw)\s+(?:only\s+|just\s+|exactly\s+)?{_COUNT}\s+{_THINGS}\b"
    rf"|\b(?:they|pictures|images|two)\s+differ\s+in\s+(?:only\s+)?(?P<differ>{_DIGITS}|{'|'.join(NUMBERS)})\s+(?:region|place)s?\b"
)
_CHANGED = (
    r"(?:chang(?:ed|es)|differs?|different|alter(?:ed|s)|modified|edited|recolou?red|repainted|retextured|replaced|distorted"
    r"|damaged|deformed|blurred|warped|smeared|affected|restyled|redrawn|reshaped|swapped)"
)
_STAYED = (
    r"(?:unchanged|unaltered|untouched|unmodified|unaffected|unedited|identical|the same|intact|preserved|as before|as it was"
    rf"|did(?: not|n't) change|(?:is|was|are|were|has|have)(?: not|n't)(?: been)? {_CHANGED}"
    r"|do(?:es)?(?: not|n't) differ|no(?: visible)? (?:change|difference)s?)"
)
_STAYED_VERBOSE = _STAYED.replace(" ", r"\ ")
_NOTHING_ELSE = re.compile(
    rf"""\bnothing\ else\b(?!.*\b(?:un|not)\b)
    | \b(?:everything|all)\ else\b.*\b{_STAYED_VERBOSE}
    | \bthe\ (?:rest|remainder)\ of\ the\ {_PICTURES}\b.*\b{_STAYED_VERBOSE}
    | \b(?:no|without(?:\ any)?)\ (?:other|further|additional|unintended|unasked|more)\ (?:\w+\ )?
      (?:changes?|differences?|edits?|modifications?|anomal(?:y|ies)|regions?|places?|objects?\ {_CHANGED}|parts?\ {_CHANGED})
    | \b(?:outside|apart\ from|besides|away\ from)\ (?:of\ )?(?:the\ |its\ )?target\b.*\b(?:nothing|{_STAYED_VERBOSE})
    | ^(?:\d+\.\s)?distinct\ changed\ regions\b.*:\ none\b""",
    re.IGNORECASE | re.VERBOSE,
)
_OUTSIDE = _compile(r"\b(?:outside|apart from|besides|away from)\b|\bthe (?:rest|remainder) of the\b")
_ALL_SAME = _compile(
    rf"\b(?:two |both )?{_PICTURES} (?:are|look|remain) (?:pixel[- ]for[- ]pixel |completely |exactly |entirely |the )?"
    rf"(?:identical|same|unchanged)\b|\b{_PICTURES} do(?: not|n't) differ\b"
    rf"|\bnothing (?:has |was |is )?(?:changed|different|differs) (?:anywhere|between|in the (?:whole|entire) {_PICTURES})"
    r"|\bno(?: visible| real)? (?:change|difference)s?"
    rf" (?:anywhere|between the (?:two )?{_PICTURES}|in the (?:whole|entire) {_PICTURES})"
)
_SCENE_CHANGED = _compile(
    rf"\b(?:whole|entire|complete)\s+(?:{_PICTURES}|background)\b.*\b{_CHANGED}\b|\b{_PICTURES} differs? nearly everywhere\b"
    rf"|\bit differs nearly everywhere\b|\bscene (?:itself )?(?:has )?(?:changed|collapsed)\b"
)
_SCENE_SAME = _compile(
    rf"\b(?:whole |entire )?(?:scene|background)\b(?: itself)?[^,]*\b{_STAYED}\b|\bonly [\d.]+ % of the area differs\b"
)
_QUOTE = r"[\"“'‘](?P<{}>[^\"”]{{1,120}}?)[\"”'’](?!\w)"
_ABOUT_TEXT = (
    r"\b(?:reads?|says?|text|words?|letter(?:s|ing)?|writing|caption|inscription|label|sign|plate|spell(?:s|ed)?)\b"
)
_TEXT_TO = _compile(
    rf"{_ABOUT_TEXT}.*\bfrom {_QUOTE.format('old')} (?:in)?to {_QUOTE.format('new')}|{_QUOTE.format('old2')}"
    rf" (?:was |has been |is )?(?:changed|replaced|turned)\b.* (?:in)?(?:to|by|with) {_QUOTE.format('new2')}"
)
_TEXT = _compile(rf"{_ABOUT_TEXT}\W+(?:is |was |are |now |still |correctly |only )*:?\s*{_QUOTE.format('new')}")
_READ = _compile(r"^\W*read:\s*(?P<lines>[“\"].*)")
_OBJECT = r"(?:the|an?|another|this|that|one|its)\s+(?P<object>(?:[\w'’-]+\s+){0,5}?[\w'’-]+?)"
_WHERE = r"(?:\s+(?:at|in|on|near)\b[^,;]*?)?"
_GONE = _compile(
    rf"\b{_OBJECT}{_WHERE}\s+(?:is|was|are|were|has been|have been)\s+(?:now\s+|completely\s+|fully\s+|cleanly\s+|also\s+)*"
    r"(?:removed|gone|erased|missing(?! (?:its|an?|the|some|any))|absent|deleted|replaced (?:by|with)"
    r"|no longer (?:there|visible|present))\b"
)
_ADDED = _compile(
    rf"\b{_OBJECT}{_WHERE}\s+(?:is|was|has been|were|have been)\s+(?:newly\s+|also\s+)?(?:added|inserted)\b"
    rf"|\b(?:an? (?:new|extra|additional)|another)\s+(?P<object2>(?:[\w'’-]+\s+){{0,3}}?[\w'’-]+?){_WHERE}"
    r"\s+(?:appears|appeared|is visible|is there)\b"
    r"|\bthere is (?:now )?an? (?:new|extra|additional)\s+(?P<object3>[\w' -]{1,40}?)(?=\s+(?:at|in|on|near|here)\b|[.,;]|$)"
)
_THERE = _compile(rf"\b{_OBJECT}{_WHERE}\s+(?:is|remains|are|remain)\s+(?:still\s+)?(?:there|present|visible)\b")
_HOW_MANY = _compile(
    rf"\bthere\s+(?:are|is)\s+(?:now\s+|exactly\s+|only\s+|still\s+)*{_COUNT}\s+(?P<object>[a-z][\w' -]{{1,40}}?)"
    r"(?=\s+(?:in|at|on|now|visible|left)\b|[.,;]|$)"
    r"|\b(?:number|count)\s+of\s+(?P<object2>[a-z][\w' -]{1,40}?)\s+"
    rf"(?:is\s+(?:now\s+)?|changed\s+from\s+(?P<old>{_DIGITS})\s+to\s+)(?P<new>{_DIGITS})\b"
)
_COLOURS = "|".join(sorted((*BASIC, *SYNONYMS), key=len, reverse=True))
_SHADES = r"(?:(?:dark|light|bright|pale|deep|solid|plain|pure|clearly|fully|entirely|completely)\s+)*"
_COLOUR = _compile(
    rf"\b{_OBJECT}{_WHERE}\s+(?:(?P<now>(?:is|are)\s+now|(?:has\s+|was\s+)?turned|became|(?:was|has\s+been|is)\s+(?:re)?(?:painted|colou?red)"
    rf"|(?:has\s+|was\s+)?changed(?:\s+colou?r)?)(?:\s+from\s+(?P<from>{_COLOURS}))?(?:\s+(?:in)?to)?|(?P<is>is|are|was|were))"
    rf"\s+{_SHADES}(?P<colour>{_COLOURS})\b(?!\s+(?:\w+\s+)?(?:part|side|edge|one)\b)"
)
_MOVED = _compile(
    rf"\b{_OBJECT}{_WHERE}\s+(?:is|was|has|has been|were|have been)?\s*(?:slightly\s+|clearly\s+|also\s+)?"
    r"(?P<how>moved|shifted|displaced|enlarged|shrunk|resized|bigger|smaller|larger)\b"
)
_OF_A_PART = _compile(
    r"\b(?:shape|texture|structure|style|identity|size|position|material|outline|pose|patterns?|colou?rs?|details?|light(?:ing)?"
    r"|lettering|text|parts?|edges?|proportions?|form|otherwise|apart from|except|besides|other than|rest of|type|kind|brand)\b"
)
"""Words that limit what is unchanged: a shape that is the same does not make an object the same."""
_FAINT = _compile(
    r"\b(?:slight(?:ly)?|subtl[ey]|faint(?:ly)?|bright\w*|dark(?:er|ened)|tones?|tint|light(?:er|ing)?|contrast|saturat\w+|sharp\w*"
    r"|compress\w*|noise|grain|jpeg|resolution|quality|minor|tiny|barely|hardly|shift(?:ed)?)\b"
)
"""Words for differences that may be below what is measured, or that of the whole picture."""
_ABOUT_THE_TARGET = _compile(
    r"\b(?:about|of|on|to|in|with) (?:the|its|this|it)\b"
    rf"(?! (?:two |whole |entire |edited |source |rest )*{_PICTURES})"
)
"""`nothing else about the cup` is about the cup only."""
_COLOUR_OF = _compile(r"^(?:colou?r|hue|paint) of (?:the |its )?")
_RELATION = _compile(r"\b(?:of|on|in|around|behind|near|under|above|beside|with|and|next)\b|['’]s\b")
_SOME_CHANGED = _compile(
    rf"\b{_CHANGED}\b|\blooks most like the asked change\b|\bis an? (?:anomaly|artefact|artifact)\b|\(significance"
)
_UNCHANGED = _compile(rf"\b{_STAYED}\b")
_NOT_GONE = _compile(r"\b(?:not|never|nothing)\b|n't")
_NOT_THIS_COLOUR = _compile(r"\b(?:not|never|or)\b|n't")
_NOT_CHANGED = _compile(rf"\b{_STAYED}\b|\bnot\b|n't\b|\bno longer\b")


class _Rule(NamedTuple):
    """A pattern and the claim that it makes, unless a word makes the sentence say something else."""

    pattern: re.Pattern[str]
    kind: Kind
    unless: tuple[re.Pattern[str], ...] = ()
    facts: Mapping[str, str] = {}


_WHOLE_PICTURE_RULES = (
    _Rule(_ALL_SAME, Kind.REGION_UNCHANGED),
    _Rule(_SCENE_SAME, Kind.REGION_UNCHANGED, facts={"subject": "scene"}),
    _Rule(_SCENE_CHANGED, Kind.REGION_CHANGED, unless=(_NOT_CHANGED, _FAINT)),
)
_OBJECT_RULES = (
    _Rule(_GONE, Kind.OBJECT_ABSENT, unless=(_NOT_GONE,), facts={"side": "edited"}),
    _Rule(_ADDED, Kind.OBJECT_PRESENT, unless=(_NOT_CHANGED,), facts={"side": "edited", "value": "added"}),
    _Rule(_THERE, Kind.OBJECT_PRESENT, unless=(_NOT_CHANGED,)),
)
_REGION_RULES = (
    _Rule(_UNCHANGED, Kind.REGION_UNCHANGED, unless=(_OF_A_PART,)),
    _Rule(_SOME_CHANGED, Kind.REGION_CHANGED, unless=(_NOT_CHANGED, _FAINT)),
)
"""In each table the first rule whose pattern is found decides, also if it makes no claim."""
_LABELS: dict[str, tuple[Kind, Place]] = {
    PERFECT: (Kind.NOTHING_ELSE_CHANGED, "rest"),
    SINGLE: (Kind.REGION_CHANGED, "rest"),
    MULTIPLE: (Kind.REGION_CHANGED, "rest"),
    COLLAPSE: (Kind.REGION_CHANGED, "whole"),
    FLAWLESS: (Kind.REGION_CHANGED, "target"),
    OVER_MODIFICATION: (Kind.REGION_CHANGED, "target"),
    WRONG_ACTION: (Kind.REGION_CHANGED, "target"),
}
"""What a label says of the pixels. A label that is not listed says nothing that can be measured."""


@dataclass(frozen=True)
class ReadClaims:
    """The claims of a verdict, and the statements in which no pattern was found."""

    claims: tuple[Claim, ...]
    unparsed: tuple[str, ...] = ()


@dataclass
class _Clause:
    """A clause with what it refers to."""

    text: str
    start: int
    statement: Statement
    target: str
    box: Box | None = None
    place: Place = ""
    side: Side = ""
    plain: str = ""
    """The text with positions replaced by a word, so that their commas do not end a phrase."""
    claims: list[Claim] = field(default_factory=list)

    def add(self, kind: Kind, **facts: Any) -> None:
        """Add a claim of this clause; it is about the clause's own region unless `facts` has another."""
        region = {"place": self.place, "box": self.box} if "place" not in facts else {}
        about = {"step": self.statement.step, "start": self.start, **region, **facts}
        self.claims.append(Claim(kind=kind, text=self.text, **about))

    def about(self, subject: str | None) -> dict[str, Any]:
        """Return the subject of a claim; without a region it is the target if it has its name."""
        name = " ".join((subject or "").split())
        if self.place:
            return {"subject": name}
        bare = _COLOUR_OF.sub("", name.lower())
        words, target = set(bare.split()), set(self.target.lower().split())
        same = bool(words and target) and (words <= target or target <= words) and not _RELATION.search(bare)
        return {"subject": name, "place": "target" if same or bare == "target" else ""}


def read_claims(statements: Sequence[Statement], edit: Edit) -> ReadClaims:
    """Return the claims in the words of a judge.

    Args:
        statements: The texts of the judge.
        edit: The edit they are about.
    """
    request = parse_instruction(edit.instruction)
    claims: list[Claim] = []
    unparsed: list[str] = []
    for statement in statements:
        for text, start in split_clauses(statement.text):
            if len(text) > LONGEST_CLAUSE:
                unparsed.append(text)
                continue
            if _NO_CLAIM.search(text) or not _WORD.search(text):
                continue
            clause = _locate(_Clause(text, start, statement, request.target if request else ""))
            for read in _READERS:
                read(clause)
                if clause.claims:
                    break
            claims += clause.claims
            if not clause.claims:
                unparsed.append(text)
    return ReadClaims(tuple(dict.fromkeys(claims)), tuple(unparsed))


def read_label(label: str, step: int | None = None) -> Claim | None:
    """Return what a label claims of the pixels; None if that cannot be measured.

    >>> read_label("Perfect Consistency").kind.value
    'nothing_else_changed'
    """
    kind = _LABELS.get(label)
    return None if kind is None else Claim(kind=kind[0], text=label, step=step, place=kind[1])


def split_clauses(text: str) -> Iterator[tuple[str, int]]:
    """Yield the clauses of a text and where they begin.

    >>> [clause for clause, _ in split_clauses("The cup is red, and nothing else changed. Fine.")]
    ['The cup is red', 'nothing else changed.', 'Fine.']
    """
    start = 0
    for end in (*_END.finditer(text), None):
        piece = text[start : end.start() if end else len(text)]
        if stripped := piece.strip():
            yield stripped, start + piece.index(stripped)
        start = end.end() if end else len(text)


def _locate(clause: _Clause) -> _Clause:
    """Find the region and the picture that a clause names."""
    text, statement = clause.text, clause.statement
    clause.plain = _BOX.sub("here", text)
    if match := _BOX.search(text):
        clause.box, clause.place = locate_box(match.groups(), statement)
    elif match := _NTH.search(text):
        number = int(match[1])
        if statement.listed is not None and 1 <= number <= len(statement.listed):
            clause.box, clause.place = statement.listed[number - 1], "box"
        elif statement.listed is not None:
            clause.place = "unlisted"
    after, before = _EDITED.search(text), _SOURCE.search(text)
    clause.side = "edited" if after and not before else "source" if before and not after else ""
    return clause


def locate_box(numbers: Sequence[Any], statement: Statement) -> tuple[Box | None, Place]:
    """Convert a position in a judge's words to pixels of the source picture; None if that is not possible."""
    frame = statement.frame
    if frame is None:
        return None, "unseen"
    try:
        x1, y1, x2, y2 = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        return None, "outside"
    width, height = frame.limits
    if not (-math.inf < x1 < x2 <= SLACK * width and -math.inf < y1 < y2 <= SLACK * height):
        return None, "outside"
    box = round_outwards(frame.to_original((x1, y1, x2, y2))).clamped(*frame.size)
    return box, "box" if box else "outside"


def _number(word: str | None) -> int | None:
    if word is None:
        return None
    word = word.lower()
    return int(word) if word.isdigit() else 0 if word == "no" else NUMBERS.get(word)


def _read_tool(clause: _Clause) -> None:
    if match := _TOOL_SHOWS.search(clause.plain):
        statement = clause.statement
        shown = () if statement.listed is None else tuple({len(statement.listed), statement.cropped})
        count = _number(match["count"] or match["differ"])
        clause.add(Kind.TOOL_DIFFERENCES, count=count, shown=tuple(sorted(shown)), place="")


def _read_pictures(clause: _Clause) -> None:
    # Crops and pictures with a mask are not the whole pictures.
    whole = clause.statement.frame is not None
    if _NOTHING_ELSE.search(clause.plain):
        if not _ABOUT_THE_TARGET.search(clause.plain) or _OUTSIDE.search(clause.plain):
            clause.add(Kind.NOTHING_ELSE_CHANGED, place="rest" if whole else "unseen")
    elif not clause.place and (found := _match_rule(_WHOLE_PICTURE_RULES, clause.plain)):
        rule, _ = found
        clause.add(rule.kind, place="whole" if whole else "unseen", **rule.facts)


def _match_rule(rules: Sequence[_Rule], text: str) -> tuple[_Rule, re.Match[str]] | None:
    """Return the first rule whose pattern is in a text, with the match; None without one, or if it makes no claim here."""
    for rule in rules:
        if match := rule.pattern.search(text):
            return None if any(pattern.search(text) for pattern in rule.unless) else (rule, match)
    return None


def _group(match: re.Match[str], name: str) -> str | None:
    """Return the text of a group; the alternatives of a pattern number the groups of one name: `new`, `new2`."""
    return next((text for key, text in match.groupdict().items() if text and key.rstrip("23") == name), None)


def _read_text(clause: _Clause) -> None:
    if match := _READ.search(clause.plain):
        for line in re.findall(r"“([^”]+)”", match["lines"]):
            clause.add(Kind.TEXT_READS, side="edited", value=line)
    elif match := _TEXT_TO.search(clause.plain):
        clause.add(Kind.TEXT_READS, side="source", value=_group(match, "old"))
        clause.add(Kind.TEXT_READS, side="edited", value=_group(match, "new"))
    elif (
        clause.side
        and (match := _TEXT.search(clause.plain))
        and not _NOT_CHANGED.search(match.string[: match.start("new")])
    ):
        clause.add(Kind.TEXT_READS, side=clause.side, value=match["new"])


def _read_counts(clause: _Clause) -> None:
    if match := _HOW_MANY.search(clause.plain):
        subject = _group(match, "object") or ""
        count = _number(match["count"] or match["new"])
        if count is not None and not re.search(_THINGS, subject, re.IGNORECASE):
            if match["old"]:
                clause.add(Kind.OBJECT_COUNT, side="source", subject=subject, count=int(match["old"]))
            clause.add(Kind.OBJECT_COUNT, side=clause.side or "edited", subject=subject, count=count)


def _read_objects(clause: _Clause) -> None:
    if found := _match_rule(_OBJECT_RULES, clause.plain):
        rule, match = found
        facts = {"side": clause.side or "edited", **rule.facts}
        clause.add(rule.kind, **facts, **clause.about(_group(match, "object")))


def _read_colours(clause: _Clause) -> None:
    match = _COLOUR.search(clause.plain)
    if match is None or _NOT_THIS_COLOUR.search(clause.plain):
        return
    subject = clause.about(match["object"])
    if match["from"]:
        clause.add(Kind.COLOUR, side="source", value=colour_of(match["from"]), **subject)
    side = "edited" if match["now"] else clause.side
    if side:
        clause.add(Kind.COLOUR, side=side, value=colour_of(match["colour"]), **subject)


def _read_motion(clause: _Clause) -> None:
    if (match := _MOVED.search(clause.plain)) and not _NOT_CHANGED.search(clause.plain):
        if re.fullmatch(rf"(?:\w+ )*{_PICTURES}", match["object"], re.IGNORECASE):
            clause.add(Kind.MOVED, place="whole", value=match["how"].lower())
        else:
            clause.add(Kind.MOVED, value=match["how"].lower(), **clause.about(match["object"]))


def _read_regions(clause: _Clause) -> None:
    if not clause.place and re.search(r"\btarget\b", clause.plain, re.IGNORECASE):
        clause.place = "target"
    if clause.place and (found := _match_rule(_REGION_RULES, clause.plain)):
        rule, _ = found
        clause.add(rule.kind)


_READERS: tuple[Callable[[_Clause], None], ...] = (
    _read_tool,
    _read_pictures,
    _read_text,
    _read_counts,
    _read_objects,
    _read_colours,
    _read_motion,
    _read_regions,
)
