"""Several editing models and several judges in one run: every page is about one edit of one model, by one judge."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from editloupe.evals.runs.store import Run
from editloupe.evals.runs.unit_rows import JudgementRecord
from editloupe.judge.question_key import QuestionKey, QuestionSpec
from editloupe.rubrics.user_rubrics import with_files
from editloupe.types import Edit, Judgement, Step, Trace, Verdict
from tests.evals.sample_runs import IF, IF_LABELS, Line, make_run
from tests.servers.studio.conftest import OpenStudio


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Edits of the models A and B under the same ids, judged by two judges that say the opposite."""
    for judge, scores in (("openai:first", (4, 1)), ("openai:second", (2, 3))):
        lines = [
            Line(id, score, model=model, rationale=f"{judge} on {model}")
            for id in ("e1", "e2")
            for model, score in zip(("A", "B"), scores, strict=True)
        ]
        make_run(tmp_path / "run", lines, judge=judge, pictures=True)
    return tmp_path / "run"


def links(page: str) -> list[str]:
    return [link.replace("&amp;", "&") for link in re.findall(r'class="row-link" href="([^"]*)"', page)]


@pytest.mark.long
def test_a_row_leads_to_the_verdict_of_its_model_and_judge(studio: OpenStudio, run: Path) -> None:
    client = studio(runs=(run,))
    names = re.findall(r'<option value="([0-9a-f]{16})" (selected)?>([^<]*)', client.get("/runs/run").text)
    assert [title for _, _, title in names] == [
        "openai:first · dlebench · tools mode (8 verdicts)",
        "openai:second · dlebench · tools mode (8 verdicts)",
    ]
    for (configuration, _, title), labels in zip(names, ((4, 1), (2, 3)), strict=True):
        judge = title.split(" ")[0]
        table = client.get("/runs/run", params={"configuration": configuration}).text
        assert re.findall(r'data-edit="([^"]*)"', table) == ["e1", "e1@B", "e2", "e2@B"]
        for link, model, score in zip(links(table)[:2], "AB", labels, strict=True):
            page = client.get(link).text
            assert f"{judge} on {model}" in page
            assert IF_LABELS[score - 1] in page
            assert f"<li>{model}</li>" in page


def test_the_table_has_models_as_a_column_and_a_filter(studio: OpenStudio, run: Path) -> None:
    client = studio(runs=(run,))
    page = client.get("/runs/run").text
    assert re.search(r"<th[^>]*><a[^>]*>Model</a></th>", page)
    assert "2 editing models" in page
    part = client.get("/runs/run", params={"model": "B"}, headers={"x-part": "rows"}).text
    assert re.findall(r'data-edit="([^"]*)"', part) == ["e1@B", "e2@B"]


@pytest.mark.long
def test_a_trace_leads_to_the_same_edit_of_the_other_model_and_to_the_other_judge(
    studio: OpenStudio, run: Path
) -> None:
    client = studio(runs=(run,))
    page = client.get("/runs/run/trace", params={"edit": "e1@B", "criterion": IF}).text
    other = re.findall(r'href="(/runs/run/trace\?edit=e1&[^"]*)"', page)[0].replace("&amp;", "&")
    assert "openai:first on A" in client.get(other).text
    verdicts = re.findall(r'<option value="([0-9a-f]{16}~0)" (selected)?>', page)
    assert len(verdicts) == 2
    where = {"edit": "e1@B", "criterion": IF, "verdict": verdicts[1][0]}
    assert "openai:second on B" in client.get("/runs/run/trace", params=where).text
    beside = client.get("/runs/run/trace", params={**where, "beside": f"run~{verdicts[0][0]}"})
    assert all(f"openai:{judge} on B" in beside.text for judge in ("first", "second"))
    assert client.get("/runs/run/trace", params={"edit": "e1", "criterion": IF, "verdict": "x~y"}).status_code == 404


@pytest.mark.long
def test_a_label_given_on_the_page_is_about_one_model(studio: OpenStudio, run: Path) -> None:
    client = studio(runs=(run,))
    for edit, label in (("e1", 3), ("e1@B", 0)):
        body = {"annotator": "ana", "edit": edit, "criterion": IF, "label": IF_LABELS[label]}
        assert client.post("/runs/run/labels", json=body).status_code == 200
    client.post("/runs/run/labels", json={"annotator": "ana", "edit": "e2", "criterion": IF, "label": IF_LABELS[0]})
    client.post("/runs/run/labels", json={"annotator": "ana", "undo": True})
    rows = [json.loads(line) for line in (run / "labels.jsonl").read_text("utf-8").splitlines()]
    assert [(row["edit_id"], row.get("name"), row["model"], row["label"]) for row in rows] == [
        ("e1", None, "A", "Flawless Execution"),
        ("e1", "e1@B", "B", "Localization Failure"),
        ("e2", None, "A", "Localization Failure"),
        ("e2", None, "A", None),
    ]
    again = studio(runs=(run,))
    state = again.get("/runs/run/annotate", params={"annotator": "ana", "edit": "e1@B"}).text
    assert "Localization Failure&#34;" in state.split('data-state="')[1].split('">')[0]
    assert "ana: <b>Flawless Execution</b>" in again.get("/runs/run/trace", params={"edit": "e1", "criterion": IF}).text


def test_a_label_that_fits_several_models_is_named_and_does_not_count(studio: OpenStudio, run: Path) -> None:
    rows = [{"edit_id": "e1", "rater": "bo", IF: "1"}, {"edit_id": "e2", "model": "B", "rater": "bo", IF: "1"}]
    (run / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    page = studio(runs=(run,)).get("/runs/run").text
    assert "A label that does not count: labels.jsonl, line 1: &#34;e1&#34; fits several edits" in page
    assert "1 labelled by people" in page


@pytest.mark.long
def test_the_charts_are_of_one_judge(studio: OpenStudio, run: Path) -> None:
    client = studio(runs=(run,))
    first, second = dict.fromkeys(re.findall(r'<option value="([0-9a-f]{16})"', client.get("/runs/run").text))
    page = client.get("/runs/run/charts", params={"configuration": second}).text
    assert "judged by openai:second" in page
    assert "Scores by editing model" in page
    drawn = client.get("/runs/run/charts/models", params={"configuration": first})
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert b"var(--" not in drawn.content, "a file is light"
    part = client.get("/runs/run/charts/models", params={"configuration": first, "inline": True})
    model = re.search(r'href="(/runs/run\?where=model[^"]*)"', part.text)
    assert model is not None
    assert "var(--ink)" in part.text
    assert f"configuration={first}" in model[1]
    assert client.get(unescape(model[1])).status_code == 200
    assert client.get("/runs/run/charts/none", params={"configuration": first}).status_code == 404


@pytest.mark.long
def test_an_own_criterion_has_its_title_and_can_be_labelled(studio: OpenStudio, tmp_path: Path) -> None:
    text = "name: mood\ntitle: The mood of it\nquestion: Is it merry?\nanswer: {kind: yes_no}\n"
    (tmp_path / "mood.yaml").write_text(text, "utf-8")
    rubric = with_files("dlebench", [tmp_path / "mood.yaml"]).rubric("mood")
    asked = QuestionSpec("mood", {"criterion": "mood", "protocol": "dlebench"})
    edit = Edit(id="e", source=tmp_path / "a.png", edited=tmp_path / "b.png", instruction="Cheer it up")
    whole = Judgement(
        edit=edit,
        protocol="dlebench",
        mode="plain",
        judge="openai:gpt-5.1",
        verdicts=(Verdict(criterion="mood", score=1, score_100=100),),
        traces=(Trace(edit_id="e", criterion="mood", protocol="own", mode="plain", judge="j", steps=(Step(index=0),)),),
    )
    with Run.write(tmp_path / "run") as opened:
        described = {"protocol": "dlebench", "rubrics": {"mood": rubric.model_dump(mode="json")}}
        configuration = opened.configure(described, [asked])
        question = {"mood": QuestionKey(asked.key, "shown")}
        opened.save_all([JudgementRecord(whole, questions=question, configuration=configuration)])
    client = studio(runs=(tmp_path / "run",))
    for page, params in (("", {}), ("/trace", {"edit": "e"}), ("/annotate", {"annotator": "ana", "edit": "e"})):
        assert "The mood of it" in client.get(f"/runs/run{page}", params=params).text
    body = {"annotator": "ana", "edit": "e", "criterion": "mood", "label": "yes"}
    assert client.post("/runs/run/labels", json=body).json()["complete"]
    assert "1 labelled by people" in client.get("/runs/run").text
