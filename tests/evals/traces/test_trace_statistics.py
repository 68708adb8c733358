"""Statistics of what a filter finds."""

from __future__ import annotations

import json
from pathlib import Path

from editloupe.evals.report.text_renderer import as_text
from editloupe.evals.report.trace_blocks import statistics_blocks
from editloupe.evals.traces import find_traces
from editloupe.evals.traces.trace_statistics import NO_EXPERIMENT, Share
from tests.conftest import StartServer
from tests.evals.batch.test_batch import answers, batch, run
from tests.evals.sample_runs import IF
from tests.evals.samples import write_picture
from tests.evals.traces.samples import FIND, ZOOM, Told, write_run

FLAWLESS, OVER = "Flawless Execution", "Over Modification"
TOLD = (
    Told("a", FLAWLESS, (ZOOM, ZOOM), FLAWLESS),
    Told("b", FLAWLESS, (ZOOM, FIND + "*"), FLAWLESS),
    Told("c", FLAWLESS, (FIND,), OVER),
    Told("d", OVER, (ZOOM + "!",), FLAWLESS, repairs=1),
    Told("e", OVER, (), OVER),
    Told("f", None, (ZOOM,)),
)


def test_tools_are_counted_with_failures_memory_time_and_tokens(tmp_path: Path) -> None:
    counted = find_traces(write_run(tmp_path / "run", TOLD)).statistics()
    assert (counted.verdicts, counted.judged) == (6, 5)
    zoom, find = counted.tools
    assert (zoom.tool, zoom.verdicts, zoom.calls, zoom.failed, zoom.cached) == (ZOOM, 4, 5, 1, 0)
    assert (zoom.seconds, zoom.input_tokens, zoom.output_tokens) == (2.5, 500, 50)
    assert (find.calls, find.cached) == (2, 1)
    assert counted.turns == {3: 2, 2: 3, 1: 1}
    assert counted.repairs == {0: 5, 1: 1}


def test_labels_by_tool_and_the_confusion_of_judge_and_people(tmp_path: Path) -> None:
    (one,) = find_traces(write_run(tmp_path / "run", TOLD)).statistics().criteria
    assert (one.criterion, one.labels) == (IF, (OVER, FLAWLESS)), "worst first"
    assert one.by_tool == {ZOOM: {FLAWLESS: 2, OVER: 1}, FIND: {FLAWLESS: 2}}
    assert one.confusion == ((1, 1), (1, 2)), "people by row, judge by column"
    assert one.agreement == Share(3, 5)


def test_agreement_with_and_without_a_tool_comes_with_intervals_and_a_warning(tmp_path: Path) -> None:
    counted = find_traces(write_run(tmp_path / "run", TOLD)).statistics()
    find, zoom = counted.criteria[0].tools
    assert (zoom.tool, zoom.used, zoom.unused) == (ZOOM, Share(2, 3), Share(1, 2))
    assert (find.tool, find.used, find.unused) == (FIND, Share(1, 2), Share(2, 3))
    assert zoom.difference is not None
    value, low, high = zoom.difference
    assert low < value < high
    record = counted.record()
    assert record["warning"] == NO_EXPERIMENT
    assert record["criteria"][0]["tools"][1]["used"]["count"] == 2


def test_only_what_fits_is_counted_and_runs_add_up(tmp_path: Path) -> None:
    first = write_run(tmp_path / "one", TOLD)
    second = write_run(tmp_path / "two", TOLD[:2])
    assert find_traces(first, 'label = "Over Modification"').statistics().verdicts == 2
    both = find_traces([first, second]).statistics()
    assert both.verdicts == 8
    assert both.criteria[0].agreement == Share(5, 7)
    assert both.criteria[0].labels == (OVER, FLAWLESS)
    assert {one.tool: one.calls for one in both.tools} == {ZOOM: 8, FIND: 3}


def test_nothing_that_fits_is_counted_as_nothing(tmp_path: Path) -> None:
    counted = find_traces(write_run(tmp_path / "run", TOLD), "score > 99").statistics()
    assert (counted.verdicts, counted.tools, counted.criteria) == (0, (), ())


def test_a_share_of_nothing_has_no_interval() -> None:
    assert Share(0, 0).interval is None
    assert Share(0, 10).interval == (0.0, Share(0, 10).interval[1])  # type: ignore[index]


def test_a_trace_that_edits_share_is_paid_and_counted_once(tmp_path: Path, scripted: StartServer) -> None:
    server = scripted(answers)
    write_picture(tmp_path / "s.png", 1)
    write_picture(tmp_path / "e.png", 2)
    edit = {"id": "cup", "source": "s.png", "edited": "e.png", "instruction": "Paint it red"}
    manifest = tmp_path / "edits.jsonl"
    manifest.write_text("".join(json.dumps({**edit, "model": model}) + "\n" for model in "abc"), "utf-8")
    run(batch(server, manifest, tmp_path / "run"))
    counted = find_traces(tmp_path / "run").statistics()
    assert (counted.verdicts, counted.judged, counted.traces) == (6, 6, 2)
    usage = [(100, 20)] * server.served
    assert (counted.input_tokens, counted.output_tokens) == tuple(map(sum, zip(*usage, strict=True)))
    told = as_text(statistics_blocks(counted, 6), 200)
    assert "6 judged, 0 unjudged in 2 traces, some of them shared by edits" in told
    assert counted.record()["traces"] == 2
