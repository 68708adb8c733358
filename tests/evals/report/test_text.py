"""Reports in the terminal: what a narrow screen does to wide tables."""

from editloupe.evals.report.text_renderer import as_text
from editloupe.rubrics.tables import PrintedTable


def test_a_heading_breaks_between_words_and_no_line_is_wider_than_the_screen() -> None:
    columns = ("model", *(f"Dynamic Manipulation {part}" for part in "ABCDEFGH"))
    told = as_text([PrintedTable("", columns, (("alpha", *["4.25"] * 8),), ())], 70)
    assert told.count("Manipulation") == 8
    assert max(map(len, told.splitlines())) <= 70
