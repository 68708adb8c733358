"""Make preference pairs from runs, collect people's answers about them, and write them for `editloupe reward`."""

from editloupe.evals.preferences.draw import DrawSettings, draw_pairs, draw_rationales
from editloupe.evals.preferences.pairs import OpenPair, PairAnswers, PairSide, decide_pair, read_open_pairs

__all__ = [
    "DrawSettings",
    "OpenPair",
    "PairAnswers",
    "PairSide",
    "decide_pair",
    "draw_pairs",
    "draw_rationales",
    "read_open_pairs",
]
