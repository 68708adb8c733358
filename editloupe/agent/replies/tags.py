"""The tags of replies, sorted into thoughts, tool calls, answers and layout.

Models write the papers' tags with slips, and also the tags of their own families: `<think>`, harmony's channels, boxes,
end-of-turn tokens. Tags that are not in these tables are `unknown`; the text between two of them cannot be an answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["thought", "answer", "call", "nothing", "channel", "speaker", "end", "unknown"]

TAG = (
    r"<(?!!--)(?P<tag>[^<>]*+)>|\[(?P<brackets>/?(?:think|thinking|thought|reasoning))\]|◁(?P<triangles>/?think)▷"
    r"|＜(?P<wide>[^＜＞<>]*+)＞|&lt;(?P<escaped>[^&<>]*+)&gt;"
)
"""Each alternative is matched from left to right without backtracking, and begins with a plain character, so that `re`
skips text at the speed of a search for that character."""

_TAG = re.compile(TAG, re.IGNORECASE)

START_THINKING, START_ANSWER = "start thinking", "start final answer"
_THOUGHTS = frozenset(
    {START_THINKING, "think", "thinking", "thought", "thoughts", "reasoning", "reason", "analysis", "scratchpad"}
    | {"scratch pad", "reflection", "reflections", "self reflection", "rationale", "monologue", "inner monologue"}
    | {"internal monologue", "inner thoughts", "deliberation", "plan", "planning", "chain of thought", "cot", "draft"}
    | {"seed:think", "antthinking", "thinking process", "thought process", "brainstorm", "critique", "verification"}
    | {"observation", "observations"}
)
_ANSWERS = frozenset({START_ANSWER, "answer", "final answer"})
_CALLS = frozenset({"tool call", "tool calls", "toolcall", "toolcalls"})
_NOTHING = frozenset(
    {"b", "strong", "i", "em", "u", "p", "div", "span", "br", "hr", "center", "font", "big", "small", "mark", "ul"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "ol", "li", "table", "tr", "td", "th", "response", "output", "result"}
    | {"json", "final", "verdict", "evaluation", "judgement", "judgment", "assessment", "box", "solution", "decision"}
    | {
        "image",
        "img",
        "video",
        "bos",
        "conclusion",
        "rating",
        "score",
        "final verdict",
        "final output",
        "final result",
        "final decision",
    }
)
"""Layout, placeholders, and wrappers that some models put around an answer; their content reads as if they were absent."""
_ENDS = frozenset({"s", "eos", "eos token", "im end", "eot", "eot id", "eom id", "endoftext", "end of text"}) | {
    "end of turn",
    "end of sentence",
    "end of message",
}
_TOKENS: dict[str, Kind] = {"channel": "channel", "start": "speaker", "end": "end", "return": "end", "call": "end"}
_TOKENS |= dict.fromkeys(("im start", "start header id", "user", "assistant", "system"), "speaker")
_TOKENS |= dict.fromkeys(("message", "begin of box", "end of box", "begin of solution", "end of solution"), "nothing")
_TOKENS |= {"end header id": "nothing"}
"""Control tokens, written <|name|>."""
_HALVES = {"begin of thought": False, "end of thought": True, "unused94": False, "unused95": True}
"""Thinking tags whose two ends have different names; True for the closing one."""
_HALF = re.compile(r"(start|begin|beginning|end|stop)(?: of)?(?: the| my)? (.+)")
"""Other tags of thoughts and answers whose name contains their end: <Start of Thinking> … <End Thinking>."""
_LIKE_A_THOUGHT = re.compile(
    r"think|thought|reasoning|monolog"
    r"|(?:^|[ :.])(?:reason|analy[sz]|reflect|scratch|deliberat|rational|ponder|brainstorm|contemplat|introspect|inner )"
    r"|(?:^|[ :.])plan(?:s|ning)?(?:[ :.]|$)"
)
_MOST_WORDS = 4
"""Maximum words of a tag that counts as a thought by its name; longer ones are plain text."""
_OF_OTHERS = re.compile(r"example|quot|(?:^| )(?:user|human|system|tool)(?: |$)")
_ATTRIBUTED = re.compile(r"/?\s*+([^\s=]++)\s++[\w:-]++\s*+=")
_BETWEEN = re.compile(r"[\s_▁-]+")
_WIDE_BAR = str.maketrans({"｜": "|"})
_LONGEST = 60
"""Maximum characters of a tag's name, with runs of spaces counted once; longer ones are plain text."""


@dataclass(frozen=True)
class Tag:
    """One tag of a reply."""

    name: str
    kind: Kind
    closing: bool
    start: int
    end: int


def parse_tag(match: re.Match[str]) -> Tag | None:
    """Return the tag of a match of TAG, or None if it is plain text between angle brackets.

    >>> parse_tag(re.match(TAG, "< /Start   Thinking >")).name
    'start thinking'
    >>> parse_tag(re.match(TAG, "<b and c>")) is None
    True
    """
    inside = match[match.lastgroup or 0]
    words = inside.translate(_WIDE_BAR).strip()
    token = len(words) > 2 and words[0] == words[-1] == "|"
    words = words.strip("| ")
    name = _BETWEEN.sub(" ", words.strip("/ \t\r\n")).lower()
    closing = words.startswith("/") or words.endswith("/")
    if name in _HALVES:
        name, closing = "think", _HALVES[name]
    kind = _kind(name, token)
    if kind == "unknown" and (attributed := _ATTRIBUTED.match(words)):
        name = attributed[1].lower()
        kind = _kind(name, token)
    if kind == "unknown" and len(name) <= _LONGEST and (half := _HALF.fullmatch(name)):
        name, kind, closing = _half(half, name, closing)
    if kind == "unknown" and _is_like_a_thought(name):
        kind = "thought"
    if kind == "unknown" and (token or len(name) > _LONGEST or not _is_a_name(words.strip("/ "), name)):
        return None
    if kind != "thought" and match.lastgroup in ("wide", "escaped"):
        return None  # other brackets may enclose a thought, but not an answer or a call
    return Tag(name, kind, closing, match.start(), match.end())


def quotes_others(name: str) -> bool:
    """Return True for names of tags that begin a quotation or another speaker's text."""
    return _OF_OTHERS.search(name) is not None


def _half(half: re.Match[str], name: str, closing: bool) -> tuple[str, Kind, bool]:
    """Return name, kind and whether it closes, of a tag whose name contains its beginning or end."""
    full_name = next((n for n in (f"start {half[2]}", half[2]) if _kind(n, False) in ("thought", "answer")), None)
    if full_name is None:
        return name, "unknown", closing
    return full_name, _kind(full_name, False), closing or half[1] in ("end", "stop")


def _is_like_a_thought(name: str) -> bool:
    if len(name) > _LONGEST or not name[:1].isalpha() or name.count(" ") >= _MOST_WORDS:
        return False
    return all(c.isalnum() or c in " :." for c in name) and _LIKE_A_THOUGHT.search(name) is not None


def _kind(name: str, token: bool) -> Kind:
    if token and name in _TOKENS:
        return _TOKENS[name]
    for kind, names in _KINDS:
        if name in names:
            return kind
    return "unknown"


_KINDS: tuple[tuple[Kind, frozenset[str]], ...] = (
    ("thought", _THOUGHTS),
    ("answer", _ANSWERS),
    ("call", _CALLS),
    ("nothing", _NOTHING),
    ("end", _ENDS),
    ("speaker", frozenset({"start of turn"})),
)


def _is_a_name(words: str, name: str) -> bool:
    """Return True for a single word that begins with a letter; attributes are already removed from `name`."""
    first = next(iter(words.split(None, 1)), "")
    is_single_word = first == words or name == first.lower()
    return is_single_word and first[:1].isalpha() and all(c.isalnum() or c in "_-:." for c in first)


_STRUCK_OUT = re.compile(r"<\s*+s(?:\s[^<>]*+)?>.*?<\s*+/\s*+s\s*+>", re.IGNORECASE | re.DOTALL)


def is_struck_out(text: str) -> bool:
    """Return True if a text begins with something struck out (`<s>…</s>`); a lone `</s>` is an end-of-turn token.

    >>> is_struck_out("<s>Wrong Action</s>"), is_struck_out("Wrong Action</s>")
    (True, False)
    """
    return _STRUCK_OUT.match(text.strip()) is not None


def drop_layout(text: str) -> str:
    """Return a text without the tags and tokens that mean nothing; a text in which something is struck out is unchanged.

    >>> drop_layout("<|begin_of_box|><b>Wrong Action</b><|end_of_box|>")
    'Wrong Action'
    """

    def keep(match: re.Match[str]) -> str:
        tag = parse_tag(match)
        return "" if tag and tag.kind in ("nothing", "end") else match[0]

    return text if _STRUCK_OUT.search(text) else _TAG.sub(keep, text)
