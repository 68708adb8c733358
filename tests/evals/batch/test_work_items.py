"""Items are worked through side by side; what fails costs its own item only, and replies are dropped when one is settled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from editloupe.agent.asker import NoAnswer
from editloupe.agent.transport.rate_limits import OverBudget
from editloupe.evals.batch.work_items import FOLDER, ItemTally, TemporaryReplies, work_through
from editloupe.pictures.pixels import ImageError
from editloupe.tools.contract import ToolError


@dataclass
class Item:
    id: str
    ends: Exception | bool | None = None


ITEMS = [
    Item("made"),
    Item("held", ends=False),
    Item("un/answered", ends=NoAnswer("no usable answer")),
    Item("broken", ends=ImageError("the picture is\ndamaged")),
    Item("down", ends=ToolError("the detector failed")),
]


class Working:
    """Puts a reply aside for every item, as a chat does, then ends as the item says."""

    def __init__(self, out: Path) -> None:
        self.kept, self.out, self.tally = TemporaryReplies(out), out, ItemTally("stage", total=len(ITEMS))

    async def __call__(self, item: Item) -> bool | None:
        self.kept.put("reply", {"text": item.id})
        if isinstance(item.ends, Exception):
            raise item.ends
        return item.ends

    @property
    def replies(self) -> set[str]:
        return {path.name for path in (self.out / FOLDER).iterdir()} if (self.out / FOLDER).exists() else set()


async def test_without_a_way_to_give_up_an_item_that_cannot_be_used_has_failed(tmp_path: Path) -> None:
    work = Working(tmp_path)
    await work_through(ITEMS, work, work.tally, 2, kept=work.kept)
    assert (work.tally.made, work.tally.held, work.tally.done, work.tally.left_out) == (1, 1, 5, {})
    assert work.tally.failed == {
        "un/answered": "no usable answer",
        "broken": "the picture is damaged",
        "down": "the detector failed",
    }
    assert work.replies == {"broken", "down"}, "paid replies are there for the next try"


async def test_an_item_that_is_given_up_is_left_out_for_good(tmp_path: Path) -> None:
    work, given_up = Working(tmp_path), {}
    await work_through(
        ITEMS, work, work.tally, 2, kept=work.kept, give_up=lambda item, why: given_up.update({item.id: why})
    )
    assert given_up == work.tally.left_out == {"un/answered": "no usable answer", "broken": "the picture is damaged"}
    assert (set(work.tally.failed), work.replies) == ({"down"}, {"down"})


async def test_a_reached_cap_begins_no_further_item(tmp_path: Path) -> None:
    work = Working(tmp_path)
    items = [Item("capped", ends=OverBudget("the cap of $1 is reached")), Item("after"), Item("later")]
    await work_through(items, work, work.tally, 1, kept=work.kept)
    assert work.tally.stopped == "the cap of $1 is reached"
    assert set(work.tally.failed) == {"capped", "after", "later"}
    assert work.replies == {"capped"}
