"""The detector's tiny weights, for tests of what a set-up sends."""

from tests.tools.conftest import tiny_detector

__all__ = ["tiny_detector"]
