"""The JSON that trainers send: one reader and one answer each, written from what their clients send and take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from editloupe._util.json_safe import storable
from editloupe.judge.edit_score import EditScore, outcome_facts
from editloupe.servers.reward.scoring import EditScorer
from editloupe.servers.reward.wire import (
    BadRequest,
    Dialect,
    Parsed,
    WireLimits,
    as_mapping,
    make_edit,
    read_json,
    reasons,
    texts_of,
)
from editloupe.types import Boxes, Edit, Record, Several

IDENTITY = ("request_id", "sample_id", "group_id", "source_rank", "policy_version", "idempotency_key")
"""What a UniRL client wants back with every item."""
OWN = "editloupe"
"""The metadata under which a trainer may say more of an edit: its type, its boxes, a hint."""


class Wire(BaseModel):
    """Part of a request; what a client sends beyond it is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Turn(Wire):
    """One turn of a UniRL history."""

    text: str = ""
    image_b64: str | None = None


class ScoreItem(Wire):
    """One sample of a UniRL request."""

    model_config = ConfigDict(extra="allow", frozen=True)
    history: Several[Turn]
    required_rewards: Several[str] = ()
    metadata: Mapping[str, Any] | None = None


class ScoreRequest(Wire):
    """UniRL's `POST /score`."""

    protocol_version: str | None = None
    requests: Several[ScoreItem]


def _read_unirl(body: bytes, limits: WireLimits) -> Parsed:
    asked = read_json(body, ScoreRequest, limits)
    if asked.protocol_version not in (None, "1"):
        raise BadRequest(f"this server speaks protocol_version 1, not {asked.protocol_version[:20]}")
    return Parsed([_unirl_edit(item, limits) for item in asked.requests], asked.requests)


def _unirl_edit(item: ScoreItem, limits: WireLimits) -> Edit | str:
    if len(item.history) < 2:
        return "an edit has two turns, the source and the edited picture; this history has no two"
    before, after = item.history[-2:]
    more = as_mapping((item.metadata or {}).get(OWN))
    return make_edit(limits, before.image_b64, after.image_b64, after.text or before.text, **texts_of(more))


def _answer_unirl(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    results: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for item, one in zip(parsed.told, scored, strict=True):
        found: dict[str, Any] = {}
        lacking: dict[str, str] = {}
        for name in item.required_rewards or (scorer.names[0],):
            if name not in scorer.names:
                lacking[name] = f"there is no such reward here; there are: {', '.join(scorer.names)}"
            elif (value := one.score if name == scorer.names[0] else one.criterion(name)) is None:
                lacking[name] = (one.why or "unjudged") if name == scorer.names[0] else one.why_not(name)
            else:
                found[name] = {"score": value}
        results.append(found)
        errors.append(lacking)
    identities = [
        {**{key: (item.model_extra or {}).get(key) for key in IDENTITY}, "scorer_version": scorer.version}
        for item in parsed.told
    ]
    return {"protocol_version": "1", "results": results, "errors": errors, "identities": identities}


class ComputeRequest(Wire):
    """Flow-Factory's `POST /compute`."""

    prompt: Several[str]
    image: Several[str] | None = None
    condition_images: Several[Several[str]] | None = None
    video: Any = None


def _read_flow_factory(body: bytes, limits: WireLimits) -> Parsed:
    asked = read_json(body, ComputeRequest, limits)
    if asked.video or asked.image is None:
        raise BadRequest("this server judges edits of pictures: `image` is needed, and `video` is not read")
    if asked.condition_images is None:
        raise BadRequest(
            "there are no `condition_images`: name them in the reward model's required_fields; the first of each "
            "sample is the source"
        )
    if not len(asked.prompt) == len(asked.image) == len(asked.condition_images):
        raise BadRequest(
            f"there are {len(asked.prompt)} prompts, {len(asked.image)} images and {len(asked.condition_images)} lists "
            "of condition images; every sample has one of each"
        )
    return Parsed(
        [
            make_edit(
                limits, given[0] if given else None, image, prompt, {"references": given[1:]} if given[1:] else None
            )
            for prompt, image, given in zip(asked.prompt, asked.image, asked.condition_images, strict=True)
        ]
    )


def _answer_flow_factory(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    left = [one for one in scored if one.score is None]
    told = {"error": f"{len(left)} of {len(scored)} edits were not judged: {left[0].why}"} if left else {}
    return {"rewards": [one.score for one in scored], **told}


class RewardRequest(Wire):
    """OpenRLHF's remote reward model."""

    query: Several[str]
    prompts: Several[str] | None = None
    labels: Several[Any] | None = None


_DATA_URL = re.compile(r"data:image/[a-z+.-]{1,20};base64,[A-Za-z0-9+/=]+")


def _read_openrlhf(body: bytes, limits: WireLimits) -> Parsed:
    asked = read_json(body, RewardRequest, limits)
    prompts = asked.prompts or ("",) * len(asked.query)
    labels = asked.labels or (None,) * len(asked.query)
    if not len(asked.query) == len(prompts) == len(labels):
        raise BadRequest(f"there are {len(asked.query)} queries, {len(prompts)} prompts and {len(labels)} labels")
    return Parsed([_openrlhf_edit(*one, limits) for one in zip(asked.query, prompts, labels, strict=True)])


def _openrlhf_edit(query: str, prompt: str, label: Any, limits: WireLimits) -> Edit | str:
    """The label holds the edit; what the policy wrote may hold the edited picture as a data URL, of which the last counts."""
    said = as_mapping(label)
    if "source" not in said:
        return "the label is no JSON object with a `source` picture in base64"
    response = query[len(prompt) :] if query.startswith(prompt) else query
    edited = said.get("edited") or next(reversed(_DATA_URL.findall(response)), None)
    return make_edit(limits, said["source"], edited, str(said.get("instruction") or prompt), **texts_of(said))


def _answer_openrlhf(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    logs = {name: [one.criterion(name) for one in scored] for name in scorer.judge.criteria}
    whole = {name: values for name, values in logs.items() if values and None not in values}
    rewards = [one.score for one in scored]
    return {"rewards": rewards, "scores": rewards, "extra_logs": whole, **reasons(scored)}


class OwnEdit(Record):
    """One edit; pictures are base64, with or without the head of a data URL."""

    id: str = ""
    """Comes back with the answer."""
    source: str
    edited: str
    instruction: str
    instruction_type: str | None = None
    target_boxes: Boxes = ()
    hint: str | None = None
    model: str | None = None
    images: Mapping[str, Several[str]] = {}
    """Pictures in further roles, such as reference or references."""
    extra: Mapping[str, Any] = {}
    """Further fields, for protocols that read them."""


class OwnRequest(Record):
    """Our own `POST /v1/judge`."""

    edits: Several[OwnEdit]


def _read_own(body: bytes, limits: WireLimits) -> Parsed:
    asked = read_json(body, OwnRequest, limits)
    items = []
    for one in asked.edits:
        texts = {name: value for name, value in texts_of(dict(one)).items() if value is not None}
        items.append(make_edit(limits, one.source, one.edited, one.instruction, one.images, one.id, **texts))
    return Parsed(items, [one.id for one in asked.edits])


def _answer_own(parsed: Parsed, scored: Sequence[EditScore], scorer: EditScorer) -> Any:
    names = [
        given or (item.id if isinstance(item, Edit) else "")
        for given, item in zip(parsed.told, parsed.items, strict=True)
    ]
    return {
        "scale": [0, 1],
        "scorer_version": scorer.version,
        "results": [
            {
                "id": name,
                "status": "unjudged" if one.score is None else "judged",
                "score": one.score,
                "why": one.why,
                "known": one.known,
                "verdicts": [storable(outcome_facts(outcome)) for outcome in one.verdicts],
                "usage": one.usage.model_dump(),
            }
            for name, one in zip(names, scored, strict=True)
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
