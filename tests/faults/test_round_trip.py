"""What is saved comes back equal, but for what cannot be represented, which carries a mark."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from editloupe._util.json_safe import LARGEST, sanitize
from editloupe._util.text import for_csv
from editloupe.evals.runs.export.tables import iter_unit_rows, to_csv, to_jsonl, to_parquet
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.types import Edit, Judgement, Observation, Reason, Step, ToolCall, Trace, Unjudged, Usage, Verdict

texts = st.text(st.characters(exclude_categories=()), max_size=40)
numbers = st.one_of(st.integers(), st.integers(-(10**40), 10**40), st.floats())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=12,
)
mappings = st.dictionaries(texts, values, max_size=3)
counts = st.one_of(st.integers(0, 10**6), st.integers(0, 10**30))
usages = st.builds(Usage, requests=counts, input_tokens=counts, output_tokens=counts, cached_tokens=counts)
seconds = st.floats()
names = texts.filter(bool)


@st.composite
def judgements(draw: st.DrawFn) -> Judgement:
    name = draw(names)
    call = ToolCall(id=draw(texts), name=draw(texts), parameters=draw(mappings))
    seen = Observation(call_id=call.id, tool=draw(texts), text=draw(texts), data=draw(mappings), seconds=draw(seconds))
    step = Step(
        index=0,
        thought=draw(texts),
        calls=(call,),
        observations=(seen,),
        raw=draw(texts),
        answer=draw(st.none() | texts),
        usage=draw(usages),
        seconds=draw(seconds),
    )
    facts: dict[str, Any] = {"protocol": "dlebench", "mode": "tools", "judge": draw(texts)}
    score = draw(st.floats() | st.none())
    verdict = Verdict(
        criterion="instruction_following",
        label=draw(st.none() | texts),
        score=score,
        score_100=score,
        values=draw(mappings),
        rationale=draw(texts),
        usage=draw(usages),
    )
    unjudged = Unjudged(criterion=f"x{draw(texts)}", reason=draw(st.sampled_from(Reason)), detail=draw(texts))
    try:
        edit = Edit(
            id=name,
            source=Path("a.png"),
            edited=Path("b.png"),
            instruction=f"Do {draw(texts)}",
            hint=draw(texts),
            model=draw(texts),
            extra=draw(mappings),
        )
    except ValidationError:
        reject()
    trace = Trace(
        edit_id=edit.id,
        criterion=verdict.criterion,
        prompt=(draw(texts), "task"),
        notes=(draw(texts),),
        steps=(step,),
        seconds=draw(seconds),
        **facts,
    )
    return Judgement(edit=edit, verdicts=(verdict, unjudged), traces=(trace,), **facts)


def check(whole: Judgement, folder: Path) -> None:
    with Run.write(folder) as run:
        run.save_all([JudgementRecord(whole, price=Price(input=1, output=1))])
        run.keep_reply("k", {"text": whole.edit.instruction, "more": whole.edit.extra}, whole.edit.id)
        run.add_spending(whole.judge, whole.verdicts[0].usage, None)
    with Run.open(folder) as run:
        edit, *_ = run.edit(whole.edit.id)
        assert sanitize(edit) == sanitize(whole.edit)
        found = {unit.criterion: unit for unit in run.units()}
        for outcome in whole.verdicts:
            assert sanitize(found[sanitize(outcome.criterion)].outcome) == sanitize(outcome)
        assert [sanitize(trace) for trace in run.load_trace(whole.edit.id)] == [sanitize(t) for t in whole.traces]
        assert run.find_reply("k") == sanitize({"text": whole.edit.instruction, "more": whole.edit.extra})
        assert list(run.replies_of(whole.edit.id)) == ["k"]
        assert run.damage.sentences() == ()
        run.read_spending()
        rows = list(iter_unit_rows(run))
        for row in rows:
            assert all(not isinstance(cell, float) or math.isfinite(cell) for cell in row.values())
            assert row["seconds"] >= 0
            assert 0 <= row["input_tokens"] <= LARGEST
        lines, sheet = io.StringIO(), io.StringIO(newline="")
        to_jsonl(run, lines)
        assert [json.loads(line) for line in lines.getvalue().split("\n")[:-1]] == rows
        to_csv(run, sheet)
        back = list(csv.DictReader(io.StringIO(sheet.getvalue(), newline="")))
        assert [row["label"] for row in back] == ["" if row["label"] is None else for_csv(row["label"]) for row in rows]
        to_parquet(run, folder / "x.parquet")
        from pyarrow import parquet

        assert parquet.read_table(folder / "x.parquet").to_pylist() == rows


@pytest.mark.long
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(whole=judgements())
def test_a_judgement_of_any_texts_and_numbers_comes_back(
    whole: Judgement, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(whole, tmp_path_factory.mktemp("trip") / "run")


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(whole=judgements())
def test_two_hundred_judgements_come_back(whole: Judgement, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(whole, tmp_path_factory.mktemp("trip") / "run")


@pytest.mark.parametrize(
    "name", ["a\x00b", "x" * 200_000, "\ud83d", "\udcff/../..", "\n", "é" * 300, "'; DROP TABLE edits"]
)
def test_any_id_is_found_again_by_the_same_id(name: str, tmp_path: Path) -> None:
    verdict = Verdict(criterion="instruction_following", label="Wrong Action", score=2, score_100=33)
    edit = Edit(id=name, source=Path("a"), edited=Path("b"), instruction="x")
    whole = Judgement(edit=edit, protocol="dlebench", mode="tools", judge="x:y", verdicts=(verdict,))
    check_ids(whole, tmp_path)


def check_ids(whole: Judgement, tmp_path: Path) -> None:
    with Run.write(tmp_path / "run") as run:
        run.save(whole)
        run.save(whole)
        assert len(list(run.units(whole.edit.id))) == 1
        assert sanitize(run.edit(whole.edit.id)[0].id) == sanitize(whole.edit.id)
        assert run.load_trace(whole.edit.id) == ()
