"""Test scenes with known answers, each for a paper's protocol: billiards and ten algorithmic tasks."""
