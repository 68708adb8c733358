"""A local Ray cluster: same results as local, also when a worker is killed half-way."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import ToolOptions
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.ray_actors import Batcher, VisionModels, answer_each_once, build_shared_settings
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from tests.conftest import StartServer
from tests.evals.batch.test_interruptions import looks_then_answers
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, call, final

pytestmark = pytest.mark.ray


def batch(
    server: ScriptedServer, manifest: Path, out: Path, judge: dict[str, Any] | None = None, **changes: Any
) -> Batch:
    url = server.openai_url
    options = JudgeOptions(judge="openai:gpt-4.1", base_url=url, mode="tools", tool_calls="native", **(judge or {}))
    given = {"limits": Limits(concurrency=6), **changes}
    return Batch(lambda: load_manifest(manifest), out, options.open, **given)


def verdicts(out: Path) -> list[tuple[Any, ...]]:
    with Run.open(out) as run:
        found = []
        for unit in run.units():
            (trace,) = run.load_trace(unit.edit_id, unit.criterion)
            pictures = [sha for step in trace.steps for seen in step.observations for sha in seen.pictures]
            assert all(run.pictures.find(sha) for sha in pictures)
            facts = unit.outcome.model_dump(exclude={"usage"})
            found.append((unit.edit_id, unit.criterion, unit.shown, facts, pictures))
        return found


def test_a_cluster_gives_the_same_run_as_this_machine_also_when_a_worker_is_killed_half_way(
    cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.evals.batch import ray_executor as module

    started: list[Any] = []
    begin = module.RayExecutor.__init__

    def remember(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        started.append(self)

    monkeypatch.setattr(module.RayExecutor, "__init__", remember)
    manifest = write_manifest(tmp_path, 10)
    server = scripted(looks_then_answers, delay=0.05, log=False)
    killed: list[int] = []

    def kill_one() -> None:
        while server.served < 20:
            time.sleep(0.01)
        pid = cluster.get(started[0].workers[0].process.remote())
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    ending = judge_batch(batch(server, manifest, tmp_path / "ray", executor="ray", ray_workers=2), quiet=True)
    killer.join(5)
    assert killed
    assert (ending.tally.judged, ending.tally.missing) == (20, 0)
    assert 60 <= server.served <= 60 + 8, "more was asked again than the lost worker's conversations"
    asked = server.served
    judge_batch(batch(server, manifest, tmp_path / "local"), quiet=True)
    assert server.served == asked + 60
    assert verdicts(tmp_path / "ray") == verdicts(tmp_path / "local")


def test_a_cap_stops_the_cluster_and_the_run_is_continued_without_it(
    cluster: Any, scripted: StartServer, tmp_path: Path
) -> None:
    manifest = write_manifest(tmp_path, 12)
    server = scripted(looks_then_answers, delay=0.03, log=False)
    limits = Limits(concurrency=4, max_tokens=120 * 20)
    capped = batch(server, manifest, tmp_path / "run", executor="ray", ray_workers=1, limits=limits)
    ending = judge_batch(capped, quiet=True)
    assert ending.why is not None
    assert "the cap of 2400 tokens" in ending.why
    assert 18 <= server.served <= 20 + 2 * 4
    assert judge_batch(batch(server, manifest, tmp_path / "run"), quiet=True).tally.missing == 0
    assert server.served == 72


def test_a_cascade_is_judged_on_workers_that_do_not_have_its_file(
    cluster: Any, scripted: StartServer, tmp_path: Path
) -> None:
    from tests.judge.samples import IF, LARGE, SMALL, Wavering, two_stages

    server = scripted(Wavering())
    trust, manifest = two_stages(server, tmp_path), write_manifest(tmp_path, 8)
    prices = tmp_path / "prices.yaml"
    prices.write_text(f"prices:\n  {SMALL}: {{input: 1, output: 0}}\n  {LARGE}: {{input: 1000, output: 0}}\n")
    options = JudgeOptions(
        judge=f"cascade:{trust}", base_url=server.openai_url, mode="plain", criteria=[IF]
    ).with_plan()
    trust.unlink()
    ending = judge_batch(
        Batch(
            lambda: load_manifest(manifest),
            tmp_path / "run",
            options.open,
            limits=Limits(concurrency=4),
            prices=prices,
            executor="ray",
            ray_workers=1,
        ),
        quiet=True,
    )
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (6, {"needs_a_person": 2})
    assert (server.served, ending.spending.cost) == (24, pytest.approx(16 * 1e-4 + 8 * 0.1))


def test_workers_share_one_detector_and_find_what_this_machine_finds(
    cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from editloupe.evals.batch import ray_executor as module
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    batches: dict[str, list[int]] = {}
    close = module.RayExecutor.close

    async def look_first(self: Any) -> None:
        batches.update(await self.vision.batches.remote())
        await close(self)

    monkeypatch.setattr(module.RayExecutor, "close", look_first)

    def detects_then_answers(request: Request) -> Answer:
        if any(message.role == "assistant" for message in request.messages):
            return final("Wrong Action")
        return call("detect_object", detect_object_name="Do", target_image="Edited Image")

    server = scripted(detects_then_answers, log=False)
    manifest = write_manifest(tmp_path, 2, size=(64, 64))
    weights = str(save_tiny_grounding_dino(tmp_path / "weights"))
    given = {"tools": ToolOptions(detector=weights), "criteria": ["instruction_following"]}
    judge_batch(batch(server, manifest, tmp_path / "ray", given, executor="ray", ray_workers=1), quiet=True)
    judge_batch(batch(server, manifest, tmp_path / "local", given), quiet=True)
    assert sum(batches["detect"]) == 2
    assert verdicts(tmp_path / "ray") == verdicts(tmp_path / "local")
    with Run.open(tmp_path / "ray") as run:
        seen = run.load_trace("e0")[0].steps[0].observations[0]
    assert seen.tool == "detect_object"
    assert not seen.failed, seen.text


@pytest.mark.parametrize(("device", "levels"), [("cpu", (2,)), ("cuda", (4,))])
def test_the_shared_detector_has_the_tiles_that_the_driver_recorded(
    device: str, levels: tuple[int, ...], tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    weights = str(save_tiny_grounding_dino(tmp_path / "weights"))
    toolbox = build_toolbox(ToolSettings(detector=weights, device=device, plugins=False))
    assert build_shared_settings(toolbox).tile_levels == levels
    explicit = build_toolbox(ToolSettings(detector=weights, device=device, plugins=False, tile_levels=(3,)))
    assert build_shared_settings(explicit) == explicit.settings


def test_the_same_look_asked_for_by_several_workers_is_taken_once() -> None:
    looks: list[Any] = []

    def look(requests: Any) -> list[str]:
        looks.append([how for _, how in requests])
        return [f"{how}!" for _, how in requests]

    one, other = np.zeros((2, 2, 3), np.uint8), np.ones((2, 2, 3), np.uint8)
    answers = answer_each_once(look, [(one, "cup"), (other, "cup"), (one, "cup"), (one, "dog")])
    assert answers == ["cup!", "cup!", "cup!", "dog!"]
    assert looks == [["cup", "cup", "dog"]]


async def test_different_pictures_and_names_that_wait_together_share_a_forward_pass(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import torch

    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    weights = str(save_tiny_grounding_dino(tmp_path / "weights"))
    models = VisionModels(ToolSettings(detector=weights, box_threshold=0.0, device="cpu", batch_size=4))
    noise = np.random.default_rng(0)
    asked = [
        (noise.integers(0, 256, (64, 80, 3), dtype=np.uint8), name) for name in ("cup", "the red ball", "dog", "cup")
    ]
    passes: list[int] = []
    alone = []
    for pixels, name in asked:
        alone.append(await models.detect(pixels, name))
    network = models._detector._load()[0]
    assert isinstance(network, torch.nn.Module)
    network.register_forward_hook(lambda _, __, outputs: passes.append(len(outputs.logits)))
    together = await asyncio.gather(*(models.detect(pixels, name) for pixels, name in [*asked, asked[0]]))
    assert passes == [4], "four different looks are one pass; the fifth is the first again"
    assert (await models.batches())["detect"] == [1, 1, 1, 1, 5]
    assert together[4] == together[0]
    for one, other in zip(alone, together, strict=False):
        assert one
        assert [found.label for found in other] == [found.label for found in one]
        assert [found.score for found in other] == pytest.approx([found.score for found in one], abs=1e-5)
        assert np.abs(np.array([list(f.box) for f in other]) - [list(f.box) for f in one]).max() <= 1


async def test_requests_that_come_together_are_one_batch_and_an_error_reaches_all_of_it() -> None:
    batches: list[int] = []

    def work(requests: Any) -> list[Any]:
        batches.append(len(requests))
        if any(value == "bad" for _, value in requests):
            raise ValueError("no such thing")
        return [value for _, value in requests]

    batcher = Batcher(work)
    pixels = np.zeros((1, 1, 3), np.uint8)
    answers = await asyncio.gather(*(batcher.ask((pixels, number)) for number in range(20)))
    assert answers == list(range(20))
    assert batches == [16, 4]
    failed = await asyncio.gather(*(batcher.ask((pixels, v)) for v in ("bad", "good")), return_exceptions=True)
    assert all(isinstance(error, ValueError) for error in failed)
