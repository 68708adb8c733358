"""The visual tools as MCP tools, and the pictures of MCP requests: files inside the allowed roots, or encoded bytes."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Annotated, Any

from mcp_types import CallToolResult
from pydantic import Field

from editloupe._util.text import one_line, shorten
from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.input import as_memory_picture
from editloupe.pictures.memory import PictureSource
from editloupe.pictures.memory_budget import reserve_pictures
from editloupe.pictures.pixels import hash_pixels
from editloupe.pictures.table_cells import find_file, resolve_picture_path
from editloupe.servers.mcp.results import LookResult, ShownPicture, build_result, error_result
from editloupe.tools.contract import ToolError, View
from editloupe.tools.registry import Toolbox
from editloupe.tools.zoom import BOTH
from editloupe.types import StopAtFirst, UserError

LONGEST_PATH = 4096
SHORTEST_PICTURE = 40
"""Base64 characters. No picture file is shorter, but many paths are."""
BEGINNINGS = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"RIFF", b"II*\x00", b"MM\x00*", b"BM")
"""First bytes of the supported file formats."""


class PictureGate:
    """Resolves a path or encoded picture without opening it, or raises UserError.

    Symbolic links are resolved before a path is compared with the roots. A path outside is refused without checking whether
    the file exists.
    """

    def __init__(self, roots: tuple[Path, ...]) -> None:
        self._roots = tuple(Path(os.path.realpath(root)) for root in roots)

    def picture(self, text: str, role: str) -> PictureSource:
        """Return the picture for a data URL, base64 text, or a path inside a root."""
        if not text.strip():
            raise UserError(f"{role} is empty; it takes a path, base64 or a data URL")
        if text.startswith("data:"):
            return as_memory_picture(text)
        if (data := _decode_base64(text)) is not None:
            return as_memory_picture(data)
        if len(text) > LONGEST_PATH:
            raise UserError(f"{role} is neither a path nor a picture in base64 that this program reads")
        return self.path(text)

    def path(self, path_text: str) -> Path:
        """Return the resolved path inside a root; a relative path is looked up in each root in turn."""
        quoted = one_line(shorten(path_text, 200))
        if not self._roots:
            raise UserError(
                "this server opens no files because it was started without --root; send the picture as base64 or a data URL"
            )
        candidates = [os.path.join(root, path_text) for root in self._roots]  # an absolute path replaces the root
        try:
            inside = [path for candidate in candidates if self._holds(path := resolve_picture_path(candidate))]
        except (ValueError, OSError):
            raise UserError(f"{quoted} is not a valid file name") from None
        if not inside:
            raise UserError(f"{quoted} is outside the folders that --root allows")
        return next((path for path in inside if find_file(path).exists()), inside[0])

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots)


def _decode_base64(text: str) -> bytes | None:
    """Decode a picture in base64; None if the text is something else, such as a path."""
    packed = "".join(text.split())
    if len(packed) < SHORTEST_PICTURE:
        return None
    try:
        if not base64.b64decode(packed[:16], validate=True).startswith(BEGINNINGS):
            return None
        return base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return None


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


class VisualTools:
    """Runs the tools of a toolbox on pictures that a client names or sends."""

    def __init__(self, toolbox: Toolbox, gate: PictureGate, result_bytes: int) -> None:
        self._toolbox = toolbox
        self._gate = gate
        self._result_bytes = result_bytes

    async def localize_differences(
        self,
        first: PictureText,
        second: PictureText,
        instruction: Annotated[
            str, Field(description="The edit instruction, if one picture is an edit of the other.")
        ] = "",
    ) -> Annotated[CallToolResult, LookResult]:
        """Show where two pictures differ beyond what re-rendering changes everywhere, as side-by-side crops.

        Left is the first picture, right the second; the most significant difference comes first. Shifts and tone changes of
        the whole picture are compensated first and described in words. A small real change can still be missed.
        """
        names = dict(zip(("comparison_image_1", "comparison_image_2"), TWO, strict=True))
        return await self._look("localize_differences", [first, second], names, instruction)

    async def zoom_in_image(
        self, image: PictureText, box: BoxNumbers, second: SecondText = ""
    ) -> Annotated[CallToolResult, LookResult]:
        """Show one region of a picture closely, cropped in full resolution and enlarged if it is small.

        With a second picture the same region of both is shown side by side.
        """
        parameters = {"bbox_2d": box, "target_image": BOTH if second else ONE[0]}
        return await self._look("zoom_in_image", [image, second] if second else [image], parameters)

    async def read_text(self, image: PictureText, box: RegionNumbers = []) -> Annotated[CallToolResult, LookResult]:  # noqa: B006
        """Read the text in a picture or in a region of it: every line with its position and confidence.

        Blurred or decorative letters can be misread.
        """
        parameters: dict[str, Any] = {"target_image": ONE[0], **({"bbox_2d": box} if box else {})}
        return await self._look("read_text", [image], parameters)

    async def detect_object(
        self, image: PictureText, name: Annotated[str, Field(description="The object to find, such as: red car")]
    ) -> Annotated[CallToolResult, LookResult]:
        """Find an object in a picture and show numbered boxes around the detections.

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
                    [self._gate.picture(image, name) for name, image in zip(names, images, strict=True)],
                    strict=True,
                )
            )
            async with reserve_pictures(sources.values()):
                return await self._toolbox.run_in_worker(tool, self._run_tool, tool, sources, parameters, instruction)
        except (UserError, ToolError) as error:
            return error_result(str(error))

    def _run_tool(
        self, tool: str, sources: dict[str, PictureSource], parameters: dict[str, Any], instruction: str
    ) -> CallToolResult:
        """Open the pictures, run the tool and encode its result. Runs in a worker thread."""
        album = Album()
        view = View(album, {name: album.open(source).sha for name, source in sources.items()}, instruction)
        result = self._toolbox.run(tool, parameters, view)
        notes = list(self._toolbox.notes) if result.pictures else []  # they say how pictures are enlarged
        output = LookResult(tool=tool, text=result.text, data=dict(result.data), notes=notes)
        pictures = [
            ShownPicture(Picture(hash_pixels(picture.pixels), picture.pixels), picture.caption)
            for picture in result.pictures
        ]
        return build_result(result.text, output, pictures, self._result_bytes)
