"""Edit-Compass's Tables 3, 4 and 8 to 11 of three models, cell by cell, against a calculation by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from editloupe.evals.stats.scores.run_scores import compute_scores
from editloupe.rubrics.editcompass import IC, IF, PARTS, URC, VQ, WA
from tests.evals.stats.scores.paper_tables.judged_runs import Given, edit, keep, tables

TABLE_3, TABLE_4 = "Edit-Compass, Table 3: English instructions", "Edit-Compass, Table 4: Chinese instructions"
TABLE_8 = "Edit-Compass, Table 8: General, English instructions"
TABLE_10 = "Edit-Compass, Table 10: Dynamic Manipulation and World Knowledge Reasoning, English instructions"
HEADS = ("General", "Dynamic Manipulation", "World Knowledge", "Visual Reasoning", "Multi Image", "Complex")
EMPTY = {f"{head} {name}": None for head in HEADS for name in ("IA", "VC", "VQ")}


def on_100(**metrics: float | None) -> dict[str, float | None]:
    """Metrics from 1 to 5, by their short names, as a run keeps them."""
    names = {"IF": IF, "WA": WA, "URC": URC, "IC": IC, "VQ": VQ}
    return {names[name]: None if value is None else (value - 1) * 25 for name, value in metrics.items()}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Model a has three parts, b General with one verdict missing, c one item in Chinese."""
    lines: list[Given] = [
        (edit("1", "ADD", "a", language="en"), on_100(IF=4, URC=5, VQ=3)),
        (edit("2", "ADD", "a", language="en"), on_100(IF=2, URC=4, VQ=4)),
        (edit("3", "Style_Transfer", "a", language="en"), on_100(IF=5, VQ=4)),
        (edit("4", "Swap", "a", language="en"), on_100(IF=3, URC=5, IC=2, VQ=4)),
        (edit("5", "Math", "a", language="en"), on_100(IF=4, WA=2, URC=1, VQ=5)),
        (edit("1", "ADD", "b", language="en"), on_100(IF=3, URC=None, VQ=3)),
        (edit("2", "ADD", "b", language="en"), on_100(IF=5, URC=5, VQ=5)),
        (edit("1", "ADD", "c", language="cn"), on_100(IF=2, URC=2, VQ=2)),
    ]
    return keep(tmp_path / "run", "edit-compass", lines)


FIRST, SECOND, STYLE = 4**0.4 * 5**0.4 * 3**0.2, 2**0.4 * 4**0.4 * 4**0.2, 5**0.7 * 4**0.3
SWAP, MATH = 3**0.4 * 3.5**0.4 * 4**0.2, 1.0
"""The items of model a: a weighted geometric mean, and for Math the least of its dimensions, which is 1."""


def test_every_cell_of_table_3(run: Path) -> None:
    found = tables(run)[TABLE_3]
    assert set(found) == {"a", "b"}
    by_hand = {
        "General IA": (4 + 2 + 5) / 3,
        "General VC": (5 + 4) / 2,
        "General VQ": (3 + 4 + 4) / 3,
        "Dynamic Manipulation IA": 3.0,
        "Dynamic Manipulation VC": 3.5,
        "Dynamic Manipulation VQ": 4.0,
        "World Knowledge IA": 3.0,
        "World Knowledge VC": 1.0,
        "World Knowledge VQ": 5.0,
        "Overall AVG": fmean([FIRST, SECOND, STYLE, SWAP, MATH]),
    }
    assert found["a"] == pytest.approx({**EMPTY, **by_hand, "judged": 16, "expected": 16})
    # The first item's consistency is unjudged: its other dimensions count, its overall does not.
    by_hand = {"General IA": 4.0, "General VC": 5.0, "General VQ": 4.0, "Overall AVG": 5.0}
    assert found["b"] == pytest.approx({**EMPTY, **by_hand, "judged": 5, "expected": 6})


def test_table_4_holds_the_chinese_items_alone(run: Path) -> None:
    found = tables(run)[TABLE_4]
    by_hand = {"General IA": 2.0, "General VC": 2.0, "General VQ": 2.0, "Overall AVG": 2.0}
    assert found == {"c": pytest.approx({**EMPTY, **by_hand, "judged": 3, "expected": 3})}


def test_every_cell_of_tables_8_and_10(run: Path) -> None:
    found = tables(run)
    nothing = dict.fromkeys(PARTS["Part1"])
    own = {"ADD": (FIRST + SECOND) / 2, "Style_Transfer": STYLE, "General AVG": fmean([FIRST, SECOND, STYLE])}
    assert found[TABLE_8]["a"] == pytest.approx({**nothing, **own, "judged": 8, "expected": 8})
    own = {"ADD": 5.0, "General AVG": 5.0}
    assert found[TABLE_8]["b"] == pytest.approx({**nothing, **own, "judged": 5, "expected": 6})
    nothing = dict.fromkeys((*PARTS["Part2"], *PARTS["Part3"]))
    own = {"Swap": SWAP, "Dynamic Manipulation AVG": SWAP, "Math": MATH, "World Knowledge Reasoning AVG": MATH}
    assert found[TABLE_10] == {"a": pytest.approx({**nothing, **own, "judged": 8, "expected": 8})}
    assert not any("Table 9" in title or "Table 11" in title for title in found)


def test_the_tables_and_the_scores_are_the_same_numbers(run: Path) -> None:
    found, printed = compute_scores(run), tables(run)
    for label, part in found.parts.items():
        model, language = label.split(" · ")
        value = printed[TABLE_3 if language == "en" else TABLE_4][model]["Overall AVG"]
        assert part.overall.value is not None
        assert value == pytest.approx(1 + part.overall.value / 25)
