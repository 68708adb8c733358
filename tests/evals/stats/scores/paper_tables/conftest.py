from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the tests of a module share, for a benchmark that is judged once."""
    return tmp_path_factory.mktemp("benchmark")
