import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from editloupe.evals.report.html_renderer import CROP_SIDE, LONG_SIDE, Thumbnail, make_thumbnails
from editloupe.evals.runs.store import Run
from editloupe.pictures.decode import Album
from editloupe.types import Box, Edit, Judgement, Reason, Unjudged


def made(tmp_path: Path, boxes: tuple[Box, ...], edited_size: tuple[int, int] = (800, 600)) -> list[Thumbnail]:
    """A grey source with a red patch, an edit of the same scene with a blue one."""
    for name, colour, size in (("source", (255, 0, 0), (800, 600)), ("edited", (0, 0, 255), edited_size)):
        picture = Image.new("RGB", (800, 600), (128, 128, 128))
        picture.paste(colour, (400, 300, 440, 330))
        picture.resize(size).save(tmp_path / f"{name}.png")
    edit = Edit(
        id="e",
        source=tmp_path / "source.png",
        edited=tmp_path / "edited.png",
        instruction="Turn it blue",
        target_boxes=boxes,
    )
    outcome = Unjudged(criterion="instruction_following", reason=Reason.TIMEOUT, detail="Too slow.")
    whole = Judgement(edit=edit, protocol="dlebench", mode="tools", judge="x:y", verdicts=(outcome,))
    with Run.write(tmp_path / "run") as run:
        run.save(whole, album=Album())
    with Run.open(tmp_path / "run") as run:
        return make_thumbnails(run, *run.edit("e")[:2])


def pixels(one: Thumbnail) -> np.ndarray:
    data = base64.b64decode(one.address.removeprefix("data:image/jpeg;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)), int)


def test_small_targets_are_enlarged_at_the_same_place_in_source_and_edit(tmp_path: Path) -> None:
    box = Box(x1=400, y1=300, x2=440, y2=330)
    found = made(tmp_path, (box,), edited_size=(400, 300))
    assert [one.caption for one in found] == [
        "source, target framed",
        "edited",
        "target in the source",
        "same place in the edit",
    ]
    assert max(found[0].size) == LONG_SIDE
    for one, channel in ((found[2], 0), (found[3], 2)):
        assert max(one.size) == CROP_SIDE
        middle = pixels(one)[one.size[1] // 2, one.size[0] // 2]
        assert middle.argmax() == channel
        assert middle[channel] > 200


def test_targets_as_large_as_the_picture_are_not_cropped(tmp_path: Path) -> None:
    found = made(tmp_path, (Box(x1=0, y1=0, x2=700, y2=500),))
    assert [one.caption for one in found] == ["source, target framed", "edited"]


def test_boxes_outside_the_picture_do_no_harm(tmp_path: Path) -> None:
    found = made(tmp_path, (Box(x1=5000, y1=5000, x2=6000, y2=6000),))
    assert len(found) == 2
