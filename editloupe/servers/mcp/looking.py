"""The visual tools for clients: each looks at pictures a client names or sends."""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import CallToolResult
from pydantic import Field

from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.pixel_budget import room_for
from editloupe.pictures.pixels import hash_pixels
from editloupe.servers.mcp.picture_gate import PictureGate
from editloupe.servers.mcp.records import LookResult
from editloupe.servers.mcp.results import Shown, failure, success
from editloupe.tools.contract import ToolError, View
from editloupe.tools.registry import Toolbox
from editloupe.tools.zoom import BOTH
from editloupe.types import StopAtFirst, UserError

ONE = ("Image",)
TWO = ("First Image", "Second Image")
PictureText = Annotated[
    str, Field(description="A path inside the server's roots, or the picture itself in base64 or as a data URL.")
]
SecondText = Annotated[str, Field(description="A second picture of the same scene, given like the first; or empty.")]
BoxNumbers = Annotated[
    list[float],
    StopAtFirst(),
    Field(description="The region [x1, y1, x2, y2] in pixels of the picture.", min_length=4, max_length=4),
]
RegionNumbers = Annotated[
    list[float],
    StopAtFirst(),
    Field(description="A region [x1, y1, x2, y2] in pixels; empty for the whole picture.", max_length=4),
]


class Looking:
    """Runs the tools of a toolbox for clients."""

    def __init__(self, toolbox: Toolbox, gate: PictureGate, result_bytes: int) -> None:
        self._toolbox = toolbox
        self._gate = gate
        self._result_bytes = result_bytes

    async def localize_differences(
        self,
        first: PictureText,
        second: PictureText,
        instruction: Annotated[str, Field(description="What was asked for, where one picture is an edit.")] = "",
    ) -> Annotated[CallToolResult, LookResult]:
        """Show where two pictures differ beyond what re-rendering changes everywhere, as side-by-side crops.

        Left is the first picture, right the second; the most significant difference comes first. Shifts and changes of tone of
        the whole picture are taken out before and told in words. A small real change can still be missed.
        """
        names = dict(zip(("comparison_image_1", "comparison_image_2"), TWO, strict=True))
        return await self._look("localize_differences", [first, second], names, instruction)

    async def zoom_in_image(
        self, image: PictureText, box: BoxNumbers, second: SecondText = ""
    ) -> Annotated[CallToolResult, LookResult]:
        """Show one region of a picture closely, cut out in full resolution and enlarged where it is small.

        With a second picture the same region of both is shown side by side.
        """
        given = {"bbox_2d": box, "target_image": BOTH if second else ONE[0]}
        return await self._look("zoom_in_image", [image, second] if second else [image], given)

    async def read_text(self, image: PictureText, box: RegionNumbers = []) -> Annotated[CallToolResult, LookResult]:  # noqa: B006
        """Read the text in a picture or in a region of it: every line with its position and confidence.

        Blurred or decorative letters can be misread.
        """
        given: dict[str, Any] = {"target_image": ONE[0], **({"bbox_2d": box} if box else {})}
        return await self._look("read_text", [image], given)

    async def detect_object(
        self, image: PictureText, name: Annotated[str, Field(description="The object to find, such as: red car")]
    ) -> Annotated[CallToolResult, LookResult]:
        """Find an object in a picture and show numbered boxes round what was found.

        Not finding an object is a hint, not a proof, that it is absent.
        """
        return await self._look("detect_object", [image], {"target_image": ONE[0], "detect_object_name": name}, name)

    async def _look(
        self, tool: str, images: list[str], parameters: dict[str, Any], instruction: str = ""
    ) -> CallToolResult:
        names = ONE if len(images) == 1 else TWO
        try:
            sources = dict(
                zip(
                    names,
                    [self._gate.picture(given, name) for name, given in zip(names, images, strict=True)],
                    strict=True,
                )
            )
            async with room_for(sources.values()):
                return await self._toolbox.in_worker(self._looked, tool, sources, parameters, instruction)
        except (UserError, ToolError) as error:
            return failure(str(error))

    def _looked(
        self, tool: str, sources: dict[str, PictureSource], parameters: dict[str, Any], instruction: str
    ) -> CallToolResult:
        """Open the pictures, look and encode what is shown; in a worker thread."""
        album = Album()
        view = View(album, {name: album.open(source).sha for name, source in sources.items()}, instruction)
        seen = self._toolbox.run(tool, parameters, view)
        told = LookResult(tool=tool, text=seen.text, data=dict(seen.data), notes=list(self._toolbox.notes))
        shown = [Shown(Picture(hash_pixels(one.pixels), one.pixels), one.caption) for one in seen.pictures]
        return success(seen.text, told, shown, self._result_bytes)
