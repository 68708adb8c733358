"""Labels by people: on disk at once, undone by one more row, read by `editloupe agree`."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe.evals.labels.label_form import find_rubric, list_choices
from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
from editloupe.servers.studio.annotation import label_file as labels
from editloupe.servers.studio.annotation.label_file import LabelValue, StudioLabels
from editloupe.servers.studio.annotation.worklists import measure_alpha
from editloupe.types import Box, UserError
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import LABELS, many_edits

FOLLOWING, CONSISTENCY = LABELS
WRONG, FLAWLESS = LABELS[FOLLOWING][1], LABELS[FOLLOWING][3]
BOX = Box(x1=1, y1=2, x2=30, y2=40)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_label_is_on_disk_when_it_counts_and_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    StudioLabels(path).say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    assert [(r["edit_id"], r["criterion"], r["label"], r["annotator"]) for r in rows(path)] == [
        ("e1", FOLLOWING, WRONG, "ana")
    ]
    assert StudioLabels(path).about("ana", "e1") == {FOLLOWING: LabelValue(WRONG)}
    assert StudioLabels(path).about("ben", "e1") == {}


def test_undo_goes_back_step_by_step_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    book = StudioLabels(path)
    book.say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    book.say("ana", "e1", FOLLOWING, LabelValue(FLAWLESS))
    book.draw("ana", "e2", (BOX,))
    book.say("ben", "e1", FOLLOWING, LabelValue(WRONG))
    again = StudioLabels(path)
    place = again.undo("ana")
    assert (place and place.edit_id, again.boxes("ana", "e2")) == ("e2", None)
    again.undo("ana")
    assert again.about("ana", "e1") == {FOLLOWING: LabelValue(WRONG)}
    once_more = StudioLabels(path)
    once_more.undo("ana")
    assert once_more.about("ana", "e1") == {}
    assert once_more.undo("ana") is None
    assert once_more.about("ben", "e1") == {FOLLOWING: LabelValue(WRONG)}
    assert len(rows(path)) == 7


def test_the_same_label_again_is_no_change(tmp_path: Path) -> None:
    book = StudioLabels(tmp_path / "labels.jsonl")
    book.say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    book.say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    assert len(rows(book.path)) == 1


def test_what_another_program_adds_to_the_file_is_seen(tmp_path: Path) -> None:
    book, other = (StudioLabels(tmp_path / "labels.jsonl") for _ in range(2))
    book.say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    other.say("ben", "e1", FOLLOWING, LabelValue(FLAWLESS))
    assert book.annotators() == ["ana", "ben"]
    with book.path.open("a") as file:
        file.write('{"edit_id": "e2", "criterion": "x", "label": "y", "annotator": "by hand"}')
    book.say("ana", "e3", FOLLOWING, LabelValue(WRONG))
    assert [row["edit_id"] for row in rows(book.path)] == ["e1", "e1", "e2", "e3"]


def test_a_label_written_by_another_studio_while_the_file_is_read_is_seen_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, other = (StudioLabels(tmp_path / "labels.jsonl") for _ in range(2))
    book.say("ana", "e1", FOLLOWING, LabelValue(WRONG))
    usual = labels.read_log_rows

    def read_and_write(path: Path, notes: list[str]) -> Iterator[Any]:
        yield from usual(path, notes)
        monkeypatch.setattr(labels, "read_log_rows", usual)
        book.say("ben", "e1", FOLLOWING, LabelValue(FLAWLESS))

    monkeypatch.setattr(labels, "read_log_rows", read_and_write)
    assert other.annotators() == ["ana"]
    assert other.annotators() == ["ana", "ben"]


def test_a_file_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--labels"):
        StudioLabels(tmp_path / "file" / "labels.jsonl").say("ana", "e1", FOLLOWING, LabelValue(WRONG))


@pytest.mark.long
def test_agree_reads_what_the_page_wrote(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 12)
    client = studio(runs=(run,))
    for name, shift in (("ana", 0), ("ben", 1)):
        for number in range(10):
            for criterion in LABELS:
                label = LABELS[criterion][(number + shift * (number % 3 == 0)) % 4]
                body = {"annotator": name, "edit": f"edit-{number:05}", "criterion": criterion, "label": label}
                assert client.post("/runs/run/labels", json=body).status_code == 200
        client.post("/runs/run/labels", json={"annotator": name, "edit": "edit-00000", "boxes": [[1, 2, 30, 40]]})
    client.post("/runs/run/labels", json={"annotator": "ben", "undo": True})
    client.post("/runs/run/labels", json={"annotator": "ben", "undo": True})
    found = measure_agreement(run)
    assert dict(found.annotators) == {"annotator 1": 3, "ana": 20, "ben": 19}
    assert measure_agreement(run, run / "labels.jsonl") == found
    assert found.criteria[FOLLOWING].n == 11
    shown = client.get("/runs/run/annotators").text
    value = found.criteria[FOLLOWING].krippendorff_alpha_annotators.value
    assert value is not None
    assert f"{value:.2f}" in shown
    assert "10 of 12" in shown


@pytest.mark.long
def test_the_judge_stays_hidden_until_every_criterion_is_labelled(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 1)
    client = studio(runs=(run,))
    rationale = "The patch is what was asked for."
    body = {"annotator": "ana", "edit": "edit-00000"}

    def page() -> str:
        return client.get("/runs/run/annotate", params={"annotator": "ana", "edit": "edit-00000"}).text

    assert rationale not in page()
    first = client.post("/runs/run/labels", json={**body, "criterion": FOLLOWING, "label": WRONG}).json()
    assert (first["complete"], first["verdicts"]) == (False, "")
    assert rationale not in page()
    second = client.post("/runs/run/labels", json={**body, "criterion": CONSISTENCY, "label": "Single Anomaly"}).json()
    assert second["complete"]
    assert rationale in second["verdicts"]
    client.post("/runs/run/labels", json={**body, "criterion": FOLLOWING, "label": FLAWLESS})
    assert [row.get("judge_seen") for row in rows(run / "labels.jsonl")] == [None, None, True]
    undone = client.post("/runs/run/labels", json={**body, "undo": True}).json()
    assert undone["labels"][FOLLOWING] == WRONG


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        {"annotator": "ana", "edit": "edit-00000", "criterion": FOLLOWING, "label": "Nonsense"},
        {"annotator": "ana", "edit": "edit-00000", "criterion": "nonsense", "label": WRONG},
        {"annotator": "ana", "edit": "nowhere", "criterion": FOLLOWING, "label": WRONG},
        {"annotator": " ", "edit": "edit-00000", "criterion": FOLLOWING, "label": WRONG},
        {"annotator": "ana", "edit": "edit-00000", "boxes": [[3, 3, 1, 1]]},
        {"annotator": "a" * 500, "edit": "edit-00000", "undo": True},
    ],
)
def test_what_agree_could_not_read_is_never_written(
    studio: OpenStudio, tmp_path: Path, body: dict[str, object]
) -> None:
    run = many_edits(tmp_path, 1)
    answer = studio(runs=(run,)).post("/runs/run/labels", json=body)
    assert answer.status_code == 400
    assert answer.json()["sentence"]
    assert not (run / "labels.jsonl").exists()


@pytest.mark.long
def test_a_request_full_of_wrong_boxes_takes_little_memory(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 1),))
    content = {"annotator": "Ana", "edit": "edit-00000", "boxes": [0] * 400_000}
    body = json.dumps(content, separators=(",", ":")).encode()
    tracemalloc.start()
    refused = client.post("/runs/run/labels", content=body, headers={"content-type": "application/json"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (refused.status_code, refused.json()["sentence"]) == (400, "boxes.0: Input should be an object")
    assert peak < 50_000_000


@pytest.mark.long
def test_labels_may_go_to_a_file_of_their_own(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 1)
    file = tmp_path / "elsewhere" / "ours.jsonl"
    body = {"annotator": "ana", "edit": "edit-00000", "criterion": FOLLOWING, "label": WRONG}
    assert studio(runs=(run,), labels=file).post("/runs/run/labels", json=body).status_code == 200
    assert len(rows(file)) == 1
    assert not (run / "labels.jsonl").exists()


@pytest.mark.long
def test_the_page_begins_with_the_first_edit_that_is_not_labelled(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 3),))
    for criterion in LABELS:
        body = {"annotator": "ana", "edit": "edit-00000", "criterion": criterion, "label": LABELS[criterion][0]}
        client.post("/runs/run/labels", json=body)
    assert 'data-edit="edit-00001"' in client.get("/runs/run/annotate", params={"annotator": "ana"}).text
    assert 'data-edit="edit-00000"' in client.get("/runs/run/annotate", params={"annotator": "ben"}).text


def test_choices_are_the_labels_worst_first_and_alpha_says_why_there_is_none() -> None:
    rubric = find_rubric("dlebench", FOLLOWING)
    assert rubric is not None
    names = LABELS[FOLLOWING]
    assert [choice.key for choice in list_choices(rubric.answer)] == ["1", "2", "3", "4"]
    assert [choice.value for choice in list_choices(rubric.answer)] == names
    assert measure_alpha([{"ana": 1.0}])[1] == "no edit was labelled by two annotators"
    value, _, shared = measure_alpha({"a": n % 4, "b": n % 4} for n in range(8))
    assert (value, shared) == (1.0, 8)
