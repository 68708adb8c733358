"""Figures as parts of a page: its colours, tooltips and links; files have none of them."""

import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import editloupe
from editloupe.evals.report import build_report, figures
from editloupe.evals.report.figures.style import MOST_POINTS, TOKENS, new_figure, use_style
from editloupe.evals.report.html_renderer import as_html
from editloupe.evals.report.report_blocks import build_blocks
from editloupe.evals.report.report_figures import build_figures
from editloupe.evals.stats.scores.distribution import AreaTrend
from tests.evals.sample_runs import IF, LABELS, VC, Line, make_run

COLOUR = re.compile(r"none|var\(--[a-z0-9-]+\)|color-mix\(in srgb, var\(--[a-z0-9-]+\) [\d.]+%, var\(--[a-z0-9-]+\)\)")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        Line(
            f"e{n}",
            None if n == 5 else 1 + n % 4,
            2 + n % 3,
            type=("Change Color", "Change OCR")[n % 2],
            boxes=((0, 0, 2 + n, 9),),
            human={IF: LABELS[IF][(n + (n % 3 == 0)) % 4], VC: LABELS[VC][n % 4]},
        )
        for n in range(16)
    ]
    return make_run(tmp_path_factory.mktemp("inline") / "run", lines)


@pytest.mark.long
def test_all_colours_are_tokens_and_there_is_no_style_that_a_policy_forbids(run: Path) -> None:
    for name, draw in build_figures(build_report(run)).items():
        svg = figures.as_inline_svg(draw(), name, "Shown")
        for node in ElementTree.fromstring(svg).iter():
            assert "style" not in node.attrib
            assert node.tag != "style"
            for paint in ("fill", "stroke"):
                value = node.attrib.get(paint, "none")
                assert COLOUR.fullmatch(value) or value.startswith(f"url(#{name.replace('_', '-')}-"), (name, value)


def test_no_style_sheet_inverts_pictures() -> None:
    sheets = list(Path(editloupe.__file__).parent.rglob("*.css"))
    assert sheets
    assert not [path.name for path in sheets if "invert(" in path.read_text("utf-8")]


@pytest.mark.long
def test_a_mark_is_a_link_if_the_page_knows_its_target_and_a_tooltip_in_any_case(run: Path) -> None:
    draw = build_figures(build_report(run))["agreement_of_scores"]

    def link(mark: Mapping[str, str]) -> str | None:
        return "/see?e3" if mark["edit"] == "e3" else None

    (linked,) = re.findall(r"<a [^>]*>", svg := figures.as_inline_svg(draw(), "f", "Shown", link))
    assert 'href="/see?e3"' in linked
    assert 'tabindex="-1"' in linked, "hundreds of points are no stops of the tab key"
    assert len(re.findall(r"<title>e\d+: people [\d.]+, judge [\d.]+</title>", svg)) == 15
    assert 'role="group"' in svg
    assert 'role="img"' in figures.as_inline_svg(draw(), "f", "Shown")


@pytest.mark.long
def test_files_are_light_and_have_neither_links_nor_tooltips(run: Path, tmp_path: Path) -> None:
    figure = build_figures(build_report(run))["agreement_of_scores"]()
    file = figures.as_svg(figure).decode()
    assert "var(--" not in file
    assert "<a " not in file
    assert "people 1" not in file
    assert f"fill: {TOKENS['surface']}" in file, "a white page"
    assert b"/URI" not in figures.save(figure, tmp_path / "f.pdf").read_bytes()


def test_of_many_edits_a_sample_is_drawn_and_counted_while_means_rest_on_all() -> None:
    count = 20_000
    areas = np.sort(np.random.default_rng(1).uniform(0.1, 30, count))
    trend = AreaTrend(
        unit="pixels", areas=areas, scores=(areas > 10) * 100.0, r=None, p=None, edits=tuple(map(str, range(count)))
    )
    figure = figures.score_by_area({"IF": trend})
    assert figure.axes[0].get_title(loc="left").endswith("\n500 of 20,000 points drawn")
    svg = figures.as_inline_svg(figure, "f", "Shown", lambda mark: f"/trace?{mark['edit']}")
    assert svg.count("/trace?") == MOST_POINTS
    assert len(svg) < 200_000


def test_a_figure_with_a_colour_of_its_own_keeps_its_light_ground() -> None:
    with use_style():
        figure, (axes,) = new_figure(2)
        axes.plot([1, 2], [1, 2], color="#123456")
    svg = figures.as_inline_svg(figure, "f", "Shown")
    assert f'<rect width="100%" height="100%" fill="{TOKENS["surface"]}"' in svg
    assert "var(--" not in svg


@pytest.mark.long
def test_points_of_a_report_lead_to_the_section_of_their_edit(run: Path) -> None:
    report = build_report(run)
    page = as_html(build_blocks(report), build_figures(report), "t", "m")
    links = dict(re.findall(r'<a href="#(case-\d+)" aria-label="(e\d+): ', page))
    assert links
    for section, edit in links.items():
        assert re.search(rf'id="{section}"><h\d>{edit} ', page)
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
