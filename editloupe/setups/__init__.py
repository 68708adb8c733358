"""Set-ups: everything that is set for a judge under one name, as data; one YAML file each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editloupe.lazy_names import lazy_names

if TYPE_CHECKING:
    from editloupe.setups.setup import Setup, find_setup, setup_names

__all__ = ["Setup", "find_setup", "setup_names"]

__getattr__ = lazy_names(__name__, dict.fromkeys(__all__, "setup"))
