"""The edit and the asking that the tests of servers share."""

from tests.faults.asking import asked, edit

__all__ = ["asked", "edit"]
