"""A restricted unpickler that builds containers, numbers, strings, bytes, arrays and PIL images, and calls nothing else.

A pickle is a program that can call any function it names. Here it can name only the constructors of this module. No code of
Pillow, numpy or the standard library is called: pictures and arrays are built from their raw state, and every stated size is
checked against the number of bytes. Opcodes are checked first, because some of them allocate memory before anything else can
be checked. Sets, integers of more than 64 bits and keys that are neither texts, bytes nor integers are refused: thousands of
them can have one hash. What a pickle makes out of its bytes by calls and references is limited by the number of its bytes.

Pickles are read in processes of their own, with limits on memory and CPU time. A process reads one pickle after the other. If one
exceeds a limit, the system ends its process and the sender gets an error; the server and other requests go on.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from editloupe.pictures.decode import MAX_PIXELS

DEEPEST = 20
MOST_STEPS = 500_000
"""Maximum number of opcodes; a picture takes about twenty."""
SPARE_BYTES = 16 * 2**20
"""Bytes that a pickle may make in addition to twice its own size."""
_REFUSED = {
    *("PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "INST", "OBJ", "NEXT_BUFFER", "READONLY_BUFFER", "NEWOBJ_EX"),
    *("EMPTY_SET", "ADDITEMS", "FROZENSET"),
}
_INTEGERS = {"INT", "LONG", "LONG1", "LONG4"}
_PER_PIXEL = {
    "L": 1,
    "P": 1,
    "RGB": 3,
    "RGBA": 4,
    "CMYK": 4,
    "YCbCr": 3,
    "HSV": 3,
    "LAB": 3,
    "LA": 2,
    "I;16": 2,
    "I": 4,
    "F": 4,
}
"""Bytes per pixel by the mode of a PIL image; mode 1 packs eight pixels into a byte."""


class NotData(Exception):
    """The pickle is damaged, too large, or not plain data."""


def unpickle_data(data: bytes) -> Any:
    """Return the data of a pickle; raise NotData if it is damaged or not plain data."""
    _check_opcodes(data)
    try:
        allowance = _Allowance(2 * len(data) + SPARE_BYTES)
        return _Builder(allowance)(_DataUnpickler(data, allowance).load())
    except NotData:
        raise
    except (MemoryError, RecursionError):
        raise NotData("the pickle is too large or too deep") from None
    except Exception as error:  # a pickle can make the unpickler raise anything
        raise NotData(f"the pickle is damaged ({type(error).__name__})") from None


def _check_opcodes(data: bytes) -> None:
    steps = 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            steps += 1
            if steps > MOST_STEPS:
                raise NotData(f"the pickle has more than {MOST_STEPS} steps")
            if opcode.name in _REFUSED:
                raise NotData(f"the pickle does more than hold data ({opcode.name})")
            if type(argument) is int and opcode.name in _INTEGERS and not -(2**63) <= argument < 2**64:
                raise NotData("the pickle holds an integer of more than 64 bits")
            if opcode.name.endswith("PUT") and int(argument or 0) > steps:
                raise NotData("the pickle is damaged (it refers to a memo entry that does not exist)")
    except NotData:
        raise
    except Exception as error:  # what is no pickle can look like anything
        raise NotData(f"this is not a pickle ({type(error).__name__})") from None


class _Allowance:
    """Counts the bytes that a pickle makes."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, count: int) -> None:
        """Count bytes; raise NotData if there are too many."""
        self._left -= count
        if self._left < 0:
            raise NotData("the pickle makes far more data than it holds")


class _Maker:
    """A constructor that a pickle may call. A pickle cannot set its attributes."""

    __slots__ = ("_make",)
    _make: Callable[..., Any]

    def __init__(self, make: Callable[..., Any]) -> None:
        object.__setattr__(self, "_make", make)

    def __setattr__(self, name: str, value: Any) -> None:
        raise NotData("the pickle does more than hold data (it sets an attribute)")

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)


class _Raw:
    """The raw state of an object, collected until it is complete."""

    __slots__ = ("state",)

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def count_bytes(self) -> int:
        """Return the number of bytes of pixels or values, which come fifth in the states of images and arrays."""
        data = self.state[4] if isinstance(self.state, (list, tuple)) and len(self.state) >= 5 else None
        return len(data) if isinstance(data, (bytes, bytearray)) else 0

    def value(self, finish: Callable[[Any], Any]) -> Any:
        """Build the object; nested values are built by `finish`."""
        raise NotData("the pickle holds something without its data")


class _RawImage(_Raw):
    """A PIL image: info, mode, size, palette, pixels."""

    __slots__ = ()

    def value(self, finish: Callable[[Any], Any]) -> Image.Image:
        state = self.state if isinstance(self.state, (list, tuple)) else ()
        if len(state) < 5:
            raise NotData("the pickle holds a PIL image without its pixels")
        _, mode, size, palette, data = state[:5]
        if not (isinstance(size, (list, tuple)) and len(size) == 2 and all(type(side) is int for side in size)):
            raise NotData("the pickle holds a PIL image without a size")
        width, height = size
        if not (isinstance(data, (bytes, bytearray)) and 0 < width * height <= MAX_PIXELS and width > 0):
            raise NotData("the pickle holds a PIL image of an impossible size")
        expected = (width + 7) // 8 * height if mode == "1" else _PER_PIXEL.get(str(mode), 0) * width * height
        if len(data) != expected:
            raise NotData("the pickle holds a PIL image whose pixels do not fit its size")
        image = Image.frombytes(str(mode), (width, height), bytes(data))
        if mode == "P" and isinstance(palette, (list, bytes)) and len(palette) <= 1024:
            image.putpalette(palette)
        return image


class _RawArray(_Raw):
    """A numpy array of numbers or texts: version, shape, type, order, bytes."""

    __slots__ = ()

    def value(self, finish: Callable[[Any], Any]) -> Any:
        state = self.state if isinstance(self.state, tuple) else ()
        if len(state) != 5 or not isinstance(state[2], _RawType) or not isinstance(state[1], tuple):
            raise NotData("the pickle holds an array without its values")
        _, shape, kind, by_columns, data = state
        if isinstance(data, list):  # of objects, which are data themselves
            return [finish(item) for item in data]
        return _make_array(kind.dtype(), shape, bytes(data), bool(by_columns))


class _RawType(_Raw):
    """A numpy type: kind, size and byte order."""

    __slots__ = ("_name",)

    def __init__(self, name: Any = "", *_: Any) -> None:
        super().__init__()
        self._name = name

    def dtype(self) -> np.dtype[Any]:
        """Return the numpy type; only numbers, booleans and strings are allowed."""
        name, order = str(self._name), self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else "="
        if name[:1] not in "biufUS" or not name[1:].isdigit() or order not in ("<", ">", "|", "="):
            raise NotData(f"the pickle holds an array of {name[:20]!r}")
        return np.dtype(name) if order == "|" else np.dtype(f"{order}{name}")

    def value(self, finish: Callable[[Any], Any]) -> Any:
        raise NotData("the pickle holds a type instead of data")


def _make_array(kind: np.dtype[Any], shape: tuple[Any, ...], data: bytes, by_columns: bool) -> Any:
    if not all(type(side) is int and side >= 0 for side in shape):
        raise NotData("the pickle holds an array of an impossible shape")
    return np.frombuffer(data, dtype=kind).reshape(shape, order="F" if by_columns else "C")


def _make_scalar(kind: Any, data: Any) -> Any:
    if not isinstance(kind, _RawType) or not isinstance(data, bytes):
        raise NotData("the pickle holds a number without its value")
    return _make_array(kind.dtype(), (1,), data, False)[0].item()


def _make_array_from_buffer(data: Any, kind: Any, shape: Any, order: Any, *_: Any) -> Any:
    if not isinstance(kind, _RawType) or not isinstance(data, (bytes, bytearray)) or not isinstance(shape, tuple):
        raise NotData("the pickle holds an array without its values")
    return _make_array(kind.dtype(), shape, bytes(data), order == "F")


def _make_latin1_bytes(text: Any, encoding: Any) -> bytes:
    """Return bytes from Latin-1 text, as old pickles store them."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise NotData("the pickle holds a text in place of bytes")
    return text.encode("latin-1")


def _make_bytes(*arguments: Any) -> bytes:
    if not arguments:
        return b""
    if not isinstance(arguments[0], (bytes, bytearray, str)):
        raise NotData("the pickle does more than hold data (it asks for memory)")
    return _make_latin1_bytes(*arguments) if isinstance(arguments[0], str) else bytes(arguments[0])


def _make_dict(*arguments: Any) -> dict[Any, Any]:
    if arguments and not (len(arguments) == 1 and isinstance(arguments[0], (dict, list, tuple))):
        raise NotData("the pickle does more than hold data")
    if arguments and not isinstance(arguments[0], dict):
        _check_keys([key for key, _ in arguments[0]])
    return dict(*arguments)


def _check_keys(keys: Sequence[Any]) -> None:
    for key in keys:
        if not isinstance(key, (str, bytes, int)):
            raise NotData(f"the pickle has a key of type {type(key).__name__}; keys are texts or integers")


_MAKERS: dict[tuple[str, str], Any] = {
    ("_codecs", "encode"): _Maker(_make_latin1_bytes),
    ("builtins", "bytes"): _Maker(_make_bytes),
    ("builtins", "bytearray"): _Maker(_make_bytes),
    ("collections", "OrderedDict"): _Maker(_make_dict),
    ("numpy", "dtype"): _RawType,
    ("numpy", "ndarray"): _RawArray,
    **{
        (module, name): _Maker(make)
        for module in ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
        for name, make in (
            ("_reconstruct", lambda *_: _RawArray()),
            ("scalar", _make_scalar),
            ("_frombuffer", _make_array_from_buffer),
        )
    },
}
"""Names that a pickle may use, and the constructors that replace them."""
_PILLOW: dict[str, tuple[str, ...]] = {
    "PIL.Image": ("Image",),
    "PIL.PngImagePlugin": ("PngImageFile",),
    "PIL.JpegImagePlugin": ("JpegImageFile",),
    "PIL.MpoImagePlugin": ("MpoImageFile",),
    "PIL.WebPImagePlugin": ("WebPImageFile",),
    "PIL.TiffImagePlugin": ("TiffImageFile",),
    "PIL.BmpImagePlugin": ("BmpImageFile", "DibImageFile"),
}
"""Classes of PIL images by module; an image opened from a file has the class of its format."""


_PythonUnpickler: Any = pickle._Unpickler  # type: ignore[attr-defined,unused-ignore]
"""The standard library's unpickler in Python; the one in C fills dictionaries before their keys can be checked."""


class _DataUnpickler(_PythonUnpickler):  # type: ignore[misc]
    """Resolves names to the constructors of this module only, and checks keys and calls."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_PythonUnpickler.dispatch)

    def __init__(self, data: bytes, allowance: _Allowance) -> None:
        super().__init__(io.BytesIO(data))
        self._allowance = allowance

    def load_setitem(self) -> None:
        """Set an item of a dictionary."""
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        """Set several items of a dictionary."""
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        """Make a dictionary of items."""
        _check_keys(self.stack[::2])
        super().load_dict()

    def load_reduce(self) -> None:
        """Call a constructor, and count what it makes."""
        super().load_reduce()
        self._allowance.spend(_count_bytes(self.stack[-1]))

    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.REDUCE[0]] = load_reduce

    def find_class(self, module: str, name: str) -> Any:
        """Return the constructor for a name; raise NotData for all other names."""
        if name in _PILLOW.get(module, ()):
            return _RawImage
        if (module, name) == ("PIL.PngImagePlugin", "iTXt"):  # PNG metadata, which is ignored
            return _Raw
        # Protocol 2 and older use the Python 2 name of `builtins`.
        maker = _MAKERS.get(("builtins" if module == "__builtin__" else module, name))
        if maker is None:
            raise NotData(f"the pickle names {module[:60]}.{name[:60]}, which is not plain data")
        return maker


def _count_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, (list, dict)):
        return 64 * len(value)
    return len(value) if isinstance(value, (str, bytes, bytearray)) else 0


class _Builder:
    """Replaces raw states by pictures and arrays, with a limit on depth and count."""

    def __init__(self, allowance: _Allowance) -> None:
        self._allowance = allowance
        self._made: dict[int, Any] = {}
        self._count = 0

    def __call__(self, value: Any, room: int = DEEPEST) -> Any:
        self._count += 1
        if self._count > MOST_STEPS or not room:
            raise NotData("the pickle is nested too deeply or too often")
        if isinstance(value, _Raw):
            if id(value) not in self._made:
                self._allowance.spend(value.count_bytes())
                self._made[id(value)] = value.value(self)
            return self._made[id(value)]
        if isinstance(value, str):
            self._allowance.spend(len(value))  # each reference counts: every reader of the texts reads all of them
        if isinstance(value, (list, tuple)):
            return [self(item, room - 1) for item in value]
        if isinstance(value, dict):
            return {key: self(item, room - 1) for key, item in value.items()}
        if value is None or isinstance(value, (str, bytes, bytearray, bool, int, float, np.ndarray)):
            return value
        raise NotData(f"the pickle holds {type(value).__name__}, which is not plain data")


PROCESSES = 2
CPU_SECONDS = 10
"""CPU time for a pickle; the largest that are allowed take about three seconds."""
MEMORY_BYTES, MEMORY_PER_BYTE = 256 * 2**20, 8
"""Memory for a pickle: a fixed part, and a part for every byte of it."""
TOO_MUCH = f"reading the pickle takes too much memory, or more than {CPU_SECONDS} seconds"
_LENGTH = struct.Struct(">Q")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "HOME", "LANG", "TMPDIR")
"""Variables that a process gets; it needs no keys."""
_slots = threading.BoundedSemaphore(PROCESSES)
_idle: deque[subprocess.Popen[bytes]] = deque()


def unpickle_in_process(data: bytes) -> Any:
    """Return the data of a pickle. Waits until one of `PROCESSES` processes is free.

    Raises:
        NotData: The pickle is damaged, not plain data, or exceeds a limit.
    """
    with _slots:
        process = _take_process()
        try:
            reply = _exchange(process, data)
        except BaseException as error:
            process.kill()
            process.communicate()
            if isinstance(error, (OSError, EOFError)):  # the process has ended
                raise NotData(TOO_MUCH) from None
            raise
        _idle.append(process)
    is_data, value = pickle.loads(reply)  # written by `main`, from data that holds no names of functions
    if not is_data:
        raise NotData(value)
    return value


def _take_process() -> subprocess.Popen[bytes]:
    while _idle:
        process = _idle.pop()
        if process.poll() is None:
            return process
    paths = [path or os.getcwd() for path in sys.path]
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl+C is for the server, which answers pending requests first
        env={
            **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONSAFEPATH": "1",
            "OPENBLAS_NUM_THREADS": "1",  # its threads would count as memory
        },
    )


def _exchange(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_LENGTH.pack(len(data)))
    process.stdin.write(data)
    process.stdin.flush()
    head = process.stdout.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    reply = process.stdout.read(size)
    if len(reply) < size:
        raise EOFError
    return reply


def main() -> None:
    """Answer pickles from standard input with `(True, data)` or `(False, error)` until it is closed."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    own_bytes = _read_virtual_bytes()
    while len(head := sys.stdin.buffer.read(_LENGTH.size)) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        _set_limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + 1 + CPU_SECONDS)
        if own_bytes is not None:
            _set_limit(resource.RLIMIT_AS, own_bytes + MEMORY_BYTES + MEMORY_PER_BYTE * size)
        data = sys.stdin.buffer.read(size)
        try:
            reply = pickle.dumps((True, unpickle_data(data)), pickle.HIGHEST_PROTOCOL)
        except NotData as error:
            reply = pickle.dumps((False, str(error)))
        except MemoryError:
            reply = pickle.dumps((False, TOO_MUCH))
        sys.stdout.buffer.write(_LENGTH.pack(len(reply)))
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
        del data, reply


def _set_limit(kind: int, value: int) -> None:
    """Set the soft limit, so that the next pickle can have another one."""
    import resource

    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _read_virtual_bytes() -> int | None:
    """Return the address space of this process; None on systems other than Linux, which do not limit it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


if __name__ == "__main__":
    main()
