"""Shim of the former import path of panels and cascades, which are in `editloupe.judge`."""

from editloupe.judge import Calibration as Calibration
from editloupe.judge import plan_of as plan_of
