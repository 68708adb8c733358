"""A run that cannot be read is told in a sentence: its own pages say so, all others go on working."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from editloupe.evals.runs.damage import RunDamaged
from editloupe.types import UserError


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn whatever a damaged file can raise while it is read into RunDamaged."""
    try:
        yield
    except UserError:
        raise
    except (sqlite3.Error, OSError) as error:
        why = (getattr(error, "strerror", None) or str(error)).splitlines()[:1]
        raise RunDamaged(f"the run “{name}” cannot be read: {''.join(why)}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunDamaged(f"the run “{name}” holds a record that cannot be read ({type(error).__name__})") from error
