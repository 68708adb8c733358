"""`ablate`: one table of combinations, in which everything that is the same is asked once and nothing else is shared."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.main import run
from tests.conftest import StartServer
from tests.drawn_pictures import edit_pair
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, call, final

pytestmark = pytest.mark.long
IF, VC = "instruction_following", "visual_consistency"
DIFFERENCES = "localize_differences"


def answers(request: Request) -> Answer:
    """Answer alike whatever is offered, without a look."""
    return final("Perfect Consistency" if "Scene Collapse" in request.system else "Wrong Action")


def by_tools(request: Request) -> Answer:
    """Follow people where differences are offered, and find everything wrong where they are not."""
    if "Scene Collapse" in request.system:
        return final("Perfect Consistency")
    number = int(request.text.rpartition("Do ")[2].split()[0])
    right = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")[number % 4]
    return final(right if DIFFERENCES in request.tools else "Localization Failure")


def labelled(manifest: Path) -> Path:
    """Give every edit the label that `by_tools` gives with differences."""
    names = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for number, row in enumerate(rows):
        row["human"] = {IF: names[number % 4], VC: "Perfect Consistency"}
    manifest.write_text("\n".join(map(json.dumps, rows)))
    return manifest


def command(server: ScriptedServer, manifest: Path, out: Path, *more: str) -> list[str]:
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--quiet"]
    return ["ablate", str(manifest), "--out", str(out), *judge, *more]


def asked(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_combination_whose_requests_are_the_same_asks_nothing(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    found = asked(command(server, write_manifest(tmp_path, 3), tmp_path / "run", "--vary", "max-turns=4,8"), capsys)
    assert server.served == 6, "three edits, two criteria, once"
    assert [row["name"] for row in found["rows"]] == ["max-turns=4", "max-turns=8"]
    assert found["rows"][0]["configuration"] != found["rows"][1]["configuration"]
    for row in found["rows"]:
        for cell in row["criteria"].values():
            assert (cell["judged"], cell["expected"]) == (3, 3)
            assert cell["cost"] > 0, "a verdict costs what its replies cost, shared or not"
    assert found["paid"]["requests"] == 6
    assert found["rows"][1]["criteria"][IF]["difference"]["value"] == 0


def test_a_verdict_given_without_a_tool_does_not_stand_for_one_that_could_have_used_it(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest = scripted(by_tools), labelled(write_manifest(tmp_path, 8))
    vary = f"tools=zoom_in_image+{DIFFERENCES},zoom_in_image"
    found = asked(command(server, manifest, tmp_path / "run", "--vary", vary), capsys)
    assert server.served == 32
    first, second = (row["criteria"][IF] for row in found["rows"])
    assert (first["mean"], second["mean"]) == (50.0, 0.0)
    assert first["difference"] is None
    assert second["difference"]["value"] == -50
    assert second["difference"]["low"] < -50 < second["difference"]["high"]
    assert second["p"] < 0.05
    assert [one["agreement"]["accuracy"]["value"] for one in (first, second)] == [1.0, 0.25]
    assert [one["agreement"]["mae"]["value"] for one in (first, second)] == [0.0, 1.5]
    assert first["agreement"]["spearman"]["value"] == pytest.approx(1)
    assert second["agreement"]["spearman"]["value"] is None
    assert second["agreement"]["spearman"]["why"]
    assert second["agreement_difference"]["accuracy"]["value"] == -0.75
    assert second["agreement_difference"]["mae"]["value"] == 1.5
    # In the other order the tool is added to verdicts that were given without it.
    again = f"tools=zoom_in_image,zoom_in_image+{DIFFERENCES}"
    turned = asked(command(server, manifest, tmp_path / "turned", "--vary", again), capsys)
    assert server.served == 64
    assert [row["criteria"][IF]["mean"] for row in turned["rows"]] == [0.0, 50.0]


def test_verdicts_that_stand_in_for_others_in_a_batch_do_not_in_an_ablation(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest, out = scripted(by_tools), labelled(write_manifest(tmp_path, 4)), tmp_path / "run"
    judge = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--quiet", "--criterion", IF]
    both = f"zoom_in_image,{DIFFERENCES}"
    for tools in ("zoom_in_image", both):
        assert run(["batch", str(manifest), "--out", str(out), *judge, "--tools", tools]) == 0
    assert server.served == 4, "no verdict used a tool, so those given without differences stand"
    vary = f"tools={both.replace(',', '+')},zoom_in_image"
    found = asked(command(server, manifest, out, "--criterion", IF, "--vary", vary), capsys)
    assert server.served == 8
    assert [row["criteria"][IF]["mean"] for row in found["rows"]] == [50.0, 0.0]


def test_looks_are_counted_and_combinations_share_them(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def looks(request: Request) -> Answer:
        if any(message.role == "tool" for message in request.messages) or "Scene Collapse" in request.system:
            return answers(request)
        return call(DIFFERENCES, comparison_image_1="Source Image", comparison_image_2="Edited Image")

    server = scripted(looks)
    given = command(server, write_manifest(tmp_path, 2), tmp_path / "run", "--vary", "enhancer=none,fast")
    found = asked(given, capsys)
    first, second = (row["criteria"] for row in found["rows"])
    assert (first[IF]["tool_calls"], first[VC]["tool_calls"]) == (1, 0)
    assert (first[IF]["remembered"], second[IF]["remembered"]) == (0, 1)
    assert first[VC]["remembered"] is None
    # What leads to the look is asked once; what follows it shows crops that are enlarged otherwise, and is another request.
    assert server.served == 2 + 2 + 2 + 2
    assert found["rows"][0]["same_as"] is None


def test_the_same_command_asks_nothing_and_one_more_value_adds_only_that(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest, out = scripted(answers), write_manifest(tmp_path, 4), tmp_path / "run"
    few = command(server, manifest, out, "--vary", "mode=plain,tools")
    assert len(asked([*few, "--limit", "1"], capsys)["rows"]) == 2
    assert server.served == 4
    asked(few, capsys)
    asked(few, capsys)
    assert server.served == 16
    more = command(server, manifest, out, "--vary", "mode=plain,tools", "--vary", "temperature=default,0.5")
    found = asked(more, capsys)
    assert server.served == 32
    assert [row["name"] for row in found["rows"]][1] == "mode=plain · temperature=0.5"
    # Of a run that holds more, only the edits that are asked for are compared.
    limited = asked([*few, "--limit", "2"], capsys)
    assert [row["criteria"][IF]["judged"] for row in limited["rows"]] == [2, 2]
    assert limited["edits"] == 2


def test_a_cap_stops_it_and_a_higher_one_goes_on(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest, out = scripted(answers), write_manifest(tmp_path, 3), tmp_path / "run"
    given = command(server, manifest, out, "--vary", "mode=plain,tools", "--price", "1000,1000", "--concurrency", "1")
    found = asked([*given, "--max-cost", "0.5"], capsys, code=3)
    served = server.served
    assert 0 < served < 12
    assert found["rows"][1]["configuration"] is None
    assert found["rows"][1]["criteria"][IF]["judged"] == 0
    assert found["rows"][1]["criteria"][IF]["expected"] == 3
    assert all(cell["expected"] == 3 for row in found["rows"] for cell in row["criteria"].values())
    asked(given, capsys)
    assert server.served == 12, "nothing is paid twice"


def test_without_labels_there_is_no_agreement_and_that_is_said(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(scripted(by_tools), write_manifest(tmp_path, 4), tmp_path / "run", "--vary", "mode=tools,plain")
    assert run(given) == 0
    text = capsys.readouterr().out
    assert "No agreement is reported" in text
    assert "ρ" not in text
    assert "Δ mean" in text
    assert "4 of 4" in text


def test_labels_of_a_file_are_used_and_a_missing_file_is_told_before_anything_is_asked(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest = scripted(by_tools), write_manifest(tmp_path, 4)
    labels = tmp_path / "labels.csv"
    given = command(server, manifest, tmp_path / "run", "--vary", "mode=tools,plain", "--human", str(labels))
    assert run(given) == 2
    assert "a file of human labels was not found" in capsys.readouterr().err
    assert server.served == 0
    labels.write_text(f"edit_id,{IF}\n" + "".join(f"e{number},Wrong Action\n" for number in range(4)))
    found = asked(given, capsys)
    assert found["origin"] == "labels.csv"
    assert found["rows"][0]["criteria"][IF]["agreement"]["accuracy"]["value"] == 0.25
    assert found["rows"][0]["criteria"][VC]["agreement"]["accuracy"]["value"] is None


def test_the_table_comes_in_every_format(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = labelled(write_manifest(tmp_path, 4))
    given = command(scripted(by_tools), manifest, tmp_path / "run", "--vary", "mode=tools,plain")
    printed = {}
    for kind in ("text", "md", "csv", "latex"):
        assert run([*given, "--format", kind]) == 0
        printed[kind] = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(printed["csv"])))
    assert [(row["combination"], row["criterion"]) for row in rows] == [
        ("mode=tools", IF),
        ("mode=tools", VC),
        ("mode=plain", IF),
        ("mode=plain", VC),
    ]
    assert (rows[2]["Δ mean"], rows[2]["exact"], rows[2]["judged"]) == ("-50.0", "0.25", "4")
    assert "|  | judged | mean | ρ | r | exact | MAE |" in printed["md"]
    assert printed["latex"].count(r"\begin{table}") == 2
    assert re.search(r"B +plain", printed["text"])


def test_an_estimate_writes_nothing_and_counts_what_is_asked_twice_once(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    vary = ["--vary", "mode=tools,plain", "--vary", "enhancer=none,fast"]
    given = command(server, write_manifest(tmp_path, 5), tmp_path / "run", *vary, "--dry-run")
    found = asked(given, capsys)
    assert [one["units"] for one in found["combinations"]] == [10, 10, 10, 0], "plain mode has no crops to enhance"
    assert found["units"] == 30
    assert found["cost"] > 0
    assert server.served == 0
    assert not (tmp_path / "run").exists()


def test_combinations_that_ask_the_same_say_so(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    given = command(server, write_manifest(tmp_path, 1), tmp_path / "run", "--mode", "plain")
    found = asked([*given, "--vary", "enhancer=none,fast"], capsys)
    assert server.served == 2
    assert found["rows"][1]["same_as"] == "enhancer=none"
    assert any("asks exactly what enhancer=none asks" in note for note in found["notes"])


def test_words_set_ups_judges_and_settings_of_tools_can_be_varied(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, words = scripted(answers), tmp_path / "words.yaml"
    words.write_text("extends: dlebench/instruction_following\nquestion: Was the order carried out?\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text("judging: {our_notes: false}\n")
    vary = [
        *("--vary", f"rubric=none,{words}"),
        *("--vary", f"setup=default,{mine}"),
        *("--vary", "judge=openai:gpt-4.1,google_genai:gemini-2.5-flash"),
        *("--vary", "max_regions=3,5"),
    ]
    given = ["ablate", str(write_manifest(tmp_path, 1)), "--out", str(tmp_path / "run"), "--quiet", *vary]
    assert run([*given, "--criterion", IF, "--dry-run"]) == 2, "the keys of both providers are missing"
    assert "key" in capsys.readouterr().err
    given = command(server, tmp_path / "manifest.jsonl", tmp_path / "run", *vary[:4], *vary[6:], "--criterion", IF)
    found = asked(given, capsys)
    assert len({row["configuration"] for row in found["rows"]}) == 8
    systems = [request.system for request in server.requests]
    assert sum("Was the order carried out?" in one for one in systems) == 2
    assert sum("# By type of instruction" not in one for one in systems) == 2
    assert server.served == 4, "how many crops there may be is told when there are any"


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        (["enhancr=none,fast"], '"enhancr" is not one; did you mean enhancer'),
        (["qqq=1"], '"qqq" is not one; there are: judge, setup'),
        (["enhancer"], '"enhancer" is not KEY=V1,V2…'),
        (["enhancer=none,"], '"enhancer=none," is not KEY=V1,V2…'),
        (["enhancer=none,none"], "--vary enhancer has a value twice"),
        (["enhancer=none", "enhancer=fast"], "--vary enhancer is given twice"),
        (["enhancer=none,quick"], "use one of auto, realesrgan, fast, none"),
        (["tools=all,zoom"], 'unknown tool "zoom"; the tools are: detect_object, localize_differences'),
        (["mode=plain,both"], '--mode is one of tools, oracle, plain, not "both"'),
        (["max-turns=0"], "Invalid value for '--max-turns'"),
        (["our-notes=on,perhaps"], '--vary our-notes takes on and off, not "perhaps"'),
        (["base-url=a,b"], "--vary base-url makes no sense: where a model is served decides no answer"),
        (["setup=default,edival-paper"], "the combinations use dlebench and edival"),
        (["max_regions=3,0"], "max_regions must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_judged(
    vary: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["ablate", str(write_manifest(tmp_path, 1)), "--judge", "rules", "--out", str(tmp_path / "run")]
    assert run([*given, *(part for one in vary for part in ("--vary", one))]) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_embedded_judge_is_compared_with_and_without_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_pair(tmp_path)
    instructions = ("Change the color of the patch to red", "Remove the patch")
    rows = [
        {"id": f"e{number}", "source": "before.png", "edited": "after.png", "instruction": text}
        for number, text in enumerate(instructions)
    ]
    (tmp_path / "edits.jsonl").write_text("\n".join(map(json.dumps, rows)))
    vary = ["--vary", "tools=all,zoom_in_image,none", "--vary", "enhancer=none,fast"]
    given = ["ablate", str(tmp_path / "edits.jsonl"), "--judge", "rules", "--out", str(tmp_path / "run"), *vary]
    found = asked([*given, "--quiet"], capsys)
    assert len(found["rows"]) == 6
    looks = [row["criteria"][VC]["tool_calls"] for row in found["rows"]]
    assert looks == [1, 1, 0, 0, 0, 0]
    assert found["rows"][5]["same_as"] == "tools=none · enhancer=none"
    assert all(cell["cost"] == 0 for row in found["rows"] for cell in row["criteria"].values())


@pytest.mark.parametrize("label", ["Wrong Akshun", "7"])
def test_a_label_that_cannot_be_is_told_before_anything_is_asked(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], label: str
) -> None:
    server, manifest = scripted(answers), write_manifest(tmp_path, 2)
    first = json.loads(manifest.read_text().splitlines()[0])["id"]
    people = tmp_path / "people.csv"
    people.write_text(f"edit_id,{IF}\n{first},{label}\n")
    more = ("--vary", "max-turns=4,8", "--human", str(people))
    assert run(command(server, manifest, tmp_path / "run", *more)) == 2
    assert f'people.csv, line 2: "{label}" is not an answer to {IF}' in capsys.readouterr().err
    assert server.served == 0


def test_labels_on_a_criterion_that_was_not_asked_are_told(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest = scripted(answers), write_manifest(tmp_path, 2)
    first = json.loads(manifest.read_text().splitlines()[0])["id"]
    people = tmp_path / "people.csv"
    people.write_text(f"edit_id,{IF},visual_consistancy\n{first},Wrong Action,4\n")
    found = asked(
        command(server, manifest, tmp_path / "run", "--vary", "max-turns=4,8", "--human", str(people)), capsys
    )
    assert any('1 label on "visual_consistancy" is not used' in note for note in found["notes"])


def test_one_combination_is_one_and_has_no_differences(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answers)
    assert run(command(server, write_manifest(tmp_path, 1), tmp_path / "run", "--vary", "max-turns=4")) == 0
    text = capsys.readouterr().out
    assert "1 combination on 1 edit " in text
    assert "Δ" not in text


def test_latex_tells_small_p_values_and_costs_as_the_text_does(
    scripted: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, manifest = scripted(by_tools), write_manifest(tmp_path, 16)
    more = ("--vary", f"tools={DIFFERENCES},none", "--format", "latex")
    assert run(command(server, manifest, tmp_path / "run", *more)) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("tools=none")]
    assert r"\textless{} 0.001" in rows[0] or " 0.001 " in rows[0]
    assert all(re.search(r"\\\$0\.\d{4} ", row) for row in rows)
