"""What the graph of EdiVal-Agent works with: the edit's shared context, the instruments that look at pictures, and the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from editloupe.graphs.context import LiveContext, SharedContext
from editloupe.pictures.decode import Picture
from editloupe.rubrics.edival.rules import Hit
from editloupe.rubrics.edival.settings import EdivalSettings
from editloupe.rubrics.model import Rubric
from editloupe.tools.contract import Kept
from editloupe.tools.models.features import Features
from editloupe.tools.models.finders import Finder
from editloupe.tools.models.quality import Quality
from editloupe.tools.result_cache import key
from editloupe.types import Edit, Step, Trace


@dataclass(frozen=True)
class EdivalContext(LiveContext):
    """Everything a picture of a chain is judged with."""

    shared: SharedContext
    finder: Finder
    """The detector."""
    rules: EdivalSettings
    criteria: tuple[str, ...]
    features: Features | None = None
    """Without a feature model, pictures are compared by their pixels only."""
    quality: Quality | None = None
    """Without a quality model, visual quality has luminance quantiles only."""
    notes: tuple[str, ...] = ()
    worded: Rubric | None = None
    """The rubric whose words the questions are asked in, where they are not the usual ones."""

    def heading(self, edit: Edit, criterion: str) -> Trace:
        """Return the head of a trace."""
        judge = self.shared.judge
        return Trace(
            edit_id=edit.id, criterion=criterion, protocol="edival", mode="tools", judge=judge, notes=self.notes
        )

    def tell(self, heading: Trace, steps: Sequence[Step]) -> None:
        """Let whoever watches see the steps."""
        for step in steps:
            if self.shared.watcher:
                self.shared.watcher.step(heading, step)

    def find(self, picture: Picture, phrase: str) -> tuple[Hit, ...]:
        """Return the boxes of a phrase in shares of the picture, best first; cached by picture and phrase."""
        named = key("edival_find", self.finder.fingerprint, picture.sha, phrase)
        kept = self.shared.toolbox.memory.get(
            named, lambda: Kept({"hits": [hit.model_dump() for hit in self._hits(picture, phrase)]})
        )
        return tuple(Hit.model_validate(hit) for hit in kept.data["hits"])

    def _hits(self, picture: Picture, phrase: str) -> list[Hit]:
        width, height = picture.size
        return [
            Hit(
                x1=found.box.x1 / width,
                y1=found.box.y1 / height,
                x2=found.box.x2 / width,
                y2=found.box.y2 / height,
                score=found.score,
                phrase=found.label,
            )
            for found in self.finder.find(picture.pixels, phrase)
        ]

    def quality_of(self, picture: Picture) -> float | None:
        """Return the quality model's score of a picture, cached by picture; None without a model."""
        if self.quality is None:
            return None
        quality = self.quality
        named = key("edival_quality", quality.fingerprint, picture.sha)
        kept = self.shared.toolbox.memory.get(named, lambda: Kept({"score": quality.score(picture.pixels)}))
        return float(kept.data["score"])
