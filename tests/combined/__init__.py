"""Judges that answer together."""
