"""Chains of instructions: which type comes next, on which objects, and what is left for a proposal to fill in.

Chance decides what the paper leaves to chance, from a seed; a proposal (by a model that sees the picture, or drawn from
lists) fills in the rest and is checked here, so that a chain never asks for something its pools do not hold.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe.rubrics.edival.pools import Pools, update_pools
from editloupe.rubrics.edival.rules import Hit, is_related
from editloupe.rubrics.edival.scene import SceneObject
from editloupe.rubrics.edival.settings import EdivalSettings
from editloupe.rubrics.edival.tasks import CJK, POSITIONS, TYPES, Form, Position, Task, TaskType, join_names, texts

Connector = Literal["plain", "shuffled", "ordered", "keep"]
CONNECTORS: tuple[Connector, ...] = get_args(Connector)
_WORD = re.compile(r"^[\w'’-]+( [\w'’-]+){0,3}$")


class BadProposal(ValueError):
    """A proposal that cannot be used; the sentence goes back to whoever made it."""


@dataclass(frozen=True)
class Plan:
    """One turn as far as chance has decided it."""

    type: TaskType
    object: SceneObject | None = None
    reference: str | None = None
    position: Position | None = None
    count: int | None = None
    keys: tuple[str, ...] = ()
    """What a proposal must name."""


def is_feasible(kind: TaskType, pools: Pools) -> bool:
    """Whether an instruction of this type can be made from what is available."""
    if kind in ("subject_add", "text_change", "background_change"):
        return True
    return len(pools.available) >= (2 if kind == "position_change" else 1)


def draw_next_type(pools: Pools, used: Collection[TaskType], chance: random.Random) -> TaskType:
    """Return the type of the next turn: one not used yet, subject_add where it cannot be done or nothing is available.

    Once all nine are used they all count as unused again.
    """
    if not pools.available:
        return "subject_add"
    open_types = [kind for kind in TYPES if kind not in used] or list(TYPES)
    kind = chance.choice(open_types)
    return kind if is_feasible(kind, pools) else "subject_add"


def plan_task(kind: TaskType, pools: Pools, settings: EdivalSettings, chance: random.Random) -> Plan:
    """Decide by chance what the paper decides by chance: the object, the reference and its side, the count."""
    match kind:
        case "subject_add":
            if not pools.available:
                return Plan(kind, keys=("new_object",))
            reference = chance.choice(pools.available).name
            return Plan(kind, reference=reference, position=chance.choice(POSITIONS), keys=("new_object",))
        case "subject_remove":
            return Plan(kind, chance.choice(pools.available))
        case "subject_replace":
            return Plan(kind, chance.choice(pools.available), keys=("new_object",))
        case "color_alter":
            return Plan(kind, chance.choice(pools.available), keys=("color",))
        case "material_alter":
            return Plan(kind, chance.choice(pools.available), keys=("material",))
        case "text_change":
            written = [item for item in pools.available if item.text]
            return Plan(kind, chance.choice(written) if written else None, keys=("text",))
        case "position_change":
            return Plan(kind, keys=("object", "reference", "position"))
        case "count_change":
            # A count that every object has already would leave nothing to ask for.
            counts = [n for n in range(1, settings.max_count + 1) if any(item.count != n for item in pools.available)]
            return Plan(kind, count=chance.choice(counts), keys=("object",))
    return Plan("background_change", keys=("background",))


def complete_task(plan: Plan, proposal: Mapping[str, Any], pools: Pools, boxes: Mapping[str, Sequence[Hit]]) -> Task:
    """Return the task a plan and a proposal make; raises BadProposal with one sentence where they make none.

    `boxes` are those of the base picture: a place that an untouched object has already is no change.
    """
    given = {key: _value(key, proposal) for key in plan.keys}
    own = {"object": plan.object.name} if plan.object else {}
    chosen = {"reference": plan.reference, "position": plan.position, "count": plan.count}
    values: dict[str, Any] = {**own, **{k: v for k, v in chosen.items() if v is not None}, **given}
    if plan.type == "text_change" and plan.object:
        values["old_text"] = plan.object.text
    if plan.type == "background_change":
        values["unchanged"] = tuple(item.name for item in pools.available if item.foreground)
    _check(plan, values, pools, boxes)
    try:
        task = Task(type=plan.type, **values)
        update_pools(pools, task)
    except ValidationError as error:
        raise BadProposal(f"{first_error(error).message}.") from None
    except (KeyError, ValueError) as error:
        raise BadProposal(f"{error.args[0]}.") from None
    return task


def draw_task(plan: Plan, pools: Pools, boxes: Mapping[str, Sequence[Hit]], chance: random.Random) -> Task:
    """Return the task with its proposal drawn from the lists of texts.yaml, for chains made without a model.

    Raises BadProposal where no entry of the lists will do.
    """
    lists: dict[str, list[str]] = texts()["lists"]
    names = [item.name for item in pools.available]
    choices: dict[str, Sequence[str]] = {
        "new_object": lists["objects"],
        "color": lists["colors"],
        "material": lists["materials"],
        "text": lists["texts"],
        "background": lists["backgrounds"],
        "object": names,
        "reference": names,
        "position": POSITIONS,
    }
    last = BadProposal("nothing needs to be proposed.")
    for _ in range(200 if plan.keys else 1):
        try:
            return complete_task(plan, {key: chance.choice(choices[key]) for key in plan.keys}, pools, boxes)
        except BadProposal as problem:
            last = problem
    raise last


def compress_instructions(
    instructions: Sequence[str],
    unchanged: Sequence[str],
    connector: Connector,
    chance: random.Random,
    form: Form = "ours",
) -> str:
    """Return several instructions as one prompt (Sections 3.4 and 3.6), in our words or in the paper's.

    >>> compress_instructions(["Do this.", "Do that."], ["cup"], "ordered", random.Random(0))
    'First: do this. Last: do that.'
    >>> compress_instructions(["Do this", "Do that"], ["cup"], "keep", random.Random(0), "paper")
    'Do this. Do that. Keep cup unchanged.'
    """
    words = texts(form)["connector_words"]
    sentences = list(instructions)
    if connector == "shuffled":
        chance.shuffle(sentences)
    if form == "paper":
        return _joined_as_published(sentences, unchanged, connector, words)
    if connector == "ordered" and len(sentences) > 1:
        marks = [words["first"], *[words["then"]] * (len(sentences) - 2), words["last"]]
        sentences = [f"{mark}: {s[:1].lower()}{s[1:]}" for mark, s in zip(marks, sentences, strict=True)]
    if connector == "keep" and unchanged:
        sentences.append(words["keep"].format(unchanged=join_names(unchanged)))
    return " ".join(sentences)


def _joined_as_published(
    prompts: Sequence[str], unchanged: Sequence[str], connector: Connector, words: Mapping[str, str]
) -> str:
    """Join prompts as they stand: what the paper joins ends in no full stop of its own."""
    if connector == "ordered" and len(prompts) > 1:
        marks = [words["first"], *[words["then"]] * (len(prompts) - 2), words["last"]]
        marked = [mark.format(prompt=prompt) for mark, prompt in zip(marks, prompts, strict=True)]
        return words["between_ordered"].join(marked)
    closing = [words["keep"].format(unchanged=", ".join(unchanged))] if connector == "keep" and unchanged else []
    return words["between"].join([*prompts, *closing])


def _value(key: str, proposal: Mapping[str, Any]) -> str:
    value = proposal.get(key)
    if not isinstance(value, str) or not value.strip():
        raise BadProposal(f'The proposal must name "{key}" as a string.')
    value = " ".join(value.split()).strip(" .\"'“”")
    return value if key in ("text", "object", "reference") else value.lower()


def _check(plan: Plan, values: Mapping[str, Any], pools: Pools, boxes: Mapping[str, Sequence[Hit]]) -> None:
    for key in plan.keys:
        value = str(values[key])
        if key in ("object", "reference") and not pools.has(value):
            names = ", ".join(item.name for item in pools.available)
            raise BadProposal(f'"{value}" is not one of the objects: {names}.')
        if key == "position" and value not in POSITIONS:
            raise BadProposal(f'"{value}" is no position; it is one of {", ".join(POSITIONS)}.')
        if key in ("new_object", "material", "background") and not _WORD.match(value):
            raise BadProposal(f'"{value}" is not a short name of one to four words.')
    match plan.type:
        case "subject_add" | "subject_replace":
            _is_new(str(values["new_object"]), pools)
        case "color_alter":
            colors = texts()["lists"]["colors"]
            if values["color"] not in colors or (plan.object and values["color"] == plan.object.color):
                raise BadProposal(f"The color must be another one than before, out of {', '.join(colors)}.")
        case "material_alter" if plan.object and values["material"] == (plan.object.material or "").lower():
            raise BadProposal(f"The object is made of {values['material']} already.")
        case "text_change":
            _is_short(str(values["text"]), plan.object)
        case "count_change" if pools.find(str(values["object"])).count == plan.count:
            raise BadProposal(f'There are {plan.count} of "{values["object"]}" already; choose another object.')
        case "position_change" if values["object"] != values["reference"]:
            if _holds(values, pools, boxes):
                raise BadProposal("The object is there already; choose another position or another object.")


def _is_new(name: str, pools: Pools) -> None:
    known = {item.object.lower() for item in pools.available} | {other.lower() for other in pools.all}
    if name in known:
        raise BadProposal(f'There is or was "{name}" in the picture already; name something else.')


def _is_short(text: str, target: SceneObject | None) -> None:
    """At most two words, or four characters of a script without spaces (Section O.2.2)."""
    long = len(CJK.findall(text)) > 4 if CJK.search(text) else len(text.split()) > 2
    if long:
        raise BadProposal("The text must have at most two words, or four Chinese characters.")
    if target and target.text and text.casefold() == target.text.casefold():
        raise BadProposal("The text must differ from the one that is there.")


def _holds(values: Mapping[str, Any], pools: Pools, boxes: Mapping[str, Sequence[Hit]]) -> bool:
    """Whether two objects nobody touched stand so already."""
    names = (values["object"], values["reference"])
    if not all(name in pools.unchanged and boxes.get(name) for name in names):
        return False
    best = [max(boxes[name], key=lambda hit: hit.score) for name in names]
    return is_related(best[0], best[1], values["position"], 0.0)
