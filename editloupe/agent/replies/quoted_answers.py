"""Distinguish the answers a reply gives from those it only quotes, mentions in code or introduces as examples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from editloupe.agent.replies.sections import OPENING, Malformed, ReplyPart, has_content, shorten

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?;](?=\s)|[。！？；]", re.IGNORECASE)
_FORM = r"(?:(?:required|expected|answer|output|response|reply|json) ){0,3}form(?:at)?"
_EXAMPLE = re.compile(
    r"\b(?:for instance|e\.g\.|such as|examples?|hypothetical(?:ly)?)(?!\w)" rf"|^\W*(?:the )?{_FORM}\W*$",
    re.IGNORECASE,
)
"""Mentions an example, or the form, in the sentence before an answer."""
_FOR_EXAMPLE = re.compile(
    r"\b(?:for instance|e\.g\.?|such as|(?:for|an|another|one|some) examples?|hypothetical(?:ly)?)[\W_]*$"
    r"|^[\W_]*(?:the )?examples?(?: (?:answer|output|response|reply|json|format))?[\W_\d]*$"
    rf"|^\W*(?:the )?(?:required|expected) {_FORM}(?: is)?\W*$|^\W*(?:the )?{_FORM} is\W*$",
    re.IGNORECASE,
)
"""Introduces what follows directly as an example."""
_BEGINS_AN_EXAMPLE = re.compile(r"[\W_]*(?:for instance|for example|e\.g\.|hypothetically)(?!\w)", re.IGNORECASE)
_GIVES = re.compile(
    r"answer|verdict|decision|decide|judge?ment|conclusion|label|score|rating|result|output|response|assessment|evaluation|final"
    r"|\b(?:so|therefore|thus|hence)\b|答案|结论|結論|判断|評価|评分|结果",
    re.IGNORECASE,
)
"""Introduces what follows as the answer."""
_LEADS_IN = ":.!?—–…→>：。！？．"
"""Punctuation that may separate a sentence from an object on the same line."""
_NAMES_IT = re.compile(
    r"\b(?:answer|verdict|decision|judge?ment|score|rating|result|output|response|json)\s*(?:is|=)$", re.IGNORECASE
)
_DENIES = re.compile(r"\b(?:not|never|cannot|no|told|asked|if|would)\b|n[’']t\b", re.IGNORECASE)
_LONGEST_LEAD = 400
"""Characters before an answer that are searched for its introduction."""


_COMMENT = re.compile(r"[ \t]*(?://|/\*)")
_CODE_COMMENT = re.compile(r"[ \t]*(?://|/\*|#|--|;|%)")
_OPENS_COMMENT = re.compile(r"^[ \t]*/\*", re.MULTILINE)
_LANGUAGE = re.compile(r"[`~]{3,}+[ \t]*+([\w+#-]*+)")
_TEXTS = frozenset({"", "markdown", "md", "text", "txt", "plain", "plaintext"})
"""Names of fences that hold text, in which # begins a heading."""


def quote_comments(parts: Sequence[ReplyPart], fence: str) -> tuple[ReplyPart, ...]:
    """Return the parts of a code fence; answers and objects in a comment become quoted sections.

    Args:
        parts: The parts inside the fence.
        fence: The fence, from its first line on; the line may name a language.
    """
    language = _LANGUAGE.match(fence)
    is_code = language is not None and language[1].lower() not in _TEXTS
    return tuple(
        replace(part, kind="quoted", source=part.text)
        if part.kind in ("answer", "object") and _is_in_comment(_before(parts, index), is_code)
        else part
        for index, part in enumerate(parts)
    )


def _is_in_comment(before: str, is_code: bool = False) -> bool:
    """Return True if the text before an answer opens a comment that has not ended."""
    line = before.rpartition("\n")[2]
    if (_CODE_COMMENT if is_code else _COMMENT).match(line) and "*/" not in line:
        return True
    start = max((match.start() for match in _OPENS_COMMENT.finditer(before)), default=-1)
    return start >= 0 and before.find("*/", start) < 0


def require_own_line(parts: Sequence[ReplyPart], index: int) -> None:
    """Raise Malformed if an object ends a sentence, which may say anything about it."""
    line = _before(parts, index).rpartition("\n")[2]
    if parts[index].kind != "object" or not has_content(line):
        return
    lead = line.rstrip(" \t*_`([（)）\"'”’»")
    lead_end = lead[-_LONGEST_LEAD:]
    if _NAMES_IT.search(lead_end) and not _DENIES.search(lead_end):  # "The answer is {…}"
        return
    if lead and lead[-1] not in _LEADS_IN and not lead.endswith((" -", "`json")):
        raise Malformed(
            f'Your JSON object stands within a sentence ("{shorten(line[-60:])}"); '
            "write it on a line of its own, at the end of the reply."
        )


def find_given(parts: Sequence[ReplyPart], indices: Sequence[int]) -> list[int]:
    """Return those of these parts that are given rather than quoted."""
    unquoted = [index for index in indices if not _is_quoted(parts, index)]
    plainly = {index for index in unquoted if not _may_be_an_example(parts, index)}
    last = max(plainly, default=-1)
    return [index for index in unquoted if index in plainly or index > last]


def _before(parts: Sequence[ReplyPart], index: int) -> str:
    return parts[index - 1].text if index and parts[index - 1].kind == "text" else ""


def _is_quoted(parts: Sequence[ReplyPart], index: int) -> bool:
    """Return True if a part is quoted, in a comment, in inline code within a sentence, or directly introduced as an example."""
    before = _before(parts, index)
    after = parts[index + 1].text if index + 1 < len(parts) and parts[index + 1].kind == "text" else ""
    line = before.rpartition("\n")[2]
    lead = _lead(before)
    if line.lstrip().startswith(">") or _is_in_comment(before) or _FOR_EXAMPLE.search(lead):
        return True
    if _BEGINS_AN_EXAMPLE.match(lead) and not _GIVES.search(lead):
        return True
    if before[-1:] == "`" and after[:1] == "`":
        # Models put their answer in backticks on its own line or after "Final answer:"; elsewhere backticks quote.
        introduced = lead.rstrip(" `*_").endswith((":", "：")) and _GIVES.search(lead)
        alone = not has_content(line) or introduced
        return not alone or has_content(after.partition("\n")[0])
    return before[-1:] != "`" and before[-1:] != "" and before[-1:] in OPENING


def _may_be_an_example(parts: Sequence[ReplyPart], index: int) -> bool:
    lead = _lead(_before(parts, index))
    return lead.rstrip(" `*_").endswith((":", "：")) and _EXAMPLE.search(lead) is not None


def _lead(before: str) -> str:
    """Return the last sentence before an answer, in the last line with content."""
    line = before[-_LONGEST_LEAD:].rstrip().rpartition("\n")[2]
    ends = [end.end() for end in _SENTENCE_END.finditer(line)]
    return line[ends[-1] :] if ends else line
