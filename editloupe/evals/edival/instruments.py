"""What looks at the pictures of EdiVal-Agent: a detector, a feature model, a model of visual quality."""

from __future__ import annotations

from dataclasses import dataclass

from editloupe.rubrics.edival.settings import EdivalSettings
from editloupe.tools.models.detectors import Finder, WholePictureFinder
from editloupe.tools.models.features import DinoFeatures, Features, FeatureSettings
from editloupe.tools.models.quality import HpsV3, Quality
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError


@dataclass(frozen=True)
class Instruments:
    """What looks at pictures; None leaves the figures of that instrument out."""

    finder: Finder
    features: Features | None
    quality: Quality | None

    def notes(self) -> tuple[str, ...]:
        """Say what is left out."""
        left = []
        if self.features is None:
            left.append("no feature model: consistency is measured by pixels only and has no EdiVal-CC score")
        if self.quality is None:
            left.append("HPSv3 is not used: visual quality has luminance quantiles only")
        return tuple(left)


def open_instruments(
    settings: EdivalSettings, tools: ToolSettings, features: FeatureSettings | None, quality: str = "auto"
) -> Instruments:
    """Return the instruments; one that was asked for and cannot run here is the user's mistake.

    `quality` is `auto` (HPSv3 where it is installed), `hpsv3` or `none`.
    """
    finder = WholePictureFinder(tools, settings.lowest_threshold)
    model = DinoFeatures(features) if features else None
    hps = HpsV3(tools.device)
    for name, problem in (("detector", finder.unavailable()), ("features", model.unavailable() if model else None)):
        if problem:
            raise UserError(f"the {name} cannot be used: {problem}")
    if quality not in ("auto", "hpsv3", "none"):
        raise UserError(f'--quality is auto, hpsv3 or none, not "{quality}"')
    missing = hps.unavailable()
    if quality == "hpsv3" and missing:
        raise UserError(missing)
    return Instruments(finder, model, hps if quality != "none" and not missing else None)
