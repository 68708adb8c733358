"""Benchmarks made of one's own pictures: from questions about them to verified edit samples with references."""
