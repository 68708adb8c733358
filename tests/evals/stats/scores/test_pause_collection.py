"""The garbage collector pauses while a run is read, and is left as it was."""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from editloupe.evals.stats.scores.run_table import pause_collection


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_pauses_and_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with suppress(ValueError), pause_collection():
            assert not gc.isenabled()
            raise ValueError("in the block")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
