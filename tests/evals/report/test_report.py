import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.labels.human import load_human_labels
from editloupe.evals.report import Report, build_leaderboard, build_report
from editloupe.evals.report.block_types import Cases, Drawing, Heading
from editloupe.evals.report.html_renderer import as_html
from editloupe.evals.report.notable_edits import find_notable_edits
from editloupe.evals.report.report_blocks import build_blocks
from editloupe.evals.report.report_figures import build_figures
from editloupe.evals.report.text_renderer import as_markdown, as_text
from editloupe.evals.runs.store import Run
from editloupe.evals.stats.scores.run_table import read_run_table
from editloupe.judge import Judge
from editloupe.rubrics.tables import PrintedTable
from editloupe.types import UserError
from tests.evals.sample_runs import IF, VC, Line, make_run
from tests.evals.samples import judgement

HOSTILE = "<script>alert(1)</script> | *bold* [x](javascript:1) \x1b[31m \u202e"


def lines(count: int = 12) -> list[Line]:
    kinds = ("Change Color", "Change OCR", "Removal Object")
    return [
        Line(
            f"e{n}",
            None if n == 3 else 1 + n % 4,
            2 + n % 3,
            type=kinds[n % 3],
            model=("x", "y")[n % 2],
            human={IF: [str(1 + n % 4), str(1 + (n + n // 6) % 4)]},
            confidence=0.2 if n == 7 else 0.9,
            boxes=((5, 5, 15 + n, 20),),
        )
        for n in range(count)
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", lines(), pictures=True)


@pytest.fixture
def report(run: Path) -> Report:
    return build_report(run)


def page(report: Report) -> str:
    return as_html(build_blocks(report), build_figures(report), report.run, "made here")


class Parsed(HTMLParser):
    """Collects tags with their attributes, and fails on tags that do not match."""

    EMPTY = frozenset({"meta", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.long
def test_a_report_begins_with_the_answer_and_how_sure_it_is(report: Report) -> None:
    order = [block.text for block in build_blocks(report) if isinstance(block, Heading) and block.level < 3]
    head = "run: openai:gpt-5.1 · dlebench · tools mode"
    assert order == [head, "How sure is that?", "Scores", "Agreement with people", "Edits to look at", "Methods"]
    text = as_text(build_blocks(report))
    first = text.splitlines()[1:4]
    assert "2 scores from 12 edits, judged by openai:gpt-5.1 in tools mode" in " ".join(first)
    assert "23 of 24 verdicts were given (95.8 %); 1 is unjudged (1 unreadable answer) and left out." in text
    assert "No best of 2 editing models: " in text
    assert "they share no source and instruction" in " ".join(text.replace("│", " ").split())


@pytest.mark.long
def test_json_has_the_promised_keys_and_no_nan(report: Report) -> None:
    text = report.model_dump_json()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert {"value", "low", "high", "n"} <= data["overall"].keys()
    assert set(data["parts"]["x"]["by_type"]) == {"Change Color", "Change OCR", "Removal Object"}
    assert (data["overall"]["value"], data["by_type"]) == (None, {}), "two models have no score in common"
    assert data["coverage"]["judged"] == 23
    assert data["agreement"]["criteria"][IF]["spearman"]["n"] == 11
    assert data["methods"].startswith("We judged 12 edits")


@pytest.mark.long
def test_the_page_is_whole_self_contained_and_without_script(report: Report) -> None:
    text = page(report)
    tags = Parsed(text).tags
    names = {name for name, _ in tags}
    assert not names & {"script", "link", "iframe", "object"}
    pictures = [given for name, given in tags if name == "img"]
    assert all((given["src"] or "").startswith("data:image/") for given in pictures)
    assert all(given["alt"] for given in pictures)
    assert not [given for _, given in tags if any(key.startswith("on") for key in given)]
    links = [given["href"] or "" for _, given in tags if "href" in given]
    ids = {given["id"] for _, given in tags if "id" in given}
    assert all(link.startswith("#") and link[1:] in ids for link in links), (
        "the contents lead to places of the page alone"
    )
    assert text.count('class="chart-svg"') == len(build_figures(report))
    assert text.count('class="case"') == len(report.instructive)
    assert "source, target framed" in text


@pytest.mark.long
def test_hostile_texts_stay_texts_everywhere(tmp_path: Path) -> None:
    bad = [
        Line(f"e{n}{HOSTILE}", 1 + n, 4, type=HOSTILE, model=HOSTILE, instruction=HOSTILE, rationale=HOSTILE)
        for n in range(4)
    ]
    bad = [Line(**{**vars(line), "human": {IF: "4"}}) for line in bad]
    report = build_report(make_run(tmp_path / "run", bad))
    text = page(report)
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    Parsed(text)
    assert "\x1b" not in as_text(build_blocks(report))
    markdown = as_markdown(build_blocks(report))
    assert "<script>" not in re.sub(r"`[^`]*`", "", markdown)
    assert r"\|" in markdown


@pytest.mark.long
def test_markdown_tables_have_as_many_cells_as_columns(report: Report) -> None:
    wide = 0
    for line in as_markdown(build_blocks(report)).splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert cells == wide or wide == 0
            wide = cells
        else:
            wide = 0


@pytest.mark.long
def test_figures_named_in_the_text_can_be_drawn(report: Report) -> None:
    named = {block.name for block in build_blocks(report) if isinstance(block, Drawing)}
    assert set(build_figures(report)) == named


def test_the_edits_to_look_at_are_the_disagreements_the_unjudged_and_the_unsure(run: Path) -> None:
    table = read_run_table(run)
    found = find_notable_edits(table, load_human_labels(table))
    kinds = {one.edit_id: one.kind for one in found}
    assert kinds["e3"] == "unjudged"
    assert kinds["e7"] in ("low confidence", "disagrees with people")
    assert len(found) == len(kinds) <= 10
    first = found[0]
    assert first.kind == "disagrees with people"
    assert first.human


def test_the_widest_disagreement_comes_first_and_ten_are_the_most(tmp_path: Path) -> None:
    given = [Line(f"e{n}", 1, 4, human={IF: "2" if n else "4"}) for n in range(30)]
    table = read_run_table(make_run(tmp_path / "run", given))
    found = find_notable_edits(table, load_human_labels(table))
    assert len(found) == 10
    assert (found[0].edit_id, found[0].human) == ("e0", ("Flawless Execution",))
    assert found[0].because == "3 away from people on the rubric's scale"


def test_repeats_that_differ_are_worth_a_look(tmp_path: Path) -> None:
    table = read_run_table(make_run(tmp_path / "run", [Line("a", (4, 1), (4, 4)), Line("b", (2, 2), (4, 4))]))
    (one,) = find_notable_edits(table, load_human_labels(table))
    assert (one.edit_id, one.kind) == ("a", "repeats differ")


def test_the_page_holds_the_trace_of_an_edit_with_its_pictures(tmp_path: Path) -> None:
    whole, album = judgement(tmp_path, thought="I look <closely>.")
    with Run.write(tmp_path / "run") as opened:
        opened.save(whole, album=album)
    report = build_report(tmp_path / "run")
    (cases,) = [block for block in build_blocks(report) if isinstance(block, Cases)]
    assert [(item.criterion, item.kind) for item in cases.items] == [(VC, "unjudged")]
    shown = cases.items[0].model_copy(update={"criterion": IF, "label": "Wrong Action"})
    text = as_html((Cases(cases.folder, (shown,), cases.titles),), {}, "t", "m")
    assert "I look &lt;closely&gt;." in text
    assert "zoom_in_image(bbox_2d=[1, 2, 3, 4])" in text
    assert 'alt="the cup, enlarged"' in text


@pytest.mark.long
def test_a_run_without_pictures_says_so_instead_of_failing(tmp_path: Path) -> None:
    report = build_report(make_run(tmp_path / "run", lines()))
    assert "The run did not keep the pictures of this edit." in page(report)


@pytest.mark.long
def test_every_report_of_the_rules_says_what_it_is(tmp_path: Path) -> None:
    report = build_report(make_run(tmp_path / "run", lines(), judge="rules"))
    for text in (as_text(build_blocks(report)), as_markdown(build_blocks(report)), page(report), report.methods):
        assert "rule-based baseline" in " ".join(text.split())
    other = build_report(make_run(tmp_path / "other", lines()))
    assert "rule-based" not in as_text(build_blocks(other))


@pytest.mark.long
def test_the_pessimistic_bound_is_never_silent(run: Path) -> None:
    text = as_text(build_blocks(build_report(run, unjudged="worst")))
    assert "2 scores (at least: what is unjudged counts as the worst)" in " ".join(text.split())
    assert "Pessimistic bound: each of the 1 unjudged verdicts counts as the worst answer." in text
    assert "counts as the worst answer (a pessimistic bound)" in " ".join(text.split())


def test_without_human_labels_the_report_says_that_nothing_is_known_about_trust(tmp_path: Path) -> None:
    report = build_report(make_run(tmp_path / "run", [Line("a"), Line("b", 2)]))
    assert report.agreement is None
    assert any(sentence.startswith("No human labels") for sentence in report.certainty)


@pytest.mark.long
def test_the_methods_are_read_from_the_run(tmp_path: Path) -> None:
    described = Judge("rules", mode="oracle").describe()
    described |= {"spec": "openai:gpt-5.1", "base_url": "http://127.0.0.1:8000/v1"}
    described["settings"] = {**described["settings"], "max_turns": 5, "temperature": 0.3}
    described["profile"] = {**described["profile"], "provider": "openai"}
    run = make_run(tmp_path / "run", lines(), mode="oracle", description=described)
    text = build_report(run).methods
    for part in (
        "12 edits on Instruction Following and Visual Consistency",
        f"EditLoupe {described['versions']['editloupe']}",
        "`openai:gpt-5.1`",
        "oracle-guided mode",
        "at most 5 replies a case",
        "temperature 0.3",
        "served from http://127.0.0.1:8000/v1",
        "Of 24 verdicts, 23 (95.8 %) were given; 1 ended unjudged (1 unreadable answer) and is left out of every score.",
        "95 % t intervals of means within instruction types, with standard errors by source image",
        "11 edits labelled by 2 annotators",
    ):
        assert part in text, part


@pytest.mark.long
def test_settings_that_were_not_recorded_are_not_made_up(report: Report) -> None:
    assert "The settings of some verdicts are not recorded in the run." in report.methods
    assert "replies a case" not in report.methods


@pytest.mark.long
def test_several_runs_are_ranked_with_their_reports(tmp_path: Path) -> None:
    good = make_run(tmp_path / "good", [Line(f"e{n}", 4, 3 + n % 2, model="m") for n in range(8)])
    poor = make_run(tmp_path / "poor", [Line(f"e{n}", 1, 1 + n % 2, model="m") for n in range(8)])
    board = build_leaderboard([build_report(run) for run in (poor, good)])
    assert [(entry.rank, entry.run) for entry in board.leaderboard] == [(1, "good"), (2, "poor")]
    assert board.answer.startswith("good leads with ")
    assert "ahead of poor" in board.answer
    text = as_html(build_blocks(board), build_figures(board), "board", "here")
    Parsed(text)
    assert text.count('class="chart-svg"') == len(build_figures(board))
    assert set(json.loads(board.model_dump_json())) == {
        "answer",
        "rankings",
        "leaderboard",
        "notes",
        "reports",
        "tables",
    }


def test_overlapping_intervals_do_not_settle_an_order(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, [Line(f"e{n}", 1 + (n + shift) % 4, 4) for n in range(9)])
        for shift, name in enumerate(("one", "two"))
    ]
    board = build_leaderboard([build_report(run) for run in runs])
    assert "the order among them is not settled" in board.answer


@pytest.mark.long
def test_runs_of_different_judges_are_not_read_as_a_ranking_of_editors(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", lines())
    b = make_run(tmp_path / "b", lines(), judge="rules")
    board = build_leaderboard([build_report(run) for run in (a, b)])
    assert "2 groups that are ranked apart" in board.answer
    assert any("rule-based baseline" in note for note in board.notes)


@pytest.mark.long
def test_runs_of_the_same_name_go_by_their_folders(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name / "run", lines()) for name in ("a", "b")]
    board = build_leaderboard([build_report(run) for run in runs])
    assert {entry.run for entry in board.leaderboard} == {f"{run} · {model}" for run in runs for model in "xy"}


def test_of_two_judges_in_one_run_the_newest_is_shown_or_a_chosen_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", lines(4))
    make_run(run, [Line("late", 2, 2)], judge="rules", mode="plain")
    report = build_report(read_run_table(run, configuration="rules"))
    assert (report.judge, report.mode, report.coverage.units) == ("rules", "plain", 2)
    assert not any("several ways" in note for note in report.notes)
    newest = build_report(run)
    assert any("judged in several ways; this is the newest, " in note for note in newest.notes)
    with pytest.raises(UserError, match=r'has no configuration "other"; it has: .*rules/plain'):
        read_run_table(run, configuration="other")


def test_the_note_of_a_wide_table_does_not_scroll_with_it() -> None:
    text = as_html((PrintedTable("", ("a", "b"), (("1", "2"),), ("A note.",)),), {}, "t", "m")
    assert "</table></div><figcaption>A note.</figcaption></figure>" in text


@pytest.mark.long
def test_edits_to_look_at_show_the_trace_of_their_own_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, manifest = str(tmp_path / "run"), str(files("editloupe.demo") / "manifest.jsonl")
    page = tmp_path / "page.html"

    def count_steps(*options: str) -> int:
        assert command(["report", run, "--out", str(page), *options]) == 0
        return page.read_text("utf-8").count('<ol class="steps">')

    assert command(["batch", manifest, "--out", run, "--mode", "oracle", "--limit", "2"]) == 0
    steps = count_steps()
    assert command(["batch", manifest, "--out", run, "--mode", "plain", "--limit", "2"]) == 0
    assert count_steps("--configuration", "rules/oracle") == steps > 0
    assert "--configuration rules/oracle" in page.read_text("utf-8")
    capsys.readouterr()
    assert command(["compare", run]) == 2
    assert "to compare two of its configurations, give --configuration twice" in capsys.readouterr().err
