"""The user's mistakes, apart from the records: a command that prints its help loads no more than this."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user's, told in one sentence; the command line exits with 2."""
