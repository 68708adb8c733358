"""Test judges on variants of edits whose right answer is known relative to the original."""
