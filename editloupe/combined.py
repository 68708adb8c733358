"""Panels and cascades; moved to `editloupe.judge`, and importable here for code written before that."""

from editloupe.judge import Calibration as Calibration
from editloupe.judge import plan_of as plan_of
