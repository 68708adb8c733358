"""Pickles are read as data; one that would do anything does nothing."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from editloupe.servers.reward import unpickling
from editloupe.servers.reward.unpickling import TOO_MUCH, NotData, unpickle_data, unpickle_in_process
from tests.drawn_pictures import textured

PROTOCOLS = [2, 3, 4, 5]


def opened(format: str, mode: str = "RGB") -> Image.Image:
    file = io.BytesIO()
    Image.fromarray(textured(20, 16)).convert(mode).save(file, format)
    return Image.open(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, True, "text", b"bytes"], "b": (1, 2)},
        {"deep": {"deeper": [{"deepest": "x"}]}},
        [b"\x00\xff" * 300, bytearray(b"abc"), 2**64 - 1, -(2**63)],
        collections.OrderedDict(a=1),
    ],
)
def test_data_is_read_as_it_is(value: Any, protocol: int) -> None:
    def plain(one: Any) -> Any:
        return list(map(plain, one)) if isinstance(one, (list, tuple)) else one

    found = unpickle_data(pickle.dumps(value, protocol))
    wanted = {name: plain(one) for name, one in value.items()} if isinstance(value, dict) else plain(value)
    assert found == wanted


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset({1}),
        [2**70],
        {2**61 - 1 << 10: 1},
        {(1, 2): 1},
        {2.0**61: 1},
        collections.OrderedDict({(1,): 1}),
    ],
)
def test_what_can_share_a_hash_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(NotData) as told:
        unpickle_data(pickle.dumps(value, protocol))
    assert "damaged" not in str(told.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "array",
    [
        np.array(["one", "two words", "ü"]),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6).reshape(2, 3).T,
        np.array([b"x", b"yz"]),
        np.array([True, False]),
        np.arange(3, dtype=">i4"),
        np.array([], dtype=np.float64),
    ],
)
def test_arrays_of_numbers_and_texts_are_read(array: Any, protocol: int) -> None:
    assert np.array_equal(unpickle_data(pickle.dumps(array, protocol)), array)


def test_arrays_of_objects_are_lists_and_numbers_of_numpy_are_numbers() -> None:
    assert unpickle_data(pickle.dumps(np.array([{"a": 1}, "b"], dtype=object))) == [{"a": 1}, "b"]
    found = unpickle_data(pickle.dumps([np.float32(0.5), np.int64(3), np.str_("x")]))
    assert found == [0.5, 3, "x"]
    assert all(type(one) in (float, int, str) for one in found)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "image",
    [
        Image.fromarray(textured(20, 16)),
        *(
            Image.fromarray(textured(20, 16)).convert(mode)
            for mode in ("L", "RGBA", "P", "1", "CMYK", "LA", "I", "F", "HSV")
        ),
        *(opened(format) for format in ("PNG", "JPEG", "WEBP", "BMP", "TIFF")),
    ],
    ids=lambda one: f"{type(one).__name__}-{one.mode}",
)
def test_pil_images_show_the_same(image: Image.Image, protocol: int) -> None:
    found = unpickle_data(pickle.dumps(image, protocol))
    assert type(found) is Image.Image
    assert (found.mode, found.size, found.tobytes()) == (image.mode, image.size, image.tobytes())
    assert found.convert("RGB").tobytes() == image.convert("RGB").tobytes()


def test_a_picture_with_notes_is_read_without_them() -> None:
    image = Image.fromarray(textured(20, 16))
    image.info["said"] = PngImagePlugin.iTXt("a note", "en", "said")
    assert unpickle_data(pickle.dumps([image]))[0].tobytes() == image.tobytes()


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call


@pytest.mark.parametrize(
    "function",
    [
        os.system,
        os.remove,
        eval,
        exec,
        __import__,
        getattr,
        open,
        Image.open,
        np.load,
        np.array,
        Image.new,
        print,
        type,
        object,
    ],
    ids=lambda one: f"{one.__module__}.{one.__name__}",
)
def test_whatever_a_pickle_wants_called_is_not(function: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.write_text("still here")
    for argument in (f"touch {tmp_path}/made", str(mark), f"open({str(tmp_path / 'made')!r}, 'w')"):
        for wrapped in (Calls(function, argument), {"images": [Calls(function, argument)]}):
            with pytest.raises(NotData, match="which is not plain data"):
                unpickle_data(pickle.dumps(wrapped))
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


HOSTILE = {
    "a protocol-0 call": b"cos\nsystem\n(S'true'\ntR.",
    "an INST call": b"(S'true'\nios\nsystem\n.",
    "an OBJ call": b"(cos\nsystem\nS'true'\no.",
    "a persistent id": b"Pwhatever\n.",
    "an extension": b"\x82\x01.",
    "memory by a length": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc.",
    "memory by a place": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "memory by a call": b"\x80\x04cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "a size that is none": pickle.dumps(Calls(bytearray, 10)).replace(b"K\n", b"K\xff"),
    "no end": b"\x80\x04]",
    "nothing": b"",
    "text": b"hello",
    "an attribute of a stand-in": b"\x80\x04c_codecs\nencode\n(N}\x8c\x05_makeNsu\x86b.",
    "an attribute of a class": b"\x80\x04cPIL.Image\nImage\n}\x8c\x05value\x8c\x01xsb.",
    "a dotted name": b"\x80\x04\x8c\x09PIL.Image\x8c\x0cImage.__init\x93.",
    "a module of ours": b"\x80\x04\x8c\x15editloupe._util.files\x8c\x09read_text\x93.",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_a_hostile_pickle_is_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(NotData) as told:
        unpickle_data(data)
    assert len(str(told.value).splitlines()) == 1


def test_stand_ins_are_the_same_after_a_hostile_pickle() -> None:
    before = unpickle_data(pickle.dumps(Image.fromarray(textured(8, 8)), 2))
    for data in HOSTILE.values():
        with pytest.raises(NotData):
            unpickle_data(data)
    assert unpickle_data(pickle.dumps(Image.fromarray(textured(8, 8)), 2)) == before
    assert unpickle_data(pickle.dumps(b"x" * 10, 2)) == b"x" * 10


@pytest.mark.long
def test_references_that_multiply_are_refused() -> None:
    laughs: Any = ["ha"] * 10
    for _ in range(12):
        laughs = [laughs] * 10
    with pytest.raises(NotData, match="too often"):
        unpickle_data(pickle.dumps(laughs))
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    with pytest.raises(NotData, match="too deep"):
        unpickle_data(pickle.dumps(deep))


@pytest.mark.parametrize(
    "state",
    [
        [{}, "RGB", (10**6, 10**6), None, b""],
        [{}, "RGB", (4, 4), None, b"x"],
        [{}, "RGB", (-4, -4), None, b"x" * 48],
        [{}, "RGB", ("4", 4), None, b"x" * 48],
        [{}, "made up", (4, 4), None, b"x" * 48],
        [{}, "RGB", (4, 4)],
        {"size": (4, 4)},
        None,
    ],
)
def test_an_image_whose_size_its_bytes_do_not_bear_out_is_refused(state: Any) -> None:
    body = pickle.dumps(state, 2)[2:-1]
    with pytest.raises(NotData):
        unpickle_data(b"\x80\x02cPIL.Image\nImage\n)\x81" + body + b"b.")


TEXT = b"\x80\x02X" + struct.pack("<I", 2**20) + b"x" * 2**20 + b"q\x00"
"""A memoised text of 1 MB, on the stack."""
PIXELS = b"\x80\x04B" + struct.pack("<I", 3 * 2**20) + bytes(3 * 2**20) + b"q\x00"
MULTIPLIED = {
    "calls": TEXT + b"0](" + b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR" * 30 + b"e.",
    "texts": TEXT + b"0](" + b"h\x00" * 30 + b"e.",
    "pictures": PIXELS
    + b"0]("
    + b"cPIL.Image\nImage\n)\x81](}X\x03\x00\x00\x00RGBM\x00\x04M\x00\x04\x86Nh\x00eb" * 30
    + b"e.",
}


@pytest.mark.parametrize("data", MULTIPLIED.values(), ids=list(MULTIPLIED))
def test_a_pickle_that_makes_far_more_than_it_holds_is_refused(data: bytes) -> None:
    with pytest.raises(NotData, match="far more data than it holds"):
        unpickle_data(data)


@pytest.mark.long
def test_data_comes_back_as_it_is_and_the_process_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-owner")
    image = Image.fromarray(textured(20, 16))
    found = unpickle_in_process(pickle.dumps({"images": [image, b"bytes"], "prompts": ["text"]}))
    assert found == {"images": [image, b"bytes"], "prompts": ["text"]}
    (process,) = unpickling._idle
    with open(f"/proc/{process.pid}/environ", "rb") as file:
        assert b"sk-of-the-owner" not in file.read()
    with pytest.raises(NotData, match=r"names builtins\.eval"):
        unpickle_in_process(b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.")
    assert list(unpickling._idle) == [process]
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
        f"from {unpickling.__name__.rpartition('.')[0]} import unpickling as process\n"
        f"process.CPU_SECONDS = 0\nprocess.unpickle_data = lambda data: {reading}\nprocess.main()"
    )

    def start() -> Any:
        return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with monkeypatch.context() as patch:
        patch.setattr(unpickling, "_take_process", start)
        with pytest.raises(NotData) as told:
            unpickle_in_process(pickle.dumps([1]))
        assert str(told.value) == TOO_MUCH
    while unpickling._idle:
        process = unpickling._idle.pop()
        process.kill()
        process.communicate()
    assert unpickle_in_process(pickle.dumps([1])) == [1]
