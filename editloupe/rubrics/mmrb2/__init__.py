"""The image editing split of Multimodal RewardBench 2 (MMRB2), pairs with the labels of three people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from editloupe.rubrics.pairs import ROW, PairRow, PairRules
from editloupe.rubrics.paper import Paper
from editloupe.rubrics.preference_sets import (
    OVERALL,
    build_preference_protocol,
    find_sides,
    read_several,
    read_text_field,
    row_error,
)
from editloupe.rubrics.rubric_files import load_bundled_yaml

__all__ = ["PAPER"]


def read_pair(row: PairRow) -> Iterator[PairRow]:
    """Yield the pair of one element of `pairs` in `edit.json`."""
    where, item = row
    sides = find_sides(where, item, "chosen", "A", "B", None)
    labels = item.get("human_annotations")
    if labels is not None and not _are_labels(labels):
        raise row_error(where, f'"human_annotations" must be whole numbers from 1 to 7, not {labels}')
    texts, pictures = _split(where, "prompt_content", item.get("prompt_content"))
    if not texts or not pictures:
        raise row_error(where, '"prompt_content" must have a text and a picture')
    outputs, models = {}, {}
    for letter in ("a", "b"):
        response = item.get(f"response_{letter}")
        if not isinstance(response, Mapping):
            raise row_error(where, f'"response_{letter}" must be an object with "response_content"')
        _, own = _split(where, f"response_{letter}", response.get("response_content"))
        if len(own) != 1:
            raise row_error(where, f'"response_{letter}" must have one picture; it has {len(own)}')
        outputs[letter] = own[0]
        models[letter] = str(response.get("model_name") or response.get("model") or "")
    won, lost = ("a", "b") if sides["first"] == "winner" else ("b", "a")
    yield (
        where,
        {
            "id": read_text_field(where, item, "id", "pair_id"),
            "source_image": pictures[0],
            "reference_image_path": pictures[1:],
            "prompt": "\n".join(texts),
            "winner": outputs[won],
            "loser": outputs[lost],
            "dimension": "overall",
            "models": (models[won], models[lost]) if all(models.values()) else None,
            **({"human_annotations": list(labels)} if labels else {}),
            **sides,
        },
    )


def _are_labels(labels: Any) -> bool:
    return isinstance(labels, list) and all(
        isinstance(label, int) and not isinstance(label, bool) and 1 <= label <= 7 for label in labels
    )


def _split(where: str, name: str, content: Any) -> tuple[list[str], list[str]]:
    """Return the texts and the pictures of a list of [kind, value]."""
    parts = [read_several(where, {name: part}, name, 2) for part in content] if isinstance(content, list) else []
    wrong = next((part for part in parts if part[0] not in ("text", "image") or not isinstance(part[1], str)), None)
    if not parts or wrong is not None:
        raise row_error(where, f'"{name}" must be a list of ["text", …] and ["image", …]')
    texts = [text.strip() for kind, text in parts if kind == "text" and text.strip()]
    return texts, [path for kind, path in parts if kind == "image"]


def read_verdicts(row: PairRow) -> Iterator[PairRow]:
    """Yield the first verdict of each order of one pair of a file of predictions."""
    where, item = row
    verdicts = {}
    for name in ("forward", "reverse"):
        entries = item.get(name) or []
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise row_error(where, f'"{name}" must be a list of objects with "judgement"')
        verdicts[name] = entries[0].get("judgement") if entries else None
    yield where, {"pair": item[ROW], **verdicts}


PAPER = Paper(
    build_preference_protocol(
        name="mmrb2",
        title="MMRB2",
        source="Hu et al., Multimodal RewardBench 2: Evaluating Omni Reward Models for Interleaved Text and Image (2512.16899)",
        arithmetic=(
            "Both orders of a pair are asked, and the verdict of each counts for itself: accuracy is the share of right "
            "verdicts among those that exist. A tie is a wrong verdict. Two further shares are ours: pairs right in both orders, "
            "and pairs with the same choice in both, of those with two verdicts."
        ),
        aspects={"overall": OVERALL},
        rules=PairRules(
            {"overall": OVERALL.pair},
            orders="each",
            table="MMRB2, image editing: share of right verdicts",
            titles={"overall": "accuracy"},
            container="pairs",
            rows=read_pair,
            results=read_verdicts,
            kept=("human_annotations",),
            published=load_bundled_yaml(files(__package__) / "published.yaml"),
            published_columns=("accuracy",),
        ),
    )
)
