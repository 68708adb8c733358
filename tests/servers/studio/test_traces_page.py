"""The pages about many traces, asked directly."""

from __future__ import annotations

import csv
import json
import re
from contextlib import AbstractContextManager, closing
from html import unescape
from pathlib import Path
from sqlite3 import Connection
from threading import Event
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from starlette.testclient import TestClient

from editloupe.evals.runs.claim_store import ClaimStore
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.trust.label_queue import LabelQueue
from editloupe.evals.traces.index_update import Progress
from editloupe.evals.traces.run_list import COLUMNS
from tests.evals.sample_runs import IF
from tests.evals.traces.samples import FIND, ZOOM, Told, write_run
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import many_edits

TOLD = (
    Told("a", "Over Modification", (ZOOM,), "Flawless Execution", 0.6, picture=1),
    Told("b", "Wrong Action", (FIND,), "Flawless Execution", 0.9, picture=2),
    Told("c", "Flawless Execution", (FIND, ZOOM), "Flawless Execution", 0.8, picture=3),
    Told("d", None, thought="<b>bold</b>", instruction="<script>alert(1)</script>"),
)


@pytest.fixture
def client(studio: OpenStudio, tmp_path: Path) -> TestClient:
    return studio(runs=(write_run(tmp_path / "run", TOLD),))


def links(page: str, kind: str = "row-link") -> list[str]:
    return [unescape(link) for link in re.findall(rf'class="{kind}" href="([^"]+)"', page)]


def test_the_list_is_filtered_and_its_links_carry_the_filter(client: TestClient) -> None:
    page = client.get("/runs/run", params={"by": "verdict", "where": "human != label", "order": "-confidence"}).text
    assert "1–2 of 2 verdicts" in page
    found = links(page)
    assert [re.search(r"edit=(\w+)", link)[1] for link in found] == ["b", "a"]  # type: ignore[index]
    opened = client.get(found[0])
    assert opened.status_code == 200
    assert "1 of 2 in" in opened.text
    assert 'rel="next"' in opened.text
    assert 'rel="prev"' not in opened.text


def test_edits_are_listed_by_the_checked_claims_of_their_verdicts(client: TestClient, tmp_path: Path) -> None:
    claims = {"where": "contradicted > 0"}
    assert "No edit" in client.get("/runs/run", params=claims).text
    with Run.open(tmp_path / "run") as run, closing(ClaimStore(run.folder, write=True)) as store:
        for unit in run.units():
            state = "contradicted" if unit.name == "b" else "supported"
            store.put(unit, ("", ""), unit.name, 0, {"claims": [{"state": state}]})
    page = client.get("/runs/run", params=claims).text
    assert [re.search(r"edit=(\w+)", link)[1] for link in links(page)] == ["b"]  # type: ignore[index]
    assert "edit=d" in client.get("/runs/run", params={"where": "not (contradicted > 0)"}).text


def test_addresses_of_earlier_versions_lead_to_the_same_list(client: TestClient) -> None:
    old = client.get("/runs/run/traces", params={"where": "human != label", "order": "confident"})
    assert old.headers["location"] == "/runs/run?where=human+%21%3D+label&by=verdict&order=-confidence"
    trace = client.get("/runs/run/trace", params={"edit": "b", "where": "human != label", "order": "confident"}).text
    assert "1 of 2 in" in trace
    table = client.get("/runs/run?label=Wrong+Action&apart=people&order=worst&page=1")
    assert table.status_code == 303
    query = parse_qs(urlsplit(table.headers["location"]).query)
    assert query == {"where": ['label = "Wrong Action" and agrees = false'], "order": ["label"]}


def test_fields_write_the_filter_and_read_it(client: TestClient) -> None:
    page = client.get("/runs/run", params={"where": 'confidence > 0.5 and label = "Wrong Action"'}).text
    assert re.search(r"<option value=\"Wrong Action\" selected>", page)
    part = client.get(
        "/runs/run",
        params={"where": 'confidence > 0.5 and label = "Wrong Action"', "label": "unjudged"},
        headers={"x-part": "rows"},
    ).text
    assert "confidence+%3E+0.5+and+status+%3D+%22unjudged%22" in part


def test_chosen_columns_are_remembered_and_in_the_address(client: TestClient) -> None:
    client.cookies.clear()
    chosen = client.get("/runs/run?chosen=true&column=people&column=steps&column=colour")
    assert chosen.headers["location"] == "/runs/run?columns=people%2Csteps"
    page = client.get("/runs/run").text
    assert "order=-steps" in page
    assert "order=-cost" not in page
    assert "order=-cost" in client.get("/runs/run?columns=cost").text, "the address counts before what is remembered"


def test_a_column_is_sorted_by_its_head_in_both_lists(client: TestClient) -> None:
    for by in ("edit", "verdict"):
        page = client.get("/runs/run", params={"by": by, "order": "-confidence"}).text
        assert [re.search(r"edit=(\w+)", link)[1] for link in links(page)] == ["b", "c", "a", "d"]  # type: ignore[index]
        assert 'aria-sort="descending"' in page
        for column in COLUMNS:
            for order in (column, f"-{column}"):
                assert "1–4 of 4" in client.get("/runs/run", params={"by": by, "order": order}).text, (by, order)


def test_an_edit_opens_on_the_verdict_that_matches(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 40),))
    (link, *_) = links(client.get("/runs/run", params={"where": "agrees = false"}).text)
    assert "criterion=instruction_following" in link
    assert "1 of 4 in" in client.get(link).text


def test_a_list_is_saved_as_it_is_shown(client: TestClient) -> None:
    query = {"where": "human != label", "order": "-confidence"}
    table = client.get("/runs/run/list.csv", params={"by": "verdict", **query})
    assert table.headers["content-disposition"] == 'attachment; filename="run.csv"'
    rows = list(csv.DictReader(table.text.splitlines()))
    assert [(row["edit_id"], row["label"], row["human"]) for row in rows] == [
        ("b", "Wrong Action", "Flawless Execution"),
        ("a", "Over Modification", "Flawless Execution"),
    ]
    lines = client.get("/runs/run/list.jsonl", params=query).text.splitlines()
    assert [json.loads(line)["edit_id"] for line in lines] == ["b", "a"]
    assert client.get("/runs/run/list.csv?where=lable+%3D+3").status_code == 400


def test_the_edits_of_a_list_become_a_label_queue_that_corrected_scores_refuse(
    client: TestClient, tmp_path: Path
) -> None:
    def add(query: str, title: str = "look again") -> str:
        answer = client.post("/runs/run/label-queue", json={"list": query, "title": title}).json()
        return str(answer["sentence"])

    assert (
        add("by=verdict&where=human+!%3D+label&order=-confidence")
        == "2 edits added to look-again.queue.jsonl, which has 2."
    )
    assert add("where=edit+in+(%22a%22,%22c%22)") == "1 edit added to look-again.queue.jsonl, which has 3."
    queue = LabelQueue.read(tmp_path / "run" / "look-again.queue.jsonl")
    assert [edit.name for edit in queue.drawn] == ["b", "a", "c"]
    assert queue.drawn[0].chosen == "human != label"
    work = "/runs/run/annotate?annotator=Ana&work=look-again.queue.jsonl"
    assert "1 of 3" in client.get(work).text
    refused = client.get("/runs/run/corrected?chosen=true&queue=look-again.queue.jsonl").text
    assert "chosen by a filter" in refused
    assert 'value="" checked' in client.get("/runs/run/annotate").text, "it is not proposed to who did not choose it"
    drawn = client.post("/runs/run/random-subset", json={"size": 2, "seed": 1}).json()["work"]
    assert "drawn by chance" in add("", drawn.removesuffix(".queue.jsonl"))


def test_a_label_given_on_a_trace_is_recorded_as_not_blind(client: TestClient, tmp_path: Path) -> None:
    page = client.get("/runs/run/trace?edit=b").text
    assert "recorded as not blind" in page
    body = {"annotator": "Ana", "edit": "b", "criterion": IF, "label": "Over Modification", "seen": True}
    assert client.post("/runs/run/labels", json=body).status_code == 200
    assert client.post("/runs/run/labels", json={**body, "label": "Wrong Action", "seen": False}).status_code == 200
    assert client.post("/runs/run/labels", json={**body, "edit": "c", "seen": False}).status_code == 200
    rows = [json.loads(line) for line in (tmp_path / "run" / "labels.jsonl").read_text("utf-8").splitlines()]
    assert [(row["edit_id"], row.get("judge_seen")) for row in rows] == [("b", True), ("b", True), ("c", None)]
    assert "Ana" in client.get("/runs/run/trace?edit=b").text


def test_a_filter_that_cannot_be_understood_is_told_beside_it(client: TestClient) -> None:
    answer = client.get("/runs/run", params={"by": "verdict", "where": 'lable = "<b>"'})
    assert answer.status_code == 200
    assert "did you mean label?" in answer.text
    assert 'value="lable = &#34;&lt;b&gt;&#34;"' in answer.text


def test_what_a_manifest_says_is_shown_as_text(client: TestClient) -> None:
    page = client.get("/runs/run?by=verdict").text
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_run_of_one_configuration_is_not_compared_with_itself(client: TestClient) -> None:
    answer = client.get("/runs/run/differences")
    assert answer.status_code == 404
    assert "This run has one configuration; name another run to compare it with." in answer.text


def test_every_cell_of_the_statistics_opens_its_edits(client: TestClient) -> None:
    part = client.get("/runs/run/traces/statistics").text
    assert "This is not an experiment" in part
    cells = re.findall(r'<td[^>]*><a href="([^"]+)"[^>]*>(.*?)</a>', part)
    assert len(cells) == 16
    for link, text in cells:
        listed = re.search(r"of (\d+) verdict", client.get(unescape(link)).text)
        assert listed, link
        assert listed[1] == re.findall(r"\d+", text)[-1], link


def test_a_note_is_kept_found_and_shown(client: TestClient, tmp_path: Path) -> None:
    trace = client.get(links(client.get("/runs/run", params={"by": "verdict", "where": 'edit = "a"'}).text)[0]).text
    asked = re.search(r'data-asked="([^"]+)"', trace)
    assert asked
    body = {
        "edit": "a",
        "criterion": IF,
        "repeat": 0,
        "asked": asked[1],
        "tags": "odd, odd,  look again",
        "note": "Hm.",
    }
    assert client.post("/runs/run/trace/note", json=body).json() == {"tags": "odd, look again", "note": "Hm."}
    page = client.get("/runs/run", params={"by": "verdict", "where": 'tagged("look again")'}).text
    assert "1–1 of 1 verdict " in page
    assert "odd" in page
    assert 'value="odd, look again"' in client.get(links(page)[0]).text
    assert (tmp_path / "run" / "trace_notes.jsonl").is_file()
    assert client.post("/runs/run/trace/note", json={**body, "edit": "b"}).status_code == 200
    assert client.post("/runs/run/trace/note", json={**body, "criterion": "beauty"}).status_code == 404
    assert client.post("/runs/run/trace/note", json={**body, "repeat": "x"}).status_code == 400


def test_a_trace_is_handed_out_as_one_file(client: TestClient) -> None:
    page = client.get("/runs/run/trace?edit=a").text
    link = re.search(r'href="([^"]+)" download', page)
    assert link
    sent = client.get(unescape(link[1]))
    assert sent.headers["content-disposition"] == 'attachment; filename="a.html"'
    assert "data:image/" in sent.text
    assert "People: <strong>Flawless Execution</strong>" in sent.text
    assert client.get(unescape(link[1]).replace("repeat=0", "repeat=7")).status_code == 404


@pytest.mark.long
def test_two_runs_are_one_list_that_opens_both_traces(studio: OpenStudio, tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", TOLD)
    second = write_run(tmp_path / "second", [Told("a", "Flawless Execution", picture=1), Told("c", picture=3)], "rules")
    client = studio(runs=(first, second))
    assert '<option value="second">' in client.get("/runs/first").text
    page = client.get("/runs/first/differences", params={"other": "second"}).text
    assert "1–1 of 1 that differ, among 2 verdicts" in page
    both = client.get(links(page)[0])
    assert both.status_code == 200
    assert "They differ from step" in both.text
    filtered = client.get(f"/runs/first/differences?other=second&where={quote('score = 4')}").text
    assert "The one verdict on the same pictures" in filtered
    assert client.get("/runs/first/differences?other=nowhere").status_code == 404


def test_a_large_run_is_indexed_in_the_background(
    studio: OpenStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.servers.studio.traces import trace_pages as trace_indexing

    go_on = Event()
    usual = trace_indexing.open_index

    def slowly(run: Run, progress: Progress) -> AbstractContextManager[Connection]:
        assert go_on.wait(60)
        return usual(run, progress)

    monkeypatch.setattr(trace_indexing, "AT_ONCE", 2)
    monkeypatch.setattr(trace_indexing, "open_index", slowly)
    client = studio(runs=(write_run(tmp_path / "run", TOLD),))
    assert "The traces are being indexed" in client.get("/runs/run?by=verdict").text
    assert "The traces are being indexed" in client.get("/runs/run", params={"where": 'said("red")'}).text
    assert "1–4 of 4 edits" in client.get("/runs/run").text, "edits are listed without them"
    go_on.set()
    for job in client.app.state.studio.indexing._jobs.values():  # type: ignore[attr-defined]
        job.thread.join(60)
    assert "1–4 of 4 verdicts" in client.get("/runs/run?by=verdict").text


def test_a_filter_that_is_too_long_is_told_beside_it(client: TestClient) -> None:
    page = client.get("/runs/run", params={"by": "verdict", "where": "x" * 6000})
    assert page.status_code == 200
    assert "it has 6000 characters, and 5000 are the most" in page.text


def test_edits_that_show_the_same_stand_beside_a_trace_once(studio: OpenStudio, tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", TOLD)
    twins = [Told(name, "Wrong Action", picture=1) for name in ("other", "a", "further")]
    client = studio(runs=(first, write_run(tmp_path / "second", twins, "rules")))
    page = client.get("/runs/first/trace?edit=a").text
    assert len(re.findall(r'<option value="second~', page)) == 1
    (link,) = re.findall(r'<option value="(second~[^"]+)"', page)
    beside = client.get("/runs/first/trace", params={"edit": "a", "beside": link}).text
    assert "calls this edit" not in beside, "the edit of the same name is taken"


def test_the_list_of_runs_says_how_many_are_unjudged(studio: OpenStudio, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [Told("a"), Told("b", None)])
    assert "1 of 2 unjudged" in studio(runs=(run,)).get("/runs").text


def test_every_configuration_of_a_run_has_a_row_with_its_score(studio: OpenStudio, tmp_path: Path) -> None:
    for judge in ("openai:a", "openai:b", "openai:c", "openai:d"):
        write_run(tmp_path / "run", TOLD, judge)
    client = studio(runs=(tmp_path / "run",))
    page = client.get("/runs").text
    rows = [unescape(link) for link in re.findall(r'data-score="([^"]+)"', page)]
    assert len(rows) == 4
    score = client.get(rows[3]).json()
    assert score["score"].startswith(f"{score['value']:.1f}")
    chosen = [f"run~{row.partition('configuration=')[2]}" for row in rows]
    both = client.get("/compare", params={"chosen": chosen[:2]})
    assert client.get(both.headers["location"]).status_code == 200
    assert client.get("/compare", params={"chosen": chosen}).headers["location"] == "/ranking"
    assert client.get("/compare", params={"chosen": chosen[:1]}).status_code == 400
