"""Read and answer the pickled requests of training frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from editloupe.judge.edit_score import EditScore
from editloupe.servers.reward.requests import (
    BadRequest,
    Dialect,
    ParsedRequest,
    RequestLimits,
    as_mapping,
    list_errors,
    make_edit,
    pick_texts,
)
from editloupe.servers.reward.scoring import EditScorer
from editloupe.servers.reward.unpickling import NotData
from editloupe.servers.reward.unpickling_process import unpickle_in_process

MODES = ("logits_non_cot", "score_continue")
"""Edit-R1's names for two ways of asking its own model; here they are the same."""


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        content = unpickle_in_process(body)
    except NotData as error:
        raise BadRequest(str(error)) from None
    if not isinstance(content, dict):
        raise BadRequest("the pickle holds no dictionary")
    return content


def _read_list(data: Mapping[str, Any], name: str) -> list[Any]:
    values = data.get(name)
    if isinstance(values, np.ndarray):
        return [str(item) if values.dtype.kind in "US" else item for item in values]
    if not isinstance(values, list):
        raise BadRequest(f"the pickle has no list called {name}")
    return values


def _read_text(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        raise BadRequest(f"an instruction or hint is a text, not {type(value).__name__}")
    return str(value)


def _check_same_length(**lists: list[Any]) -> None:
    if len({len(values) for values in lists.values()}) > 1:
        raise BadRequest("there are " + " and ".join(f"{len(values)} {name}" for name, values in lists.items()))


def _read_edit_r1(body: bytes, limits: RequestLimits) -> ParsedRequest:
    """Pictures as encoded bytes, under `ref_images` and `images`; a metadata's requirement is taken for a hint."""
    data = _read(body)
    sources, edited, prompts = (_read_list(data, name) for name in ("ref_images", "images", "prompts"))
    metadata = data.get("metadatas") or [{}] * len(prompts)
    _check_same_length(images=edited, ref_images=sources, prompts=prompts, metadatas=list(metadata))
    limits.check(len(prompts))
    items = []
    for before, after, prompt, more in zip(sources, edited, prompts, metadata, strict=True):
        fields = as_mapping(more)
        hint = {"hint": _read_text(fields["requirement"])} if fields.get("requirement") else {}
        items.append(
            make_edit(
                limits, before, after, _read_text(prompt), **{**hint, **pick_texts(as_mapping(fields.get("editloupe")))}
            )
        )
    return ParsedRequest(items)


def _answer_edit_r1(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    return {"scores": scorer.rewards(scored), **list_errors(scored)}


def _read_root(body: bytes, limits: RequestLimits) -> ParsedRequest:
    """Two trainers send to the root: EditScore's has `input_images`, flow_grpo's `images`."""
    data = _read(body)
    return _read_editscore(data, limits) if "input_images" in data else _read_flow_grpo(data, limits)


def _read_flow_grpo(data: Mapping[str, Any], limits: RequestLimits) -> ParsedRequest:
    if "ref_images" not in data:
        raise BadRequest("there are no ref_images: an edit is judged against its source, so the request must hold them")
    sources, edited, prompts = (_read_list(data, name) for name in ("ref_images", "images", "prompts"))
    _check_same_length(images=edited, ref_images=sources, prompts=prompts)
    limits.check(len(prompts))
    return ParsedRequest(
        [make_edit(limits, *row) for row in zip(sources, edited, map(_read_text, prompts), strict=True)], "flow_grpo"
    )


def _read_editscore(data: Mapping[str, Any], limits: RequestLimits) -> ParsedRequest:
    sources, edited, metadata = (_read_list(data, name) for name in ("input_images", "output_image", "meta_datas"))
    _check_same_length(output_image=edited, input_images=sources, meta_datas=metadata)
    limits.check(len(edited))
    items = []
    for before, after, more in zip(sources, edited, metadata, strict=True):
        fields = as_mapping(more)
        inputs = before if isinstance(before, list) else [before]
        further = {"references": inputs[1:]} if inputs[1:] else None
        source = inputs[0] if inputs else None
        items.append(
            make_edit(limits, source, after, _read_text(fields.get("instruction") or ""), further, **pick_texts(fields))
        )
    return ParsedRequest(items, [dict(as_mapping(more)) for more in metadata])


def _answer_root(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    scores = scorer.rewards(scored)
    if parsed.context == "flow_grpo":
        return {"outputs": scores, **list_errors(scored)}
    errors = [{} if edit_score.why is None else {"error": edit_score.why} for edit_score in scored]
    return {
        "scores": scores,
        "rewards": scores,
        "strict_rewards": scores,
        "reasoning": [
            " ".join(filter(None, (getattr(v, "rationale", "") for v in edit_score.verdicts))) for edit_score in scored
        ],
        "meta_data": [
            {**form, "original_index": index, **error}
            for index, (form, error) in enumerate(zip(parsed.context, errors, strict=True))
        ],
    }


DIALECTS = (
    *(Dialect("edit_r1", f"/mode/{mode}", _read_edit_r1, _answer_edit_r1, pickled=True) for mode in MODES),
    Dialect("pickled", "/", _read_root, _answer_root, pickled=True),
)
