"""Use judges as reward models.

Score edits, choose the best candidate, rank editing models, and measure accuracy on preference pairs.
"""

from editloupe.evals.manifests.pairs import Pair, load_pairs
from editloupe.evals.reward.edit_rewards import Rewards, areward, best_of, reward, rewards
from editloupe.evals.reward.pair_reports import judge_by_scores, judge_pairs
from editloupe.evals.stats.comparison.preference_results import Accuracy, PairReport, PairResult, count_accuracy

__all__ = [
    "Accuracy",
    "Pair",
    "PairReport",
    "PairResult",
    "Rewards",
    "areward",
    "best_of",
    "count_accuracy",
    "judge_by_scores",
    "judge_pairs",
    "load_pairs",
    "reward",
    "rewards",
]
