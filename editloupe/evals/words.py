"""Text that came from a model, a manifest or a file name, made harmless for each place it may stand in."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence

_STEERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
"""Marks that reverse or hide the text around them."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~!])")


def printable(text: str) -> str:
    r"""Return text without characters that would steer a terminal or turn a line around.

    >>> printable("red \x1b[31mtext\x07")
    'red [31mtext'
    """
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() and c not in _STEERING))


def counted(labels: Sequence[str]) -> str:
    """Return labels with how often each was given, the most frequent first.

    >>> counted(["Wrong Action", "Over Modification", "Wrong Action"])
    '2× Wrong Action, Over Modification'
    """
    found = Counter(labels).most_common()
    return ", ".join(name if count == 1 else f"{count}× {name}" for name, count in found)


def shortened(text: str, most: int = 400) -> str:
    """Return the beginning of a long text, cut between words.

    >>> shortened("one two three", 9)
    'one two …'
    """
    return text if len(text) <= most else f"{text[:most].rsplit(maxsplit=1)[0]} …"


def for_html(text: str) -> str:
    """Return text as it may stand in a page, inside or outside an attribute.

    >>> for_html('<b a="1">')
    '&lt;b a=&quot;1&quot;&gt;'
    """
    return html.escape(printable(text), quote=True)


def for_markdown(text: str) -> str:
    r"""Return text on one line as it may stand in Markdown, in a table's cell too.

    >>> for_markdown("a|b *c*")
    'a\\|b \\*c\\*'
    """
    return _MARKDOWN.sub(r"\\\1", " ".join(printable(text).split()))
