"""Make a benchmark from six questions about the demo's photographs, from the questions to the manifest.

Run it: python examples/make_benchmark.py bench

A small server in this file plays both models, so no key is needed and nothing is paid. One model writes the planned metadata
for each question, the other paints. With real models, leave out the server and the two addresses.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cv2
import numpy as np

from editloupe.cli.main import run
from editloupe.demo import demo_manifest
from editloupe.making import MakingFolder, review
from editloupe.pictures.decode import decode
from editloupe.pictures.encode import encode

PICTURES = demo_manifest().parent / "pictures"
PLANNED = [
    # picture, question, options (the first is right), boxes, then the six keys of the metadata
    (
        "chelsea.jpg",
        "What is the color of the cat's eye on the left side of the picture?",
        ["green", "blue"],
        [[138, 86, 205, 146]],
        {
            "q_type": "color",
            "prompt_clean": "The cat's eye on the left side of the picture is green.",
            "prompt_adv": "The cat's eye on the left side of the picture is blue.",
            "edit_ops": "alter_color",
            "edit_instruction": "Change the color of the cat's eye on the left side of the picture from green to blue.",
            "modified_object": "cat's eye on the left side of the picture",
        },
    ),
    (
        "rocket.jpg",
        "Where is the white rod on the lattice tower?",
        ["right of the rocket", "left of the rocket"],
        [[440, 119, 457, 218]],
        {
            "q_type": "location",
            "prompt_clean": "The white rod on the lattice tower is right of the rocket.",
            "prompt_adv": "No white rod on the lattice tower is present.",
            "edit_ops": "remove_object",
            "edit_instruction": "Remove the white rod on the lattice tower right of the rocket from the scene.",
            "modified_object": "white rod on the lattice tower",
        },
    ),
    (
        "coffee.jpg",
        "What is written on the saucer?",
        ["ESPRESSO", "ROBUSTA"],
        [[119, 262, 199, 338]],
        {
            "q_type": "ocr",
            "prompt_clean": "There is a text 'ESPRESSO' on the saucer.",
            "prompt_adv": "There is a text 'ROBUSTA' on the saucer.",
            "edit_ops": "text_flip",
            "edit_instruction": "Change the text on the saucer from 'ESPRESSO' to 'ROBUSTA'.",
            "modified_object": "text 'ESPRESSO' on the saucer",
        },
    ),
    (
        "coffee.jpg",
        "What is the bowl of the spoon made of?",
        ["metal", "wood"],
        [[325, 233, 408, 327]],
        {
            "q_type": "material",
            "prompt_clean": "A bowl of the spoon made of metal is shown.",
            "prompt_adv": "A bowl of the spoon made of wood is shown.",
            "edit_ops": "alter_material",
            "edit_instruction": "Change the material of the bowl of the spoon from metal to wood.",
            "modified_object": "bowl of the spoon",
        },
    ),
    (
        "astronaut.jpg",
        "What is the color of the name tag with the wings?",
        ["dark blue", "green"],
        [[277, 337, 331, 380]],
        {
            "q_type": "color",
            "prompt_clean": "The name tag with the wings is dark blue.",
            "prompt_adv": "The name tag with the wings is green.",
            "edit_ops": "alter_color",
            "edit_instruction": "Change the color of the name tag with the wings from dark blue to green.",
            "modified_object": "name tag with the wings",
        },
    ),
    (
        "rocket.jpg",
        "What is on the nose cone of the rocket?",
        ["an oval emblem", "a red star"],
        [[312, 141, 333, 158]],
        {
            "q_type": "object",
            "prompt_clean": "There is an oval emblem on the nose cone of the rocket.",
            "prompt_adv": "There is a red star on the nose cone of the rocket.",
            "edit_ops": "replace_object",
            "edit_instruction": "Replace the oval emblem on the nose cone of the rocket with a red star.",
            "modified_object": "oval emblem on the nose cone of the rocket",
        },
    ),
]


class Models(BaseHTTPRequestHandler):
    """Play a chat model that knows the plan and an image editor that paints the middle of a picture."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/images/edits"):
            png = re.search(rb"\x89PNG.*IEND\xaeB`\x82", body, re.DOTALL)
            assert png is not None
            answer = {"created": 1, "data": [{"b64_json": base64.b64encode(paint_middle(png[0])).decode()}]}
        else:
            text = json.dumps(json.loads(body)["messages"], ensure_ascii=False)
            facts = next(facts for _, question, _, _, facts in PLANNED if question in text)
            message = {"role": "assistant", "content": json.dumps(facts)}
            usage = {"prompt_tokens": 700, "completion_tokens": 120, "total_tokens": 820}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "played",
                "choices": [choice],
                "usage": usage,
            }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def paint_middle(png: bytes) -> bytes:
    """Change the colors in the middle of a picture, and its tone a little, as real editors do."""
    pixels = decode(png, "a crop").pixels.astype(np.float32)
    height, width = pixels.shape[:2]
    spot = np.zeros((height, width), np.float32)
    cv2.ellipse(spot, (width // 2, height // 2), (width // 14, height // 14), 0, 0, 360, 1, -1, cv2.LINE_AA)
    turned = pixels[..., ::-1] * 0.8 + 30
    mixed = pixels + spot[..., None] * (turned - pixels)
    return encode(np.clip(mixed * 1.03 + 2, 0, 255).astype(np.uint8))


def write_questions(folder: Path) -> Path:
    """Write the question set and copies of its pictures into a folder."""
    rows = []
    for number, (picture, question, options, boxes, _) in enumerate(PLANNED, start=1):
        shutil.copy(PICTURES / picture, folder)
        rows.append(
            {
                "id": f"q{number}",
                "picture": picture,
                "question": question,
                "options": options,
                "answer": "A",
                "target_boxes": boxes,
            }
        )
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def main(out: Path) -> None:
    """Make the samples, review them as people do in the studio, and write the manifest."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    with tempfile.TemporaryDirectory() as folder:
        questions = write_questions(Path(folder))
        models = ["--judge", "openai:gpt-5.1", "--base-url", url, "--editor", "openai:gpt-image-1", "--editor-url", url]
        command = [
            "make",
            "dlebench",
            str(questions),
            "--out",
            str(out),
            "--licence",
            "see the demo's LICENSES.md",
            "-q",
            *models,
        ]
        assert run(command) == 0
        samples = MakingFolder(out)
        for sample in list(samples.samples()):
            if sample.step == "review":
                review(samples, sample.id, "me", "accept", {"box": True, "metadata": True, "reference": True})
        assert run(command) == 0
    server.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
