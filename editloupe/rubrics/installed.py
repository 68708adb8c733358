"""Papers that come with other packages: each names its record in the entry points `editloupe.papers`."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol as Shape

from editloupe._util.text import one_line
from editloupe.rubrics.protocol import Protocol

GROUP = "editloupe.papers"


class PaperLeftOut(UserWarning):
    """An installed paper cannot be used."""


class WithProtocol(Shape):
    """A paper's record, of which only the protocol is known here; `evals/papers/paper.py` has all of it."""

    @property
    def protocol(self) -> Protocol:
        """The paper's protocol."""


@cache
def installed_papers() -> tuple[WithProtocol, ...]:
    """Load the papers of installed packages, once; one that cannot be loaded is left out with a warning."""
    found: list[WithProtocol] = []
    for entry in entry_points(group=GROUP):
        try:
            paper = entry.load()
            if not isinstance(paper.protocol, Protocol):
                raise TypeError(f"{entry.value} is not a paper")
            found.append(paper)
        except (Exception, SystemExit) as error:  # whatever a module of somebody else's raises
            why = one_line(f"{type(error).__name__}: {error}")
            warnings.warn(f"the paper {entry.name} cannot be loaded: {why}", PaperLeftOut, stacklevel=2)
    return tuple(found)
