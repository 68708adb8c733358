"""Manifests that nobody should have written, the same for the same seed."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

FIELDS = (
    "id",
    "source",
    "edited",
    "instruction",
    "instruction_type",
    "target_boxes",
    "reference",
    "hint",
    "model",
    "turn",
    "human",
    "more_images",
    "extra",
    "own",
)
TEXTS = (
    "",
    " ",
    "a",
    "a.png",
    "b.png",
    "../a.png",
    "/etc/passwd",
    "/dev/zero",
    "http://example.org/a.png",
    "nul\0nul",
    "half \ud83d a smile",
    "\udce9",
    "\ufeffmark",
    "line\nbreak\ttab",
    "\x1b[31mred\x1b[0m",
    "=1+1",
    "Ж漢字🙂",
    "x" * 5000,
    "a/" * 2000,
    "Change Color",
    "[[1,2,3,4]]",
    "{",
    "NaN",
    "Make the cup red.",
)
NUMBERS = (0, 1, -1, 2**31, 2**63, 2**64, -(2**70), 10**300, 1.5, -0.0, 1e308, 1e-320, float("inf"), float("nan"))


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return something JSON can say, or nearly."""
    kind = rng.randrange(10 if depth < 4 else 6)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return nested(rng.choice((3, 60, 300)), rng.random() < 0.5)
    if kind == 7:
        return [rng.choice(NUMBERS) for _ in range(4)]
    if kind == 8:
        return {rng.choice(TEXTS): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [value(rng, depth + 1) for _ in range(rng.randrange(4))]


def nested(depth: int, lists: bool) -> Any:
    """Return a value nested so deeply."""
    inner: Any = 1
    for _ in range(depth):
        inner = [inner] if lists else {"a": inner}
    return inner


def row(rng: random.Random) -> dict[str, Any]:
    """Return a row: a good one with something wrong in a field or two, most of the time."""
    good: dict[str, Any] = {
        "id": f"e{rng.randrange(10**9)}",
        "source": "a.png",
        "edited": "b.png",
        "instruction": "Make it red.",
    }
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        name = rng.choice(FIELDS)
        if rng.random() < 0.1:
            good.pop(name, None)
        elif name == "target_boxes" and rng.random() < 0.6:
            good[name] = [[rng.choice(NUMBERS) for _ in range(rng.choice((4, 4, 4, 3)))]]
        elif name == "human" and rng.random() < 0.5:
            good[name] = {"instruction_following": value(rng, 3)}
        elif name in ("extra", "own") and rng.random() < 0.5:
            good[name] = {"deep": nested(rng.choice((20, 49, 51, 250, 500)), False)}
        else:
            good[name] = value(rng)
    return good


def jsonl(rng: random.Random) -> bytes:
    """A JSONL file; sometimes with rubbish between its lines."""
    lines = [json.dumps(row(rng)).encode() for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        rubbish = (
            b"\xff\xfe",
            b"{",
            b"[]",
            b'"text"',
            b"null",
            b"[" * 5000,
            b"1" * 5000,
            b"\0",
            rng.randbytes(40),
            b'{"a": 1}{',
        )
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(rubbish))
    mark = b"\xef\xbb\xbf" if rng.random() < 0.1 else b""
    data = bytearray(mark + rng.choice((b"\n", b"\r\n", b"\n\n")).join(lines))
    if rng.random() < 0.2:
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def csv_file(rng: random.Random) -> bytes:
    """A CSV file, sometimes with a torn quotation or cells that are nested deep."""
    rows = [row(rng) for _ in range(rng.randint(1, 3))]
    names = list(dict.fromkeys(name for one in rows for name in one))
    if rng.random() < 0.3:
        names.append(rng.choice(("human.instruction_following", "id", "", "human")))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    for one in rows:
        cells = [one.get(name, "") for name in names]
        writer.writerow([c if isinstance(c, str) else json.dumps(c) for c in cells])
    text = out.getvalue()
    if rng.random() < 0.2:
        text = text.replace('"', "", 1) + rng.choice(('"', "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", "[" * 3000))
    if rng.random() < 0.2:
        text = text.replace("target_boxes", "human").replace("red", "[" * 3000)
    return text.encode("utf-8", rng.choice(("replace", "surrogatepass")))


def parquet(rng: random.Random) -> bytes:
    """A Parquet file with columns of any type."""
    import pyarrow as arrow
    from pyarrow import parquet as pq

    count = rng.randint(1, 3)
    columns: dict[str, Any] = {
        "source": arrow.array(["a.png"] * count),
        "edited": arrow.array(["b.png"] * count),
        "instruction": arrow.array(["Make it red."] * count),
        "id": arrow.array([f"p{i}" for i in range(count)]),
    }
    kinds: tuple[Any, ...] = (
        arrow.array([b"\xff\xfe"] * count),
        arrow.array([{"bytes": b"\x89PNG", "path": "a.png"}] * count),
        arrow.array([[b"\xff"]] * count),
        arrow.array([nested(30, True)] * count),
        arrow.array([[1.5, float("nan"), float("inf"), 2.0]] * count),
        arrow.array([[[0, 0, 5, 5]]] * count),
        arrow.array([[("instruction_following", "Wrong Action")]] * count, arrow.map_(arrow.string(), arrow.string())),
        arrow.array([2**40] * count, arrow.timestamp("s")),
        arrow.array([1] * count, arrow.date32()),
        arrow.array([None] * count),
        arrow.array([{"a": {"b": [1, None]}}] * count),
        arrow.array([True] * count),
        arrow.array([1.5] * count, arrow.float32()),
        arrow.array(["x"] * count).dictionary_encode(),
        arrow.array([10**9] * count, arrow.duration("ns")),
        arrow.array(["{"] * count),
    )
    for _ in range(rng.randint(0, 4)):
        columns[rng.choice(FIELDS)] = rng.choice(kinds)
    target = io.BytesIO()
    pq.write_table(arrow.table(columns), target)
    data = bytearray(target.getvalue())
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 5))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


MAKERS = {"jsonl": jsonl, "csv": csv_file, "parquet": parquet}


def write_hostile(folder: Path, seed: int) -> Path:
    """Write the hostile manifest of this seed and return its path."""
    rng = random.Random(seed)
    suffix = rng.choice(("jsonl", "jsonl", "csv", "parquet"))
    path = folder / f"{seed}.{suffix}"
    path.write_bytes(MAKERS[suffix](rng))
    return path
