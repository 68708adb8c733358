"""Whose outputs lie where: what is clear is taken, what is not is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.evals.manifests import load_outputs
from editloupe.types import UserError
from tests.evals.manifests.benchmarks import touch


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps({"id": n, "source": "s.png", "instruction": "x"}) + "\n" for n in "xy"))
    return path


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The outputs of two models, and a folder that holds none."""
    touch(*(tmp_path / "out" / model / f"{n}.png" for model in ("nano-banana", "bagel") for n in "xy"))
    touch(tmp_path / "out/logs/plot.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out"


def models(manifest: Path, *results: str, only: tuple[str, ...] = ()) -> tuple[str, ...]:
    return load_outputs(manifest, results, models=only).models


def test_a_folder_alone_is_one_models_or_holds_one_for_each(manifest: Path, out: Path) -> None:
    assert models(manifest, "out/bagel") == ("bagel",)
    assert models(manifest, "out") == ("bagel", "nano-banana")
    assert models(manifest, "out/bagel", "Nano=out/nano-banana") == ("bagel", "Nano")
    assert load_outputs(manifest, "out").notes == (f"{out}: no output of this benchmark in logs: left out",)


def test_models_are_picked_by_name_and_a_models_folder_gets_the_name(manifest: Path, out: Path) -> None:
    assert models(manifest, "out", only=("bagel",)) == ("bagel",)
    assert models(manifest, "out/bagel", only=("BAGEL-7B",)) == ("BAGEL-7B",)
    assert models(manifest, "A=out/bagel", "B=out/nano-banana", only=("B",)) == ("B",)
    assert {edit.model for edit in load_outputs(manifest, "out/bagel", models=("BAGEL-7B",)).edits()} == {"BAGEL-7B"}


def test_a_folder_may_have_an_equals_sign_in_its_name(manifest: Path, out: Path) -> None:
    (out / "bagel").rename(out / "steps=50")
    assert models(manifest, "out/steps=50") == ("steps=50",)
    assert models(manifest, "A=out/steps=50") == ("A",)
    (out.parent / "A=out").mkdir()
    with pytest.raises(UserError, match="--results A=out is a folder, and so is out"):
        models(manifest, "A=out")


@pytest.mark.parametrize(
    ("results", "only", "sentence"),
    [
        (["A=out/bagle"], (), "the folder of results of model A, out/bagle, does not exist; is bagel meant?"),
        (["out/zzz"], (), "out/zzz, does not exist; in out there are: bagel, logs, nano-banana"),
        (["m.jsonl"], (), "m.jsonl, is not a folder"),
        (["A=out/bagel", "A=out/nano-banana"], (), "model A is named twice: OUT/bagel and OUT/nano-banana"),
        (["out", "bagel=out/nano-banana"], (), "model bagel is named twice"),
        (["out"], ("nanobanana",), 'there are no results of a model "nanobanana"; is nano-banana meant?'),
        (["A=out"], (), "model A: OUT has no output of this benchmark; looked for x{.png,.jpg,.jpeg,.webp}"),
        (
            ["A=out/logs"],
            (),
            "OUT/logs has pictures (plot.png), but none has an expected name, such as x{",
        ),
        (
            ["out/logs"],
            (),
            "OUT/logs has no output of this benchmark; looked for x{.png,.jpg,.jpeg,.webp} and the like",
        ),
        (["=out"], (), "is not MODEL=FOLDER"),
        (["A="], (), "is not MODEL=FOLDER"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    manifest: Path, out: Path, results: list[str], only: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UserError) as caught:
        models(manifest, *results, only=only)
    assert sentence in str(caught.value).replace(str(out), "OUT")
    assert "\n" not in str(caught.value)


def test_outputs_in_a_folder_and_in_folders_of_it_are_ambiguous(manifest: Path, out: Path) -> None:
    touch(out / "x.png")
    with pytest.raises(UserError, match="out has outputs itself and in bagel, nano-banana; use --results"):
        models(manifest, "out")
    assert models(manifest, "mine=out") == ("mine",)


def test_an_empty_manifest_is_told(tmp_path: Path, out: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(UserError, match="the benchmark has no edit"):
        models(tmp_path / "none.jsonl", "A=out/bagel")
