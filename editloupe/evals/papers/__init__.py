"""The papers' own benchmarks: how each is laid out on disk, and the tables each prints."""
