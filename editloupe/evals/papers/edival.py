"""EdiVal-Agent: its chains are read, judged and tabled by `editloupe edival`; single edits have a protocol like any other."""

from __future__ import annotations

from editloupe.evals.papers.paper import Paper
from editloupe.rubrics.edival import EDIVAL

PAPER = Paper(EDIVAL)
