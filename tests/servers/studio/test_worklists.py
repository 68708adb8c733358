"""What annotators work through: queues, random subsets, manifests nobody judged, and edits on which they differ."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from editloupe.cli.main import run as editloupe
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.agreement.judge_vs_human import measure_agreement
from editloupe.evals.stats.trust.label_queue import LabelQueue, QueuedEdit
from editloupe.pictures.decode import Album
from editloupe.rubrics.registry import get_protocol
from editloupe.types import Edit, Judgement, Observation, SentPicture, Step, Trace, Verdict
from tests.servers.studio.conftest import OpenStudio
from tests.servers.studio.samples import LABELS, many_edits, pictures

FOLLOWING, CONSISTENCY = LABELS


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def page(client: TestClient, run: str = "run", **asked: str) -> str:
    return unescape(client.get(f"/runs/{run}/annotate", params=asked).text)


def shown(text: str) -> str:
    return text.split('data-edit="')[1].split('"')[0]


def give(client: TestClient, run: str = "run", **body: Any) -> dict[str, Any]:
    answer = client.post(f"/runs/{run}/labels", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def label_all(client: TestClient, annotator: str, edit: str, place: int = 0, **more: Any) -> None:
    for criterion in LABELS:
        give(client, annotator=annotator, edit=edit, criterion=criterion, label=LABELS[criterion][place], **more)


def drawn(number: int, why: str = "", annotator: str | None = None) -> QueuedEdit:
    name = f"edit-{number:05}"
    return QueuedEdit(name, name, f"painter-{number % 3}", 0.25, None, why, 12, annotator)


def vibe_manifest(folder: Path, kind: str = "Billiards") -> Path:
    """Write a manifest of two edits that are asked by check lists, with a golden label and marks."""
    (source, edited), (golden, marks) = pictures(folder / "pictures", 2)
    images = {"golden_label": str(golden.relative_to(folder)), "annotated": str(marks.relative_to(folder))}
    lines = [
        {
            "id": f"v{number}",
            "source": str(source.relative_to(folder)),
            "edited": str(edited.relative_to(folder)),
            "instruction": "Play the shot",
            "instruction_type": kind,
            "more_images": images,
        }
        for number in (1, 2)
    ]
    path = folder / "vibe.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


@pytest.mark.long
def test_a_queue_is_worked_through_in_its_order_with_edits_that_need_a_person_first(
    studio: OpenStudio, tmp_path: Path
) -> None:
    run = many_edits(tmp_path, 12)
    LabelQueue("q", (drawn(7), drawn(2), drawn(9, "needs_a_person"))).write(run / "label_queue.jsonl")
    client = studio(runs=(run,))
    assert "1 need a person and come first" in page(client)
    assert 'value="label_queue.jsonl" checked' in page(client), "labels outside the queue would not count with it"
    assert 'value="" checked' in page(client, work="")
    work = "label_queue.jsonl"
    for wanted in (9, 7, 2):
        text = page(client, annotator="ana", work=work)
        assert shown(text) == f"edit-{wanted:05}"
        assert ("no judge was confident enough" in text) == (wanted == 9)
        assert "of 3" in text
        label_all(client, "ana", f"edit-{wanted:05}", work=work)
    assert "data-through" in page(client, annotator="ana", work=work)
    assert "3 of 3" in client.get("/runs/run/annotators", params={"work": work}).text
    assert "3 of 12" in client.get("/runs/run/annotators").text
    again = studio(runs=(run,))
    assert shown(page(again, annotator="ben", work=work)) == "edit-00009"


@pytest.mark.long
def test_a_calibration_round_is_shared_and_the_rest_is_split(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 12)
    queue = tmp_path / "ours.jsonl"
    names = ["--annotator", "Ana", "--annotator", "Ben"]
    assert editloupe(["label-queue", str(run), "--budget", "7", "--shared", "3", *names, "--out", str(queue)]) == 0
    listed = rows(queue)
    assert [row.get("annotator") for row in listed][3:7] == ["Ana", "Ben", "Ana", "Ben"][: len(listed) - 3]
    assert all("annotator" not in row for row in listed[:3])
    client = studio(runs=(run,), queues=(queue,))
    ana, cem = (page(client, annotator=name, work="ours.jsonl") for name in ("Ana", "Cem"))
    assert "calibration round" in ana
    assert f"of {sum(row.get('annotator') in (None, 'Ana') for row in listed)}</span>" in ana
    assert "of 3</span>" in cem
    assert "split between Ana, Ben" in cem
    assert LabelQueue.read(queue).annotators == ("Ana", "Ben")
    assert editloupe(["label-queue", str(run), "--budget", "7", "--annotator", "Ana", "--out", str(queue)]) == 2


@pytest.mark.long
def test_a_random_subset_is_kept_as_a_queue_with_its_probabilities(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 12)
    client = studio(runs=(run,))
    work = client.post("/runs/run/random-subset", json={"size": 5, "seed": 3}).json()["work"]
    kept = rows(run / work)
    assert len(kept) == 5
    assert {(row["probability"], row["of"]) for row in kept} == {(5 / 12, 12)}
    assert client.post("/runs/run/random-subset", json={"size": 5, "seed": 3}).json()["work"] == work
    assert rows(run / work) == kept
    assert shown(page(client, annotator="ana", work=work)) == kept[0]["name"]
    assert client.post("/runs/run/random-subset", json={"size": 0}).status_code == 400
    assert client.get("/runs/run/annotate", params={"annotator": "a", "work": "../run.json"}).status_code == 400


@pytest.mark.long
def test_a_manifest_nobody_judged_is_labelled_and_the_labels_fit_a_run_of_it(
    studio: OpenStudio, tmp_path: Path
) -> None:
    run = many_edits(tmp_path, 4)
    lines = [
        {"id": f"edit-{n:05}", "source": f"pictures/s{n}.png", "edited": f"pictures/e{n}.png", "instruction": "Do it"}
        for n in range(4)
    ]
    manifest = tmp_path / "new.jsonl"
    manifest.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    queue = tmp_path / "q.jsonl"
    assert editloupe(["label-queue", str(manifest), "--budget", "2", "--out", str(queue)]) == 0
    assert {row["probability"] for row in rows(queue)} == {0.5}
    client = studio(runs=(manifest,), queues=(queue,), protocol="dlebench")
    text = page(client, "new", annotator="ana", work="q.jsonl")
    name = rows(queue)[0]["name"]
    assert shown(text) == name
    for criterion in LABELS:
        give(client, "new", annotator="ana", edit=name, criterion=criterion, label=LABELS[criterion][1])
    labels = tmp_path / "new.labels.jsonl"
    assert len(rows(labels)) == 2
    assert measure_agreement(run, labels).annotators["ana"] == 2
    assert editloupe(["label-queue", str(manifest), "--budget", "2"]) == 2


@pytest.mark.long
def test_a_manifest_is_labelled_by_the_wording_of_a_file_and_agreement_says_that_the_judge_had_another(
    studio: OpenStudio, tmp_path: Path
) -> None:
    run = many_edits(tmp_path, 1)
    line = {"id": "edit-00000", "source": "pictures/s0.png", "edited": "pictures/e0.png", "instruction": "Do it"}
    manifest = tmp_path / "new.jsonl"
    manifest.write_text(json.dumps(line) + "\n", "utf-8")
    words = tmp_path / "words.yaml"
    words.write_text("extends: dlebench/instruction_following\nquestion: Was it done, and nothing else?\n")
    client = studio(runs=(manifest,), rubrics=(words,))
    assert "Was it done, and nothing else?" in page(client, "new", annotator="ana")
    for criterion in LABELS:
        give(client, "new", annotator="ana", edit="edit-00000", criterion=criterion, label=LABELS[criterion][1])
    notes = measure_agreement(run, tmp_path / "new.labels.jsonl").notes
    (note,) = [note for note in notes if "another wording" in note]
    assert note.startswith("1 label on instruction_following was given"), "visual consistency had the same words"


@pytest.mark.long
def test_a_check_list_is_labelled_item_by_item_and_scored_by_the_rubric(studio: OpenStudio, tmp_path: Path) -> None:
    manifest = vibe_manifest(tmp_path)
    client = studio(runs=(manifest,), protocol="vibe")
    text = page(client, "vibe", annotator="ana")
    assert "Golden label" in text
    assert "Annotated" in text
    keys = [part.split('"')[0] for part in text.split('data-check="')[1:]]
    assert keys
    criterion = text.split('data-criterion="')[1].split('"')[0]
    body = {"annotator": "ana", "edit": "v1", "criterion": criterion}
    for key in keys[:-1]:
        state = give(client, "vibe", **body, check=key, label="1")
        assert (state["labels"], state["complete"]) == ({}, False)
    state = give(client, "vibe", **body, check=keys[-1], label="0", unsure=True)
    assert state["complete"]
    assert state["checks"][criterion][keys[-1]] == "0"
    last = rows(tmp_path / "vibe.labels.jsonl")[-1]
    answer = get_protocol("vibe").rubric(criterion).answer
    assert float(last["label"]) == answer.total({**dict.fromkeys(keys, "1"), keys[-1]: "0"})  # type: ignore[union-attr]
    assert last["unsure"] is True
    assert len(last["checks"]) == len(keys)
    assert 'data-edit="v2"' in page(client, "vibe", annotator="ana")
    back = give(client, "vibe", annotator="ana", undo=True)
    assert keys[-1] not in back["checks"][criterion]
    for wrong in ({"check": keys[0], "label": "7"}, {"check": "none", "label": "1"}, {"label": "0.5"}):
        assert client.post("/runs/vibe/labels", json={**body, **wrong}).status_code == 400


def test_scales_say_what_each_band_takes_and_notes_and_hints_are_shown(studio: OpenStudio, tmp_path: Path) -> None:
    manifest = vibe_manifest(tmp_path, "Awareness")
    client = studio(runs=(manifest,), protocol="wiseedit")
    text = page(client, "vibe", annotator="ana")
    rubric = get_protocol("wiseedit").rubric("visual_quality")
    assert rubric.notes
    for sentence in (*rubric.notes, *(band.meaning for band in rubric.answer.bands)):  # type: ignore[union-attr]
        assert sentence.strip() in text


@pytest.mark.long
def test_skip_unsure_and_comment_are_rows_that_agree_passes_over(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 3)
    client = studio(runs=(run,))
    first = {"annotator": "ana", "edit": "edit-00000"}
    assert give(client, **first, skip=True)["skipped"]
    assert shown(page(client, annotator="ana")) == "edit-00001"
    assert "1 skipped" in client.get("/runs/run/annotators").text
    assert give(client, **first, comment="The mask is odd.")["comment"] == "The mask is odd."
    assert client.post("/runs/run/labels", json={**first, "criterion": FOLLOWING, "unsure": True}).status_code == 400
    give(client, **first, criterion=FOLLOWING, label=LABELS[FOLLOWING][2])
    assert give(client, **first, criterion=FOLLOWING, unsure=True)["unsure"] == [FOLLOWING]
    again = studio(runs=(run,))
    state = give(again, **first, skip=False)
    assert (state["unsure"], state["comment"], state["skipped"]) == ([FOLLOWING], "The mask is odd.", False)
    found = measure_agreement(run)
    assert found.annotators["ana"] == 1
    assert not found.notes or all("ana" not in note for note in found.notes)
    for row in rows(run / "labels.jsonl"):
        assert {"annotator", "at", "edit_id"} <= row.keys()


@pytest.mark.long
def test_an_adjudicated_label_counts_alone_and_the_others_stay(studio: OpenStudio, tmp_path: Path) -> None:
    run = many_edits(tmp_path, 4)
    client = studio(runs=(run,))
    label_all(client, "ana", "edit-00001", 0)
    label_all(client, "ben", "edit-00001", 3)
    label_all(client, "ana", "edit-00002", 2)
    label_all(client, "ben", "edit-00002", 2)
    assert "1 edit waits" in page(client)
    text = page(client, annotator="cem", work="differ")
    assert shown(text) == "edit-00001"
    assert "of 1</span>" in text
    assert LABELS[FOLLOWING][0] in text.split('class="said')[1]
    assert "The patch is what was asked for." not in text
    for criterion in LABELS:
        state = give(
            client,
            annotator="cem",
            work="differ",
            edit="edit-00001",
            criterion=criterion,
            label=LABELS[criterion][3],
        )
        assert state["verdicts"] == ""
    assert rows(run / "labels.jsonl")[-1]["adjudicated"] is True
    assert "all were adjudicated" in client.get("/runs/run/annotators").text
    found = measure_agreement(run)
    assert "cem" not in found.annotators
    assert found.annotators["ana"] == 4
    assert any("2 labels were adjudicated and count alone" in note for note in found.notes)
    said = client.app.state.studio.catalog.runs()[0].index.consensus("edit-00001")  # type: ignore[attr-defined]
    assert said == {criterion: LABELS[criterion][3] for criterion in LABELS}
    give(client, annotator="cem", work="differ", undo=True, edit="edit-00001")
    assert "1 edit waits" in page(client)


@pytest.mark.long
def test_corrected_scores_are_shown_with_the_queue_and_without_enough_labels_the_reason(
    studio: OpenStudio, tmp_path: Path
) -> None:
    run = many_edits(tmp_path, 60)
    client = studio(runs=(run,))
    label_all(client, "ana", "edit-00001")
    few = client.get("/runs/run/corrected").text
    assert "at least 20 are needed" in few
    work = client.post("/runs/run/random-subset", json={"size": 40}).json()["work"]
    for number, row in enumerate(rows(run / work)):
        label_all(client, "ana", row["name"], number % 4)
    text = client.get("/runs/run/corrected", params={"queue": work}).text
    assert f"drawn by {work}" in unescape(text)
    assert "as good as" in text
    assert "Nothing says how the labelled edits were chosen" in client.get("/runs/run/corrected?chosen=true").text


@pytest.mark.long
def test_corrected_scores_take_the_queue_that_the_studio_was_started_with(studio: OpenStudio, tmp_path: Path) -> None:
    run, queue = many_edits(tmp_path, 30), tmp_path / "ours.jsonl"
    for path in (run / "label_queue.jsonl", queue):
        assert editloupe(["label-queue", str(run), "--budget", "9", "--out", str(path)]) == 0
    label_all(studio(runs=(run,)), "ana", "edit-00001")
    assert "drawn by label_queue.jsonl" in unescape(studio(runs=(run,)).get("/runs/run/corrected").text)
    assert "drawn by ours.jsonl" in unescape(studio(runs=(run,), queues=(queue,)).get("/runs/run/corrected").text)


@pytest.mark.long
def test_names_that_look_the_same_are_one_annotator(studio: OpenStudio, tmp_path: Path) -> None:
    client = studio(runs=(many_edits(tmp_path, 3),))
    for name in ("Ana", "Ana\u200b", "\u202eAna "):
        label_all(client, name, "edit-00001")
    assert {row["annotator"] for row in rows(tmp_path / "run" / "labels.jsonl")} == {"Ana"}


def test_what_was_sent_before_the_judges_first_word_is_shown_and_nothing_that_its_tools_returned(
    studio: OpenStudio, tmp_path: Path
) -> None:
    (source, edited), (sheet, crop) = pictures(tmp_path / "pictures", 2)
    album = Album()
    sent, seen = album.open(sheet), album.open(crop)
    edit = Edit(id="e", source=source, edited=edited, instruction="Do it", instruction_type="Change Color")
    first = SentPicture(
        name="Pose Sheet", sha=sent.sha, original_size=sent.size, size=sent.size, format="png", bytes=9, scale=1.0
    )
    look = Observation(call_id="c", tool="zoom_in_image", text="A region", pictures=(seen.sha,), captions=("A region",))
    steps = (Step(index=0, thought="Hm", sent=(first,), observations=(look,)), Step(index=1, answer="Wrong Action"))
    trace = Trace(
        edit_id="e",
        criterion=FOLLOWING,
        protocol="dlebench",
        mode="tools",
        judge="openai:m",
        prompt=("Judge.",),
        steps=steps,
    )
    verdict = Verdict(criterion=FOLLOWING, label="Wrong Action", score=2, score_100=100 / 3)
    with Run.write(tmp_path / "run") as run:
        whole = Judgement(
            edit=edit, protocol="dlebench", mode="tools", judge="openai:m", verdicts=(verdict,), traces=(trace,)
        )
        run.save(whole, album=album)
    text = page(studio(runs=(tmp_path / "run",)), annotator="ana")
    assert "Pose Sheet" in text
    assert sent.sha in text
    assert seen.sha not in text
