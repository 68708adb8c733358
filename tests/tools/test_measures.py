"""Measures by hand and through the real loading code with tiny weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.pictures.decode import Album, Picture
from editloupe.pictures.pixels import ImageError, Pixels
from editloupe.rubrics.model import MeasureName
from editloupe.tools.contract import ToolError
from editloupe.tools.measures import MEASURES, MeasureInputs, PictureMeasures
from editloupe.tools.result_cache import ToolResultCache
from editloupe.tools.settings import ToolSettings
from tests.drawn_pictures import textured


def picture(pixels: Pixels) -> Picture:
    return Album().add(np.ascontiguousarray(pixels))


def flat(value: int, size: tuple[int, int] = (8, 6)) -> Pixels:
    return np.full((size[1], size[0], 3), value, np.uint8)


def measure(name: str, *pictures: Pixels, texts: tuple[str, ...] = (), **settings: Any) -> float | None:
    measures = PictureMeasures(ToolSettings(**settings), ToolResultCache(2**20))
    names = [f"Picture {number}" for number, _ in enumerate(pictures, 1)]
    return measures.measure(name, MeasureInputs(names, [picture(pixels) for pixels in pictures], texts))


def test_the_names_in_rubrics_are_those_of_the_measures() -> None:
    assert set(MeasureName.__args__) == set(MEASURES)  # type: ignore[attr-defined]


def test_differences_of_pixels_are_on_a_scale_of_0_to_1() -> None:
    assert measure("l1", flat(0), flat(51)) == pytest.approx(0.2, abs=1e-15)
    assert measure("l2", flat(0), flat(51)) == pytest.approx(0.04, abs=1e-15)
    assert measure("l1", flat(255), flat(0)) == 1.0
    assert measure("l2", flat(255), flat(0)) == 1.0
    assert measure("l1", flat(7), flat(7)) == 0.0


@pytest.mark.parametrize("size", [(40, 30), (57, 31), (20, 15)])
def test_the_first_picture_is_resized_to_the_second_by_pillows_bicubic_filter(size: tuple[int, int]) -> None:
    output, target = textured(*size, seed=1), textured(40, 30, seed=2)
    resized = np.asarray(Image.fromarray(output).resize((40, 30), Image.Resampling.BICUBIC), np.float64) / 255
    difference = resized - target / 255.0
    assert measure("l1", output, target) == pytest.approx(np.abs(difference).mean(), abs=1e-12)
    assert measure("l2", output, target) == pytest.approx((difference**2).mean(), abs=1e-12)


def test_a_change_counts_only_outside_all_masks() -> None:
    source, output = flat(100), flat(100)
    output[0, 0], output[5, 7] = 151, 151
    left, right = flat(0), flat(0)
    left[0, 0] = 255
    assert measure("outside_mask", output, source, flat(0)) == pytest.approx(2 * 0.2 / 48)
    assert measure("outside_mask", output, source, left) == pytest.approx(0.2 / 47)
    right[5, 7] = 255
    assert measure("outside_mask", output, source, left, right) == 0.0


def test_a_mask_that_covers_everything_leaves_nothing_to_measure() -> None:
    assert measure("outside_mask", flat(1), flat(2), flat(255)) is None


def test_a_mask_of_another_size_is_refused_with_both_sizes() -> None:
    with pytest.raises(ImageError, match=r"Picture 3 is 9 × 6 pixels, and Picture 2 8 × 6; a mask needs the size"):
        measure("outside_mask", flat(1), flat(2), flat(0, (9, 6)))


@pytest.mark.parametrize(
    ("name", "pictures", "texts", "sentence"),
    [
        ("l1", 1, 0, "The measure l1 takes 2 pictures, and the rubric names 1 picture and 0 texts."),
        ("outside_mask", 2, 0, "takes 3 or more pictures, and the rubric names 2 pictures and 0 texts."),
        ("clip_text", 1, 0, "takes 1 picture and 1 text, and the rubric names 1 picture and 0 texts."),
    ],
)
def test_a_rubric_with_other_inputs_is_refused_in_one_sentence(
    name: str, pictures: int, texts: int, sentence: str
) -> None:
    with pytest.raises(ToolError) as refused:
        measure(name, *[flat(1)] * pictures, texts=("a",) * texts)
    assert str(refused.value).endswith(sentence)


@pytest.mark.parametrize("name", ["clip_image", "dino"])
def test_a_measure_without_weights_says_so_and_has_no_value(name: str, tmp_path: Path) -> None:
    settings = {"clip": str(tmp_path), "dino": str(tmp_path)}
    with pytest.raises(ToolError, match=r"lacks config.json|needs? torch"):
        measure(name, flat(1), flat(2), **settings)
    assert PictureMeasures(ToolSettings(**settings), ToolResultCache(0)).unavailable(name)  # type: ignore[arg-type]
    assert PictureMeasures(ToolSettings(**settings), ToolResultCache(0)).unavailable("l1") is None  # type: ignore[arg-type]


def test_the_facts_of_a_measure_name_its_model() -> None:
    facts = PictureMeasures(ToolSettings(clip="here/clip"), ToolResultCache(0)).facts
    assert facts("l1") == {"name": "l1", "version": "1"}
    assert facts("clip_text") == {"name": "clip_text", "version": "1", "model": "here/clip", "precision": "float32"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pytest.importorskip("torch")
    from tests.tools.tiny_models import save_tiny_clip, save_tiny_vit

    root = tmp_path_factory.mktemp("weights")
    clip, dino = save_tiny_clip(root / "clip", side=224), save_tiny_vit(root / "dino")
    return {"clip": str(clip), "dino": str(dino), "device": "cpu"}


@pytest.mark.models
class TestWithWeights:
    def test_dino_compares_class_tokens_of_the_cut_out_centre(self, weights: dict[str, Any]) -> None:
        import torch
        from transformers import ViTModel

        model = ViTModel.from_pretrained(weights["dino"], add_pooling_layer=False).eval()
        pictures = [textured(300, 280, seed=seed) for seed in (1, 2)]
        vectors = []
        for pixels in pictures:
            image = Image.fromarray(pixels).resize((int(256 * 300 / 280), 256), Image.Resampling.BICUBIC)
            centre = np.asarray(image.crop((25, 16, 249, 240)), np.float32) / 255
            values = (centre - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
            with torch.inference_mode():
                tokens = model(pixel_values=torch.from_numpy(values.transpose(2, 0, 1)[None]).float())
            vectors.append(tokens.last_hidden_state[0, 0].numpy().astype(np.float64))
        expected = vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1])
        assert measure("dino", *pictures, **weights) == pytest.approx(expected, abs=1e-5)
        assert measure("dino", pictures[0], pictures[0], **weights) == pytest.approx(1.0)

    def test_clip_compares_pictures_and_texts_as_the_model_itself_does(self, weights: dict[str, Any]) -> None:
        import torch
        from transformers import CLIPModel, CLIPTokenizer

        model = CLIPModel.from_pretrained(weights["clip"]).eval()
        tokens = CLIPTokenizer.from_pretrained(weights["clip"])("a red cup", return_tensors="pt")
        mean, deviation = (
            np.float32([0.48145466, 0.4578275, 0.40821073]),
            np.float32([0.26862954, 0.26130258, 0.27577711]),
        )
        pixels = textured(224, 224, seed=3)
        values = ((pixels / np.float32(255) - mean) / deviation).transpose(2, 0, 1)[None]
        with torch.inference_mode():
            out = model(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                pixel_values=torch.from_numpy(values).float(),
            )
        expected = float(out.image_embeds[0] @ out.text_embeds[0])
        assert measure("clip_text", pixels, texts=("a red cup",), **weights) == pytest.approx(expected, abs=1e-5)
        assert measure("clip_image", pixels, pixels, **weights) == pytest.approx(1.0)

    def test_a_direction_is_measured_for_different_texts_only(self, weights: dict[str, Any]) -> None:
        before, after = textured(230, 240, seed=1), textured(230, 240, seed=2)
        there = measure("clip_direction", before, after, texts=("a cup", "a red cup"), **weights)
        back = measure("clip_direction", after, before, texts=("a cup", "a red cup"), **weights)
        assert there is not None
        assert back == pytest.approx(-there)
        assert measure("clip_direction", before, before, texts=("a cup", "a red cup"), **weights) == 0.0
        assert measure("clip_direction", before, after, texts=("a cup", "a cup"), **weights) is None

    def test_a_picture_is_encoded_once_for_all_measures(self, weights: dict[str, Any]) -> None:
        measures = PictureMeasures(ToolSettings(**weights), ToolResultCache(2**20))
        one, two = picture(textured(230, 240, seed=1)), picture(textured(230, 240, seed=2))
        first = measures.measure("clip_image", MeasureInputs(["a", "b"], [one, two]))
        encoder = measures._open_encoders()._clip
        encoded: list[int] = []
        embed = encoder.embed
        encoder.embed = lambda pictures, preparation=None: encoded.append(len(pictures)) or embed(pictures, preparation)  # type: ignore
        assert measures.measure("clip_image", MeasureInputs(["a", "b"], [two, one])) == pytest.approx(first)
        measures.measure("clip_text", MeasureInputs(["a"], [one], ["cup"]))
        assert not encoded
