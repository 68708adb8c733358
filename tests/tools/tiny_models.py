"""DINO, OWL-ViT and CLIP with tiny random weights, saved as folders that the real loading code reads."""

from __future__ import annotations

import json
from pathlib import Path

_LETTERS = [*"abcdefghijklmnopqrstuvwxyz", *(f"{c}</w>" for c in "abcdefghijklmnopqrstuvwxyz")]
_VOCABULARY = {token: i for i, token in enumerate([*_LETTERS, "<|startoftext|>", "<|endoftext|>"])}
_SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
_TEXT = {
    **_SMALL,
    "vocab_size": len(_VOCABULARY),
    "bos_token_id": len(_LETTERS),
    "eos_token_id": len(_LETTERS) + 1,
    "pad_token_id": 0,
}
_VISION = {**_SMALL, "image_size": 64, "patch_size": 16}


def save_tiny_dino(folder: Path, version: int = 3, seed: int = 0) -> Path:
    """Write a DINOv3 or DINOv2 of 32 dimensions with the preprocessor file a published model has."""
    import torch
    from transformers import Dinov2Config, Dinov2Model, DINOv3ViTConfig, DINOv3ViTModel

    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    if version == 3:
        model = DINOv3ViTModel(DINOv3ViTConfig(patch_size=16, intermediate_size=64, image_size=64, **shape))
    else:
        model = Dinov2Model(Dinov2Config(patch_size=14, image_size=56, **shape))
    model.save_pretrained(folder)
    size = {"size": {"height": 64, "width": 64}} if version == 3 else {"size": {"shortest_edge": 64}}
    crop = {} if version == 3 else {"crop_size": {"height": 56, "width": 56}}
    facts = {**size, **crop, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def save_tiny_vit(folder: Path, seed: int = 0) -> Path:
    """Write a ViT of 32 dimensions, the form of the first DINO models, with its preprocessor file."""
    import torch
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ViTModel(ViTConfig(image_size=224, patch_size=16, **shape), add_pooling_layer=False).save_pretrained(folder)
    facts = {"size": 224, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder


def save_tiny_owl(folder: Path, seed: int = 0) -> Path:
    """Write an OWL-ViT of 16 dimensions with its processor."""
    import torch
    from transformers import (
        CLIPTokenizer,
        OwlViTConfig,
        OwlViTForObjectDetection,
        OwlViTImageProcessorPil,
        OwlViTProcessor,
    )

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = CLIPTokenizer(vocab=_VOCABULARY, merges=[], model_max_length=16)
    torch.manual_seed(seed)
    config = OwlViTConfig(text_config=_TEXT | {"max_position_embeddings": 16}, vision_config=_VISION, projection_dim=16)
    OwlViTForObjectDetection(config).eval().save_pretrained(folder)
    images = OwlViTImageProcessorPil(size={"height": 64, "width": 64}, crop_size={"height": 64, "width": 64})
    OwlViTProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def save_tiny_clip(folder: Path, seed: int = 0, side: int = 64) -> Path:
    """Write a CLIP of 16 dimensions with its tokenizer and the preprocessor file a published model has."""
    import torch
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    config = CLIPConfig(
        text_config=_TEXT | {"max_position_embeddings": 77},
        vision_config=_VISION | {"image_size": side},
        projection_dim=16,
    )
    CLIPModel(config).eval().save_pretrained(folder)
    CLIPTokenizer(vocab=_VOCABULARY, merges=[], model_max_length=77).save_pretrained(folder)
    facts = {
        "size": {"shortest_edge": side},
        "crop_size": {"height": side, "width": side},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(facts))
    return folder
