"""The pickles that some trainers send, read only where the server was told to: Edit-R1, flow_grpo and EditScore's proxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from editloupe.judge.edit_score import EditScore
from editloupe.servers.reward.scoring import EditScorer
from editloupe.servers.reward.unpickling import NotData, unpickled
from editloupe.servers.reward.wire import (
    BadRequest,
    Dialect,
    Parsed,
    WireLimits,
    as_mapping,
    make_edit,
    reasons,
    texts_of,
)

MODES = ("logits_non_cot", "score_continue")
"""Edit-R1's names for two ways of asking its own model; here they are the same."""


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        found = unpickled(body)
    except NotData as error:
        raise BadRequest(str(error)) from None
    if not isinstance(found, dict):
        raise BadRequest("the pickle holds no dictionary")
    return found


def _listed(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if isinstance(found, np.ndarray):
        return [str(item) if found.dtype.kind in "US" else item for item in found]
    if not isinstance(found, list):
        raise BadRequest(f"the pickle has no list called {name}")
    return found


def _same_length(**lists: list[Any]) -> None:
    if len({len(one) for one in lists.values()}) > 1:
        raise BadRequest("there are " + " and ".join(f"{len(one)} {name}" for name, one in lists.items()))


def _read_edit_r1(body: bytes, limits: WireLimits) -> Parsed:
    """Pictures as encoded bytes, under `ref_images` and `images`; a metadata's requirement is taken for a hint."""
    data = _read(body)
    sources, edited, prompts = (_listed(data, name) for name in ("ref_images", "images", "prompts"))
    metadata = data.get("metadatas") or [{}] * len(prompts)
    _same_length(images=edited, ref_images=sources, prompts=prompts, metadatas=list(metadata))
    limits.check(len(prompts))
    items = []
    for before, after, prompt, more in zip(sources, edited, prompts, metadata, strict=True):
        said = as_mapping(more)
        hint = {"hint": str(said["requirement"])} if said.get("requirement") else {}
        items.append(
            make_edit(limits, before, after, str(prompt), **{**hint, **texts_of(as_mapping(said.get("editloupe")))})
        )
    return Parsed(items)


def _answer_edit_r1(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    return {"scores": [one.score for one in scored], **reasons(scored)}


def _read_root(body: bytes, limits: WireLimits) -> Parsed:
    """Two trainers send to the root: EditScore's has `input_images`, flow_grpo's `images`."""
    data = _read(body)
    return _read_editscore(data, limits) if "input_images" in data else _read_flow_grpo(data, limits)


def _read_flow_grpo(data: Mapping[str, Any], limits: WireLimits) -> Parsed:
    if "ref_images" not in data:
        raise BadRequest("there are no ref_images: an edit is judged against its source, so the request must hold them")
    sources, edited, prompts = (_listed(data, name) for name in ("ref_images", "images", "prompts"))
    _same_length(images=edited, ref_images=sources, prompts=prompts)
    limits.check(len(prompts))
    return Parsed(
        [make_edit(limits, *one) for one in zip(sources, edited, map(str, prompts), strict=True)], "flow_grpo"
    )


def _read_editscore(data: Mapping[str, Any], limits: WireLimits) -> Parsed:
    sources, edited, metadata = (_listed(data, name) for name in ("input_images", "output_image", "meta_datas"))
    _same_length(output_image=edited, input_images=sources, meta_datas=metadata)
    limits.check(len(edited))
    items = []
    for before, after, more in zip(sources, edited, metadata, strict=True):
        said = as_mapping(more)
        given = before if isinstance(before, list) else [before]
        further = {"references": given[1:]} if given[1:] else None
        source = given[0] if given else None
        items.append(make_edit(limits, source, after, str(said.get("instruction") or ""), further, **texts_of(said)))
    return Parsed(items, [dict(as_mapping(more)) for more in metadata])


def _answer_root(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    scores = [one.score for one in scored]
    if parsed.told == "flow_grpo":
        return {"outputs": scores, **reasons(scored)}
    errors = [{} if one.why is None else {"error": one.why} for one in scored]
    return {
        "scores": scores,
        "rewards": scores,
        "strict_rewards": scores,
        "reasoning": [" ".join(filter(None, (getattr(v, "rationale", "") for v in one.verdicts))) for one in scored],
        "meta_data": [
            {**said, "original_index": place, **error}
            for place, (said, error) in enumerate(zip(parsed.told, errors, strict=True))
        ],
    }


DIALECTS = (
    *(Dialect("edit_r1", f"/mode/{mode}", _read_edit_r1, _answer_edit_r1, pickled=True) for mode in MODES),
    Dialect("pickled", "/", _read_root, _answer_root, pickled=True),
)
