"""Instruct: chains by a scripted LMM or from lists, the same for the same seed, with their complex forms."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.asker import Asker
from editloupe.agent.model_settings import ModelSettings
from editloupe.agent.open_model import open_chat
from editloupe.evals.batch.work_items import ItemTally, TemporaryReplies
from editloupe.evals.edival.files import ChainFile, SceneFile, read_json
from editloupe.evals.edival.instruct import Instructor
from editloupe.rubrics.edival.pools import GroundedObject, SceneObject, update_pools
from editloupe.rubrics.edival.rules import Hit, load_published
from editloupe.rubrics.edival.tasks import TYPES, wording
from tests.conftest import StartServer
from tests.evals.edival import stand_ins as s
from tests.scripted import Answer, Request, Script, say


def grounded(item: SceneObject, x: float) -> GroundedObject:
    return GroundedObject(**item.model_dump(), hits=(Hit(x1=x, y1=0.4, x2=x + 0.1, y2=0.6, score=0.9),))


@pytest.fixture
def scene(tmp_path: Path) -> SceneFile:
    s.save_base(tmp_path / "photos")
    objects = (
        grounded(
            SceneObject(name="ceramic white cup", object="cup", color="white", material="ceramic", text="JOE"), 0.1
        ),
        grounded(SceneObject(name="wooden box", object="box", material="wooden"), 0.4),
        grounded(SceneObject(name="red sign", object="sign", color="red", foreground=False), 0.8),
    )
    return SceneFile(
        id="kitchen",
        image="../photos/kitchen.png",
        sha="0",
        size=(200, 100),
        key="k",
        judge="j",
        detector="d",
        listed=tuple(item.without_boxes for item in objects),
        objects=objects,
        filtered_all_objects="",
    )


def make(tmp_path: Path, scene: SceneFile, name: str = "chains", **options: Any) -> tuple[ItemTally, ChainFile | None]:
    rules = load_published().with_changes({"max_turns": options.pop("turns", 3)})
    worker = Instructor(rules, tmp_path / "objects", tmp_path / name, **options)
    tally = asyncio.run(worker.all([scene]))
    file = tmp_path / name / "kitchen.json"
    return tally, read_json(file, ChainFile) if file.exists() else None


def proposing(request: Request) -> Answer:
    """A scripted LMM that fills in whatever is asked for."""
    text = request.messages[-1].text
    wanted = json.loads(text[text.rindex("{") :])
    known = {"new_object": "umbrella", "color": "purple", "material": "glass", "text": "HELLO", "background": "beach"}
    known |= {"object": "wooden box", "reference": "ceramic white cup", "position": "left"}
    return say("Fitting. " + json.dumps({key: known[key] for key in wanted}))


def with_model(scripted: StartServer, script: Script) -> dict[str, Any]:
    server = scripted(script)
    return {"asker": Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings())), "judge": "openai:gpt-4.1"}


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_fills_in_every_type(kind: Any, tmp_path: Path, scene: SceneFile, scripted: StartServer) -> None:
    _, chain = make(tmp_path, scene, types=(kind,), **with_model(scripted, proposing))
    assert chain is not None
    (turn,) = chain.turns
    assert turn.task.type == kind
    assert turn.instruction == wording(turn.task)
    assert turn.pools == update_pools(chain.start, turn.task)
    assert chain.usage.requests == (0 if kind == "subject_remove" else 1)


def test_the_model_is_told_what_is_there_and_what_is_asked(
    tmp_path: Path, scene: SceneFile, scripted: StartServer
) -> None:
    server = scripted(proposing)
    asker = Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings()))
    make(tmp_path, scene, types=("count_change",), asker=asker, judge="x")
    text = server.requests[0].messages[-1].text
    assert '"ceramic white cup" (1), "wooden box" (1), "red sign" (1)' in text
    assert server.requests[0].messages[-1].images
    assert "{" in text
    assert "{count" not in text


def test_a_proposal_that_will_not_do_is_refused_with_the_reason(
    tmp_path: Path, scene: SceneFile, scripted: StartServer
) -> None:
    server = scripted(say('{"color": "beige"}'), say('{"color": "purple"}'))
    asker = Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings()))
    _, chain = make(tmp_path, scene, types=("color_alter",), asker=asker, judge="x")
    assert chain is not None
    assert chain.turns[0].task.color == "purple"
    assert "must be another one than before, out of" in server.requests[1].messages[-1].text


def test_a_model_that_only_makes_bad_proposals_fails_its_picture(
    tmp_path: Path, scene: SceneFile, scripted: StartServer
) -> None:
    tally, chain = make(
        tmp_path, scene, types=("color_alter",), **with_model(scripted, lambda _: say('{"color": "beige"}'))
    )
    assert "no usable answer" in tally.failed["kitchen"]
    assert chain is None


def test_the_same_seed_makes_the_same_chain_and_another_seed_another(tmp_path: Path, scene: SceneFile) -> None:
    chains = [make(tmp_path, scene, f"{n}-{seed}", seed=seed)[1] for n in range(2) for seed in range(6)]
    assert chains[:6] == chains[6:]
    assert len({chain.model_dump_json(exclude={"key", "seed"}) for chain in chains if chain}) > 1


def test_turns_go_up_to_nine_without_repeating_a_type(tmp_path: Path, scene: SceneFile) -> None:
    _, chain = make(tmp_path, scene, turns=9, seed=4)
    assert chain is not None
    kinds = [turn.task.type for turn in chain.turns]
    assert len(kinds) == 9
    assert all(kinds.count(kind) == 1 for kind in set(kinds) - {"subject_add"}), "only the fall-back may come again"


def test_pools_of_a_chain_lead_from_one_turn_to_the_next(tmp_path: Path, scene: SceneFile) -> None:
    for seed in range(8):
        _, chain = make(tmp_path, scene, f"c{seed}", seed=seed, turns=5)
        assert chain is not None
        pools = chain.start
        for turn in chain.turns:
            pools = update_pools(pools, turn.task)
            assert pools == turn.pools


def test_a_scene_without_objects_still_gets_a_chain(tmp_path: Path, scene: SceneFile) -> None:
    _, chain = make(tmp_path, scene.model_copy(update={"objects": ()}), seed=1)
    assert chain is not None
    assert chain.turns[0].task.type == "subject_add"
    assert chain.turns[0].task.reference is None


def test_all_levels_of_all_connectors_are_written_down(tmp_path: Path, scene: SceneFile) -> None:
    _, chain = make(tmp_path, scene, seed=2)
    assert chain is not None
    assert set(chain.complex) == {"plain", "shuffled", "ordered", "keep"}
    assert all(len(levels) == 3 for levels in chain.complex.values())
    sentences = [turn.instruction for turn in chain.turns]
    assert chain.complex["plain"][2] == " ".join(sentences)
    assert chain.complex["plain"][0] == sentences[0]
    assert all(sentence in chain.complex["shuffled"][2] for sentence in sentences)


def test_a_chain_that_is_there_is_kept_and_made_anew_for_another_scene(tmp_path: Path, scene: SceneFile) -> None:
    make(tmp_path, scene)
    assert make(tmp_path, scene)[0].held == 1
    assert make(tmp_path, scene, seed=5)[0].made == 1
    assert make(tmp_path, scene.model_copy(update={"objects": scene.objects[:1]}), seed=5)[0].made == 1


class Killed(BaseException):
    """The end of the process, at any moment."""


def test_a_killed_chain_goes_on_without_asking_again_what_was_answered(
    tmp_path: Path, scene: SceneFile, scripted: StartServer
) -> None:
    server = scripted(proposing)
    kept = TemporaryReplies(tmp_path / "chains")
    asker = Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings(), kept))
    options: dict[str, Any] = {
        "types": ("subject_add", "text_change", "background_change"),
        "asker": asker,
        "judge": "x",
        "kept": kept,
    }
    answered = TemporaryReplies.put
    with pytest.MonkeyPatch.context() as patch:

        def put_and_die(self: TemporaryReplies, key: str, reply: Any) -> None:
            answered(self, key, reply)
            if server.served == 2:
                raise Killed

        patch.setattr(TemporaryReplies, "put", put_and_die)
        with pytest.raises(BaseExceptionGroup):
            make(tmp_path, scene, **options)
    assert not (tmp_path / "chains/kitchen.json").exists()
    # A process of its own would have a client of its own; connections do not outlive their event loop.
    options["asker"] = Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings(), kept))
    _, chain = make(tmp_path, scene, **options)
    assert chain is not None
    assert server.served == 3, "two were answered before, one was left to ask"
    assert not (tmp_path / "chains/.replies").exists(), "kept only while under way"


def test_after_a_useless_answer_the_next_try_asks_anew(tmp_path: Path, scene: SceneFile, scripted: StartServer) -> None:
    kept = TemporaryReplies(tmp_path / "chains")
    server = scripted(lambda _: say("I cannot."))
    asker = Asker(open_chat("openai:gpt-4.1", server.openai_url, ModelSettings(), kept))
    options = {"types": ("color_alter",), "asker": asker, "judge": "x", "kept": kept}
    assert "kitchen" in make(tmp_path, scene, **options)[0].failed
    server.play(proposing)
    assert make(tmp_path, scene, **options)[0].made == 1


def test_the_papers_wording_asks_for_the_same_in_its_own_sentences(tmp_path: Path, scene: SceneFile) -> None:
    _, ours = make(tmp_path, scene, seed=5)
    tally, theirs = make(tmp_path, scene, seed=5, form="paper")
    assert ours is not None
    assert theirs is not None
    assert tally.made, "another wording is another chain, made anew in the same folder"
    assert [turn.task for turn in theirs.turns] == [turn.task for turn in ours.turns]
    assert [turn.instruction for turn in theirs.turns] == [wording(turn.task, "paper") for turn in ours.turns]
    assert theirs.complex["plain"][-1] == ". ".join(turn.instruction for turn in theirs.turns)
