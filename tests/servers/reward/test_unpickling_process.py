"""Pickles are read in processes with limits; one that ends is a refusal, and the next pickle is read."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from PIL import Image

from editloupe.servers.reward import unpickling_process
from editloupe.servers.reward.unpickling import NotData
from editloupe.servers.reward.unpickling_process import TOO_MUCH, unpickle_in_process
from tests.drawn_pictures import textured


@pytest.mark.long
def test_data_comes_back_as_it_is_and_the_process_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-owner")
    image = Image.fromarray(textured(20, 16))
    found = unpickle_in_process(pickle.dumps({"images": [image, b"bytes"], "prompts": ["text"]}))
    assert found == {"images": [image, b"bytes"], "prompts": ["text"]}
    (process,) = unpickling_process._idle
    with open(f"/proc/{process.pid}/environ", "rb") as file:
        assert b"sk-of-the-owner" not in file.read()
    with pytest.raises(NotData, match=r"names builtins\.eval"):
        unpickle_in_process(b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.")
    assert list(unpickling_process._idle) == [process]
    process.kill()
    process.wait()
    assert unpickle_in_process(pickle.dumps([1])) == [1]


@pytest.mark.long
@pytest.mark.parametrize(
    "reading",
    ["sum(iter(int, 1))", "bytearray(2**30)", "__import__('os')._exit(1)"],
    ids=["time", "memory", "the process ends"],
)
def test_a_pickle_beyond_the_limits_is_refused_in_one_sentence(reading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        f"from {unpickling_process.__name__.rpartition('.')[0]} import unpickling_process as process\n"
        f"process.CPU_SECONDS = 0\nprocess.unpickle_data = lambda data: {reading}\nprocess.main()"
    )

    def start() -> Any:
        return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with monkeypatch.context() as patch:
        patch.setattr(unpickling_process, "_take_process", start)
        with pytest.raises(NotData) as told:
            unpickle_in_process(pickle.dumps([1]))
        assert str(told.value) == TOO_MUCH
    while unpickling_process._idle:
        process = unpickling_process._idle.pop()
        process.kill()
        process.communicate()
    assert unpickle_in_process(pickle.dumps([1])) == [1]
