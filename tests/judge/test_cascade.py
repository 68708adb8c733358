"""A cascade: each judge keeps what it may, the rest goes on, and what nobody may keep waits for a person."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.runs.prices import PanelPrice, Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import count_stages
from editloupe.judge import Judge
from editloupe.types import Reason, Unjudged, UserError, Verdict
from tests.conftest import StartServer
from tests.evals.samples import write_manifest
from tests.judge.samples import (
    GOOD,
    IF,
    LARGE,
    QUICK,
    SMALL,
    VC,
    Wavering,
    batch,
    calibration,
    cascade_file,
    edit_number,
    run,
    two_stages,
)
from tests.scripted import Answer, Request, fault, final


def by_model(requests: list[Request]) -> Counter[str]:
    return Counter(request.model for request in requests)


def outcomes(out: Path) -> dict[str, Any]:
    with Run.open(out) as opened:
        return {unit.edit_id: unit.outcome for unit in opened.units()}


@pytest.mark.long
def test_each_stage_is_asked_only_what_those_before_it_leave_over(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    spec = f"cascade:{two_stages(server, tmp_path)}"
    ending = run(batch(server, spec, write_manifest(tmp_path, 8), tmp_path / "run"))
    assert by_model(server.requests) == {"gpt-4.1-small": 16, "gpt-4.1-large": 8}  # twice each; four edits go on
    found = outcomes(tmp_path / "run")
    kept = {
        name: next(one.judge for one in o.opinions if one.kept) for name, o in found.items() if o.status == "judged"
    }
    assert kept == {"e0": SMALL, "e2": SMALL, "e4": SMALL, "e6": SMALL, "e1": LARGE, "e5": LARGE}
    left = [o for o in found.values() if isinstance(o, Unjudged)]
    assert [o.reason for o in left] == [Reason.NEEDS_A_PERSON] * 2
    assert "kept from 1 on" in left[0].detail
    assert ending.judge == f"cascade:{SMALL}>{LARGE}"
    assert ending.exit_code(unjudged=True) == 3


@pytest.mark.long
def test_the_summary_has_what_each_stage_kept_and_what_it_cost(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    spec = f"cascade:{two_stages(server, tmp_path)}"
    ending = run(batch(server, spec, write_manifest(tmp_path, 8), tmp_path / "run"))
    prices = {SMALL: Price(input=1, output=0), LARGE: Price(input=100, output=0)}
    price = PanelPrice(input=100, output=0, members=prices)
    with Run.open(tmp_path / "run") as opened:
        small, large = count_stages(opened, ending.configuration, price)
    assert (small.judge, small.asked, small.kept, small.usage.requests) == (SMALL, 8, 4, 16)
    assert (large.judge, large.asked, large.kept, large.usage.requests) == (LARGE, 4, 2, 8)
    assert (small.cost, large.cost) == (pytest.approx(0.0016), pytest.approx(0.08))


@pytest.mark.long
def test_every_request_costs_what_its_own_model_costs_and_the_cap_is_on_all_of_them(
    scripted: StartServer, tmp_path: Path
) -> None:
    server = scripted(Wavering())
    spec = f"cascade:{two_stages(server, tmp_path)}"
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"prices:\n  {SMALL}: {{input: 1, output: 0}}\n  {LARGE}: {{input: 1000, output: 0}}\n")
    manifest = write_manifest(tmp_path, 8)
    low = Limits(concurrency=1, max_cost=0.35)
    first = run(batch(server, spec, manifest, tmp_path / "run", limits=low, prices=prices))
    assert "the cap of $0.35 is reached" in str(first.why)
    asked = by_model(server.requests)
    assert asked["gpt-4.1-large"] <= 4
    assert not any(isinstance(o, Unjudged) and o.reason == Reason.BUDGET for o in outcomes(tmp_path / "run").values())
    second = run(batch(server, spec, manifest, tmp_path / "run", prices=prices))
    assert second.tally.missing == 0
    assert by_model(server.requests) == {"gpt-4.1-small": 16, "gpt-4.1-large": 8}
    assert second.spending.cost == pytest.approx(16 * 1e-4 + 8 * 0.1)


@pytest.mark.long
def test_a_stage_whose_server_fails_leaves_the_edit_to_the_same_command_and_nothing_is_paid_twice(
    scripted: StartServer, tmp_path: Path
) -> None:
    script, well = Wavering(), False

    def sick(request: Request) -> Any:
        return script(request) if well or "large" not in request.model else fault(500)

    server = scripted(sick)
    spec, manifest = f"cascade:{two_stages(server, tmp_path)}", write_manifest(tmp_path, 4)
    run(batch(server, spec, manifest, tmp_path / "run", keep_going=True))
    reasons = {name: getattr(o, "reason", None) for name, o in outcomes(tmp_path / "run").items()}
    assert reasons == {"e0": None, "e2": None, "e1": Reason.MODEL_ERROR, "e3": Reason.MODEL_ERROR}
    well = True
    run(batch(server, spec, manifest, tmp_path / "run"))
    assert by_model(server.requests)["gpt-4.1-small"] == 8
    assert getattr(outcomes(tmp_path / "run")["e1"], "label", None) == GOOD


@pytest.mark.long
def test_an_edit_that_needs_a_person_is_in_the_queue(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(Wavering())
    trust, manifest, out = two_stages(server, tmp_path), write_manifest(tmp_path, 8), tmp_path / "run"
    given = ["--judge", f"cascade:{trust}", "--base-url", server.openai_url, "--mode", "plain", "--criterion", IF]
    assert command(["batch", str(manifest), "--out", str(out), *given, "--quiet"]) == 3
    said = capsys.readouterr()
    assert f"stage 1, {SMALL}: asked about 8 units, kept 4" in said.out
    assert "2 unjudged (needs_a_person)" in said.err
    assert "label-queue" in said.err
    assert "--budget 2" in said.err
    assert command(["label-queue", str(out), "--budget", "2"]) == 0
    lines = [json.loads(line) for line in (out / "label_queue.jsonl").read_text().splitlines()]
    assert {(line["edit_id"], line["probability"], line["why"]) for line in lines} == {
        ("e3", 1.0, "needs_a_person"),
        ("e7", 1.0, "needs_a_person"),
    }
    capsys.readouterr()
    assert command(["trace", str(out), "e3"]) == 0
    told = capsys.readouterr().out
    assert f"stage 1, asked 1 of 2: {SMALL}" in told
    assert f"stage 2, asked 2 of 2: {LARGE}" in told
    assert "unjudged (needs_a_person)" in told


def test_the_file_that_calibrate_writes_is_a_cascade_of_one_stage(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    calibration(server, SMALL, 1.0).write(tmp_path / "trust.yaml")
    with Judge(
        f"cascade:{tmp_path / 'trust.yaml'}", mode="plain", base_url=server.openai_url, criteria=[IF], settings=QUICK
    ) as judge:
        assert judge.members == (SMALL,)
        assert any("at least 90 %" in note for note in judge.notes)


@pytest.mark.long
def test_a_calibration_of_another_judge_mode_or_wording_is_refused(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    trust = tmp_path / "trust.yaml"
    whole: dict[str, Any] = {"base_url": server.openai_url, "settings": QUICK, "criteria": [IF]}

    calibration(server, SMALL, 1.0).write(trust)
    with pytest.raises(UserError, match="valid for the mode plain, not for tools"):
        Judge(f"cascade:{trust}", mode="tools", **whole)
    with pytest.raises(UserError, match="has no threshold for visual_consistency"):
        Judge(f"cascade:{trust}", mode="plain", **{**whole, "criteria": [IF, VC]})
    with pytest.raises(UserError, match="the prompt, the tools or the settings"):
        Judge(f"cascade:{trust}", mode="plain", **{**whole, "settings": QUICK.model_copy(update={"long_side": 512})})
    trust.write_text("stages:\n- judge: openai:other\n  calibration: one.yaml\n")
    calibration(server, SMALL, 1.0).write(tmp_path / "one.yaml")
    with pytest.raises(UserError, match=f"valid for the judge {SMALL}, not for openai:other"):
        Judge(f"cascade:{trust}", mode="plain", **whole)
    calibration(server, SMALL, 1.0, confidence="judges").write(trust)
    with pytest.raises(UserError, match="as one panel"):
        Judge(f"cascade:{trust}", mode="plain", **whole)
    cascade_file(trust, calibration(server, SMALL, 1.0), calibration(server, LARGE, 1.0))
    with pytest.raises(UserError, match="not calibrated on the edits that the stages before it leave over"):
        Judge(f"cascade:{trust}", mode="plain", **whole)


@pytest.mark.long
def test_a_stage_that_may_keep_nothing_is_not_asked(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    none = calibration(server, SMALL, None)
    trust = cascade_file(tmp_path / "trust.yaml", none, calibration(server, LARGE, 1.0, (none,)))
    run(batch(server, f"cascade:{trust}", write_manifest(tmp_path, 2), tmp_path / "run"))
    assert by_model(server.requests) == {"gpt-4.1-large": 4}
    first = outcomes(tmp_path / "run")["e0"]
    assert isinstance(first, Verdict)
    assert [(one.asked, one.kept) for one in first.opinions] == [(False, False), (True, True)]


@pytest.mark.long
def test_other_thresholds_judge_again_without_asking_again(scripted: StartServer, tmp_path: Path) -> None:
    server = scripted(Wavering())
    trust, manifest = tmp_path / "trust.yaml", write_manifest(tmp_path, 4)
    calibration(server, SMALL, 1.0).write(trust)
    run(batch(server, f"cascade:{trust}", manifest, tmp_path / "run"))
    asked = server.served
    calibration(server, SMALL, 0.5).write(trust)
    ending = run(batch(server, f"cascade:{trust}", manifest, tmp_path / "run"))
    assert server.served == asked
    assert ending.tally.judged == 4


@pytest.mark.long
def test_stages_may_have_servers_of_their_own(scripted: StartServer, tmp_path: Path) -> None:
    first, second = scripted(Wavering()), scripted(Wavering())
    small = calibration(first, SMALL, 1.0)
    trust = cascade_file(tmp_path / "trust.yaml", small, calibration(first, LARGE, 1.0, (small,)))
    trust.write_text(trust.read_text() + f"  base_url: {second.openai_url}\n")
    run(batch(first, f"cascade:{trust}", write_manifest(tmp_path, 4), tmp_path / "run"))
    assert (by_model(first.requests), by_model(second.requests)) == ({"gpt-4.1-small": 8}, {"gpt-4.1-large": 4})


@pytest.mark.long
def test_the_embedded_judge_may_come_first_and_needs_no_request(scripted: StartServer, tmp_path: Path) -> None:
    def answers(request: Request) -> Answer:
        return final(GOOD if edit_number(request) else "Wrong Action")

    server = scripted(answers)
    rules = calibration(server, "rules", 0.0, confidence="confidence", repeats=1)
    large = calibration(server, LARGE, 1.0, (rules,))
    run(
        batch(
            server,
            f"cascade:{cascade_file(tmp_path / 't.yaml', rules, large)}",
            write_manifest(tmp_path, 3),
            tmp_path / "r",
        )
    )
    found = outcomes(tmp_path / "r")
    by_rules = [o for o in found.values() if o.status == "judged" and o.opinions[0].kept]
    assert server.served == 2 * (len(found) - len(by_rules))
    assert all(o.usage.requests == 0 for o in by_rules)
