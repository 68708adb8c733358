"""Six questions about the demo's pictures, what a model makes of them, and an editor that paints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from editloupe.cli.main import run
from editloupe.pictures.decode import decode
from editloupe.pictures.encode import encode
from tests.scripted import Reply, Request, say
from tests.scripted.images_wire import picture

DEMO = Path(__file__).parents[2] / "editloupe" / "demo"
QUESTIONS: dict[str, dict[str, Any]] = {
    "cat-eye": {
        "picture": "pictures/chelsea.jpg",
        "question": "What is the color of the cat's eye on the left side of the picture?",
        "options": ["green", "blue", "brown", "The picture does not show it"],
        "answer": "A",
        "target_boxes": [[138, 86, 205, 146]],
    },
    "rocket-rod": {
        "picture": "pictures/rocket.jpg",
        "question": "Where is the white rod on top of the lattice tower?",
        "options": ["left of the rocket", "right of the rocket"],
        "answer": "B",
        "target_boxes": [[440, 119, 457, 218]],
    },
    "saucer-text": {
        "picture": "pictures/coffee.jpg",
        "question": "What is written on the saucer?",
        "options": ["ESPRESSO", "ROBUSTA", "ARABICA"],
        "answer": "A",
        "target_boxes": [[119, 262, 199, 338]],
    },
    "spoon-wood": {
        "picture": "pictures/coffee.jpg",
        "question": "What is the bowl of the spoon made of?",
        "options": ["metal", "wood"],
        "answer": "A",
        "target_boxes": [[310, 190, 360, 260]],
    },
    "name-tag": {
        "picture": "pictures/astronaut.jpg",
        "question": "What shape is the name tag on the suit?",
        "options": ["round", "rectangular"],
        "answer": "B",
        "target_boxes": [[250, 300, 300, 330]],
    },
    "rocket-emblem": {
        "picture": "pictures/rocket.jpg",
        "question": "How many rockets are there?",
        "options": ["1", "2", "3"],
        "answer": "A",
        "target_boxes": [[300, 200, 330, 240], [350, 200, 380, 240]],
    },
}
METADATA: dict[str, dict[str, str]] = {
    "cat-eye": {
        "q_type": "color",
        "modified_object": "cat's eye on the left side of the picture",
        "prompt_clean": "There is a cat's eye on the left side of the picture that is green.",
        "prompt_adv": "There is a cat's eye on the left side of the picture that is blue.",
        "edit_ops": "alter_color",
        "edit_instruction": "Change the color of the cat's eye on the left side of the picture from green to blue.",
    },
    "rocket-rod": {
        "q_type": "location",
        "modified_object": "white rod on top of the lattice tower",
        "prompt_clean": "The white rod on top of the lattice tower is right of the rocket.",
        "prompt_adv": "No white rod on top of the lattice tower is present.",
        "edit_ops": "remove_object",
        "edit_instruction": "Remove the white rod on top of the lattice tower from the scene.",
    },
    "saucer-text": {
        "q_type": "ocr",
        "modified_object": "text 'ESPRESSO' on the saucer",
        "prompt_clean": "There is a text 'ESPRESSO' on the saucer.",
        "prompt_adv": "There is a text 'ROBUSTA' on the saucer.",
        "edit_ops": "text_flip",
        "edit_instruction": "Change the text on the saucer from 'ESPRESSO' to 'ROBUSTA'.",
    },
    "spoon-wood": {
        "q_type": "material",
        "modified_object": "bowl of the spoon",
        "prompt_clean": "A bowl of the spoon made of metal is shown.",
        "prompt_adv": "A bowl of the spoon made of wood is shown.",
        "edit_ops": "alter_material",
        "edit_instruction": "Change the material of the bowl of the spoon from metal to wood.",
    },
    "name-tag": {
        "q_type": "shape",
        "modified_object": "name tag on the suit",
        "prompt_clean": "A rectangular name tag on the suit is present.",
        "prompt_adv": "A round name tag on the suit is present.",
        "edit_ops": "alter_shape",
        "edit_instruction": "Change the shape of the name tag on the suit from rectangular to round.",
    },
    "rocket-emblem": {
        "q_type": "count",
        "modified_object": "rocket",
        "prompt_clean": "One can see 1 rocket.",
        "prompt_adv": "One can see 2 rockets.",
        "edit_ops": "add_object",
        "edit_instruction": "Change the count of rockets from 1 to 2.",
    },
}


def write_questions(folder: Path, *names: str, boxes: bool = True) -> Path:
    """Write a question set beside links to the demo's pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pictures").mkdir(exist_ok=True)
    for name in ("chelsea", "rocket", "coffee", "astronaut"):
        shutil.copy(DEMO / "pictures" / f"{name}.jpg", folder / "pictures")
    path = folder / "questions.jsonl"
    lines = []
    for name in names or QUESTIONS:
        row = {"id": name, **QUESTIONS[name]}
        if not boxes:
            del row["target_boxes"]
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def about(request: Request) -> str:
    """Return which question a request is about."""
    return next(name for name, row in QUESTIONS.items() if row["question"] in request.text)


def painted(data: bytes, scale: float = 1.0) -> bytes:
    """Return a picture a little brighter with a disc in its middle, at another size."""
    pixels = np.clip(decode(data, "sent").pixels.astype(np.float32) * 1.04 + 3, 0, 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    pixels = np.ascontiguousarray(pixels)
    cv2.circle(pixels, (width // 2, height // 2), min(height, width) // 12, (40, 90, 220), -1, cv2.LINE_AA)
    if scale != 1.0:
        pixels = np.asarray(cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)
    return encode(pixels)


def models(
    metadata: Callable[[str, Request], Reply] | None = None, edit: Callable[[Request], Reply] | None = None
) -> Callable[[Request], Reply]:
    """Return a script that writes metadata and paints; either may be another."""

    def script(request: Request) -> Reply:
        if request.images:
            return edit(request) if edit else picture(painted(request.images[0].data, 0.5), request)
        name = about(request)
        return metadata(name, request) if metadata else say(json.dumps(METADATA[name]))

    return script


def make(questions: Path, out: Path, server: Any, *more: str, editor: str = "openai:gpt-image-1") -> int:
    """Run the command against a scripted server."""
    url = server.openai_url if editor.startswith("openai") else server.gemini_url
    asked = ["--judge", "openai:gpt-4.1", "--base-url", server.openai_url, "--editor", editor, "--editor-url", url]
    return run(["make", "dlebench", str(questions), "--out", str(out), *asked, *more])


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a stage's file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
