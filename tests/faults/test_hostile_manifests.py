"""Whatever a manifest says: edits that can be judged and stored, or one sentence with its place."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Edit, Judge, load_manifest
from editloupe.evals.batch.planner import Planner
from editloupe.evals.manifests.layouts import load_benchmark
from editloupe.evals.manifests.pairs import load_pairs
from editloupe.evals.runs.prices import price_of
from editloupe.evals.runs.store import Run
from editloupe.types import Box, Reason, Unjudged, UserError
from tests.drawn_pictures import save, textured
from tests.faults.hostile_manifests import nested, value, write_hostile

FEW = pytest.param(200)
MANY = pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])


def is_one_sentence(error: UserError) -> bool:
    told = str(error)
    return 0 < len(told) < 12_000 and "Traceback" not in told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(textured(24, 24), tmp_path / "a.png")
    save(textured(24, 24, 1), tmp_path / "b.png")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_hostile_manifest_gives_edits_that_can_be_judged_and_stored_or_one_sentence(count: int, folder: Path) -> None:
    judge = Judge("rules", mode="plain")
    refused = kept = 0
    tracemalloc.start()
    with Run.write(folder / "run") as run:
        planner = Planner(run, judge)
        for seed in range(count):
            path = write_hostile(folder, seed)
            edits: list[Edit] = []
            try:
                edits.extend(load_manifest(path))
            except UserError as error:
                refused += is_one_sentence(error)
                continue
            finally:
                path.unlink()
            # Judged one in four: what can go wrong here is reading, keys and storing.
            for job in planner.jobs(enumerate(edits)):
                shown = [job.edit.source, job.edit.edited, job.edit.reference, *sum(job.edit.more_images.values(), ())]
                keyed = {name for name, question in job.questions.items() if question.shown}
                assert keyed == set(judge.criteria) or not all(path is None or os.path.isfile(path) for path in shown)
                if seed % 4 == 0:
                    judgement = next(iter(judge.batch([job.edit])))
                    problems = [
                        v for v in judgement.verdicts if isinstance(v, Unjudged) and v.reason == Reason.INTERNAL
                    ]
                    assert not problems, (seed, problems)
                    run.save(judgement)
                json.dumps(job.edit.model_dump(mode="json")).encode()
                assert Edit.model_validate_json(job.edit.model_dump_json()).id == job.edit.id
            kept += 1
        planner.close()
        assert list(run.units())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused + kept == count
    assert min(refused, kept) > count * 0.15, "the makers no longer make what they are for"
    assert peak < 200_000_000


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "m.jsonl",
            '{"source":"a.png","edited":"b.png","instruction":"x","target_boxes":[[0,0,Infinity,5]]}',
            "four finite numbers",
        ),
        (
            "m.jsonl",
            '{"source":"a.png","edited":"b.png","instruction":"x","target_boxes":[[0,0,NaN,5]]}',
            "four finite numbers",
        ),
        (
            "m.jsonl",
            f'{{"source":"a.png","edited":"b.png","instruction":"x","target_boxes":[[0,0,1{"0" * 400},5]]}}',
            "large",
        ),
        (
            "m.jsonl",
            json.dumps({"source": "a.png", "edited": "b.png", "instruction": "x", "extra": nested(500, False)}),
            "deep",
        ),
        (
            "m.jsonl",
            json.dumps({"source": "a.png", "edited": "b.png", "instruction": "x", "own": nested(500, True)}),
            "deep",
        ),
        ("m.jsonl", '{"source":"a\\ud83d.png","edited":"b.png","instruction":"x"}', "is not a valid path"),
        ("m.csv", f"source,edited,instruction,target_boxes\na.png,b.png,x,{'[' * 100_000}", "nested too deeply"),
        ("m.csv", "source,edited,instruction,human,human.a\na.png,b.png,x,[1],y", "must map a criterion"),
        ("m.csv", "source,edited,instruction\n" + "x" * 17_000_000, "longer than 16 MB"),
        ("m.jsonl", "x" * 17_000_000, "longer than 16 MB"),
    ],
)
def test_a_mistake_is_told_with_its_place(name: str, content: str, sentence: str, folder: Path) -> None:
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=sentence) as told:
        list(load_manifest(folder / name))
    assert str(told.value).startswith(name)


def test_half_characters_are_read_as_the_replacement_character_and_can_be_stored(folder: Path) -> None:
    line = '{"id":"e\\ud83d","source":"a.png","edited":"b.png","instruction":"half \\ud83d","model":"m\\udc00",'
    (folder / "m.jsonl").write_text(line + '"human":{"instruction_following":"Wrong\\ud83d"},"own\\ud83d":["\\ud83d"]}')
    (edit,) = load_manifest(folder / "m.jsonl")
    assert (edit.id, edit.instruction, edit.model) == ("e�", "half �", "m�")
    assert edit.human == {"instruction_following": "Wrong�"}
    assert edit.extra == {"own�": ["�"]}
    with Run.write(folder / "run") as run:
        run.save(Judge("rules", mode="plain").judge(edit))
    with Run.open(folder / "run") as run:
        assert {unit.edit_id for unit in run.units()} == {"e�"}


def test_a_file_name_that_is_no_text_is_judged_and_stored(tmp_path: Path) -> None:
    source = save(textured(24, 24), tmp_path / "a.png")
    odd = tmp_path / os.fsdecode(b"caf\xe9.png")
    odd.write_bytes(source.read_bytes())
    edit = Edit(source=source, edited=odd, instruction="Make it red.")
    assert edit.id == "caf�"
    with Run.write(tmp_path / "run") as run:
        run.save(Judge("rules", mode="plain").judge(edit))
    with Run.open(tmp_path / "run") as run:
        assert {unit.edit_id for unit in run.units()} == {"caf�"}


def test_what_keys_are_made_of_stays_the_same_for_ordinary_edits() -> None:
    """Runs of earlier versions go on without judging again."""
    extra = {"a": [1, {"b": None}], "ü": 1.5}
    edit = Edit(id="x", source="a.png", edited="b.png", instruction="Färbe die Tasse rot 🙂.", extra=extra)
    assert json.dumps(edit.model_dump(mode="json", include={"instruction", "hint", "extra"}), sort_keys=True) == (
        '{"extra": {"a": [1, {"b": null}], "\\u00fc": 1.5}, "hint": null, '
        '"instruction": "F\\u00e4rbe die Tasse rot \\ud83d\\ude42."}'
    )


def test_parquet_columns_of_bytes_are_left_out_unless_they_are_pictures_of_the_edit(folder: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    good = {"source": ["a.png"], "edited": ["b.png"], "instruction": ["Make it red."]}
    picture = arrow.array([{"bytes": b"\x89PNG\xff", "path": "a.png"}])
    parquet.write_table(arrow.table({**good, "picture": picture, "raw": [b"\xff"], "turn": [2]}), folder / "m.parquet")
    (edit,) = load_manifest(folder / "m.parquet")
    assert edit.turn == 2
    assert edit.extra == {}
    parquet.write_table(arrow.table({**good, "source": picture}), folder / "n.parquet")
    (edit,) = load_manifest(folder / "n.parquet")
    assert edit.source == folder / "n.parquet#row=1&column=source"
    parquet.write_table(arrow.table({**good, "instruction": picture}), folder / "o.parquet")
    with pytest.raises(UserError, match=r'^o\.parquet, row 1: "instruction"'):
        list(load_manifest(folder / "o.parquet"))


@pytest.mark.timeout(30)
def write_arrow(path: Path, schema: Any, columns: list[Any]) -> Path:
    from pyarrow import RecordBatch, ipc

    with ipc.new_file(str(path), schema) as out:
        out.write_batch(RecordBatch.from_arrays(columns, schema=schema))
    return path


def test_offsets_that_lead_out_of_an_arrow_file_are_one_sentence(folder: Path) -> None:
    """Reading such a text would read other memory, or end the process."""
    pa = pytest.importorskip("pyarrow")
    offsets = pa.py_buffer(struct.pack("<3i", 0, 2**30, 3))
    damaged = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    schema = pa.schema([(name, pa.string()) for name in ("source", "edited", "instruction")])
    path = write_arrow(folder / "m.arrow", schema, [pa.array(["a.png"] * 2), pa.array(["b.png"] * 2), damaged])
    with pytest.raises(UserError, match=r"m\.arrow, after row 0: this cannot be read"):
        list(load_manifest(path))


def test_a_column_whose_name_is_no_text_is_one_sentence(folder: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = write_arrow(folder / "m.arrow", pa.schema([("instruction", pa.string())]), [pa.array(["x"])])
    path.write_bytes(path.read_bytes().replace(b"instruction", b"in\xd1truction"))
    with pytest.raises(UserError, match="is not an Arrow file, or not a whole one"):
        list(load_manifest(path))


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_pipe_for_a_manifest_is_refused_at_once(suffix: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"m{suffix}")
    with pytest.raises(UserError, match="a pipe, not a file"):
        list(load_manifest(tmp_path / f"m{suffix}"))


def _edit_compass(root: Path, items: Any) -> None:
    (root / "data/Part1/ADD").mkdir(parents=True)
    (root / "results/en/Part1/ADD").mkdir(parents=True)
    (root / "data/Part1/ADD/ADD.json").write_text(json.dumps(items))
    (root / "results/en/Part1/ADD/1.png").touch()


def _vibe(root: Path, items: Any) -> None:
    (root / "data/Tasks/Level1/Addition").mkdir(parents=True)
    (root / "results/Level1/Addition").mkdir(parents=True)
    (root / "data/Tasks/Level1/Addition/tasks.json").write_text(json.dumps(items))
    (root / "results/Level1/Addition/x_results.json").write_text(json.dumps(items))
    (root / "results/Level1/Addition/1.png").touch()


def _wiseedit(root: Path, items: Any) -> None:
    (root / "data/WiseEdit/Awareness/Cultural").mkdir(parents=True)
    (root / "results/Cultural/en").mkdir(parents=True)
    (root / "data/WiseEdit/Awareness/Cultural/ins.json").write_text(json.dumps(items))
    (root / "results/Cultural/en/1.png").touch()


LAYOUTS: dict[str, tuple[Callable[[Path, Any], None], tuple[str, ...], dict[str, Any]]] = {
    "edit-compass": (
        _edit_compass,
        ("save_id", "source_image", "prompt_en", "hints", "reference_image_path", "edit_type", "sub_type"),
        {"save_id": "1", "source_image": "a.png", "prompt_en": "Make it red."},
    ),
    "vibe": (
        _vibe,
        ("id", "file_paths", "text_prompt", "style", "saved_image_path"),
        {"id": "1", "file_paths": {"source": "a.png"}, "text_prompt": {"input_prompt": "x"}},
    ),
    "wiseedit": (
        _wiseedit,
        ("idx", "prompt", "promptcn", "input_1", "input_2", "ref", "hint"),
        {"idx": "1", "prompt": "x", "promptcn": "x", "input_1": "a.png"},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [pytest.param(60), pytest.param(700, marks=pytest.mark.slow)])
def test_a_hostile_benchmark_folder_gives_edits_or_one_sentence(layout: str, count: int, tmp_path: Path) -> None:
    write, names, good = LAYOUTS[layout]
    read = refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        items = [{**good, **{rng.choice(names): value(rng) for _ in range(rng.randint(0, 2))}}]
        items.append({**good, names[0]: "2"})
        write(tmp_path / str(seed), rng.choice((items, items, items, value(rng))))
        try:
            for edit in load_benchmark(
                layout, tmp_path / str(seed) / "data", tmp_path / str(seed) / "results", ("en",)
            ):
                edit.model_dump_json().encode()
                read += 1
        except UserError as error:
            refused += is_one_sentence(error)
    assert read
    assert refused


@pytest.mark.long
@pytest.mark.parametrize("count", [pytest.param(150), pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_hostile_file_of_pairs_gives_pairs_or_one_sentence(count: int, tmp_path: Path) -> None:
    names = (
        "id",
        "source_image",
        "prompt",
        "winner",
        "loser",
        "dimension",
        "label",
        "task",
        "reference_image_path",
        "edit_type",
    )
    good = {
        "source_image": "a.png",
        "prompt": "x",
        "winner": "b.png",
        "loser": "c.png",
        "dimension": "IA",
        "task": "ADD",
    }
    read = refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        item = {**good, **{rng.choice(names): value(rng) for _ in range(rng.randint(0, 2))}}
        file = tmp_path / ("p.json" if seed % 2 else "p.jsonl")
        file.write_text(json.dumps([item]) if seed % 2 else json.dumps(item))
        try:
            for pair in load_pairs(file):
                pair.ordered(True).model_dump_json().encode()
                read += 1
        except UserError as error:
            refused += is_one_sentence(error)
    assert read
    assert refused


def test_results_outside_their_folder_are_not_taken(tmp_path: Path) -> None:
    _edit_compass(tmp_path, [{"save_id": "../../../../secret", "source_image": "a.png", "prompt_en": "x"}])
    with pytest.raises(UserError, match="leads outside the folder"):
        list(load_benchmark("edit-compass", tmp_path / "data", tmp_path / "results", ("en",)))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"prices:\n  openai:x: {input: -1, output: 2}\n",
            "openai:x: input: Input should be greater than or equal to 0",
        ),
        (b"prices:\n  openai:x: {input: .inf, output: 2}\n", "openai:x: input"),
        (b"prices:\n  openai:x: {input: .nan, output: 2}\n", "openai:x: input"),
        (b"prices:\n  openai:x: {input: 1}\n", "openai:x: output is missing"),
        (b"prices:\n  openai:x: {input: 1, output: 2}\n  openai:x: {input: 1, output: 3}\n", "is listed twice"),
        (b"prices: {1: {input: 1, output: 2}}\n", "is not a price file"),
        (b"prices: [a, b]\n", "is not a price file"),
        (b"- 1\n", "is not a price file"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"{" * 3000, "is not valid YAML"),
        (b"", "is not a price file"),
    ],
)
def test_a_price_file_that_cannot_be_used_is_told_in_one_sentence(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "prices.yaml").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        price_of("openai:x", tmp_path / "prices.yaml")


NO_URLS = (
    *("", " ", "http://", "http:///v1", "localhost:8000/v1", "ftp://host/v1", "file:///etc"),
    *("http://a\n.b/v1", "http://a b/v1", "http://[::1", "http://h:99999/v1", "http://h:x/v1"),
)


@pytest.mark.long
@pytest.mark.parametrize("url", NO_URLS)
def test_a_base_url_that_can_be_none_is_told_before_anything_is_sent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in ("openai:gpt-4.1", "google_genai:gemini-2.5-pro"):
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("GOOGLE_API_KEY", "key")
        with pytest.raises(UserError, match="--base-url"):
            Judge(spec, base_url=url)
        if url.strip():
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
            with pytest.raises(UserError, match="BASE_URL"):
                Judge(spec)
            monkeypatch.delenv("OPENAI_BASE_URL")
            monkeypatch.delenv("GOOGLE_GEMINI_BASE_URL")


def test_a_secret_in_a_wrong_base_url_is_not_repeated() -> None:
    with pytest.raises(UserError) as told:
        Judge("openai:gpt-4.1", base_url="ftp://host/v1?api-key=geheim")
    assert "geheim" not in str(told.value)


@pytest.mark.parametrize(
    "numbers", [[0, 0, float("inf"), 5], [float("nan"), 0, 1, 1], [0, 0, 10**400, 5], [0, 0, 1e308, 5]]
)
def test_a_box_of_numbers_that_are_none_is_a_mistake_not_a_crash(numbers: list[float]) -> None:
    with pytest.raises(ValueError, match="box"):
        Box.model_validate(numbers)


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["judge", "a.png", "b.png", "x", "--target", "0,0,inf,5"],
        ["judge", "a.png", "b.png", "x", "--target", "0,0,nan,5"],
        ["judge", "a.png", "b.png", "x", "--judge", "openai:gpt-4.1", "--base-url", "ftp://h"],
        ["judge", "a.png", "b.png", "x", "--rubric", "pipe"],
        ["batch", "pipe.jsonl", "--out", "run"],
        ["tool", "zoom_in_image", "a.png", "--box", "0,0,inf,9"],
        ["tool", "zoom_in_image", "pipe.jsonl", "--box", "0,0,5,9"],
    ],
)
def test_the_command_line_exits_with_two_and_one_sentence(arguments: list[str], folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "editloupe", *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
