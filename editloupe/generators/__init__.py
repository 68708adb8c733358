"""Test scenes with known answers: VIBE's billiards and Edit-Compass's ten algorithmic tasks."""
