"""Published preference sets: their fields, rules of ties and of orders, results of their scripts, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.pairs import Pair, load_pairs
from editloupe.rubrics.pairs import fit_tie_threshold
from editloupe.rubrics.protocol import MissingInput
from editloupe.rubrics.registry import find_pair_rules, get_protocol, list_pair_layouts
from editloupe.types import Edit, UserError
from tests.conftest import StartServer
from tests.evals.reward.samples import asked, brightness, fair, picture
from tests.scripted import Request, say

MMRB2 = {
    "id": "p1",
    "prompt_content": [["text", "Make it brighter"], ["image", "s.png"], ["image", "r.png"], ["text", "as there"]],
    "response_a": {"model_name": "m1", "response_content": [["image", "bright.png"]]},
    "response_b": {"model_name": "m2", "response_content": [["image", "dark.png"]]},
    "chosen": "A",
    "human_annotations": [6, 6, 5],
}
EDITSCORE = {
    "key": ["k1", "k2"],
    "instruction": "Make it brighter",
    "input_image": "s.png",
    "output_images": ["bright.png", "dark.png"],
    "task_type": "tone",
    "dimension": "prompt_following",
}
VCREWARD = {
    "key": "v1",
    "instruction": "Make it brighter",
    "source_image": "s.png",
    "edited_images": ["dark.png", "bright.png"],
    "winner": "Image B",
    "task": "tone",
}
GROUP = {
    "prompt": "Make it brighter",
    "path_src": "s.png",
    "paths_generated": ["grey.png", "dark.png", "bright.png"],
    "human_vote": {"ranking": "C>A>B"},
}
ROWS = {"mmrb2": MMRB2, "editscore-bench": EDITSCORE, "vcreward-bench": VCREWARD, "editreward-bench": GROUP}


def graded(request: Request) -> Any:
    """Answer by brightness: the brighter of two candidates, or a number from 0 to 10."""
    if "Candidate A" in request.text or "List of differences" in request.system:
        return fair(request)
    return say(json.dumps({"reason": "level", "score": round(brightness(request, "Edited Image") / 25.5)}))


def write(folder: Path, layout: str, *rows: dict[str, Any], name: str = "set.json") -> Path:
    for number, (stem, level) in enumerate((("s", 100), ("r", 90), ("bright", 220), ("grey", 130), ("dark", 40))):
        picture(folder / f"{stem}.png", number, level)
    content: Any = {"pairs": rows} if layout == "mmrb2" else list(rows)
    (folder / name).write_text(json.dumps(content), "utf-8")
    return folder / name


def load(folder: Path, layout: str, *rows: dict[str, Any]) -> list[Pair]:
    return list(load_pairs(write(folder, layout, *rows), layout, layout=layout))


def test_every_published_set_has_an_example_here() -> None:
    assert sorted(ROWS) == sorted(list_pair_layouts())


@pytest.mark.parametrize("layout", ROWS)
def test_the_better_candidate_of_every_pair_is_the_brighter_picture(layout: str, tmp_path: Path) -> None:
    levels = {"dark": 0, "grey": 1, "bright": 2}
    pairs = load(tmp_path, layout, ROWS[layout])
    assert len(pairs) == (3 if layout == "editreward-bench" else 1)
    for pair in pairs:
        assert levels[Path(str(pair.winner)).stem] > levels[Path(str(pair.loser)).stem]
        assert (pair.label, pair.layout) == ("preference", layout)


def test_further_pictures_of_a_prompt_are_references_and_its_texts_are_joined(tmp_path: Path) -> None:
    (pair,) = load(tmp_path, "mmrb2", MMRB2)
    assert pair.instruction == "Make it brighter\nas there"
    assert [Path(str(path)).name for path in pair.references] == ["r.png"]
    assert pair.models == ("m1", "m2")
    assert pair.extra["human_annotations"] == [6, 6, 5]


def test_a_vote_of_k_candidates_is_a_pair_for_every_two_in_the_order_of_the_file(tmp_path: Path) -> None:
    pairs = load(tmp_path, "editreward-bench", {**GROUP, "human_vote": "B=C>A"})
    found = [(Path(str(pair.winner)).stem, Path(str(pair.loser)).stem, pair.label, pair.first) for pair in pairs]
    assert found == [
        ("dark", "grey", "preference", "loser"),
        ("bright", "grey", "preference", "loser"),
        ("dark", "bright", "tie", "winner"),
    ]
    assert {(pair.group, pair.candidates) for pair in pairs} == {("set_00001", 3)}


@pytest.mark.parametrize(
    ("vote", "label"), [("A=B=Good", "tie"), ("A=B=Bad", "tie"), ("A=B", "tie"), ("A<B", "preference")]
)
def test_a_vote_on_two_candidates_may_be_a_tie(vote: str, label: str, tmp_path: Path) -> None:
    two = {**GROUP, "paths_generated": ["dark.png", "bright.png"], "human_vote": vote}
    (pair,) = load(tmp_path, "editreward-bench", two)
    assert pair.label == label


def test_rows_of_one_comparison_each_are_groups_by_the_beginning_of_their_ids(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"abc_{kind}",
            "dataset": "3pair",
            "instruction": "Make it brighter",
            "source_image": "s.png",
            "candidate_1": first,
            "candidate_2": second,
            "ranking": ranking,
            "comparison_type": kind,
        }
        for kind, first, second, ranking in (
            ("AvsB", "grey.png", "dark.png", "A>B"),
            ("AvsC", "grey.png", "bright.png", "C>A"),
            ("BvsC", "dark.png", "bright.png", "C>B"),
        )
    ]
    pairs = load(tmp_path, "editreward-bench", *rows)
    assert {(pair.group, pair.candidates) for pair in pairs} == {("3pair:abc", 3)}
    assert [Path(str(pair.winner)).stem for pair in pairs] == ["grey", "bright", "bright"]


@pytest.mark.parametrize(
    ("layout", "changes", "sentence"),
    [
        ("mmrb2", {"chosen": "a"}, 'set.json, row 1: "chosen" is "a", not A or B'),
        ("mmrb2", {"human_annotations": [6, 8, 1]}, '"human_annotations" must be whole numbers from 1 to 7'),
        ("mmrb2", {"prompt_content": [["text", "x"]]}, '"prompt_content" must have a text and a picture'),
        ("mmrb2", {"prompt_content": [["sound", "x"]]}, '"prompt_content" must be a list of'),
        ("mmrb2", {"response_a": "out.png"}, '"response_a" must be an object'),
        ("mmrb2", {"id": None}, "set.json, row 1: id or pair_id must be a text; this row has id, prompt_content"),
        ("editscore-bench", {"key": ["k1"]}, '"key" must be a list of 2 values; it has 1'),
        ("editscore-bench", {"dimension": "beauty"}, '"dimension" is "beauty", not prompt_following or consistency or'),
        ("editscore-bench", {"dimension": ["overall"]}, '"dimension" is ["overall"], not prompt_following or'),
        ("editscore-bench", {"input_image": None}, '"source_image" is missing'),
        ("editscore-bench", {"input_image": "../s.png"}, "leads outside the file's folder"),
        ("vcreward-bench", {"winner": "A"}, '"winner" is "A", not Image A or Image B or Tie'),
        ("editreward-bench", {"human_vote": "A>B"}, '"human_vote" is "A>B", not a ranking such as A>B>C'),
        ("editreward-bench", {"human_vote": "A>B<C"}, '"human_vote" is "A>B<C"'),
        ("editreward-bench", {"human_vote": None}, '"human_vote" is null'),
        ("editreward-bench", {"paths_generated": ["a.png"] * 5}, "a group has at most 4"),
    ],
)
def test_a_row_with_a_mistake_is_refused_with_its_place(
    layout: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, layout, {**ROWS[layout], **changes})
    assert sentence in str(error.value)
    assert str(error.value).startswith("set.json, row 1: ")


@pytest.mark.parametrize("dimension", ["beauty", ["overall"]])
def test_a_candidate_of_an_unknown_dimension_is_not_judged(dimension: object) -> None:
    candidate = Edit(source=Path("a"), edited=Path("b"), instruction="x", extra={"dimension": dimension})
    with pytest.raises(MissingInput, match="the dimension must be one of overall, not"):
        get_protocol("mmrb2").rubrics_for(candidate)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"pairs"', '{"pairs": 3}', "\xff", '{"pairs": [], "pairs": []}'])
def test_a_damaged_file_is_one_sentence_and_exit_code_2(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "edit.json").write_bytes(text.encode("latin-1"))
    (tmp_path / "scores.json").write_text("{}", "utf-8")
    command = ["reward", str(tmp_path / "edit.json"), "--layout", "mmrb2", "--scores", str(tmp_path / "scores.json")]
    assert run(command) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "edit.json" in line


def test_a_pair_that_is_twice_in_a_file_of_predictions_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, row = write(tmp_path, "mmrb2", MMRB2), '{"forward": [{"judgement": "A"}]}'
    (tmp_path / "theirs.json").write_text(f'{{"1": {row}, "1": {row}}}', "utf-8")
    assert run(["reward", str(path), "--layout", "mmrb2", "--scores", str(tmp_path / "theirs.json")]) == 2
    assert 'theirs.json has the key "1" twice' in capsys.readouterr().err


@pytest.mark.parametrize("layout", ROWS)
def test_without_a_layout_the_message_names_the_option(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, layout, ROWS[layout])
    assert run(["reward", str(path), "--scores", str(path)]) == 2
    assert "--layout NAME reads the files of a published set" in capsys.readouterr().err


def test_a_folder_that_is_named_relative_to_the_working_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "mmrb2", MMRB2)
    monkeypatch.chdir(tmp_path)
    assert len(list(load_pairs(".", "mmrb2", layout="mmrb2"))) == 1


def test_a_tie_of_scores_is_wrong_where_the_set_has_no_ties(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {**EDITSCORE, "key": [f"a{n}", f"b{n}"], "dimension": name} for n, name in enumerate(("overall", "overall"))
    ]
    path = write(tmp_path, "editscore-bench", *rows)
    scores = tmp_path / "results" / "tone" / "overall.jsonl"
    scores.parent.mkdir(parents=True)
    lines = [{"key": ["a0", "b0"], "score": [7, 7]}, {"key": ["a1", "b1"], "score": [8, 7.5]}]
    scores.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = ["reward", str(path), "--layout", "editscore-bench", "--scores", f"Ours={tmp_path / 'results'}", "--json"]
    assert run(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["judge"] == "Ours"
    assert (report["overall"]["correct"], report["overall"]["judged"]) == (1, 2)


def write_table(path: Path, rows: Sequence[dict[str, Any]], pictures: Sequence[str]) -> None:
    """Write rows as Parquet, with picture columns as structs of bytes and path, as on the Hugging Face hub."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    struct = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])

    def cell(value: Any) -> Any:
        if isinstance(value, list):
            return [cell(item) for item in value]
        return None if value is None else {"bytes": (path.parent / "pictures" / value).read_bytes(), "path": value}

    columns = {
        name: pyarrow.array(
            [cell(row[name]) for row in rows],
            pyarrow.list_(struct) if isinstance(rows[0][name], list) else struct,
        )
        if name in pictures
        else pyarrow.array([row[name] for row in rows])
        for name in rows[0]
    }
    parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.long
def test_pictures_in_parquet_columns_are_judged_as_files_are(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "pictures", "editscore-bench", EDITSCORE)
    rows = [{**EDITSCORE, "key": [f"a{n}", f"b{n}"]} for n in range(3)]
    write_table(tmp_path / "train-00000-of-00001.parquet", rows, ("input_image", "output_images"))
    command = ["reward", str(tmp_path), "--layout", "editscore-bench", *asked(scripted(graded)), "-q", "--json"]
    shutil.rmtree(tmp_path / "pictures")
    assert run([*command, "--out", str(tmp_path / "run")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["overall"]["correct"], report["overall"]["judged"]) == (3, 3)


def test_the_parts_of_a_set_in_a_folder_each_are_read_together(tmp_path: Path) -> None:
    write(tmp_path / "pictures", "editreward-bench", GROUP)
    for size, kinds in ((2, ("AvsB",)), (3, ("AvsB", "AvsC", "BvsC"))):
        (tmp_path / "set" / f"{size}pair").mkdir(parents=True)
        (tmp_path / "set" / f"{size}pair" / "pictures").symlink_to(tmp_path / "pictures")
        rows = [
            {
                "id": f"x_{kind}",
                "instruction": "Make it brighter",
                "source_image": "s.png",
                "candidate_1": "bright.png",
                "candidate_2": "dark.png",
                "ranking": f"{kind[0]}>{kind[-1]}",
                "comparison_type": kind,
            }
            for kind in kinds
        ]
        name = tmp_path / "set" / f"{size}pair" / "train-00000-of-00001.parquet"
        write_table(name, rows, ("source_image", "candidate_1", "candidate_2"))
        (tmp_path / "set" / f"{size}pair" / "pictures").unlink()
    pairs = list(load_pairs(tmp_path / "set", "editreward-bench", layout="editreward-bench"))
    assert [(pair.group, pair.candidates) for pair in pairs] == [("2pair:x", 2), *[("3pair:x", 3)] * 3]


def test_a_half_downloaded_table_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "scores.jsonl").write_text('{"pair": "x", "winner": 1, "loser": 0}', "utf-8")
    command = ["reward", str(tmp_path / "train.parquet"), "--layout", "vcreward-bench", "--scores"]
    assert run([*command, str(tmp_path / "scores.jsonl")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "train.parquet" in line


def test_verdicts_in_the_order_of_the_file_are_read_and_ties_are_right_if_people_tied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    winners = ("Image A", "Image B", "Tie", "Tie")
    rows = [{**VCREWARD, "key": f"v{n}", "winner": winner} for n, winner in enumerate(winners)]
    path = write(tmp_path, "vcreward-bench", *rows)
    answers = ("Image A", "Image A", "Tie", "Image B")
    results = [{"key": f"v{n}", "winner": answer} for n, answer in enumerate(answers)]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, results)), "utf-8")
    command = ["reward", str(path), "--layout", "vcreward-bench", "--scores", str(tmp_path / "results.jsonl"), "--json"]
    assert run(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert [result["correct"] for result in report["results"]] == [True, False, True, False]
    assert report["measures"] == {"tone": 0.5}


def measured(folder: Path, capsys: pytest.CaptureFixture[str], votes: Sequence[str], scores: Sequence[Any]) -> Any:
    """Return the report on groups with these votes, whose candidates have these scores."""
    groups, lines = [], []
    for number, (vote, own) in enumerate(zip(votes, scores, strict=True)):
        names = [f"g{number}_{index}.png" for index in range(len(own))]
        for index, name in enumerate(names):
            picture(folder / name, 10 * number + index, 100)
        groups.append({**GROUP, "paths_generated": names, "human_vote": vote})
        lines += [
            {"picture": name, "score": score} for name, score in zip(names, own, strict=True) if score is not None
        ]
    path = write(folder, "editreward-bench", *groups)
    (folder / "scores.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    run(["reward", str(path), "--layout", "editreward-bench", "--scores", str(folder / "scores.jsonl"), "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_group_is_right_if_every_pair_is_and_ties_of_two_have_the_best_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    votes = ("A>B", "A=B=Good", "A=B=Bad", "A<B", "A>B>C", "C>B>A", "A>B>C>D", "A>B>C")
    scores = ((9, 4), (5, 5.5), (5, 4), (3, 2), (3, 2, 1), (3, 2, 2), (4, 3, 2, 1), (3, 1, None))
    measures = measured(tmp_path, capsys, votes, scores)["measures"]
    # Differences of two: 5 for A, 0.5 and 1 for ties, 1 for the worse one. A threshold of 1 has three of four right.
    assert measures["threshold of ties"] == 1
    assert (measures["K=2"], measures["K=3"], measures["K=4"]) == (0.75, 0.5, 1.0)
    assert measures["Overall"] == pytest.approx(5 / 7)
    assert (measures["groups"], measures["groups without all pairs"]) == (8, 1)


def test_the_threshold_of_ties_is_the_best_of_all_thresholds() -> None:
    differences = [0.0, 0.2, -0.2, 0.5, -0.9, 1.5, -1.5, 2.0, 0.0, 3.0]
    labels = [0, 0, 1, 0, 1, 1, -1, -1, 1, 1]

    def accuracy(threshold: float) -> float:
        right = [
            label == 0 if abs(difference) <= threshold else difference * label > 0
            for difference, label in zip(differences, labels, strict=True)
        ]
        return sum(right) / len(right)

    thresholds = sorted({0.0, *map(abs, differences)})
    best = max(map(accuracy, thresholds))
    expected = next(threshold for threshold in thresholds if accuracy(threshold) == best)
    assert fit_tie_threshold(differences, labels) == (expected, pytest.approx(best))


@pytest.mark.long
@pytest.mark.parametrize("layout", ROWS)
@pytest.mark.parametrize("way", ["pointwise", "pairwise"])
def test_a_fair_judge_is_right_in_either_way_of_asking_and_the_orders_are_those_of_the_set(
    layout: str, way: str, tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(graded)
    path = write(tmp_path / "set", layout, ROWS[layout])
    out = tmp_path / "run"
    options = ["--pairwise"] if way == "pairwise" else []
    command = ["reward", str(path), "--layout", layout, *asked(server), "--out", str(out), "-q", "--json", *options]
    assert run(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["overall"]["accuracy"] == 1
    if way == "pairwise":
        pairs = len(report["results"])
        assert len(server.requests) == pairs * (1 if find_pair_rules(layout).orders == "once" else 2)
    assert run(["reward", str(out), "--table", "--published"]) == 0
    printed = capsys.readouterr()
    assert ("(paper)" in printed.out) == bool(find_pair_rules(layout).published)
    assert printed.err.count(": Passport ") == 1
    (tmp_path / "kept.json").write_text(json.dumps(report), "utf-8")
    assert run(["passport", str(out), str(tmp_path / "kept.json")]) == 0
    capsys.readouterr()
    assert run(["reward", str(out), str(tmp_path / "kept.json"), "--table", "--format", "json"]) == 0
    passports = json.loads(capsys.readouterr().out)["passports"]
    assert list(passports.values()) == [report["passport"]] * 2


@pytest.mark.long
def test_the_rules_of_the_public_script_are_applied_to_stored_scores(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Threshold 2 is best for two outputs. The script still counts the preference with a difference of 1, and an order."""
    groups = []
    votes = (("A>B", (8, 7)), ("A=B=Good", (8, 6)), ("A=B=Bad", (4, 4)), ("A=B", (5, 4)))
    more = (("C>A>B", (6, 6, 9)), ("C>B>A", (6, 6, 9)), ("A>B>C", (9, 6, 3)))
    for number, (vote, scores) in enumerate((*votes, *more)):
        names = [f"g{number}_{index}.png" for index in range(len(scores))]
        for index, (name, score) in enumerate(zip(names, scores, strict=True)):
            level = round(25.5 * score) - 16
            picture(tmp_path / name, 100 * number + index, level)
        groups.append({**GROUP, "paths_generated": names, "human_vote": vote})
    path, out = write(tmp_path, "editreward-bench", *groups), tmp_path / "run"
    command = ["reward", str(path), "--layout", "editreward-bench", *asked(scripted(graded)), "-q", "--json"]
    assert run([*command, "--out", str(out)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measures"]["threshold of ties"] == pytest.approx(20)
    assert (report["measures"]["K=2"], report["measures"]["K=3"]) == (0.75, pytest.approx(1 / 3))

    def print_table(*options: str) -> dict[str, Any]:
        assert run(["report", str(out), "--format", "json", *options]) == 0
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        return dict(zip(table["columns"], table["rows"][0], strict=True))

    script = print_table("--as-published")
    assert (script["K=2"], script["K=3"]) == (1.0, pytest.approx(2 / 3))
    assert script["Overall"] == pytest.approx(6 / 7)
    assert script["pairs K=2"] == 0.75
    assert script["pairs K=3"] == pytest.approx(7 / 9)
    text = print_table("--rule", "two=threshold")
    assert (text["K=2"], text["K=3"]) == (0.75, pytest.approx(1 / 3))


@pytest.mark.long
def test_single_candidates_are_also_judged_by_a_rubric_of_your_own_and_decided_by_the_rules_of_the_set(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "vcreward-bench", VCREWARD)
    rubric = tmp_path / "bright.yaml"
    rubric.write_text("name: bright\nquestion: How bright is it?\nanswer: {kind: number, low: 0, high: 10}\n", "utf-8")
    out = tmp_path / "run"
    command = ["reward", str(path), "--layout", "vcreward-bench", *asked(scripted(graded)), "-q", "--json"]
    assert run([*command, "--rubric", str(rubric), "--out", str(out)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["protocol"], report["layout"]) == ("own", "vcreward-bench")
    assert report["measures"] == {"tone": 1.0}
    assert run(["reward", str(out), "--table"]) == 0
    assert capsys.readouterr().out.startswith("VCReward-Bench: share of right verdicts")
    assert run([*command, "--rubric", str(rubric), "--pairwise"]) == 2
    assert run([*command, "--protocol", "editreward-compass"]) == 2
    assert "judges pairs of its own" in capsys.readouterr().err


def test_scores_of_two_different_sets_do_not_share_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for layout in ("vcreward-bench", "editscore-bench"):
        path = write(tmp_path, layout, ROWS[layout])
        (tmp_path / "scores.jsonl").write_text(
            '{"picture": "bright.png", "score": 2}\n{"picture": "dark.png", "score": 1}\n', "utf-8"
        )
        assert run(["reward", str(path), "--layout", layout, "--scores", str(tmp_path / "scores.jsonl"), "--json"]) == 0
        (tmp_path / f"{layout}.json").write_text(capsys.readouterr().out, "utf-8")
    both = [str(tmp_path / f"{layout}.json") for layout in ("vcreward-bench", "editscore-bench")]
    assert run(["reward", *both, "--table"]) == 2
    assert "different sets of pairs" in capsys.readouterr().err
