import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
from editloupe.evals.batch.local_executor import map_large_buffers

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

bytes(20 * 2**20)  # glibc's limit rises when this is freed
if sys.argv[1] == "mapped":
    map_large_buffers()
before, between, pictures = resident(), [], []
for _ in range(60):
    pictures.append(b"x" * 2**20)
    between.append(b"x" * 1000)  # keeps the heap from shrinking
del pictures
print(resident() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_batch_returns_the_memory_of_pictures_at_once() -> None:
    def held(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert held("mapped") < 10 < held("as usual")
