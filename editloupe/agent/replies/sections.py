"""Split a reply into thoughts, tool calls, answers, code, quoted sections, JSON objects and the text between them.

The slips of published transcripts are accepted: a missing slash in a closing tag, a space inside a tag, other capitals,
a thought that has only its end. The meaning of the parts is not decided here. A reply is read from left to right
without backtracking, so the work grows linearly with its length.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from editloupe.agent.replies.tags import START_THINKING, TAG, Tag, parse_tag, quotes_others

Kind = Literal["text", "thought", "call", "answer", "object", "code", "quoted"]

_OPENS_A_LINE = r"(?:(?<![^\n].)|(?<=\n .)|(?<=\n  .)|(?<=\n   .))"
_FENCE = (
    rf"`{_OPENS_A_LINE}(?P<ticks>``++)(?P<info>[^`\n]*+)$"
    rf"|~{_OPENS_A_LINE}(?P<tildes>~~++)(?P<about>[^\n]*+)$"
)
_QUOTED_LINE = rf">{_OPENS_A_LINE}(?P<quotation>)"
_NEXT_QUOTED_LINE = re.compile(r"[^\n]*+(?:\n {0,3}+>[^\n]*+)*+")
_BRACE = r"\{(?P<brace>)(?=\s*+(?:[\"“”'‘’`{}]|\w{1,80}+\s*+[:=]))"
_BRACES = re.compile(r"[{}]")
_MARKER = re.compile(r"<\|\w{1,40}+\|>")
"""Tokens that chat templates put between turns and some servers leave in a reply."""
_FLAGS = re.IGNORECASE | re.MULTILINE
_TAG = re.compile(TAG, _FLAGS)
_MARK = re.compile(rf"{TAG}|<!--(?P<comment>)|{_QUOTED_LINE}|{_FENCE}", _FLAGS)
_MARK_OR_BRACE = re.compile(rf"{_MARK.pattern}|{_BRACE}", _FLAGS)
_FENCE_LINE = re.compile(_FENCE, _FLAGS)
_NEXT_WORD = re.compile(r"\s{0,8}+(\w{0,40}+)")
_CONTENT = re.compile(r"[^\W_]|[~?？¿<＜{}\[\](（\"'“‘„«「『]")
"""More than layout: letters and digits, question marks, strike-through, and whatever begins a quotation, a tag or an object."""
OPENING, CLOSING = "\"'“‘„«「『`", "\"'”’“»」』`"
"""Quotation marks; the backtick marks code."""
_CHANNEL = "channel"
_OURSELVES = frozenset({"", "assistant", "model", "final"})
"""The speakers that are the judge itself."""
MOST_BROKEN = 10
"""Broken objects that are skipped in one reply; after the last of them nothing counts as an object."""
MOST_MARKS = 5_000
"""Maximum number of tags, fences and objects in one reply; an answer has a handful, and a reply with more is not parsed."""


DEEPEST = 40
"""Maximum nesting of a value; deeper ones could not be serialized again."""
T = TypeVar("T")


class Malformed(Exception):
    """A reply that cannot be parsed; the message says exactly what is wrong."""


def check_depth(value: T) -> T:
    """Return a JSON value; raise Malformed if it is nested too deeply to be stored."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        containers = [item for item in level if isinstance(item, (dict, list))]
        if not containers:
            return value
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    raise Malformed(f"Your JSON is nested more than {DEEPEST} levels deep; keep it flat.")


def shorten(text: str, limit: int = 80) -> str:
    """Return the beginning of a text on one line, for a sentence that quotes it."""
    text = " ".join(text[: 4 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    item = dict(pairs)
    if len(item) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return item


def _no_constants(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_pairs, parse_constant=_no_constants)
"""Strict JSON decoder: no duplicate keys, no NaN, no Infinity. Newlines and tabs in strings are accepted."""
_SLIP = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+"?+)|(?P<brace>[{}])|(?<=[0-9])(?P<point>\.)(?=\s*+[,}\]])|(?P<comma>,)(?=\s*+[}\]])',
    re.DOTALL,
)
"""Slips that leave the meaning clear: a point without decimals after a number, a comma before a closing bracket. Strings and
braces are matched to find the slips outside strings and the end of the object."""


def decode_object(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON object that begins at a position, and the position after it; `8.` is read as 8, and `8,}` as `8}`.

    Raises:
        ValueError: It is not an object even without these slips.

    >>> decode_object('{"score": 8.,}', 0)
    ({'score': 8}, 14)
    """
    try:
        return DECODER.raw_decode(text, start)
    except ValueError as error:
        parts, done, depth = [], start, 0
        for match in _SLIP.finditer(text, start):
            if match["point"] or match["comma"]:
                parts.append(text[done : match.start()])
                done = match.end()
            elif match["brace"]:
                depth += 1 if match["brace"] == "{" else -1
            if not depth:
                if not parts:
                    raise error
                value, _ = DECODER.raw_decode("".join((*parts, text[done : match.end()])))
                return value, match.end()
        raise error


def has_content(text: str) -> bool:
    """Return True if a text is more than layout.

    >>> has_content("。 ✅"), has_content("or 3")
    (False, True)
    """
    return _CONTENT.search(text) is not None


@dataclass(frozen=True)
class ReplyPart:
    """One part of a reply."""

    kind: Kind
    text: str
    value: Any = None
    """The content of an object."""
    closed: bool = True
    """False if the reply ends before the part does."""
    source: str = ""
    """Code and quoted sections with their delimiters."""

    @property
    def blank(self) -> bool:
        """True if the part has no content, not even on the line of an unclosed fence."""
        unclosed = self.kind == "code" and not self.closed
        text = _MARKER.sub("", self.source) if unclosed else self.text
        return self.kind in ("text", "code") and not has_content(text)


@dataclass(frozen=True)
class Sections:
    """The parts of one reply, in order."""

    parts: tuple[ReplyPart, ...] = ()
    broken: str = ""
    """Why something that begins like a JSON object is not one."""
    scraps: tuple[str, ...] = ()
    """Texts that begin like a JSON object, each up to its last brace or to the end of the reply; without quotations."""

    @cached_property
    def thought(self) -> str:
        """All thoughts; the text outside the tags if there are none."""
        thoughts = [part.text.strip() for part in self.parts if part.kind == "thought"]
        return "\n".join(text for text in thoughts if text) or self.outside

    @cached_property
    def outside(self) -> str:
        """The text between the tags, including objects and code."""
        texts = [(p.source or p.text).strip() for p in self.parts if p.kind in ("text", "object", "code", "quoted")]
        return "\n".join(text for text in texts if text)

    @property
    def calls(self) -> tuple[str, ...]:
        """The blocks of tool calls."""
        return tuple(part.text for part in self.parts if part.kind == "call")

    @property
    def unclosed(self) -> bool:
        """True if a thought has no end."""
        return any(part.kind == "thought" and not part.closed for part in self.parts)


def split_sections(text: str, objects: bool = False) -> Sections:
    """Split a reply into its parts; with `objects`, JSON objects outside the tags are parts of their own.

    Raises:
        Malformed: There are too many tags, fences and objects.

    >>> [part.kind for part in split_sections("<think>Red.</think> So: <answer>Wrong Action</answer>").parts]
    ['thought', 'text', 'answer']
    """
    return _Scanner(text.lstrip(), objects).run()


@dataclass
class _Scanner:
    text: str
    objects: bool = False
    thinking: bool = True
    """False: the tags of thoughts are plain text."""
    fences: bool = True
    parts: list[ReplyPart] = field(default_factory=list)
    past: list[ReplyPart] = field(default_factory=list)
    """Parts that turned out to be thoughts when their end came."""
    done: int = 0
    """Everything before this position is in a part."""
    since: int = 0
    """Start of a thought that has only its end, because the prompt opened it."""
    thoughts: list[str] = field(default_factory=list)
    """Names of the open thoughts, the outermost first."""
    names: Counter[str] = field(default_factory=Counter)
    """Counts of these names."""
    broken: str = ""
    scraps: list[str] = field(default_factory=list)
    spoilt: int = 0
    """No object begins before this position, because it is inside a broken one."""
    failures: int = 0
    marks: int = MOST_MARKS
    """Number of marks that may still be read."""

    def run(self) -> Sections:
        """Scan the whole text."""
        position = 0
        while match := self._pattern().search(self.text, position):
            position = self._take(match)
        if self.thoughts:
            self._endless_thought()
        else:
            self._say(len(self.text))
        return Sections((*self.past, *self.parts), self.broken, tuple(self.scraps))

    def _pattern(self) -> re.Pattern[str]:
        if self.thoughts:
            return _TAG
        return _MARK_OR_BRACE if self.objects and self.spoilt < len(self.text) else _MARK

    def _tags(self, position: int) -> Iterator[Tag]:
        for match in _TAG.finditer(self.text, position):
            self._count()
            if tag := parse_tag(match):
                yield tag

    def _count(self) -> None:
        self.marks -= 1
        if self.marks < 0:
            raise Malformed(f"Your reply has more than {MOST_MARKS:,} tags and objects; give one answer in plain form.")

    def _take(self, match: re.Match[str]) -> int:
        """Handle one mark; return the position to continue from."""
        self._count()
        if match.lastgroup == "brace":
            return self._object(match.start())
        if match.lastgroup in ("info", "about"):
            return self._code(match) if self.fences else match.end()
        if match.lastgroup == "comment":
            end = self.text.find("-->", match.end())
            return self._section("quoted", match.start(), match.end(), end, end + 3)
        if match.lastgroup == "quotation":
            lines = _NEXT_QUOTED_LINE.match(self.text, match.end())
            end = lines.end() if lines else match.end()
            return self._section("quoted", match.start(), match.end(), end, end)
        tag = parse_tag(match)
        if tag is None:
            return match.end()
        if self.thoughts:
            return self._in_thought(tag)
        if tag.kind == "thought" and self.thinking:
            return self._start_thought(tag) if not tag.closing else self._all_was_thought(tag)
        if tag.kind in ("answer", "call") and not tag.closing:
            return self._take_tagged(tag)
        if tag.kind in ("channel", "speaker"):
            return self._channel(tag)
        if tag.name == "s" and not tag.closing and (close := self._end_of_struck_out(tag)):
            return self._section("quoted", tag.start, tag.end, close.start, close.end)
        if tag.kind in ("nothing", "end"):
            self._say(tag.start)
            self.done = tag.end
            return tag.end
        return self._take_unknown(tag) if tag.kind == "unknown" and not tag.closing else tag.end

    def _end_of_struck_out(self, tag: Tag) -> Tag | None:
        """Return the tag that closes struck-out text; None for the tokens <s> and </s> around a whole turn."""
        before = self.text[max(0, tag.start - 40) : tag.start].rstrip().lower()
        close = next((other for other in self._tags(tag.end) if other.name == "s" and other.closing), None)
        if close is None or before.endswith("</s>"):
            return None
        return close if before or has_content(self.text[close.end :]) else None

    def _say(self, until: int) -> None:
        if until > self.done:
            self.parts.append(ReplyPart("text", self.text[self.done : until]))
        self.done = until

    def _section(self, kind: Kind, start: int, inside: int, close: int, end: int) -> int:
        """Add a section; `close` is negative if the reply ends first."""
        self._say(start)
        closed = close >= 0
        close, end = (close, end) if closed else (len(self.text), len(self.text))
        source = self.text[start:end] if kind in ("code", "quoted") else ""
        self.parts.append(ReplyPart(kind, self.text[inside:close], closed=closed, source=source))
        self.done = end
        return end

    def _take_tagged(self, tag: Tag) -> int:
        """Add a call or an answer, up to the next tag of its name, with or without a slash."""
        kind: Kind = "answer" if tag.kind == "answer" else "call"
        for other in self._tags(tag.end):
            if other.name == tag.name or kind == other.kind == "call":
                return self._section(kind, tag.start, tag.end, other.start, other.end)
            if self.thinking and other.kind == "thought" and (other.closing or kind == "answer"):
                # Only mentioned, in a thought that the prompt opened or before one that begins here.
                return tag.end
        return self._section(kind, tag.start, tag.end, -1, -1)

    def _object(self, start: int) -> int:
        """Add a complete JSON object; objects inside a broken one do not count."""
        if start < self.spoilt:
            return start + 1
        try:
            value, end = decode_object(self.text, start)
        except (ValueError, RecursionError) as error:
            self._spoil(start, str(error))
            return start + 1
        self._say(start)
        self.parts.append(ReplyPart("object", self.text[start:end], value))
        self.done = end
        return end

    def _spoil(self, start: int, error: str) -> None:
        """Record a broken object, which extends until its braces are balanced, or to the end."""
        self.broken = self.broken or error
        self.failures += 1
        depth, end = 0, len(self.text)
        for brace in _BRACES.finditer(self.text, start):
            depth += 1 if brace[0] == "{" else -1
            if not depth:
                end = brace.end()
                break
        before, after = self.text[max(start - 1, 0) : start], self.text[end : end + 1]
        if not (before and before in OPENING and after and after in CLOSING):
            self.scraps.append(self.text[start:end])
        # Each failure may read to the end, so their number is bounded.
        self.spoilt = end if self.failures < MOST_BROKEN else len(self.text)

    def _code(self, fence: re.Match[str]) -> int:
        name = "ticks" if fence["ticks"] else "tildes"
        lines = _FENCE_LINE.finditer(self.text, fence.end())
        ends = (line for line in lines if (line[name] or "").startswith(fence[name]))
        close = next((line for line in ends if not (line["info"] or line["about"] or "").strip()), None)
        closing = (close.start(), close.end()) if close else (-1, -1)
        end = self._section("code", fence.start(), fence.end(), *closing)
        # Models put their calls into fences too; carrying out a call judges nothing.
        inside = _Scanner(self.parts[-1].text, thinking=False, fences=False, marks=self.marks)
        calls = [part for part in inside.run().parts if part.kind == "call"]
        self.parts[-1:] = calls or self.parts[-1:]
        self.marks = inside.marks
        return end

    def _start_thought(self, tag: Tag) -> int:
        self._say(tag.start)
        self._open(tag.name)
        self.done = tag.end
        return tag.end

    def _in_thought(self, tag: Tag) -> int:
        """Look for the end of the thought; everything else in it is ignored."""
        position = tag.end
        if tag.kind == "thought":
            # The published slip: the closing tag without its slash.
            if tag.closing or tag.name == START_THINKING == self.thoughts[-1]:
                self._close(tag.name)
            else:
                self._open(tag.name)
        elif tag.kind == "channel":
            word = _NEXT_WORD.match(self.text, tag.end)
            position = word.end() if word else position
            if word and word[1].lower() == "final" and self.names[_CHANNEL]:
                self._close(_CHANNEL)
        elif (tag.kind == "end" and self.names[_CHANNEL]) or (tag.closing and self.names[tag.name]):
            self._close(_CHANNEL if tag.kind == "end" else tag.name)
        if not self.thoughts:
            self.parts.append(ReplyPart("thought", self.text[self.done : tag.start]))
            self.done = position
        return position

    def _open(self, name: str) -> None:
        self.thoughts.append(name)
        self.names[name] += 1

    def _close(self, name: str) -> None:
        """Close the thought of this name and all inside it; a name that is not open closes them all, which is another slip."""
        is_open = self.names[name] > 0
        while self.thoughts:
            last = self.thoughts.pop()
            self.names[last] -= 1
            if is_open and last == name:
                return

    def _all_was_thought(self, tag: Tag) -> int:
        """Turn everything before a closing tag that was never opened into a thought."""
        self.past.append(ReplyPart("thought", self.text[self.since : tag.start]))
        self.parts.clear()
        self.broken = ""
        self.scraps.clear()
        self.spoilt = min(self.spoilt, tag.end) if self.failures < MOST_BROKEN else self.spoilt
        self.done = self.since = tag.end
        return tag.end

    def _endless_thought(self) -> None:
        """Keep the calls of a reply whose thought has no end, because they judge nothing; it is not searched for an answer."""
        rest = _Scanner(self.text[self.done :], thinking=False).run()
        spoken = [part for part in rest.parts if part.kind in ("call", "answer")]
        if spoken and all(part.kind == "call" for part in spoken):
            self.parts += [ReplyPart("thought", rest.outside), *spoken]
        else:
            self.parts.append(ReplyPart("thought", self.text[self.done :], closed=False))

    def _channel(self, tag: Tag) -> int:
        """Handle harmony's markers: every channel but the final one is thought, and other speakers are ignored."""
        word = _NEXT_WORD.match(self.text, tag.end)
        if tag.kind == "speaker":
            in_tag = tag.name in ("user", "assistant", "system")
            if (tag.name if in_tag else word[1].lower() if word else "") not in _OURSELVES:
                return self._section("quoted", tag.start, tag.end, -1, -1)
            word = None if in_tag else word
        final = word is not None and word[1].lower() == "final"
        if tag.kind == "channel" and final:
            self._all_was_thought(tag)
        else:
            self._say(tag.start)
        self.done = word.end() if word else tag.end
        if tag.kind == "channel" and not final:
            self._open(_CHANNEL)
        return self.done

    def _take_unknown(self, tag: Tag) -> int:
        """Keep the text between two unknown tags apart; an unclosed one is plain text, unless it opens a quotation."""
        closings = self._closings.get(tag.name, [])
        index = bisect_left(closings, (tag.end, 0))
        if index < len(closings):
            return self._section("quoted", tag.start, tag.end, *closings[index])
        alone = self.text[tag.start - 1 : tag.start] in ("", "\n") and self.text[tag.end : tag.end + 1] in ("", "\n")
        first = tag.start <= 8 and not self.text[: tag.start].strip()
        return self._start_thought(tag) if (alone or first) and quotes_others(tag.name) else tag.end

    @cached_property
    def _closings(self) -> dict[str, list[tuple[int, int]]]:
        """Positions at which unknown tags are closed, by name."""
        closings: dict[str, list[tuple[int, int]]] = {}
        for tag in self._tags(0):
            if tag.kind == "unknown" and tag.closing:
                closings.setdefault(tag.name, []).append((tag.start, tag.end))
        return closings
