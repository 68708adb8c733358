"""Editing models against each other: by a run's scores, or asked two at a time, ranked by hand-made judgements."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from editloupe.evals.manifests import NOTHING_EDITED, with_untouched
from editloupe.evals.reward.pairwise_ranking import build_model_pairs, rank_models
from editloupe.evals.stats.scores.run_table import RunRow, read_run_table
from editloupe.rubrics.wiseedit import DP, IF, KF, VQ
from editloupe.types import Edit, UserError
from tests.conftest import StartServer
from tests.drawn_pictures import save, textured
from tests.evals.reward.samples import asked, fair, picture
from tests.evals.sample_runs import Line, make_run
from tests.evals.stats.scores.paper_tables.judged_runs import edit, keep
from tests.scripted import say

WISE = (IF, DP, VQ, KF)
"""The metrics of WiseEdit's Awareness."""


def outputs(folder: Path, levels: Mapping[str, Sequence[int]]) -> Path:
    """Write a manifest of models' outputs of these levels, one a source."""
    lines = []
    folder.mkdir()
    for number in range(max(map(len, levels.values()))):
        save(textured(40, 30, 60 + number), folder / f"source{number}.png")
        for seed, (model, own) in enumerate(levels.items()):
            if number < len(own):
                picture(folder / model / f"{number}.png", seed, own[number])
                lines.append(
                    {
                        "id": f"{number}-{model}",
                        "source": f"source{number}.png",
                        "edited": f"{model}/{number}.png",
                        "instruction": "Make it brighter",
                        "model": model,
                    }
                )
    manifest = folder / "models.jsonl"
    manifest.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return manifest


def scored(folder: Path, **by_model: str) -> Path:
    """Write a run of models whose outputs have these scores, 1 to 4 a source; `.` is unjudged."""
    return make_run(
        folder,
        [
            Line(f"{place}-{model}", None if mark == "." else int(mark), 4, source=f"s{place}", model=model)
            for model, marks in by_model.items()
            for place, mark in enumerate(marks)
        ],
    )


def strengths(ranking: Any) -> dict[str, float]:
    return {one.model: one.strength.value for one in ranking.models}


def test_the_higher_score_wins_and_equal_ones_tie(tmp_path: Path) -> None:
    """a wins twice and ties twice: 3 to 1."""
    (ranking,) = rank_models([read_run_table(scored(tmp_path / "run", a="4433", b="1133"))], ())
    best = ranking.models[0]
    assert (best.model, best.wins, best.losses, best.ties) == ("a", 2, 0, 2)
    assert strengths(ranking) == pytest.approx({"a": math.log(3) / 2, "b": -math.log(3) / 2})
    assert (ranking.dimension, ranking.sources) == ("overall", 4)


def test_a_criterion_of_its_own_can_be_ranked_by(tmp_path: Path) -> None:
    table = read_run_table(scored(tmp_path / "run", a="4441", b="1114"))
    followed, consistent = rank_models([table], ("instruction_following", "visual_consistency"))
    assert strengths(followed) == pytest.approx({"a": math.log(3) / 2, "b": -math.log(3) / 2})
    assert strengths(consistent) == pytest.approx({"a": 0.0, "b": 0.0})
    with pytest.raises(UserError, match='"beauty" was not judged in this run; there are: overall, '):
        rank_models([table], ("beauty",))


def test_an_output_without_a_score_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    (ranking,) = rank_models([read_run_table(scored(tmp_path / "run", a="44.", b="114"))], ())
    assert ranking.comparisons == 2
    assert "1 output has no score and is left out." in ranking.notes


def test_runs_of_one_model_each_are_ranked_together_by_their_names(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, [Line(f"{n}", score, 4, source=f"s{n}") for n, score in enumerate(scores)])
        for name, scores in (("first", (4, 4, 1, 4)), ("second", (1, 1, 4, 1)))
    ]
    (ranking,) = rank_models([read_run_table(folder) for folder in runs], ())
    assert strengths(ranking) == pytest.approx({"first": math.log(3) / 2, "second": -math.log(3) / 2})
    other = make_run(tmp_path / "other", [Line("0", 4, 4, source="s0")], judge="rules")
    with pytest.raises(UserError, match="different judges or protocols"):
        rank_models([read_run_table(runs[0]), read_run_table(other)], ())


def test_one_model_and_models_without_a_common_source_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only one model here, a; a ranking needs at least two"):
        rank_models([read_run_table(scored(tmp_path / "one", a="44"))], ())
    apart = make_run(
        tmp_path / "apart",
        [Line("x", 4, 4, source="s1", model="a"), Line("y", 4, 4, source="s2", model="b")],
    )
    with pytest.raises(UserError, match="no two models have a judged output"):
        rank_models([read_run_table(apart)], ())


@pytest.mark.long
def test_two_outputs_at_once_are_asked_in_both_orders_and_ranked(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """On IA: a beats b on three of four sources, b beats a on one."""
    manifest = outputs(tmp_path / "data", {"a": (220, 220, 220, 40), "b": (40, 40, 40, 220)})
    server, out = scripted(fair), tmp_path / "run"
    asking = [*asked(server), "--out", str(out), "-q", "--json"]
    assert run(["reward", str(manifest), "--pairwise", "--dimension", "IA", *asking]) == 0
    (ranking,) = json.loads(capsys.readouterr().out)["rankings"]
    assert ranking["dimension"] == "IA"
    assert [(one["model"], one["wins"], one["losses"]) for one in ranking["models"]] == [("a", 3, 1), ("b", 1, 3)]
    assert ranking["models"][0]["strength"]["value"] == pytest.approx(math.log(3) / 2)
    assert server.served == 4 * 2
    assert run(["reward", str(out), "--pairwise"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("IA: Bradley–Terry strengths from 4 comparisons on 4 source pictures")
    assert "overall: Bradley–Terry" in told
    assert server.served == 4 * 2
    assert run(["reward", str(out), "--table"]) == 2
    assert "holds no preference pairs" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_is_ranked_by_a_dimension_of_the_protocol_for_pairs(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Edits under one id for both models; on every dimension a is ahead on two sources of three."""
    manifest, out = outputs(tmp_path / "data", {"a": (220, 220, 40), "b": (40, 40, 220)}), tmp_path / "run"
    lines = [json.loads(line) for line in manifest.read_text("utf-8").splitlines()]
    same = [{**line, "id": line["id"].split("-")[0], "instruction_type": "ADD"} for line in lines]
    manifest.write_text("\n".join(map(json.dumps, same)), "utf-8")
    judging = [*asked(scripted(fair)), "--protocol", "editreward-compass", "--out", str(out), "-q"]
    assert run(["batch", str(manifest), *judging]) == 0
    capsys.readouterr()
    assert run(["reward", str(out), "--pairwise", "--dimension", "VC", "--json"]) == 0
    (ranking,) = json.loads(capsys.readouterr().out)["rankings"]
    assert (ranking["dimension"], ranking["comparisons"], ranking["models"][0]["wins"]) == ("VC", 3, 2)
    assert ranking["models"][0]["strength"]["value"] == pytest.approx(math.log(2) / 2)


@pytest.mark.long
def test_orders_that_contradict_each_other_are_a_tie(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = outputs(tmp_path / "data", {"a": (220, 220), "b": (40, 40)})
    server = scripted(lambda request: say('{"reason": "the first", "better": "A"}'))
    command = ["reward", str(manifest), "--pairwise", "--dimension", "VQ", *asked(server), "-q", "--json"]
    assert run([*command]) == 0
    (ranking,) = json.loads(capsys.readouterr().out)["rankings"]
    assert [(one["rank"], one["ties"], one["strength"]["value"]) for one in ranking["models"]] == [(1, 2, 0), (1, 2, 0)]


@pytest.mark.long
def test_where_no_question_on_two_outputs_was_judged_that_is_said_and_what_became_of_them(
    tmp_path: Path, scripted: StartServer, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, out = outputs(tmp_path / "data", {"a": (220,), "b": (40,)}), str(tmp_path / "run")
    server = scripted(lambda request: say("I cannot tell."))
    command = ["reward", str(manifest), "--pairwise", "--dimension", "VQ", *asked(server), "-q", "--out", out]
    assert run([*command, "--json"]) == 3
    told = capsys.readouterr()
    assert json.loads(told.out)["rankings"] == []
    assert "no question on two outputs about VQ has been judged, so there is nothing to rank by" in told.err
    assert "unreadable_answer" in told.err
    assert run(["reward", out, "--pairwise"]) == 2
    assert "no question on two outputs has been judged" in capsys.readouterr().err


def test_pairs_of_models_are_made_of_the_same_source_and_instruction() -> None:
    def edit(name: str, model: str | None, instruction: str = "Do it") -> Edit:
        return Edit(id=name, source=Path("s.png"), edited=Path(f"{name}.png"), instruction=instruction, model=model)

    three = [edit("1", "a"), edit("2", "b"), edit("3", "c"), edit("4", "a", "Do that")]
    pairs = build_model_pairs(three, ("IA", "VQ"))
    assert [(pair.models, pair.dimension) for pair in pairs[:3]] == [
        (("a", "b"), "IA"),
        (("a", "b"), "VQ"),
        (("a", "c"), "IA"),
    ]
    assert len(pairs) == 3 * 2
    with pytest.raises(UserError, match='edit 5 names no "model"'):
        build_model_pairs([edit("5", None)], ("IA",))
    with pytest.raises(UserError, match="the model a has two outputs for the source and instruction of edit 1"):
        build_model_pairs([edit("1", "a"), edit("2", "a")], ("IA",))
    with pytest.raises(UserError, match="no two models have an output"):
        build_model_pairs([edit("1", "a"), edit("2", "b", "Else")], ("IA",))


def test_a_hint_for_the_judge_does_not_separate_the_outputs_of_a_case() -> None:
    outputs = [
        Edit(id=model, source=Path("s.png"), edited=Path(f"{model}.png"), instruction="Do it", model=model, hint=hint)
        for model, hint in (("a", None), ("b", "It melts"))
    ]
    (pair,) = build_model_pairs(outputs, ("IA",))
    assert (pair.models, pair.hint) == (("a", "b"), "It melts")
    assert sum(edit.model == NOTHING_EDITED for edit in with_untouched(outputs)) == 1
    assert len({RunRow(edit, {}, {}).case for edit in outputs}) == 1


def test_languages_that_a_paper_keeps_apart_are_ranked_apart(tmp_path: Path) -> None:
    better = {"en": "a", "cn": "b"}
    lines = [
        (
            edit(f"{language}{n}", "Awareness", model, language=language),
            dict.fromkeys(WISE, 90.0 if model == first else 10.0),
        )
        for language, first in better.items()
        for n in range(3)
        for model in ("a", "b")
    ]
    rankings = rank_models([read_run_table(keep(tmp_path / "run", "wiseedit", lines))], ())
    assert {one.dimension: one.models[0].model for one in rankings} == {"overall · en": "a", "overall · cn": "b"}
