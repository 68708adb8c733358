"""Generation of chains of instructions.

Random choices of the paper are drawn from a seeded generator. A proposal, by a model that sees the picture or drawn from lists,
adds the rest. Proposals are checked against the pools, so that a chain never refers to an object that does not exist.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationError

from editloupe._util.errors import first_error
from editloupe.rubrics.edival.pools import Pools, SceneObject, update_pools
from editloupe.rubrics.edival.rules import EdivalSettings, Hit, is_related
from editloupe.rubrics.edival.tasks import CJK, POSITIONS, TYPES, Form, Position, Task, TaskType, join_names, texts

Connector = Literal["plain", "shuffled", "ordered", "keep"]
CONNECTORS: tuple[Connector, ...] = get_args(Connector)
_WORD = re.compile(r"^[\w'’-]+( [\w'’-]+){0,3}$")


class BadProposal(ValueError):
    """A proposal is invalid. The message is sent back to the model."""


@dataclass(frozen=True)
class Plan:
    """The randomly chosen part of a turn."""

    type: TaskType
    object: SceneObject | None = None
    reference: str | None = None
    position: Position | None = None
    count: int | None = None
    keys: tuple[str, ...] = ()
    """Fields that the proposal must provide."""


def is_feasible(kind: TaskType, pools: Pools) -> bool:
    """Return whether enough objects are available for an instruction of this type."""
    if kind in ("subject_add", "text_change", "background_change"):
        return True
    return len(pools.available) >= (2 if kind == "position_change" else 1)


def draw_next_type(pools: Pools, used: Collection[TaskType], chance: random.Random) -> TaskType:
    """Draw the type of the next turn from those that are not used yet, or from all nine once all are used.

    The type is subject_add if no object is available or the drawn type is not feasible.
    """
    if not pools.available:
        return "subject_add"
    open_types = [kind for kind in TYPES if kind not in used] or list(TYPES)
    kind = chance.choice(open_types)
    return kind if is_feasible(kind, pools) else "subject_add"


def plan_task(kind: TaskType, pools: Pools, settings: EdivalSettings, chance: random.Random) -> Plan:
    """Draw what the paper draws at random: the object, the reference and position, or the count."""
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
            # Exclude a count that all objects already have, because no object could be chosen for it.
            counts = [n for n in range(1, settings.max_count + 1) if any(item.count != n for item in pools.available)]
            return Plan(kind, count=chance.choice(counts), keys=("object",))
    return Plan("background_change", keys=("background",))


def complete_task(plan: Plan, proposal: Mapping[str, Any], pools: Pools, boxes: Mapping[str, Sequence[Hit]]) -> Task:
    """Combine a plan and a proposal into a task.

    Args:
        plan: The plan.
        proposal: Values for the plan's keys.
        pools: The pools before the turn.
        boxes: Boxes of the base picture by object, to refuse a position that already holds.

    Raises:
        BadProposal: If a value is missing or does not fit.
    """
    proposed = {key: _read_value(key, proposal) for key in plan.keys}
    own = {"object": plan.object.name} if plan.object else {}
    chosen = {"reference": plan.reference, "position": plan.position, "count": plan.count}
    values: dict[str, Any] = {**own, **{k: v for k, v in chosen.items() if v is not None}, **proposed}
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
    """Return a task whose proposal is drawn from the lists of texts.yaml, for chains without a model.

    Raises:
        BadProposal: If no entry of the lists fits.
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
    """Join several instructions into one prompt (Sections 3.4 and 3.6), in our wording or the paper's.

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
        return _join_as_published(sentences, unchanged, connector, words)
    if connector == "ordered" and len(sentences) > 1:
        marks = [words["first"], *[words["then"]] * (len(sentences) - 2), words["last"]]
        sentences = [f"{mark}: {s[:1].lower()}{s[1:]}" for mark, s in zip(marks, sentences, strict=True)]
    if connector == "keep" and unchanged:
        sentences.append(words["keep"].format(unchanged=join_names(unchanged)))
    return " ".join(sentences)


def _join_as_published(
    prompts: Sequence[str], unchanged: Sequence[str], connector: Connector, words: Mapping[str, str]
) -> str:
    """Join prompts unchanged, because the paper's prompts have no full stop."""
    if connector == "ordered" and len(prompts) > 1:
        marks = [words["first"], *[words["then"]] * (len(prompts) - 2), words["last"]]
        marked = [mark.format(prompt=prompt) for mark, prompt in zip(marks, prompts, strict=True)]
        return words["between_ordered"].join(marked)
    closing = [words["keep"].format(unchanged=", ".join(unchanged))] if connector == "keep" and unchanged else []
    return words["between"].join([*prompts, *closing])


def _read_value(key: str, proposal: Mapping[str, Any]) -> str:
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
            _check_new(str(values["new_object"]), pools)
        case "color_alter":
            colors = texts()["lists"]["colors"]
            if values["color"] not in colors or (plan.object and values["color"] == plan.object.color):
                raise BadProposal(f"The color must be another one than before, out of {', '.join(colors)}.")
        case "material_alter" if plan.object and values["material"] == (plan.object.material or "").lower():
            raise BadProposal(f"The object is made of {values['material']} already.")
        case "text_change":
            _check_text(str(values["text"]), plan.object)
        case "count_change" if pools.find(str(values["object"])).count == plan.count:
            raise BadProposal(f'There are {plan.count} of "{values["object"]}" already; choose another object.')
        case "position_change" if values["object"] != values["reference"]:
            if _already_holds(values, pools, boxes):
                raise BadProposal("The object is there already; choose another position or another object.")


def _check_new(name: str, pools: Pools) -> None:
    used = {item.object.lower() for item in pools.available} | {other.lower() for other in pools.all}
    if name in used:
        raise BadProposal(f'There is or was "{name}" in the picture already; name something else.')


def _check_text(text: str, target: SceneObject | None) -> None:
    """Allow at most two words, or four characters of a script without spaces (Section O.2.2)."""
    long = len(CJK.findall(text)) > 4 if CJK.search(text) else len(text.split()) > 2
    if long:
        raise BadProposal("The text must have at most two words, or four Chinese characters.")
    if target and target.text and text.casefold() == target.text.casefold():
        raise BadProposal("The text must differ from the one that is there.")


def _already_holds(values: Mapping[str, Any], pools: Pools, boxes: Mapping[str, Sequence[Hit]]) -> bool:
    """Return whether two unchanged objects already have the requested position."""
    names = (values["object"], values["reference"])
    if not all(name in pools.unchanged and boxes.get(name) for name in names):
        return False
    best = [max(boxes[name], key=lambda hit: hit.score) for name in names]
    return is_related(best[0], best[1], values["position"], 0.0)
