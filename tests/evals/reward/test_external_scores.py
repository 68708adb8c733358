"""Numbers of any reward model against people's choices: both forms of the file, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests.pairs import load_pairs
from editloupe.evals.reward import PairReport, judge_by_scores
from editloupe.types import UserError

ITEMS = [
    {"id": "a", "winner": "1.png", "loser": "2.png", "dimension": "IA"},
    {"id": "b", "winner": "1.png", "loser": "3.png", "dimension": "VC"},
    {"id": "c", "winner": "3.png", "loser": "2.png", "dimension": "VC", "label": "tie"},
    {"id": "d", "winner": "2.png", "loser": "4.png", "dimension": "VQ"},
]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Four pairs of four pictures, which nobody opens."""
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([{"source_image": "s.png", "prompt": "Do it", **item} for item in ITEMS]), "utf-8")
    return path


def judged(pairs: Path, text: str, name: str = "scores.jsonl") -> PairReport:
    file = pairs.with_name(name)
    file.write_text(text, "utf-8")
    return judge_by_scores(list(load_pairs(pairs, way=None)), file)[0]


def test_numbers_by_pair_are_right_where_the_winner_is_strictly_higher_and_a_tie_where_they_are_equal(
    pairs: Path,
) -> None:
    lines = ('{"pair": "a", "winner": 0.2, "loser": 0.1}', '{"pair": 2, "winner": -3, "loser": -3}')
    more = ('{"id": "c", "winner_score": 7, "loser_score": 7.000001}', '{"pair": "4", "winner": 1, "loser": 2}')
    report = judged(pairs, "\n".join((*lines, *more)))
    assert [result.correct for result in report.results] == [True, False, True, False]
    assert [result.decision for result in report.results] == ["winner", "tie", "tie", "loser"]
    assert {name: found.share for name, found in report.by_dimension.items()} == {"IA": 1.0, "VC": 0.5, "VQ": 0.0}
    assert (report.overall.share, report.judge, report.mode) == (0.5, "scores", "scores")


def test_a_winner_that_is_higher_by_next_to_nothing_is_higher(pairs: Path) -> None:
    report = judged(pairs, '{"pair": "a", "winner": 2e-9, "loser": 1e-9}')
    assert report.results[0].correct is True


def test_numbers_by_picture_count_for_every_dimension_unless_one_has_its_own(pairs: Path) -> None:
    report = judged(pairs, "picture,score,VQ\n1.png,3,\n2.png,2,1\n3.png,2,\n4.png,1,5\n", "scores.csv")
    assert [result.scores for result in report.results] == [(3, 2), (3, 2), (2, 2), (1, 5)]
    assert [result.correct for result in report.results] == [True, True, True, False]
    one = '{"image": "1.png", "dimension": "VC", "score": 1}\n{"image": "3.png", "dimension": "VC", "score": 0}'
    report = judged(pairs, one)
    assert [result.correct for result in report.results] == [None, True, None, None]


def test_a_picture_may_be_named_by_its_whole_path(pairs: Path) -> None:
    lines = [{"picture": str(pairs.parent / name), "score": score} for name, score in (("1.png", 2), ("2.png", 1))]
    assert judged(pairs, "\n".join(map(json.dumps, lines))).results[0].correct is True


def test_a_pair_without_both_numbers_is_neither_right_nor_wrong(pairs: Path) -> None:
    report = judged(pairs, '{"pair": "a", "winner": 1, "loser": null}\n{"pair": "b", "winner": 2, "loser": 1}')
    assert [result.why for result in report.results] == ["no number for the loser", None, *["no number for both"] * 2]
    assert (report.overall.judged, report.overall.pairs, report.overall.share) == (1, 4, 1.0)
    assert report.by_dimension["IA"].share is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"pair": 0, "winner": 1, "loser": 2}', "line 1: pairs are counted from 1"),
        ('{"pair": "a", "winner": "good", "loser": 2}', 'line 1: "winner" is "good", not a number'),
        ('{"pair": "a", "winner": NaN, "loser": 2}', 'line 1: "winner" is NaN, not a number'),
        ('{"pair": "a", "winner": true, "loser": 2}', 'line 1: "winner" is true, not a number'),
        ('{"pair": "a", "wins": 1}', 'line 1: a line on a pair has the numbers "winner" and "loser"'),
        ('{"picture": "1.png"}', 'line 1: a line on a picture has a number, "score" or one for each of IA, VC, VQ'),
        ('{"score": 1}', "line 1: a line names a pair"),
        ('{"picture": "1.png", "score": 1, "dimension": "XY"}', 'line 1: "dimension" is "XY"'),
        (
            '{"pair": "a", "winner": 1, "loser": 2}\n{"pair": 1, "winner": 2, "loser": 1}',
            "line 2: the pair 1 is listed twice",
        ),
        (
            '{"picture": "1.png", "score": 1}\n{"picture": "1.png", "score": 2}',
            "line 2: the picture 1.png is listed twice",
        ),
        ('{"pair": "z", "winner": 1, "loser": 2}', "has both numbers of none of the 4 pairs"),
    ],
)
def test_a_mistake_in_a_file_of_scores_is_one_sentence(pairs: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as told:
        judged(pairs, text)
    assert words in str(told.value)


def test_the_command_needs_no_judge_and_sets_several_models_in_one_table(
    pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part = pairs.with_name("whole.csv"), pairs.with_name("part.jsonl")
    whole.write_text("pair,winner,loser\na,2,1\nb,2,1\nc,1,1\nd,1,2\nz,1,2\n", "utf-8")
    part.write_text('{"pair": "a", "winner": 1, "loser": 2}\n', "utf-8")
    assert run(["reward", str(pairs), "--scores", str(whole)]) == 0
    told = capsys.readouterr()
    assert [line.split() for line in told.out.splitlines()][1:] == [
        ["IA", "1.0000", "1", "1", "1"],
        ["VC", "1.0000", "2", "2", "2"],
        ["VQ", "0.0000", "0", "1", "1"],
        ["overall", "0.7500", "3", "4", "4"],
    ]
    assert "whole.csv has a line on what is not in these pairs, for instance the pair z" in told.err
    assert run(["reward", str(pairs), "--scores", f"Ours={whole}", "--scores", str(part)]) == 3
    rows = [line.split() for line in capsys.readouterr().out.splitlines()][2:]
    assert rows == [
        ["Ours", "1.0000", "1.0000", "0.0000", "0.7500", "4", "of", "4"],
        ["part", "0.0000", "–", "–", "0.0000", "1", "of", "4"],
    ]


def test_a_file_that_is_not_there_or_of_another_kind_is_one_sentence(
    pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["reward", str(pairs), "--scores", str(pairs.with_name("no.jsonl"))]) == 2
    assert "there is no file of scores at" in capsys.readouterr().err
    assert run(["reward", str(pairs), "--scores", str(pairs)]) == 2
    assert "scores are a .jsonl" in capsys.readouterr().err
