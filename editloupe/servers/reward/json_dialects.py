"""Read and answer the JSON requests of training frameworks, based on what their clients send and expect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

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


DIALECTS = (
    Dialect("own", "/v1/judge", _read_own, _answer_own, schema=OwnRequest.model_json_schema()),
    Dialect("unirl", "/score", _read_unirl, _answer_unirl, schema=ScoreRequest.model_json_schema()),
    Dialect(
        "flow_factory", "/compute", _read_flow_factory, _answer_flow_factory, schema=ComputeRequest.model_json_schema()
    ),
    Dialect("openrlhf", "/get_reward", _read_openrlhf, _answer_openrlhf, schema=RewardRequest.model_json_schema()),
)
