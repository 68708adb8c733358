"""A local Ray cluster: same results as local, also when a worker is killed half-way."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import ToolOptions
from editloupe.evals.batch.batch import Batch, judge_batch
from editloupe.evals.batch.planner import RejudgePolicy
from editloupe.evals.batch.ray_actors import build_shared_settings, plan_vision
from editloupe.evals.batch.ray_executor import MOST_LOST
from editloupe.evals.batch.traffic import Limits
from editloupe.evals.manifests.layouts import load_manifest
from editloupe.evals.runs.store import Run
from editloupe.tools.enhance import build_enhancer
from editloupe.tools.models import real_esrgan
from editloupe.tools.registry import build_toolbox
from editloupe.tools.settings import ToolSettings
from editloupe.types import UserError
from tests.conftest import StartServer
from tests.evals.batch.test_interruptions import looks_then_answers
from tests.evals.samples import write_manifest
from tests.scripted import Answer, Request, ScriptedServer, call, final
from tests.tools.tiny_rrdbnet import make_convolutions, save_ncnn

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


def test_a_lost_switchboard_costs_only_replies_under_way(
    cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.evals.batch import ray_executor as module

    started: list[Any] = []
    begin = module.RayExecutor.__init__

    def remember(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        started.append(self)

    monkeypatch.setattr(module.RayExecutor, "__init__", remember)
    server = scripted(looks_then_answers, delay=0.05, log=False)

    def kill_it() -> None:
        while server.served < 20:
            time.sleep(0.01)
        cluster.kill(started[0]._switchboard, no_restart=False)

    killer = threading.Thread(target=kill_it, daemon=True)
    killer.start()
    manifest = write_manifest(tmp_path, 10)
    ending = judge_batch(batch(server, manifest, tmp_path / "run", executor="ray", ray_workers=2), quiet=True)
    killer.join(5)
    assert (ending.tally.judged, ending.tally.missing) == (20, 0), dict(ending.tally.unjudged)
    assert 60 <= server.served <= 60 + 12
    with Run.open(tmp_path / "run") as run:
        assert run.read_spending()[0].requests >= 60


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


def test_workers_that_cannot_start_end_the_batch_at_once_with_their_reason(
    cluster: Any, scripted: StartServer, tmp_path: Path
) -> None:
    server, driver = scripted(looks_then_answers), os.getpid()
    url = server.openai_url
    options = JudgeOptions(judge="openai:gpt-4.1", base_url=url, mode="tools", tool_calls="native")

    def open_here_only(**hooks: Any) -> Any:
        if os.getpid() != driver:
            raise RuntimeError("this node has no licence")
        return options.open(**hooks)

    manifest, started = write_manifest(tmp_path, 4), time.monotonic()
    unstartable = Batch(
        lambda: load_manifest(manifest), tmp_path / "run", open_here_only, executor="ray", ray_workers=2
    )
    with pytest.raises(UserError, match=r"^no Ray worker could start: RuntimeError: this node has no licence$"):
        judge_batch(unstartable, quiet=True)
    assert time.monotonic() - started < 60
    assert not server.served
    assert judge_batch(batch(server, manifest, tmp_path / "run"), quiet=True).tally.missing == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_an_edit_that_ends_three_workers_is_unjudged_and_all_others_are_judged(
    workers: int, cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.evals.batch.ray_executor.REST", 0.5)
    server, driver, ended = scripted(looks_then_answers, log=False), os.getpid(), tmp_path / "ended"
    url = server.openai_url
    options = JudgeOptions(judge="openai:gpt-4.1", base_url=url, mode="tools", tool_calls="native")

    def open_poisoned(**hooks: Any) -> Any:
        judge = options.open(**hooks)
        ask, waiting = judge.ajudge, []

        async def ajudge(edit: Any, *more: Any, **others: Any) -> Any:
            waiting.append(edit.id)
            if edit.id == "e3" and os.getpid() != driver:
                with ended.open("a") as file:
                    file.write(" ".join(waiting) + "\n")
                os._exit(9)
            try:
                return await ask(edit, *more, **others)
            finally:
                waiting.remove(edit.id)

        judge.ajudge = ajudge  # type: ignore[method-assign]
        return judge

    manifest = write_manifest(tmp_path, 9)
    poisoned = Batch(
        lambda: load_manifest(manifest),
        tmp_path / "run",
        open_poisoned,
        limits=Limits(concurrency=8),
        executor="ray",
        ray_workers=workers,
    )
    ending = judge_batch(poisoned, quiet=True)
    assert (ending.tally.judged, dict(ending.tally.unjudged)) == (16, {"internal_error": 2})
    *shared, alone = ended.read_text().splitlines()
    assert (len(shared), alone) == (MOST_LOST - 1, "e3"), "the last worker had no other edit"
    with Run.open(tmp_path / "run") as run:
        left = [unit for unit in run.units() if unit.outcome.status == "unjudged"]
    assert {unit.edit_id for unit in left} == {"e3"}
    assert "3 Ray workers were lost while they judged this edit" in str(left[0].outcome)
    asked = server.served
    assert judge_batch(batch(server, manifest, tmp_path / "run"), quiet=True).tally.missing == 0
    assert server.served == asked, "it is not tried again unless it is asked for"
    again = batch(server, manifest, tmp_path / "run", again=RejudgePolicy(retry_unjudged=True))
    assert judge_batch(again, quiet=True).tally.judged == 2
    assert server.served == asked + 6


def test_a_worker_that_is_killed_again_and_again_costs_no_other_edit_its_verdict(
    cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.evals.batch import ray_executor as module

    monkeypatch.setattr(module, "REST", 0.5)
    started: list[Any] = []
    begin = module.RayExecutor.__init__

    def remember(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        started.append(self)

    monkeypatch.setattr(module.RayExecutor, "__init__", remember)
    manifest = write_manifest(tmp_path, 6)
    server = scripted(looks_then_answers, delay=0.2, log=False)
    killed: list[int] = []

    def kill_twice() -> None:
        while len(killed) < MOST_LOST - 1:
            before = server.served
            while server.served < before + 4:
                time.sleep(0.01)
            pid = cluster.get(started[0].workers[0].process.remote())
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    killer = threading.Thread(target=kill_twice, daemon=True)
    killer.start()
    ending = judge_batch(batch(server, manifest, tmp_path / "ray", executor="ray", ray_workers=1), quiet=True)
    killer.join(5)
    assert len(set(killed)) == MOST_LOST - 1
    assert (ending.tally.judged, ending.tally.missing) == (12, 0)


@pytest.mark.parametrize("patience", [300.0, 1.0])
def test_a_batch_waits_for_a_worker_whose_restart_takes_long_but_not_for_ever(
    patience: float, cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editloupe.evals.batch.ray_executor.TIMES", 2)
    monkeypatch.setattr("editloupe.evals.batch.ray_executor.PATIENCE", patience)
    server, driver, ended = scripted(looks_then_answers, log=False), os.getpid(), tmp_path / "ended"
    url = server.openai_url
    options = JudgeOptions(judge="openai:gpt-4.1", base_url=url, mode="tools", tool_calls="native")

    def open_slowly(**hooks: Any) -> Any:
        if os.getpid() != driver and ended.exists():
            time.sleep(6)
        judge = options.open(**hooks)
        ask = judge.ajudge

        async def ajudge(edit: Any, *more: Any, **others: Any) -> Any:
            if os.getpid() != driver and not ended.exists():
                ended.touch()
                os._exit(9)
            return await ask(edit, *more, **others)

        judge.ajudge = ajudge  # type: ignore[method-assign]
        return judge

    manifest = write_manifest(tmp_path, 4)
    slow = Batch(lambda: load_manifest(manifest), tmp_path / "run", open_slowly, executor="ray", ray_workers=1)
    if patience < 6:
        with pytest.raises(UserError, match=r"^no Ray worker could be reached for edit e\d in \d attempts"):
            judge_batch(slow, quiet=True)
    else:
        assert judge_batch(slow, quiet=True).tally.judged == 8


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


def test_workers_share_a_detector_per_gpu_and_find_what_this_machine_finds(
    cluster: Any, scripted: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from editloupe.evals.batch import ray_executor as module
    from tests.tools.tiny_grounding import save_tiny_grounding_dino

    passes: list[dict[int, int]] = []
    close = module.RayExecutor.close

    async def look_first(self: Any) -> None:
        passes.extend([await models.passes.remote() for models in self.vision])
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
    assert len(passes) == 2, "one detector per GPU"
    assert sum(size * count for found in passes for size, count in found.items()) == 2
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
    assert build_shared_settings(explicit).tile_levels == (3,)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_workers_share_an_enhancer_and_show_what_this_machine_shows(
    precision: str, cluster: Any, scripted: StartServer, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    server = scripted(looks_then_answers, log=False)
    manifest = write_manifest(tmp_path, 2)
    weights = save_ncnn(tmp_path / "weights", make_convolutions())
    settings = [f"enhancer_weights={weights}", f"enhancer_precision={precision}", "threads=1"]
    given = {"tools": ToolOptions(enhancer="realesrgan", tool_set=settings), "criteria": ["instruction_following"]}
    judge_batch(batch(server, manifest, tmp_path / "ray", given, executor="ray", ray_workers=1), quiet=True)
    judge_batch(batch(server, manifest, tmp_path / "local", given), quiet=True)
    assert verdicts(tmp_path / "ray") == verdicts(tmp_path / "local")
    with Run.open(tmp_path / "ray") as run:
        seen = run.load_trace("e0")[0].steps[0].observations[0]
    assert "enlarged 4 times with Real-ESRGAN" in seen.text


def test_the_cluster_has_the_enhancer_and_precision_that_the_driver_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = save_ncnn(tmp_path, make_convolutions())
    found: dict[str, Any] = {"here": (("torch", "cuda"), "")}
    monkeypatch.setattr(real_esrgan, "_find_gpu", lambda file, device: found["here"])
    driver = build_toolbox(ToolSettings(enhancer_weights=weights, plugins=False))
    shared = build_shared_settings(driver)
    found["here"] = (None, "no GPU")
    worker = build_toolbox(ToolSettings(enhancer_weights=weights, plugins=False))
    assert worker.enhancer.backend.name == "fast"
    worker.enhancer.adopt(build_enhancer(shared)[0])
    assert worker.facts() == driver.facts()
    assert worker.enhancer.fingerprint.endswith("/enhancer_precision=float16")


def test_an_actor_sees_its_own_gpu_and_a_numbered_device_is_the_nodes(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Visible:
        def devices(self) -> str | None:
            return os.environ.get("CUDA_VISIBLE_DEVICES")

    def visible(device: str) -> list[str | None]:
        actors = [cluster.remote(num_cpus=0, **options)(Visible).remote() for options in plan_vision(device, 2)]
        found = cluster.get([actor.devices.remote() for actor in actors])
        for actor in actors:
            cluster.kill(actor)
        return sorted(found, key=str)

    outside = os.environ.get("CUDA_VISIBLE_DEVICES")
    assert visible("auto") == ["0", "1"]
    assert visible("cuda:1") == [outside]
    assert len(plan_vision("cpu", 2)) == len(plan_vision("auto", 0)) == len(plan_vision("mps", 0)) == 1
