"""Read and answer the requests of training frameworks, as JSON or pickled, based on what their clients send and expect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from editloupe._util.json_safe import sanitize
from editloupe.judge.edit_score import EditScore, outcome_facts
from editloupe.servers.reward.requests import (
    BadRequest,
    Dialect,
    ParsedRequest,
    RequestLimits,
    as_mapping,
    list_errors,
    make_edit,
    pick_texts,
    read_json,
)
from editloupe.servers.reward.scoring import EditScorer
from editloupe.servers.reward.unpickling import NotData, unpickle_in_process
from editloupe.types import Boxes, Edit, FailFastTuple, Record

IDENTITY = ("request_id", "sample_id", "group_id", "source_rank", "policy_version", "idempotency_key")
"""Fields that a UniRL client expects back with every item."""
OWN = "editloupe"
"""Metadata key for further fields of an edit, such as type, boxes and hint."""


class RequestPart(BaseModel):
    """Part of a request. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class HistoryTurn(RequestPart):
    """One turn of a UniRL history."""

    text: str = ""
    image_b64: str | None = None


class ScoreItem(RequestPart):
    """One sample of a UniRL request."""

    model_config = ConfigDict(extra="allow", frozen=True)
    history: FailFastTuple[HistoryTurn]
    required_rewards: FailFastTuple[str] = ()
    metadata: Mapping[str, Any] | None = None


class ScoreRequest(RequestPart):
    """UniRL's `POST /score`."""

    protocol_version: str | None = None
    requests: FailFastTuple[ScoreItem]


def _read_unirl(body: bytes, limits: RequestLimits) -> ParsedRequest:
    request = read_json(body, ScoreRequest, limits)
    if request.protocol_version not in (None, "1"):
        raise BadRequest(f"this server speaks protocol_version 1, not {request.protocol_version[:20]}")
    return ParsedRequest([_unirl_edit(item, limits) for item in request.requests], request.requests)


def _unirl_edit(item: ScoreItem, limits: RequestLimits) -> Edit | str:
    if len(item.history) < 2:
        return "an edit has two turns, the source and the edited picture; this history has fewer"
    before, after = item.history[-2:]
    more = as_mapping((item.metadata or {}).get(OWN))
    return make_edit(limits, before.image_b64, after.image_b64, after.text or before.text, **pick_texts(more))


def _answer_unirl(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    results: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for item, edit_score in zip(parsed.context, scored, strict=True):
        rewards: dict[str, Any] = {}
        lacking: dict[str, str] = {}
        for name in item.required_rewards or (scorer.names[0],):
            if name not in scorer.names:
                lacking[name] = f"there is no such reward here; there are: {', '.join(scorer.names)}"
            elif (value := edit_score.score if name == scorer.names[0] else edit_score.criterion(name)) is None:
                lacking[name] = (edit_score.why or "unjudged") if name == scorer.names[0] else edit_score.why_not(name)
            else:
                rewards[name] = {"score": value}
        results.append(rewards)
        errors.append(lacking)
    identities = [
        {**{key: sanitize((item.model_extra or {}).get(key)) for key in IDENTITY}, "scorer_version": scorer.version}
        for item in parsed.context
    ]
    return {"protocol_version": "1", "results": results, "errors": errors, "identities": identities}


class ComputeRequest(RequestPart):
    """Flow-Factory's `POST /compute`."""

    prompt: FailFastTuple[str]
    image: FailFastTuple[str] | None = None
    condition_images: FailFastTuple[FailFastTuple[str]] | None = None
    video: Any = None


def _read_flow_factory(body: bytes, limits: RequestLimits) -> ParsedRequest:
    request = read_json(body, ComputeRequest, limits)
    if request.video or request.image is None:
        raise BadRequest("this server judges edits of pictures: `image` is needed, and `video` is not read")
    if request.condition_images is None:
        raise BadRequest(
            "there are no `condition_images`: name them in the reward model's required_fields; the first of each "
            "sample is the source"
        )
    if not len(request.prompt) == len(request.image) == len(request.condition_images):
        raise BadRequest(
            f"there are {len(request.prompt)} prompts, {len(request.image)} images and {len(request.condition_images)} lists "
            "of condition images; every sample has one of each"
        )
    return ParsedRequest(
        [
            make_edit(
                limits,
                conditions[0] if conditions else None,
                image,
                prompt,
                {"references": conditions[1:]} if conditions[1:] else None,
            )
            for prompt, image, conditions in zip(request.prompt, request.image, request.condition_images, strict=True)
        ]
    )


def _answer_flow_factory(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    unscored = [edit_score for edit_score in scored if edit_score.score is None]
    if unscored and scorer.settings.unjudged is None:  # its client raises at `error`
        error = {"error": f"{len(unscored)} of {len(scored)} edits were not judged: {unscored[0].why}"}
    else:
        error = list_errors(scored)
    return {"rewards": scorer.rewards(scored), **error}


class RewardRequest(RequestPart):
    """OpenRLHF's remote reward model."""

    query: FailFastTuple[str]
    prompts: FailFastTuple[str] | None = None
    labels: FailFastTuple[Any] | None = None


_DATA_URL = re.compile(r"data:image/[a-z+.-]{1,20};base64,[A-Za-z0-9+/=]+")


def _read_openrlhf(body: bytes, limits: RequestLimits) -> ParsedRequest:
    request = read_json(body, RewardRequest, limits)
    prompts = request.prompts or ("",) * len(request.query)
    labels = request.labels or (None,) * len(request.query)
    if not len(request.query) == len(prompts) == len(labels):
        raise BadRequest(f"there are {len(request.query)} queries, {len(prompts)} prompts and {len(labels)} labels")
    return ParsedRequest([_openrlhf_edit(*row, limits) for row in zip(request.query, prompts, labels, strict=True)])


def _openrlhf_edit(query: str, prompt: str, label: Any, limits: RequestLimits) -> Edit | str:
    """Build the edit from the label; the edited picture may be the last data URL in the policy's output."""
    fields = as_mapping(label)
    if "source" not in fields:
        return "the label is not a JSON object with a `source` picture in base64"
    response = query[len(prompt) :] if query.startswith(prompt) else query
    edited = fields.get("edited") or next(reversed(_DATA_URL.findall(response)), None)
    return make_edit(limits, fields["source"], edited, str(fields.get("instruction") or prompt), **pick_texts(fields))


def _answer_openrlhf(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    logs = {name: [edit_score.criterion(name) for edit_score in scored] for name in scorer.judge.criteria}
    complete = {name: values for name, values in logs.items() if values and None not in values}
    rewards = scorer.rewards(scored)
    return {"rewards": rewards, "scores": rewards, "extra_logs": complete, **list_errors(scored)}


class OwnEdit(Record):
    """One edit; pictures are base64, with or without the head of a data URL."""

    id: str = ""
    """Returned with the answer."""
    source: str
    edited: str
    instruction: str
    instruction_type: str | None = None
    target_boxes: Boxes = ()
    hint: str | None = None
    model: str | None = None
    images: Mapping[str, FailFastTuple[str]] = {}
    """Pictures in further roles, such as reference or references."""
    extra: Mapping[str, Any] = {}
    """Further fields, for protocols that read them."""


class OwnRequest(Record):
    """Our own `POST /v1/judge`."""

    edits: FailFastTuple[OwnEdit]


def _read_own(body: bytes, limits: RequestLimits) -> ParsedRequest:
    request = read_json(body, OwnRequest, limits)
    items = []
    for item in request.edits:
        texts = {name: value for name, value in pick_texts(dict(item)).items() if value is not None}
        items.append(make_edit(limits, item.source, item.edited, item.instruction, item.images, item.id, **texts))
    return ParsedRequest(items, [item.id for item in request.edits])


def _answer_own(parsed: ParsedRequest, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    names = [
        own_id or (item.id if isinstance(item, Edit) else "")
        for own_id, item in zip(parsed.context, parsed.items, strict=True)
    ]
    return {
        "scale": [0, 1],
        "scorer_version": scorer.version,
        "results": [
            {
                "id": name,
                "status": "unjudged" if edit_score.score is None else "judged",
                "score": edit_score.score,
                "why": edit_score.why,
                "known": edit_score.known,
                "verdicts": [sanitize(outcome_facts(outcome)) for outcome in edit_score.verdicts],
                "usage": edit_score.usage.model_dump(),
            }
            for name, edit_score in zip(names, scored, strict=True)
        ],
    }


JSON_DIALECTS = (
    Dialect("own", "/v1/judge", _read_own, _answer_own, schema=OwnRequest.model_json_schema()),
    Dialect("unirl", "/score", _read_unirl, _answer_unirl, schema=ScoreRequest.model_json_schema()),
    Dialect(
        "flow_factory", "/compute", _read_flow_factory, _answer_flow_factory, schema=ComputeRequest.model_json_schema()
    ),
    Dialect("openrlhf", "/get_reward", _read_openrlhf, _answer_openrlhf, schema=RewardRequest.model_json_schema()),
)


MODES = ("logits_non_cot", "score_continue")
"""Edit-R1's names for two ways of asking its own model; here they are the same."""


def _read_pickle(body: bytes) -> Mapping[str, Any]:
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
    data = _read_pickle(body)
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
    data = _read_pickle(body)
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


PICKLE_DIALECTS = (
    *(Dialect("edit_r1", f"/mode/{mode}", _read_edit_r1, _answer_edit_r1, pickled=True) for mode in MODES),
    Dialect("pickled", "/", _read_root, _answer_root, pickled=True),
)
DIALECTS = (*JSON_DIALECTS, *PICKLE_DIALECTS)
