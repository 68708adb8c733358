"""Generation of chains of instructions from decomposed pictures, one JSON file per picture."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from editloupe._util.text import quote_line
from editloupe.agent.asker import Asker, NoAnswer
from editloupe.agent.replies.answers import parse_object
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies, Tick, ignore_tally, work_through
from editloupe.evals.edival.files import (
    ChainFile,
    ChainTurn,
    SceneFile,
    file_key,
    find_picture,
    load_if_current,
    relative_name,
    write_json,
)
from editloupe.pictures.decode import Album
from editloupe.rubrics.edival.instructions import (
    CONNECTORS,
    BadProposal,
    Plan,
    complete_task,
    compress_instructions,
    draw_next_type,
    draw_task,
    is_feasible,
    plan_task,
)
from editloupe.rubrics.edival.pools import Pools, start_pools, update_pools
from editloupe.rubrics.edival.rules import EdivalSettings, Hit
from editloupe.rubrics.edival.tasks import Form, Task, TaskType, prompts, texts, wording
from editloupe.types import Usage

LISTS = "lists"
"""Value of `ChainFile.proposals` if proposals are drawn from lists."""


@dataclass(frozen=True)
class Instructor:
    """Generates chains of instructions and writes one file per picture.

    Args:
        settings: Thresholds and rules, including the number of turns.
        scenes: Folder of the decomposed pictures.
        out: Folder for the chains' files.
        seed: Seed of the random choices.
        asker: Model that proposes what is not random; None to draw proposals from lists.
        judge: Spec of the model, stored in the files.
        types: Types in the order of the turns; empty for random types.
        kept: Store of the model's replies.
        form: Wording of instructions: `ours`, or `paper` for the paper's templates.
    """

    settings: EdivalSettings
    scenes: Path
    out: Path
    seed: int = 0
    asker: Asker | None = None
    judge: str = LISTS
    types: tuple[TaskType, ...] = field(default=())
    kept: TemporaryReplies | None = None
    form: Form = "ours"

    async def all(
        self,
        scenes: Sequence[SceneFile],
        concurrency: int = 8,
        tick: Tick = ignore_tally,
    ) -> ItemTally:
        """Generate the chains of all pictures. Files that are still valid are skipped."""
        async with aclosing(self.asker.chat) if self.asker else nullcontext():
            tally = ItemTally("instruct", total=len(scenes))
            await work_through(scenes, self.one, tally, concurrency, tick, self.kept)
            return tally

    async def one(self, scene: SceneFile) -> bool:
        """Generate one chain; return False if its file is still valid.

        The same seed leads to the same random choices for a picture.
        """
        file, key = self.out / f"{scene.id}.json", self.key(scene)
        if await asyncio.to_thread(load_if_current, file, ChainFile, key):
            return False
        chance = random.Random(f"{self.seed}:{scene.id}")
        boxes = {item.name: item.hits for item in scene.objects}
        first = pools = start_pools(item.without_boxes for item in scene.objects)
        used: list[TaskType] = []
        turns: list[ChainTurn] = []
        usage = Usage()
        for turn in range(1, (len(self.types) or self.settings.max_turns) + 1):
            kind = self.types[turn - 1] if self.types else draw_next_type(pools, used, chance)
            kind = kind if is_feasible(kind, pools) else "subject_add"
            task, spent = await self._task(scene, plan_task(kind, pools, self.settings, chance), pools, boxes, chance)
            pools, usage = update_pools(pools, task), usage + spent
            used.append(task.type)
            turns.append(ChainTurn(turn=turn, task=task, instruction=wording(task, self.form), pools=pools))
        chain = ChainFile(
            id=scene.id,
            image=relative_name(find_picture(scene, self.scenes), self.out),
            sha=scene.sha,
            seed=self.seed,
            key=key,
            proposals=self.judge,
            start=first,
            turns=tuple(turns),
            complex=build_complex_prompts(turns, chance, self.form),
            usage=usage,
        )
        await asyncio.to_thread(write_json, file, chain)
        return True

    async def _task(
        self, scene: SceneFile, planned: Plan, pools: Pools, boxes: Mapping[str, Sequence[Hit]], chance: random.Random
    ) -> tuple[Task, Usage]:
        if not planned.keys:
            return complete_task(planned, {}, pools, boxes), Usage()
        if self.asker is None:
            try:
                return draw_task(planned, pools, boxes, chance), Usage()
            except BadProposal as problem:
                raise NoAnswer(f"no entry of the lists fits {planned.type}: {problem}") from None
        album = Album()
        picture = await asyncio.to_thread(album.open, find_picture(scene, self.scenes))
        form = json.dumps(dict.fromkeys(planned.keys, "…"), ensure_ascii=False)
        proposal_texts = prompts()["proposals"]
        answered = await self.asker.ask(
            system=proposal_texts["system"],
            task="\n".join(
                (format_question(planned, pools), format_inventory(pools), proposal_texts["form"].format(form=form))
            ),
            read=lambda text: complete_task(planned, parse_object(text), pools, boxes),
            repair=lambda problem: str(proposal_texts["repair"]).format(problem=problem, form=form),
            picture=picture,
            album=album,
        )
        return answered.value, answered.usage

    def key(self, scene: SceneFile) -> str:
        """Return the hash of everything that a chain of this picture depends on."""
        return file_key(
            {
                "scene": scene.model_dump(mode="json", include={"sha", "objects"}),
                "seed": self.seed,
                "judge": self.judge,
                "types": self.types,
                "turns": self.settings.max_turns,
                "max_count": self.settings.max_count,
                "texts": texts(),
                "prompts": prompts()["proposals"] if self.asker else None,
                **({"form": texts(self.form)} if self.form != "ours" else {}),
            }
        )


def format_question(planned: Plan, pools: Pools) -> str:
    """Return the question by which a model is asked for a proposal."""
    proposal_texts, lists = prompts()["proposals"], texts()
    name: str = planned.type
    if planned.type == "subject_add" and planned.reference is None:
        name = "subject_add_anywhere"
    if planned.type == "text_change" and planned.object is None:
        name = "text_add"
    item = planned.object
    current = {
        "color_alter": item and item.color,
        "material_alter": item and item.material,
        "text_change": item and item.text,
    }
    values: dict[str, Any] = {
        "object": quote_line(item.name) if item else "",
        "reference": quote_line(planned.reference or ""),
        "position": lists["positions"][planned.position] if planned.position else "",
        "current": quote_line(known) if (known := current.get(planned.type)) else "not known",
        "colors": ", ".join(lists["lists"]["colors"]),
        "names": ", ".join(quote_line(one.name) for one in pools.available),
        "counts": ", ".join(f"{quote_line(one.name)} ({one.count})" for one in pools.available),
        "count": planned.count,
    }
    return " ".join(str(proposal_texts[name]).format(**values).split())


def format_inventory(pools: Pools) -> str:
    """Return the line that lists the available objects."""
    names = ", ".join(quote_line(item.name) for item in pools.available) or "nothing that can be edited"
    return f"By now the inventory holds: {names}."


def build_complex_prompts(
    turns: Sequence[ChainTurn], chance: random.Random, form: Form = "ours"
) -> dict[str, tuple[str, ...]]:
    """Return the prompts of levels 1, 2, 3… by connector."""
    levels = range(1, len(turns) + 1)
    return {
        connector: tuple(
            compress_instructions(
                [t.instruction for t in turns[:level]], turns[level - 1].pools.unchanged, connector, chance, form
            )
            for level in levels
        )
        for connector in CONNECTORS
    }
