"""Every trainer is asked and answered in its own words; what was not judged is never a number."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import StartServer
from tests.scripted import Request, say
from tests.servers.reward.running import INSTRUCTION, Running, asking, b64, labelled, own, png, running

HALF = 0.5
"""Followed (1) and collapsed (0)."""


def turns(*pictures: bytes, text: str = INSTRUCTION) -> list[dict[str, Any]]:
    return [{"text": text, "image_b64": b64(one)} for one in pictures]


def refusing(request: Request) -> Any:
    """Leave the edits that speak of a zeppelin unjudged."""
    return say("I would rather not say.") if "zeppelin" in str(request.body) else labelled(request)


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    from tests.scripted import ScriptedServer

    with (
        ScriptedServer(refusing, log=False) as model,
        running(asking(model), allow_pickle=True, picture_pixels=100_000) as server,
    ):
        yield server


def test_health_names_the_rewards_and_their_scale(served: Running) -> None:
    told = served.client.get("/health").json()
    assert told["status"] == "ok"
    assert list(told["rewards"]) == ["editloupe", "instruction_following", "visual_consistency"]
    assert all(isinstance(one, list) for one in told["rewards"].values())
    assert told["scale"] == [0, 1]
    assert (told["judge"], told["protocol"], told["mode"]) == ("openai:gpt-4.1", "dlebench", "plain")


def test_unirl_gets_results_errors_and_its_identities_back(served: Running) -> None:
    identity = {
        "request_id": "r1",
        "sample_id": "s1",
        "group_id": "g1",
        "source_rank": 3,
        "policy_version": None,
        "scorer_version": None,
        "idempotency_key": "abc",
    }
    wanted = ["editloupe", "visual_consistency", "hpsv2"]
    answer = served.post(
        "/score",
        {
            "protocol_version": "1",
            "requests": [
                {"history": turns(png(0), png(1)), "required_rewards": wanted, "metadata": None, **identity},
                {"history": turns(png(1)), "required_rewards": ["editloupe"]},
                {"history": turns(png(0), png(1), text="Remove the zeppelin"), "required_rewards": ["editloupe"]},
            ],
        },
    ).json()
    first, second, third = answer["results"]
    assert first == {"editloupe": {"score": HALF}, "visual_consistency": {"score": 0.0}}
    assert second == third == {}
    assert "there is no such reward here" in answer["errors"][0]["hpsv2"]
    assert "two turns" in answer["errors"][1]["editloupe"]
    assert answer["errors"][2]["editloupe"].startswith("instruction_following: ")
    version = served.client.get("/health").json()["scorer_version"]
    assert answer["identities"][0] == {**identity, "scorer_version": version}
    assert len(answer["identities"]) == 3


@pytest.mark.long
def test_flow_factory_gets_rewards_and_an_error_where_one_is_missing(served: Running) -> None:
    body = {
        "prompt": [INSTRUCTION],
        "image": [b64(png(2))],
        "condition_images": [[b64(png(0))]],
        "video": None,
        "kwargs": None,
    }
    assert served.post("/compute", body).json() == {"rewards": [HALF]}
    both = {
        "prompt": [INSTRUCTION, "Remove the zeppelin"],
        "image": [b64(png(2))] * 2,
        "condition_images": [[b64(png(0)), b64(png(5))]] * 2,
    }
    answer = served.post("/compute", both).json()
    assert answer["rewards"] == [HALF, None]
    assert answer["error"].startswith("1 of 2 edits were not judged")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"prompt": ["x"], "image": ["a"]}, "no `condition_images`"),
        ({"prompt": ["x"], "video": [["a"]]}, "`video` is not read"),
        ({"prompt": ["x", "y"], "image": ["a"], "condition_images": [["a"]]}, "2 prompts, 1 images"),
        ({"image": ["a"]}, "prompt"),
    ],
)
def test_what_flow_factory_lacks_is_one_sentence(served: Running, body: Any, sentence: str) -> None:
    answer = served.post("/compute", body)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]


def test_openrlhf_gets_lists_and_null_where_there_is_no_reward(served: Running) -> None:
    label = json.dumps({"source": b64(png(0))})
    written = f"{INSTRUCTION} Here it is: data:image/png;base64,{b64(png(3))} and that is all"
    body = {
        "query": [written, "Remove the zeppelin", "x"],
        "prompts": [INSTRUCTION, "Remove the zeppelin", "x"],
        "labels": [label, {"source": b64(png(0)), "edited": b64(png(3))}, None],
    }
    answer = served.post("/get_reward", body).json()
    assert answer["rewards"] == answer["scores"] == [HALF, None, None]
    assert answer["extra_logs"] == {}
    assert answer["errors"][0] is None
    assert answer["errors"][1].startswith("instruction_following: ")
    assert "not a JSON object with a `source`" in answer["errors"][2]
    whole = served.post("/get_reward", {"query": [written], "prompts": [INSTRUCTION], "labels": [label]}).json()
    assert whole["extra_logs"] == {"instruction_following": [1.0], "visual_consistency": [0.0]}
    assert "errors" not in whole


@pytest.mark.long
def test_our_own_dialect_has_verdicts_with_their_rationale(served: Running) -> None:
    sent = [
        own(4, id="mine"),
        own(4, instruction="Remove the zeppelin"),
        own(4, edited="@@"),
        own(4, target_boxes=[[1, 1, 9, 9]]),
    ]
    answer = served.post("/v1/judge", {"edits": sent}).json()
    judged, open_, broken, boxed = answer["results"]
    assert answer["scale"] == [0, 1]
    assert (judged["id"], judged["status"], judged["score"], judged["why"]) == ("mine", "judged", HALF, None)
    assert [one["label"] for one in judged["verdicts"]] == ["Flawless Execution", "Scene Collapse"]
    assert judged["verdicts"][0]["rationale"]
    assert judged["usage"]["requests"] == 2
    assert (open_["status"], open_["score"]) == ("unjudged", None)
    assert open_["verdicts"][0]["reason"] == "unreadable_answer"
    assert broken["why"] == "instruction_following: the edited picture: a picture given in base64 cannot be decoded"
    assert boxed["score"] == HALF
    assert len({one["id"] for one in answer["results"]}) == 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"source": "/etc/hostname"}, "cannot be decoded"),
        ({"source": "memory:" + "0" * 32}, "cannot be decoded"),
        ({"edited": b64(png(1, (400, 300)))}, "more than the limit of 0"),
        ({"instruction": " "}, "the instruction is empty"),
        ({"source": b64(png(1)[:300])}, "the source picture: the picture given in memory"),
        ({"instruction": "x" * 30_000}, "more than 20000 letters"),
        ({"edited": b64(b"GIF89a")}, "is not a picture this program reads"),
    ],
)
def test_an_edit_that_cannot_be_made_is_its_own_reason_and_no_path_is_ever_opened(
    served: Running, change: dict[str, str], sentence: str
) -> None:
    answer = served.post("/v1/judge", {"edits": [own(1, **change), own(1)]}).json()
    assert answer["results"][0]["score"] is None
    assert sentence in answer["results"][0]["why"]
    assert "the file" not in answer["results"][0]["why"]
    assert answer["results"][1]["score"] == HALF


@pytest.mark.parametrize("path", ["/score", "/compute", "/get_reward", "/v1/judge"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"edits": 5}', b'{"requests": [{}]}', b"\x80\x04N.", b'"' + 99999 * b"["]
)
def test_a_body_that_is_no_request_is_one_sentence(served: Running, path: str, body: bytes) -> None:
    answer = served.post(path, body)
    assert answer.status_code == 400
    assert len(answer.json()["error"].splitlines()) == 1
    assert "the file" not in answer.json()["error"]


@pytest.mark.long
def test_edit_r1_sends_bytes_and_gets_scores(served: Running) -> None:
    sent = {
        "ref_images": [png(0), png(0)],
        "images": [png(5), png(6)],
        "prompts": [INSTRUCTION, "Remove the zeppelin"],
        "metadatas": [{"requirement": "keep the sky"}, {}],
    }
    for mode in ("logits_non_cot", "score_continue"):
        answer = pickle.loads(served.post(f"/mode/{mode}", pickle.dumps(sent)).content)
        assert answer["scores"] == [HALF, None]
        assert answer["errors"][0] is None
        assert answer["errors"][1].startswith("instruction_following: ")
    assert served.post("/mode/other", pickle.dumps(sent)).status_code == 404
    uneven = served.post("/mode/logits_non_cot", pickle.dumps({**sent, "prompts": ["x"]}))
    assert (uneven.status_code, "2 images" in uneven.json()["error"]) == (400, True)


@pytest.mark.long
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_flow_grpo_sends_prompts_as_an_array_and_gets_outputs(served: Running, protocol: int) -> None:
    sent = {"images": [png(7)], "prompts": np.array([INSTRUCTION]), "ref_images": [png(0)]}
    assert pickle.loads(served.post("/", pickle.dumps(sent, protocol)).content) == {"outputs": [HALF]}
    del sent["ref_images"]
    refused = served.post("/", pickle.dumps(sent, protocol))
    assert (refused.status_code, "no ref_images" in refused.json()["error"]) == (400, True)


def test_pickled_pictures_may_be_arrays_and_what_is_none_is_named(served: Running) -> None:
    before, after = (np.asarray(Image.open(io.BytesIO(png(seed)))) for seed in (0, 7))
    sent = {"images": [after, after, after], "prompts": [INSTRUCTION] * 3, "ref_images": [before, 5, None]}
    answer = pickle.loads(served.post("/", pickle.dumps(sent)).content)
    assert answer["outputs"] == [HALF, None, None]
    assert answer["errors"] == [
        None,
        "the source picture comes as bytes, base64, an image or an array, not as int",
        "there is no source picture",
    ]


def test_editscore_sends_pil_images_and_gets_scores_with_reasoning(served: Running) -> None:
    source, edited = (Image.open(io.BytesIO(png(seed))) for seed in (0, 8))
    sent = {
        "input_images": [[source], [source.convert("RGBA")]],
        "output_image": [edited, edited.convert("P")],
        "meta_datas": [json.dumps({"instruction": text}) for text in (INSTRUCTION, "Remove the zeppelin")],
        "server_type": "vlm",
    }
    assert served.client.get("/ping").status_code == 200
    answer = pickle.loads(served.post("/", pickle.dumps(sent)).content)
    assert answer["scores"] == answer["rewards"] == [HALF, None]
    assert "The pictures show it." in answer["reasoning"][0]
    assert answer["meta_data"][0] == {"instruction": INSTRUCTION, "original_index": 0}
    assert answer["meta_data"][1]["error"].startswith("instruction_following: ")


def test_pickles_are_refused_unless_they_are_allowed(scripted: StartServer) -> None:
    with running(asking(scripted(labelled))) as server:
        for path in ("/", "/mode/logits_non_cot"):
            answer = server.post(path, pickle.dumps({}))
            assert (answer.status_code, "--allow-pickle" in answer.json()["error"]) == (403, True)


def test_the_requests_of_json_dialects_are_described(served: Running) -> None:
    paths = served.client.get("/openapi.json").json()["paths"]
    assert {"/v1/judge", "/score", "/compute", "/get_reward", "/health", "/metrics"} == set(paths)
    schema = paths["/v1/judge"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["edits"]


@pytest.mark.long
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_a_server_may_be_asked_to_send_a_number_for_what_is_unjudged(scripted: StartServer, value: float) -> None:
    texts = (INSTRUCTION, "Remove the zeppelin")
    pictures = [b64(png(n)) for n in (0, 1)]
    labels = [json.dumps({"source": pictures[0], "edited": pictures[1], "instruction": text}) for text in texts]
    asked = {"ref_images": [png(0)] * 2, "images": [png(1)] * 2, "prompts": list(texts)}
    flow = {"prompt": list(texts), "image": [pictures[1]] * 2, "condition_images": [[pictures[0]]] * 2}
    with running(asking(scripted(refusing, log=False)), allow_pickle=True, unjudged=value) as server:
        openrlhf = json.loads(server.post("/get_reward", {"query": ["", ""], "labels": labels}).text)
        grpo = pickle.loads(server.post("/", pickle.dumps(asked)).content)
        factory = json.loads(server.post("/compute", flow).text)
        own_answer = server.post("/v1/judge", {"edits": [own(instruction=texts[1])]}).json()
        assert f"{value:g} in lists of rewards" in server.client.get("/health").json()["unjudged"]
    for rewards in (openrlhf["rewards"], openrlhf["scores"], grpo["outputs"], factory["rewards"]):
        assert rewards == pytest.approx([HALF, value], nan_ok=True)
    for answer in (openrlhf, grpo, factory):
        assert answer["errors"][0] is None
        assert "has no final answer" in answer["errors"][1]
        assert "error" not in answer, "at which Flow-Factory's client raises"
    assert own_answer["results"][0]["score"] is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", '{"a": [NaN]}'])
def test_an_identity_that_json_cannot_hold_is_answered_as_text(served: Running, value: str) -> None:
    request = json.dumps({"requests": [{"history": turns(png(0), png(1)), "request_id": "HERE"}]})
    answer = served.post("/score", request.replace('"HERE"', value).encode())
    assert answer.status_code == 200
    assert answer.json()["results"] == [{"editloupe": {"score": HALF}}]
    assert any(word in str(answer.json()["identities"][0]["request_id"]) for word in ("NaN", "nan", "Infinity"))


@pytest.mark.parametrize("name", ["instruction", "hint", "instruction type", "model", "id", "field task"])
def test_a_text_beyond_the_limit_is_not_judged(served: Running, name: str) -> None:
    text = "x" * 20_001
    fields = {"extra": {"task": text}} if name == "field task" else {name.replace(" ", "_"): text}
    (result,) = served.post("/v1/judge", {"edits": [own(1, **fields)]}).json()["results"]
    assert (result["status"], result["verdicts"]) == ("unjudged", [])
    assert f"the {name} has more than 20000 letters" in result["why"]
