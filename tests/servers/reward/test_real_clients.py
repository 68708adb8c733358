"""The trainers' own code, where it is installed: TRL's reward step, OpenRLHF's remote reward model, verl's custom reward.

pip install trl openrlhf verl && pytest -m slow tests/servers/reward/test_real_clients.py
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from editloupe.integrations.trainer_rewards import trl
from tests.drawn_pictures import edit_pair
from tests.integrations.test_trainer_rewards import asked, data_url
from tests.scripted import ScriptedServer
from tests.servers.reward.running import INSTRUCTION, asking, b64, labelled, running


def needs(package: str) -> Any:
    return pytest.mark.skipif(not importlib.util.find_spec(package), reason=f"{package} is not installed")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return edit_pair(tmp_path)


@pytest.mark.slow
@needs("trl")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_trls_own_code_calls_it(pair: tuple[Path, Path], asynchronous: bool) -> None:
    """Its trainer's reward step, with everything around it left out: no model, no data, one process."""
    import torch
    from accelerate import PartialState
    from trl.trainer import grpo_trainer, utils

    PartialState(cpu=True)

    with ScriptedServer(labelled, log=False) as server, asking(server) as judge:
        function = trl(judge, asynchronous=asynchronous)
        logged: dict[str, Any] = {}
        thread, loop, ready = utils.start_event_loop_in_daemon(name="test")
        ready.wait()
        stub = SimpleNamespace(
            accelerator=SimpleNamespace(device=torch.device("cpu"), is_main_process=True),
            reward_funcs=[function],
            reward_processing_classes=[None],
            reward_func_names=[utils.get_callable_name(function)],
            state=SimpleNamespace(global_step=0),
            args=SimpleNamespace(report_to=[]),
            environments=None,
            async_loop=loop,
            _log_completion_extra=logged.__setitem__,
            _log_metric=logged.__setitem__,
        )
        inputs = [{"prompt": asked(), "image": Image.open(pair[0])} for _ in range(2)]
        completions = [[{"role": "assistant", "content": text}] for text in (data_url(pair[1]), "no")]
        gather, grpo_trainer.gather = grpo_trainer.gather, lambda value: value
        try:
            found = grpo_trainer.GRPOTrainer._calculate_rewards(
                stub, inputs, [one["prompt"] for one in inputs], completions, [[1], [2]]
            )
        finally:
            grpo_trainer.gather = gather
            utils.shutdown_event_loop_in_daemon(thread, loop)
    assert stub.reward_func_names == ["editloupe"]
    assert found[0, 0].item() == 0.5
    assert torch.isnan(found[1, 0])


@pytest.mark.slow
@needs("openrlhf")
async def test_openrlhfs_own_executor_is_answered(pair: tuple[Path, Path]) -> None:
    import torch
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    class Tokenizer:
        def __call__(self, text: str, **_: Any) -> dict[str, Any]:
            return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

        def decode(self, tokens: list[int], **_: Any) -> str:
            return "".join(map(chr, tokens))

    class Engine:
        async def generate(self, *_: Any, **__: Any) -> Any:
            written = [ord(letter) for letter in f" Here: {data_url(pair[1])} "]
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=written, logprobs=None, finish_reason="stop")])

    sampling = SimpleNamespace(max_tokens=100_000, logprobs=None)
    with ScriptedServer(labelled, log=False) as model, running(asking(model)) as server:
        executor = SingleTurnAgentExecutor(f"{server.url}/get_reward")
        label = json.dumps({"source": b64(pair[0].read_bytes())})
        found = await executor.execute(INSTRUCTION, label, sampling, 200_000, Tokenizer(), Engine())
        left = await executor.execute(INSTRUCTION, "no label", sampling, 200_000, Tokenizer(), Engine())
    assert found["reward"] == found["scores"] == [0.5]
    assert found["extra_logs"] == {"instruction_following": [1.0], "visual_consistency": [0.0]}
    assert left["reward"] == [None]
    with pytest.raises((TypeError, RuntimeError)):  # so it cannot become a number further on
        torch.tensor([left["reward"]])


@pytest.mark.slow
@needs("verl")
async def test_verls_own_reward_manager_calls_it(pair: tuple[Path, Path]) -> None:
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    with ScriptedServer(labelled, log=False) as model:
        options = {"judge": "openai:gpt-4.1", "base_url": model.openai_url, "mode": "plain"}
        named = {"path": "pkg://editloupe.integrations.trainer_rewards", "name": "verl", "reward_kwargs": options}
        function = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": named}}))
        tokenizer = SimpleNamespace(decode=lambda tokens, **_: data_url(pair[1]))
        manager = NaiveRewardManager(OmegaConf.create({}), tokenizer, function)
        info = {"source": str(pair[0]), "instruction": INSTRUCTION}
        data = DataProto.from_dict(
            tensors={
                "responses": torch.ones(1, 4, dtype=torch.long),
                "attention_mask": torch.ones(1, 8, dtype=torch.long),
            },
            non_tensors={
                "data_source": np.array(["edits"], dtype=object),
                "reward_model": np.array([{"ground_truth": ""}], dtype=object),
                "extra_info": np.array([info], dtype=object),
            },
        )
        found = await manager.run_single(data)
    assert found == {"reward_score": 0.5, "reward_extra_info": {"score": 0.5, "judged": 1.0}}
