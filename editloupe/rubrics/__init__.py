"""What is asked: one folder a paper."""
